package sqlite_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
	"github.com/eda94727/holdfast/storetest"
)

func TestTx(t *testing.T) {
	storetest.RunTx(t, func(t testing.TB) *storetest.TxDatabase {
		path := filepath.Join(t.TempDir(), "tasks.db")
		db, err := sql.Open("sqlite3", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return &storetest.TxDatabase{Store: openAt(t, path), SQL: db, In: sqlite.Tx}
	})
}

// A transaction of another dialect's kind is refused by name.
func TestTxOfAnotherDialect(t *testing.T) {
	store := openAt(t, filepath.Join(t.TempDir(), "tasks.db"))
	if _, err := sqlite.Tx(nil).Session(otherDialect{store.Dialect()}); err == nil {
		t.Error("sqlite.Tx was taken by a store on something else")
	}
	why := errors.New("not on this database")
	in := store.In(brokenTx{why})
	if _, err := in.Submit(t.Context(), &holdfast.Submission{Name: "job"}); !errors.Is(err, why) {
		t.Errorf("the error is %v, want the transaction's", err)
	}
	if _, err := in.Claim(t.Context(), holdfast.Claim{Queues: []string{"default"}, WorkerID: "w", Lease: time.Minute}); !errors.Is(err, why) {
		t.Errorf("the error is %v, want the transaction's", err)
	}
}

type otherDialect struct{ holdfast.Dialect }

func (otherDialect) Name() string { return "other" }

type brokenTx struct{ err error }

func (b brokenTx) Session(holdfast.Dialect) (holdfast.Session, error) { return nil, b.err }
