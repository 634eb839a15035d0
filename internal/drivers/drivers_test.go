package drivers

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
	"github.com/eda94727/holdfast/storetest"
)

// SQLite translated from C to Go by other means, in the same process and on the same file as ours.
func TestModernc(t *testing.T) {
	storetest.RunTx(t, func(t testing.TB) *storetest.TxDatabase {
		path := filepath.Join(t.TempDir(), "tasks.db")
		store, err := sqlite.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return &storetest.TxDatabase{Store: store, SQL: db, In: sqlite.Tx}
	})
}

// The other Postgres driver of database/sql that is in wide use, against a store on pgx.
func TestPq(t *testing.T) {
	storetest.RunTx(t, func(t testing.TB) *storetest.TxDatabase {
		dsn := pgtest.DSN(t)
		store, err := postgres.Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return &storetest.TxDatabase{Store: store, SQL: db, In: postgres.SQLTx}
	})
}
