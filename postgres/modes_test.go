package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// hard is text that breaks whoever quotes by hand.
const hard = `it's "q", \back\, {a,b}, $1, NULL, 🦆`

// TestModes runs every kind of statement in each of the driver's modes.
func TestModes(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			config, err := pgxpool.ParseConfig(pgtest.DSN(t))
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			store, err := postgres.New(t.Context(), pool)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			exercise(t, store)
		})
	}
}

// TestNoNamedStatementBehindPooler: a pooler that gives each transaction any server connection fails
// programs that prepare statements by name.
func TestNoNamedStatementBehindPooler(t *testing.T) {
	for _, mode := range []string{"exec", "cache_describe", "describe_exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			config, err := pgxpool.ParseConfig(with(pgtest.DSN(t), "default_query_exec_mode="+mode))
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns = 1 // so that the look below sees the only connection
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			store, err := postgres.New(t.Context(), pool, postgres.WithoutListen())
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			exercise(t, store)
			var n int
			if err := pool.QueryRow(t.Context(), "select count(*) from pg_prepared_statements where name <> ''").Scan(&n); err != nil || n != 0 {
				t.Fatalf("%d named statements: %v", n, err)
			}
		})
	}
}

// with adds a setting to a DSN.
func with(dsn, setting string) string {
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	return dsn + sep + setting
}

// exercise runs statements of every shape: one row, many, grouped, in a transaction, claims of each
// kind, lists, NULLs, numbers, text that is hard to quote.
func exercise(t *testing.T, store *holdfast.Store) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	payload, err := json.Marshal(map[string]any{"text": hard, "n": json.Number("12345678901234567890.5")})
	must(err)
	sub := func(i int) *holdfast.Submission {
		return &holdfast.Submission{Name: hard, Queue: hard, Payload: payload, Priority: -i, CorrelationID: hard}
	}
	one, err := store.Submit(ctx, sub(0))
	must(err)
	many, err := store.SubmitMany(ctx, []*holdfast.Submission{sub(1), sub(2), sub(3)})
	must(err)
	for _, want := range append(many, one) {
		got, err := store.Get(ctx, want.ID)
		must(err)
		if got.Name != hard || got.Queue != hard || got.CorrelationID != hard || got.Priority != want.Priority || got.ParentID != "" ||
			!got.RunAt.Equal(want.RunAt) || !got.CreatedAt.Equal(want.CreatedAt) || !got.UpdatedAt.Equal(want.UpdatedAt) {
			t.Fatalf("read %+v, want %+v", got, want)
		}
		if !strings.Contains(string(got.Payload), "12345678901234567890.5") {
			t.Fatalf("the payload is %s", got.Payload)
		}
	}
	keyed := sub(4)
	keyed.Key = hard
	first, err := store.Submit(ctx, keyed)
	must(err)
	again := sub(4)
	again.Key = hard
	second, err := store.Submit(ctx, again)
	must(err)
	if first.ID != second.ID {
		t.Fatalf("the key answers %s, then %s", first.ID, second.ID)
	}
	claim := func(draws ...holdfast.Draw) []*holdfast.Task {
		t.Helper()
		got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{hard, "other"}, Draws: draws, WorkerID: hard, Lease: time.Minute})
		must(err)
		return got.Tasks
	}
	a := claim(holdfast.Draw{Names: []string{hard, "x"}, Limit: 1})
	if len(a) != 1 || a[0].ID != one.ID || a[0].Attempt != 1 || a[0].LeaseUntil.IsZero() {
		t.Fatalf("claimed %+v, want %s", a, one.ID)
	}
	b := claim(holdfast.Draw{AnyName: true, Limit: 1}, holdfast.Draw{Names: []string{hard}, Limit: 3})
	if len(b) != 4 {
		t.Fatalf("claimed %d by two draws, want 4", len(b))
	}
	held, err := store.Heartbeat(ctx, hard, time.Minute, a[0].ID, b[0].ID, "task_none")
	must(err)
	if len(held) != 2 {
		t.Fatalf("%d leases are held, want 2", len(held))
	}
	half := 0.5
	must(store.Progress(ctx, a[0], &half, hard))
	got, err := store.Get(ctx, a[0].ID)
	must(err)
	if got.Progress == nil || *got.Progress != half || got.Message != hard {
		t.Fatalf("progress %v, message %q", got.Progress, got.Message)
	}
	status := func(got holdfast.Status, err error) holdfast.Status { t.Helper(); must(err); return got }
	if s := status(store.Complete(ctx, a[0], payload)); s != holdfast.Succeeded {
		t.Fatal(s)
	}
	if s := status(store.Complete(ctx, b[0], nil)); s != holdfast.Succeeded {
		t.Fatal(s)
	}
	if s := status(store.Fail(ctx, b[1], payload, false, 0)); s != holdfast.Failed {
		t.Fatal(s)
	}
	if s := status(store.Fail(ctx, b[2], payload, true, time.Hour)); s != holdfast.Queued {
		t.Fatal(s)
	}
	n, err := store.ReleaseMany(ctx, []*holdfast.Task{b[3], a[0]})
	must(err)
	if n != 1 {
		t.Fatalf("released %d, want 1", n)
	}
	list, err := store.List(ctx, holdfast.Filter{Queue: hard, Name: hard, CorrelationID: hard, Status: holdfast.Succeeded})
	must(err)
	if len(list) != 2 {
		t.Fatalf("listed %d, want 2", len(list))
	}
	stats, err := store.Stats(ctx, hard)
	must(err)
	if want := (holdfast.QueueStats{Queue: hard, Queued: 2, Succeeded: 2, Failed: 1}); len(stats) != 1 || stats[0] != want {
		t.Fatalf("counted %+v, want %+v", stats, want)
	}
	must(store.SetLimit(ctx, holdfast.Limit{Kind: holdfast.LimitQueue, Name: hard, Concurrency: 1, Rate: 5, Per: time.Second}))
	if got := claim(holdfast.Draw{Names: []string{hard}, Limit: 3}); len(got) != 1 {
		t.Fatalf("claimed %d under a limit of 1", len(got))
	}
	room, err := store.QueueDepth(ctx, hard, 10)
	must(err)
	if room != 9 {
		t.Fatalf("room for %d, want 9", room)
	}
	ids, err := store.Purge(ctx, holdfast.PurgeFilter{Queue: hard, Limit: 100})
	must(err)
	time.Sleep(2 * time.Millisecond) // older than now needs a millisecond to pass on the server's clock
	more, err := store.Purge(ctx, holdfast.PurgeFilter{Queue: hard, Limit: 100})
	must(err)
	if len(ids)+len(more) != 3 {
		t.Fatalf("purged %d, want 3", len(ids)+len(more))
	}
	if _, err := store.Now(ctx); err != nil {
		t.Fatal(fmt.Errorf("the clock: %w", err))
	}
	if err := ctx.Err(); err != nil {
		t.Fatal(context.Cause(ctx))
	}
}
