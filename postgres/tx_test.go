package postgres_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
	"github.com/eda94727/holdfast/storetest"
)

// Transactions of pgx, in each way in which pgx runs statements.
func TestTx(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			storetest.RunTx(t, func(t testing.TB) *storetest.TxDatabase {
				dsn := pgtest.DSN(t)
				config, err := pgx.ParseConfig(dsn)
				if err != nil {
					t.Fatal(err)
				}
				config.DefaultQueryExecMode = mode
				begin := func(ctx context.Context) (*storetest.Transaction, error) {
					conn, err := pgx.ConnectConfig(ctx, config)
					if err != nil {
						return nil, err
					}
					t.Cleanup(func() { conn.Close(context.Background()) })
					tx, err := conn.Begin(ctx)
					if err != nil {
						return nil, err
					}
					return &storetest.Transaction{
						Tx:     postgres.Tx(tx),
						Exec:   func(ctx context.Context, query string) error { _, err := tx.Exec(ctx, query); return err },
						Commit: tx.Commit, Rollback: tx.Rollback,
					}, nil
				}
				return &storetest.TxDatabase{Store: openAt(t, dsn), SQL: openSQL(t, dsn), Begin: begin}
			})
		})
	}
}

// Transactions of database/sql. internal/drivers has the same with lib/pq.
func TestSQLTx(t *testing.T) {
	storetest.RunTx(t, func(t testing.TB) *storetest.TxDatabase {
		dsn := pgtest.DSN(t)
		return &storetest.TxDatabase{Store: openAt(t, dsn), SQL: openSQL(t, dsn), In: postgres.SQLTx}
	})
}

// A transaction that is not of the store's kind is refused by name.
func TestTxOfAnotherDialect(t *testing.T) {
	other, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "tasks.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, tx := range map[string]holdfast.Tx{"postgres.Tx": postgres.Tx(nil), "postgres.SQLTx": postgres.SQLTx(nil)} {
		if _, err := other.In(tx).Submit(t.Context(), &holdfast.Submission{Name: "job"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s in a store on SQLite: %v", name, err)
		}
	}
	if _, err := openAt(t, pgtest.DSN(t)).In(sqlite.Tx(nil)).Submit(t.Context(), &holdfast.Submission{Name: "job"}); err == nil || !strings.Contains(err.Error(), "sqlite.Tx") {
		t.Errorf("sqlite.Tx in a store on Postgres: %v", err)
	}
}
