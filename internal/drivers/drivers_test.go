package drivers

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

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
