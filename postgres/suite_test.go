package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) *storetest.Database {
		dsn := pgtest.DSN(t)
		again := func(t testing.TB) *holdfast.Store { return openAt(t, dsn) }
		return &storetest.Database{Store: again(t), SQL: openSQL(t, dsn), Again: again}
	})
}

// openAt opens a store that the test's end closes.
func openAt(t testing.TB, dsn string, options ...postgres.Option) *holdfast.Store {
	t.Helper()
	store, err := postgres.Open(context.Background(), dsn, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// openSQL connects as another program would.
func openSQL(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
