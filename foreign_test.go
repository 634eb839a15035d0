package holdfast_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
)

// database is a store with a second way in: plain SQL, as a program uses it that knows the protocol's
// tables and nothing of ours.
type database struct {
	t      testing.TB
	store  *holdfast.Store
	client *holdfast.Client
	sql    *sql.DB
	tx     func(*sql.Tx) holdfast.Tx
}

// eachDatabase runs the test on every database.
func eachDatabase(t *testing.T, test func(t *testing.T, db *database)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, onPostgres(t)) })
}

func onSQLite(t testing.TB) *database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.db")
	store, err := sqlite.Open(context.Background(), path, sqlite.WithSynchronous(sqlite.Normal))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := sql.Open("sqlite3", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	plain.SetMaxOpenConns(4)
	t.Cleanup(func() {
		if err := plain.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &database{t: t, store: store, client: holdfast.NewClient(store), sql: plain, tx: sqlite.Tx}
}

func onPostgres(t testing.TB) *database {
	t.Helper()
	dsn := pgtest.DSN(t)
	store, err := postgres.Open(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	plain.SetMaxOpenConns(4)
	t.Cleanup(func() {
		if err := plain.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &database{t: t, store: store, client: holdfast.NewClient(store), sql: plain, tx: postgres.SQLTx}
}

// exec runs SQL and answers how many rows it changed.
func (d *database) exec(format string, args ...any) int64 {
	d.t.Helper()
	r, err := d.sql.Exec(fmt.Sprintf(format, args...))
	if err != nil {
		d.t.Fatalf("%v\n%s", err, fmt.Sprintf(format, args...))
	}
	n, err := r.RowsAffected()
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// value reads one integer.
func (d *database) value(format string, args ...any) (n int64) {
	d.t.Helper()
	if err := d.sql.QueryRow(fmt.Sprintf(format, args...)).Scan(&n); err != nil {
		d.t.Fatalf("%v\n%s", err, fmt.Sprintf(format, args...))
	}
	return n
}

// claim takes one task as a foreign worker does; false when it is not to be had.
func (d *database) claim(id string) bool {
	d.t.Helper()
	now := time.Now().UnixMilli()
	return d.exec(`update cairnq_tasks set status = 'running', worker_id = 'foreign', lease_until_ms = %d, attempt = attempt + 1, updated_at_ms = %d
		where id = '%s' and status = 'queued' and run_at_ms <= %d`, now+60_000, now, id, now) == 1
}

// settle ends a task that the foreign worker holds.
func (d *database) settle(id string, status holdfast.Status) bool {
	d.t.Helper()
	now := time.Now().UnixMilli()
	set := map[holdfast.Status]string{
		holdfast.Succeeded: fmt.Sprintf(`result = '{"by": "%s"}', progress = 1.0`, id),
		holdfast.Failed:    `error = '{"type": "ValueError", "code": "handler_error", "message": "boom", "retryable": true, "details": {}}'`,
		holdfast.Canceled:  `message = null`,
	}[status]
	return d.exec(`update cairnq_tasks set status = '%s', %s, lease_until_ms = null, completed_at_ms = %d, updated_at_ms = %d
		where id = '%s' and status = 'running' and worker_id = 'foreign'`, status, set, now, now, id) == 1
}

// run claims and ends a task, which must be claimable.
func (d *database) run(id string, status holdfast.Status) {
	d.t.Helper()
	if !d.claim(id) {
		d.t.Fatalf("%s is not to be claimed", id)
	}
	if !d.settle(id, status) {
		d.t.Fatalf("%s was not settled", id)
	}
}

// cancel, retry and purge are the foreign library's.
func (d *database) cancel(id string) bool {
	now := time.Now().UnixMilli()
	return d.exec(`update cairnq_tasks set status = 'canceled', completed_at_ms = %d, updated_at_ms = %d where id = '%s' and status = 'queued'`, now, now, id) == 1
}

func (d *database) retry(id string) bool {
	now := time.Now().UnixMilli()
	return d.exec(`update cairnq_tasks set status = 'queued', run_at_ms = %d, updated_at_ms = %d, error = null, worker_id = null, lease_until_ms = null,
		cancel_requested_at_ms = null, completed_at_ms = null, progress = null, message = null where id = '%s' and status in ('failed', 'canceled')`, now, now, id) == 1
}

func (d *database) purge(id string) bool {
	return d.exec(`delete from cairnq_tasks where id = '%s' and status in ('succeeded', 'failed', 'canceled')`, id) == 1
}

// get reads a task that must be there.
func (d *database) get(id string) *holdfast.Task {
	d.t.Helper()
	t, err := d.client.Get(context.Background(), id)
	if err != nil {
		d.t.Fatal(err)
	}
	return t
}

// want checks the status of a task, "waiting" for one that waits for others.
func (d *database) want(id, status string) {
	d.t.Helper()
	t := d.get(id)
	got := string(t.Status)
	if t.Waiting() {
		got = "waiting"
	}
	if got != status {
		d.t.Errorf("%s (%s) is %s, want %s; %s", t.Name, t.ID, got, status, t.Error)
	}
}

// submit makes one task named name.
func (d *database) submit(name string, options ...holdfast.SubmitOption) string {
	d.t.Helper()
	t, err := d.client.Submit(context.Background(), name, nil, options...)
	if err != nil {
		d.t.Fatal(err)
	}
	return t.ID
}
