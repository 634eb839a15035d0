package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

// A worker's lock is the one that the others look for, however its schema is found; and workers of the
// same id in two schemas do not meet.
func TestWorkersOfSchemas(t *testing.T) {
	dsn := pgtest.DSN(t)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set search_path to by_connection")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := openSQL(t, dsn).Exec("create schema by_connection"); err != nil {
		t.Fatal(err)
	}
	own, err := postgres.New(t.Context(), pool, postgres.WithSchema("by_connection"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := postgres.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	stores := map[string]*holdfast.Store{"by option": openAt(t, dsn, postgres.WithSchema(`by "option"`)), "by connection": own}
	t.Cleanup(func() { own.Close(); again.Close() })
	for name, store := range stores {
		w := holdfast.NewWorker(store, holdfast.WorkerConfig{ID: "w", Log: slog.New(slog.DiscardHandler)})
		w.Handle("job", func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
		if err := w.Start(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := w.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	stores["by search_path"] = again
	for name, store := range stores {
		list, err := store.Workers(t.Context())
		if err != nil || len(list) != 1 || !list[0].FastRecovery || list[0].State != holdfast.WorkerRunning {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	// By another way to the same schema, it is the same worker.
	second := holdfast.NewWorker(again, holdfast.WorkerConfig{ID: "w", Log: slog.New(slog.DiscardHandler)})
	second.Handle("job", func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
	if err := second.Start(t.Context()); err == nil {
		t.Error("two workers of one id in one schema")
	}
}
