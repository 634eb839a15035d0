package postgres_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

func TestBadDSN(t *testing.T) {
	good, err := pgx.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	server := func(user, password, database string) string {
		return "host=" + good.Host + " port=" + strconv.Itoa(int(good.Port)) + " user=" + user + " password=" + password + " dbname=" + database + " sslmode=disable connect_timeout=2"
	}
	const secret = "s3cr3t-Pa55"
	for name, dsn := range map[string]string{
		"a broken URL":           "postgres://app:" + secret + "@host:port/db",
		"a broken escape":        "postgres://app:" + secret + "%zz@localhost/db",
		"a space in the URL":     "postgres://app:" + secret + "@local host/db",
		"a broken setting":       "host=localhost password=" + secret + " port=none",
		"an unknown sslmode":     "postgres://app:" + secret + "@localhost/db?sslmode=perhaps",
		"a broken pool setting":  "postgres://app:" + secret + "@localhost/db?pool_max_conns=many",
		"an unfinished quote":    "password='" + secret,
		"nobody at the port":     "postgres://app:" + secret + "@127.0.0.1:1/db?connect_timeout=2",
		"no such host":           "postgres://app:" + secret + "@no-such-host.invalid/db?connect_timeout=2",
		"no such folder":         "host=/no/such/folder user=app password=" + secret,
		"an unknown database":    server(good.User, good.Password, "no_such_database"),
		"a user that is unknown": server("nobody_at_all", secret, good.Database),
	} {
		t.Run(name, func(t *testing.T) {
			store, err := postgres.Open(t.Context(), dsn)
			if err == nil {
				store.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("the error is %v, want ErrUnavailable", err)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if strings.Contains(e.Error(), secret) || good.Password != "" && strings.Contains(e.Error(), good.Password) {
					t.Errorf("the error tells the password: %v", e)
				}
			}
		})
	}
}

// TestServerGoesAway: while the server is down every call says that the database is unavailable, and
// when it is back the same store works.
func TestServerGoesAway(t *testing.T) {
	cluster := pgtest.Start(t, pgtest.Options{})
	for _, way := range []struct {
		name string
		stop func() error
	}{{"shut down", cluster.Stop}, {"crashed", cluster.Crash}} {
		t.Run(way.name, func(t *testing.T) {
			store := openAt(t, cluster.DSN())
			kept, err := store.Submit(t.Context(), &holdfast.Submission{Name: "before", Queue: way.name})
			if err != nil {
				t.Fatal(err)
			}
			if err := way.stop(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for op, err := range everyKind(t.Context(), store, way.name) {
					if !errors.Is(err, holdfast.ErrUnavailable) {
						t.Errorf("%s while the server is down: %v, want ErrUnavailable", op, err)
					}
				}
			}
			if err := cluster.Start(); err != nil {
				t.Fatal(err)
			}
			for op, err := range everyKind(t.Context(), store, way.name) {
				if err != nil {
					t.Errorf("%s after the server came back: %v", op, err)
				}
			}
			if _, err := store.Get(t.Context(), kept.ID); err != nil {
				t.Errorf("what was submitted before: %v", err)
			}
		})
	}
}

// TestServerRestarts: the pool's connections are all dead at once, and the first calls meet them.
func TestServerRestarts(t *testing.T) {
	cluster := pgtest.Start(t, pgtest.Options{})
	store := openAt(t, cluster.DSN())
	for range 3 {
		for op, err := range everyKind(t.Context(), store, "q") {
			if err != nil {
				t.Fatalf("%s: %v", op, err)
			}
		}
		if err := cluster.Restart(); err != nil {
			t.Fatal(err)
		}
		// A call that meets a dead connection may fail, but says so by its name, and they run out.
		deadline := time.Now().Add(20 * time.Second)
		for {
			failed := 0
			for op, err := range everyKind(t.Context(), store, "q") {
				if err != nil {
					failed++
					if !errors.Is(err, holdfast.ErrUnavailable) {
						t.Fatalf("%s: %v, want ErrUnavailable", op, err)
					}
				}
			}
			if failed == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("still not working 20 s after the restart")
			}
		}
	}
}

// everyKind runs one call of each way to the server.
func everyKind(ctx context.Context, store *holdfast.Store, queue string) map[string]error {
	out := map[string]error{}
	_, out["submit"] = store.Submit(ctx, &holdfast.Submission{Name: "n", Queue: queue})
	_, out["submit many"] = store.SubmitMany(ctx, []*holdfast.Submission{{Name: "n", Queue: queue}, {Name: "n", Queue: queue}})
	_, out["submit with a key"] = store.Submit(ctx, &holdfast.Submission{Name: "n", Queue: queue, Key: "k"})
	_, out["claim"] = store.Claim(ctx, holdfast.Claim{Queues: []string{queue}, Draws: []holdfast.Draw{{Names: []string{"n"}, Limit: 1}}, WorkerID: "w", Lease: time.Minute})
	_, out["claim any"] = store.Claim(ctx, holdfast.Claim{Queues: []string{queue}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "w", Lease: time.Minute})
	if _, err := store.Complete(ctx, &holdfast.Task{ID: "task_none", WorkerID: "w"}, nil); !errors.Is(err, holdfast.ErrLeaseLost) {
		out["complete"] = err
	} else {
		out["complete"] = nil
	}
	_, out["heartbeat"] = store.Heartbeat(ctx, "w", time.Minute, "task_none")
	_, out["list"] = store.List(ctx, holdfast.Filter{})
	_, out["now"] = store.Now(ctx)
	return out
}

func TestReadOnlyServer(t *testing.T) {
	dsn := pgtest.DSN(t)
	openAt(t, dsn)
	store := openAt(t, with(dsn, "default_transaction_read_only=on"))
	ctx := t.Context()
	if _, err := store.List(ctx, holdfast.Filter{}); err != nil {
		t.Errorf("reading: %v", err)
	}
	for op, err := range everyKind(ctx, store, "q") {
		switch op {
		case "list", "now":
			if err != nil {
				t.Errorf("%s: %v", op, err)
			}
		default:
			if !errors.Is(err, holdfast.ErrReadOnly) {
				t.Errorf("%s: %v, want ErrReadOnly", op, err)
			}
		}
	}
	if _, err := postgres.Open(ctx, with(dsn, "default_transaction_read_only=on"), postgres.WithSchema("fresh")); !errors.Is(err, holdfast.ErrReadOnly) {
		t.Errorf("creating: %v, want ErrReadOnly", err)
	}
}

func TestLockTimeoutIsBusy(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, with(dsn, "lock_timeout=50"))
	task, err := store.Submit(t.Context(), &holdfast.Submission{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	db := openSQL(t, dsn)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "select 1 from cairnq_tasks for update"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Cancel(t.Context(), task.ID); !errors.Is(err, holdfast.ErrBusy) {
		t.Errorf("the error is %v, want ErrBusy", err)
	}
}

// TestPoolFull: an application that holds all connections is told that this is why nothing goes on.
func TestPoolFull(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
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
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, op := range []string{"list", "submit with a key", "claim", "submit many"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := everyKind(ctx, store, "q")[op]
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pool full") {
			t.Errorf("%s: %v, want the deadline and the pool named", op, err)
		}
	}
}

// TestMaxConns: the pool that Open makes has as many connections as asked for, however many calls there are.
func TestMaxConns(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, with(dsn, "application_name=bounded"), postgres.WithMaxConns(2), postgres.WithoutListen())
	release := lockTasks(t, dsn)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := store.SubmitMany(t.Context(), []*holdfast.Submission{{Name: "a"}, {Name: "b"}}); err != nil {
				t.Error(err)
			}
		})
	}
	look := connect(t, dsn)
	waitFor(t, look, "blocked inserts", blocked, 2)
	var n int
	if err := look.QueryRow(t.Context(), "select count(*) from pg_stat_activity where application_name = 'bounded'").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d connections (%v), want 2", n, err)
	}
	release()
	wg.Wait()
	for _, n := range []int{0, -1} {
		_, err := postgres.Open(t.Context(), dsn, postgres.WithMaxConns(n))
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != "max_conns" {
			t.Errorf("%d connections: %v", n, err)
		}
	}
}

func TestClosedStore(t *testing.T) {
	store, err := postgres.Open(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for op, err := range everyKind(t.Context(), store, "q") {
		if !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", op, err)
		}
	}
}
