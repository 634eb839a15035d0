package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
	"github.com/eda94727/holdfast/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) *storetest.Database {
		path := filepath.Join(t.TempDir(), "tasks.db")
		clock := storetest.NewClock()
		again := func(t testing.TB) *holdfast.Store { return openAt(t, path, sqlite.WithClock(clock.Now)) }
		return &storetest.Database{Store: again(t), SQL: openSQL(t, path), Again: again, Advance: clock.Advance}
	})
}

// openAt opens a store that the test's end closes.
func openAt(t testing.TB, path string, options ...sqlite.Option) *holdfast.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("closing %s: %v", path, err)
		}
	})
	return store
}

// openSQL opens the file as another program would.
func openSQL(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
