package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

// log is where a store writes while tests read.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// woken waits for a wake-up.
func woken(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("nobody told of %s", what)
	}
}

// still fails if there is a wake-up already.
func still(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
		t.Fatalf("woken by %s", what)
	case <-time.After(100 * time.Millisecond):
	}
}

// TestWakeUps: what another process (here: another connection, with plain SQL) does wakes whom it
// concerns, and is told of neither too early nor to others.
func TestWakeUps(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, dsn)
	ctx := t.Context()
	other := connect(t, dsn)
	exec := func(sql string) {
		t.Helper()
		if _, err := other.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	hub := store.Dialect().Hub()
	queue, end, elsewhere := hub.ListenQueues("q"), hub.ListenTask("task_1"), hub.ListenQueues("other")
	defer queue.Close()
	defer end.Close()
	defer elsewhere.Close()
	// The first LISTEN wakes everybody.
	woken(t, "the connection", end.Arm())
	woken(t, "the connection", queue.Arm())
	woken(t, "the connection", elsewhere.Arm())

	exec("begin")
	exec(`insert into cairnq_tasks (id, name, queue, status, payload, run_at_ms, created_at_ms, updated_at_ms) values ('task_1', 'n', 'q', 'queued', '{}', 1, 1, 1)`)
	still(t, "an insert before its commit", queue.Arm())
	exec("commit")
	woken(t, "an insert", queue.Arm())
	exec("begin")
	exec(`insert into cairnq_tasks (id, name, queue, status, payload, run_at_ms, created_at_ms, updated_at_ms) values ('task_2', 'n', 'q', 'queued', '{}', 1, 1, 1)`)
	exec("rollback")
	still(t, "an insert that was taken back", queue.Arm())
	exec("update cairnq_tasks set status = 'running', lease_until_ms = 1 where id = 'task_1'")
	still(t, "a claim", queue.Arm())
	exec("update cairnq_tasks set status = 'queued', lease_until_ms = null where id = 'task_1'")
	woken(t, "a release", queue.Arm())
	still(t, "a release", end.Arm())
	exec("update cairnq_tasks set status = 'canceled', completed_at_ms = 1 where id = 'task_1'")
	woken(t, "an end", end.Arm())
	still(t, "what happened to others", elsewhere.Arm())
}

// TestEndsOfTasksAreHeardWhenWanted: a host that only works is not told of every task that ends, by any
// host; once it has waited for one it is.
func TestEndsOfTasksAreHeardWhenWanted(t *testing.T) {
	cluster := pgtest.Start(t, pgtest.Options{})
	store := openAt(t, cluster.DSN())
	hub := store.Dialect().Hub()
	queue := hub.ListenQueues("q")
	defer queue.Close()
	other := connect(t, cluster.DSN())
	last := func(want string) {
		t.Helper()
		var got string
		if err := other.QueryRow(t.Context(), `select query from pg_stat_activity where pid <> pg_backend_pid() and query like 'listen%'`).Scan(&got); err != nil || got != want {
			t.Fatalf("%q, want %q: %v", got, want, err)
		}
	}
	woken(t, "the connection", queue.Arm())
	last("listen cairnq_queued")
	end := hub.ListenTask("task_1")
	defer end.Close()
	heard := func() {
		t.Helper()
		woken(t, "the connection", end.Arm())
		last("listen cairnq_done")
		if _, err := other.Exec(t.Context(), "select pg_notify('cairnq_done', 'task_1')"); err != nil {
			t.Fatal(err)
		}
		woken(t, "an end", end.Arm())
	}
	heard()
	if err := cluster.Restart(); err != nil {
		t.Fatal(err)
	}
	other = connect(t, cluster.DSN())
	heard()
}

// TestListenComesBack: the listening connection is ended by the server, and then the server itself.
func TestListenComesBack(t *testing.T) {
	cluster := pgtest.Start(t, pgtest.Options{})
	var l log
	store := openAt(t, cluster.DSN(), postgres.WithLogger(slog.New(slog.NewTextHandler(&l, nil))))
	queue := store.Dialect().Hub().ListenQueues("q")
	defer queue.Close()
	woken(t, "the connection", queue.Arm())
	for i, cut := range []func(){
		func() {
			conn := connect(t, cluster.DSN())
			var n int
			if err := conn.QueryRow(t.Context(), `select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity
				where pid <> pg_backend_pid() and lower(query) like 'listen%') x`).Scan(&n); err != nil || n != 1 {
				t.Fatalf("ended %d connections: %v", n, err)
			}
		},
		func() {
			if err := cluster.Restart(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		cut()
		woken(t, "the connection, again", queue.Arm())
		conn := connect(t, cluster.DSN())
		if _, err := conn.Exec(t.Context(), "select pg_notify('cairnq_queued', 'q')"); err != nil {
			t.Fatal(err)
		}
		woken(t, "a notification", queue.Arm())
		if n := strings.Count(l.String(), "level=WARN"); n == 0 || n > i+1 {
			t.Errorf("%d warnings after %d losses:\n%s", n, i+1, l.String())
		}
	}
}

// TestPollingWithoutListen: where notifications cannot be had, work is found all the same.
func TestPollingWithoutListen(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, dsn, postgres.WithoutListen())
	other := connect(t, dsn)
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{})
	done := make(chan struct{})
	worker.Handle("n", func(context.Context, *holdfast.Run) (any, error) { close(done); return nil, nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	if _, err := other.Exec(t.Context(), `insert into cairnq_tasks (id, name, status, payload, run_at_ms, created_at_ms, updated_at_ms) values ('task_1', 'n', 'queued', '{}', 1, 1, 1)`); err != nil {
		t.Fatal(err)
	}
	woken(t, "the task", done)
	var n int
	if err := other.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and lower(query) like 'listen%'").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d connections listen: %v", n, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
