package sqlite_test

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
	"github.com/eda94727/holdfast/storetest"
)

// older makes databases as other libraries do, step by step: what each migration of the ledger adds,
// in our own words after the protocol's table.
var older = []struct{ name, sql string }{
	{"0001_init.sql", `
		create table cairnq_tasks (id text primary key, name text not null, queue text not null default 'default',
			status text not null check (status in ('queued', 'running', 'succeeded', 'failed', 'canceled')),
			payload text not null check (json_valid(payload)), result text check (result is null or json_valid(result)),
			error text check (error is null or json_valid(error)), metadata text not null default '{}' check (json_valid(metadata)),
			progress real, message text, attempt integer not null default 0, max_attempts integer not null default 3, priority integer not null default 0,
			worker_id text, lease_until_ms integer, run_at_ms integer not null, cancel_requested_at_ms integer, parent_id text, root_id text,
			correlation_id text, created_at_ms integer not null, updated_at_ms integer not null, completed_at_ms integer);
		create table cairnq_task_keys (key text primary key, task_id text not null references cairnq_tasks (id) on delete cascade,
			created_at_ms integer not null, updated_at_ms integer not null);
		create table cairnq_meta (key text primary key, value text not null);
		insert into cairnq_meta values ('protocol_version', '1');
		create index cairnq_tasks_claim_idx on cairnq_tasks (queue, status, run_at_ms);
		create index cairnq_tasks_status_idx on cairnq_tasks (status);
		create index cairnq_tasks_name_idx on cairnq_tasks (name);
		create index cairnq_tasks_root_idx on cairnq_tasks (root_id);
		create index cairnq_tasks_correlation_idx on cairnq_tasks (correlation_id);`},
	{"0002_purge_index.sql", "create index cairnq_tasks_completed_idx on cairnq_tasks (completed_at_ms)"},
	{"0004_lease_index.sql", "create index cairnq_tasks_lease_idx on cairnq_tasks (lease_until_ms) where status = 'running' and lease_until_ms is not null"},
	{"0005_clear_terminal_lease.sql", "update cairnq_tasks set lease_until_ms = null where status <> 'running'"},
	{"0006_claim_name_index.sql", "create index cairnq_tasks_claim_name_idx on cairnq_tasks (queue, status, name, run_at_ms)"},
	{"0007_purge_status_index.sql", "create index cairnq_tasks_status_completed_idx on cairnq_tasks (status, completed_at_ms)"},
	{"0008_claim_due_index.sql", `drop index cairnq_tasks_claim_idx; drop index cairnq_tasks_claim_name_idx;
		create index cairnq_tasks_claim_idx on cairnq_tasks (queue, status, priority desc, run_at_ms, id);
		create index cairnq_tasks_claim_name_idx on cairnq_tasks (queue, status, name, priority desc, run_at_ms, id)`},
	{"0009_purge_queue_index.sql", "create index cairnq_tasks_queue_completed_idx on cairnq_tasks (queue, completed_at_ms) where status in ('succeeded', 'failed', 'canceled')"},
	{"0010_drop_status_index.sql", "drop index cairnq_tasks_status_idx"},
}

// makeOlder makes a database with the first n steps of the ledger, and some tasks.
func makeOlder(t *testing.T, path string, n int) *sql.DB {
	t.Helper()
	db := openSQL(t, path)
	run := func(sql string) {
		t.Helper()
		if _, err := db.Exec(sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	run("pragma journal_mode = wal")
	run("create table cairnq_migrations (name text primary key, applied_at_ms integer not null)")
	for i, m := range older[:n] {
		run(m.sql)
		run(fmt.Sprintf("insert into cairnq_migrations values ('%s', %d)", m.name, i))
		if i == 0 {
			// A task of each kind, as a release before 0005 leaves them: the lease stays after the end.
			for j, s := range holdfast.Statuses() {
				run(fmt.Sprintf(`insert into cairnq_tasks (id, name, queue, status, payload, error, attempt, worker_id, lease_until_ms, run_at_ms, root_id, created_at_ms, updated_at_ms, completed_at_ms)
					values ('task_%026d', 'old', 'default', '%s', '{"old": true}', %s, %d, %s, %s, 1, 'task_%026d', 1, 1, %s)`, j, s,
					map[bool]string{true: `'{"code":"e"}'`, false: "null"}[s == holdfast.Failed], min(j, 1),
					map[bool]string{true: "null", false: "'w'"}[s == holdfast.Queued], map[bool]string{true: "null", false: "1"}[s == holdfast.Queued],
					j, map[bool]string{true: "1", false: "null"}[s.Terminal()]))
			}
			run("insert into cairnq_task_keys values ('old key', 'task_00000000000000000000000002', 1, 1)")
		}
	}
	run(fmt.Sprintf("insert or replace into cairnq_meta values ('schema_version', '%d')", n+map[bool]int{true: 1, false: 0}[n > 2])) // 0003 is for Postgres alone
	return db
}

// strings1 reads the first column of a query.
func strings1(t testing.TB, db *sql.DB, query string) (list []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// schema is every table and index, in the words of its creation.
func schema(t testing.TB, db *sql.DB) []string {
	t.Helper()
	return strings1(t, db, "select name || ': ' || sql from sqlite_schema where sql is not null and name not like 'sqlite_%' order by name")
}

func TestOlderDatabasesAreBroughtUp(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	openAt(t, fresh)
	freshDB := openSQL(t, fresh)
	var wantIndexes []string
	for _, s := range schema(t, freshDB) {
		if strings.Contains(s, "CREATE INDEX") || strings.Contains(s, "create index") {
			wantIndexes = append(wantIndexes, s)
		}
	}
	wantLedger := strings1(t, freshDB, "select name from cairnq_migrations order by name")
	for n := 1; n <= len(older); n++ {
		t.Run(older[n-1].name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tasks.db")
			db := makeOlder(t, path, n)
			store := openAt(t, path)
			if got := strings1(t, db, "select name from cairnq_migrations order by name"); !slices.Equal(got, wantLedger) {
				t.Errorf("the ledger is %v, want %v", got, wantLedger)
			}
			if got := strings1(t, db, "select value from cairnq_meta where key = 'schema_version'"); !slices.Equal(got, []string{"10"}) {
				t.Errorf("the schema version is %v, want 10", got)
			}
			var indexes []string
			for _, s := range schema(t, db) {
				if strings.Contains(strings.ToLower(s), ": create index") {
					indexes = append(indexes, s)
				}
			}
			if !slices.Equal(indexes, wantIndexes) {
				t.Errorf("the indexes are\n%s\nwant\n%s", strings.Join(indexes, "\n"), strings.Join(wantIndexes, "\n"))
			}
			// The steps that were there keep their time, and the tasks are as good as new ones.
			if got := strings1(t, db, "select applied_at_ms from cairnq_migrations where name = '0001_init.sql'"); got[0] != "0" {
				t.Errorf("0001 was recorded again: %v", got)
			}
			got, err := store.Claim(t.Context(), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 5}}, WorkerID: "w", Lease: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Tasks) != 2 || len(got.Recovered) != 1 {
				t.Errorf("%d tasks were claimed and %d recovered, want the queued one and the one whose worker has gone", len(got.Tasks), len(got.Recovered))
			}
			if old, err := store.GetByKey(t.Context(), "old key"); err != nil || string(old.Payload) != `{"old": true}` {
				t.Errorf("the task of the old key: %v, %v", old, err)
			}
			storetest.CheckInvariants(t, db)
			// Opening again changes nothing.
			before := schema(t, db)
			openAt(t, path)
			if after := schema(t, db); !slices.Equal(after, before) {
				t.Error("opening again changed the schema")
			}
		})
	}
}

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	db := makeOlder(t, path, len(older))
	for _, s := range []string{
		"insert into cairnq_migrations values ('0011_future.sql', 11)",
		"drop index cairnq_tasks_claim_idx",
		"create index cairnq_tasks_claim_idx on cairnq_tasks (queue, status, priority desc, run_at_ms, id, worker_id)",
		"alter table cairnq_tasks add column shard integer not null default 0",
		"update cairnq_meta set value = '11' where key = 'schema_version'",
	} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	of := func() []string {
		return strings1(t, db, "select name || ': ' || sql from sqlite_schema where sql is not null and name like 'cairnq%' order by name")
	}
	before := of()
	store := openAt(t, path)
	if after := of(); !slices.Equal(after, before) {
		t.Errorf("the schema was\n%s\nand is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if got, err := store.Meta(t.Context(), "schema_version"); err != nil || got != "11" {
		t.Errorf("the schema version is %q (%v), want 11 as before", got, err)
	}
	task, err := store.Submit(t.Context(), &holdfast.Submission{Name: "job"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.Claim(t.Context(), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"job"}, Limit: 1}}, WorkerID: "w", Lease: time.Minute})
	if err != nil || len(got.Tasks) != 1 {
		t.Fatalf("claimed: %v, %v", got, err)
	}
	if _, err := store.Complete(t.Context(), got.Tasks[0], nil); err != nil {
		t.Fatal(err)
	}
	if now, err := store.Get(t.Context(), task.ID); err != nil || now.Status != holdfast.Succeeded {
		t.Errorf("the task: %v, %v", now, err)
	}
}

func TestOtherProtocolIsRefused(t *testing.T) {
	for version, ok := range map[string]bool{"1": true, "1.7": true, "2": false, "2.0": false, "10": false, "one": false, "": false} {
		t.Run("version "+version, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tasks.db")
			db := makeOlder(t, path, len(older))
			if _, err := db.Exec("update cairnq_meta set value = '" + version + "' where key = 'protocol_version'"); err != nil {
				t.Fatal(err)
			}
			before := schema(t, db)
			store, err := sqlite.Open(t.Context(), path)
			if err == nil {
				store.Close()
			}
			if ok {
				if err != nil {
					t.Errorf("version %q: %v", version, err)
				}
				return
			}
			var e *holdfast.ProtocolError
			if !errors.Is(err, holdfast.ErrProtocol) || !errors.As(err, &e) || e.Version != version {
				t.Errorf("the error is %v, want a ProtocolError of %q", err, version)
			}
			if after := schema(t, db); !slices.Equal(after, before) {
				t.Error("the schema was changed")
			}
		})
	}
}

// Eight processes open one new file at the same moment, and each submits a task.
func TestManyProcessesOpenOneNewFile(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	openAt(t, fresh)
	want := strings1(t, openSQL(t, fresh), "select name from cairnq_migrations order by name")
	for range 3 {
		path := filepath.Join(t.TempDir(), "tasks.db")
		var cmds []*exec.Cmd
		var starts []io.WriteCloser
		for range 8 {
			cmd := child(t, "open", path)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatalf("a child said %q (%v)", line, err)
			}
			cmds, starts = append(cmds, cmd), append(starts, in)
		}
		for _, in := range starts {
			in.Close() // the signal to start
		}
		for _, cmd := range cmds {
			if err := cmd.Wait(); err != nil {
				t.Errorf("a child: %v", err)
			}
		}
		db := openSQL(t, path)
		if got := strings1(t, db, "select count(*) from cairnq_tasks"); got[0] != "8" {
			t.Errorf("%s tasks, want 8", got[0])
		}
		if got := strings1(t, db, "select name from cairnq_migrations order by name"); !slices.Equal(got, want) {
			t.Errorf("the ledger is %v, want %v", got, want)
		}
		storetest.CheckInvariants(t, db)
	}
}

func TestOpenNamesTheErrors(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]error{
		dir:                                    holdfast.ErrUnavailable,
		filepath.Join(dir, "none", "tasks.db"): holdfast.ErrUnavailable,
		"":                                     holdfast.ErrUnavailable,
		"migrate_test.go":                      holdfast.ErrNotDatabase,
	} {
		if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, want) {
			t.Errorf("%q: the error is %v, want %v", path, err, want)
		}
	}
	for field, option := range map[string]sqlite.Option{"busy_budget": sqlite.WithBusyBudget(-1), "readers": sqlite.WithReaders(-1)} {
		path := filepath.Join(t.TempDir(), "tasks.db")
		_, err := sqlite.Open(t.Context(), path, option)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a file was made", field)
		}
	}
	for _, prefix := range []string{"sqlite:", "sqlite://"} {
		path := filepath.Join(t.TempDir(), "tasks.db")
		openAt(t, prefix+path)
		openSQL(t, path).Close()
	}
}
