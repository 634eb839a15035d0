package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

// openVariable holds the DSN for a process of this test's own that only opens a store.
const openVariable = "HOLDFAST_TEST_OPEN"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(openVariable); dsn != "" {
		fmt.Println("ready")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		store, err := postgres.Open(context.Background(), dsn)
		if err == nil {
			_, err = store.Submit(context.Background(), &holdfast.Submission{Name: "opened"})
			err = errors.Join(err, store.Close())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m) // and nothing is left running
}

// steps are the migrations of the protocol as another library's database shows them: full indexes.
var steps = []struct{ name, sql string }{
	{"0001_init.sql", `
		create table cairnq_tasks (id text primary key, name text not null, queue text not null default 'default',
			status text not null, payload jsonb not null, result jsonb, error jsonb, metadata jsonb not null default '{}',
			progress double precision, message text, attempt integer not null default 0, max_attempts integer not null default 3,
			priority integer not null default 0, worker_id text, lease_until_ms bigint, run_at_ms bigint not null,
			cancel_requested_at_ms bigint, parent_id text, root_id text, correlation_id text,
			created_at_ms bigint not null, updated_at_ms bigint not null, completed_at_ms bigint,
			constraint cairnq_tasks_status_check check (status in ('queued', 'running', 'succeeded', 'failed', 'canceled')));
		create table cairnq_task_keys (key text primary key, task_id text not null references cairnq_tasks (id) on delete cascade,
			created_at_ms bigint not null, updated_at_ms bigint not null);
		create table cairnq_meta (key text primary key, value text not null);
		create index cairnq_tasks_claim_idx on cairnq_tasks (queue, status, run_at_ms);
		create index cairnq_tasks_status_idx on cairnq_tasks (status);
		create index cairnq_tasks_name_idx on cairnq_tasks (name);
		create index cairnq_tasks_root_idx on cairnq_tasks (root_id);
		create index cairnq_tasks_correlation_idx on cairnq_tasks (correlation_id);
		insert into cairnq_meta values ('protocol_version', '1');`},
	{"0002_purge_index.sql", `create index cairnq_tasks_completed_idx on cairnq_tasks (completed_at_ms);`},
	{"0003_notify.sql", `
		create function cairnq_notify() returns trigger language plpgsql as 'begin
			if new.status = ''queued'' then perform pg_notify(''cairnq_queued'', new.queue); end if;
			if new.status in (''succeeded'', ''failed'', ''canceled'') then perform pg_notify(''cairnq_done'', new.id); end if;
			return new; end';
		create trigger cairnq_tasks_notify after insert or update of status on cairnq_tasks for each row execute function cairnq_notify();`},
	{"0004_lease_index.sql", `create index cairnq_tasks_lease_idx on cairnq_tasks (lease_until_ms) where status = 'running' and lease_until_ms is not null;`},
	{"0005_clear_terminal_lease.sql", `update cairnq_tasks set lease_until_ms = null where status <> 'running';`},
	{"0006_claim_name_index.sql", `create index cairnq_tasks_claim_name_idx on cairnq_tasks (queue, status, name, priority desc, run_at_ms, id);`},
	{"0007_purge_status_index.sql", `create index cairnq_tasks_status_completed_idx on cairnq_tasks (status, completed_at_ms);`},
	{"0008_claim_due_index.sql", `drop index cairnq_tasks_claim_idx; create index cairnq_tasks_claim_idx on cairnq_tasks (queue, status, priority desc, run_at_ms, id);`},
	{"0009_purge_queue_index.sql", `create index cairnq_tasks_queue_completed_idx on cairnq_tasks (queue, completed_at_ms);`},
	{"0010_drop_status_index.sql", `drop index cairnq_tasks_status_idx;`},
}

// older makes a database of the schema version, with a task in it.
func older(t *testing.T, conn *pgx.Conn, version int) {
	t.Helper()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("create table cairnq_migrations (name text primary key, applied_at_ms bigint not null)")
	for _, s := range steps[:version] {
		exec(s.sql)
		exec("insert into cairnq_migrations values ('" + s.name + "', 1)")
	}
	exec("insert into cairnq_meta values ('schema_version', '" + strconv.Itoa(version) + "')")
	lease := "7"
	if version >= 5 {
		lease = "null"
	}
	exec(`insert into cairnq_tasks (id, name, queue, status, payload, attempt, worker_id, lease_until_ms, run_at_ms, created_at_ms, updated_at_ms, completed_at_ms) values
		('task_0QUEUED', 'n', 'default', 'queued', '{"old": true}', 0, null, null, 1, 1, 1, null),
		('task_0DONE', 'n', 'default', 'succeeded', '{}', 1, 'w', ` + lease + `, 1, 1, 2, 2)`)
}

// shape is what a database consists of.
func shape(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select 'index ' || indexname || ' ' || indexdef from pg_indexes where schemaname = current_schema()
		union all select 'trigger ' || tgname || ' ' || pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
		union all select 'function ' || proname from pg_proc where pronamespace = current_schema()::regnamespace
		union all select 'meta ' || key || ' ' || value from cairnq_meta
		union all select 'ledger ' || name from cairnq_migrations order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestEveryOlderVersion(t *testing.T) {
	fresh := pgtest.DSN(t)
	openAt(t, fresh)
	want := shape(t, connect(t, fresh))
	for version := range len(steps) + 1 {
		if version == 0 {
			continue
		}
		t.Run(fmt.Sprint("schema ", version), func(t *testing.T) {
			dsn := pgtest.DSN(t)
			conn := connect(t, dsn)
			older(t, conn, version)
			store := openAt(t, dsn)
			if got := shape(t, conn); got != want {
				t.Errorf("the database is\n%s\nand a fresh one\n%s", got, want)
			}
			got, err := store.Claim(t.Context(), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"n"}, Limit: 5}}, WorkerID: "w", Lease: time.Minute})
			if err != nil || len(got.Tasks) != 1 || string(got.Tasks[0].Payload) != `{"old": true}` {
				t.Errorf("claimed %+v: %v", got, err)
			}
			done, err := store.Get(t.Context(), "task_0DONE")
			if err != nil || !done.LeaseUntil.IsZero() || !done.UpdatedAt.Equal(time.UnixMilli(2)) {
				t.Errorf("the ended task is %+v: %v", done, err)
			}
			openAt(t, dsn) // again, with nothing to do
			if got := shape(t, conn); got != want {
				t.Errorf("the second opening changed the database to\n%s", got)
			}
		})
	}
}

// TestNewerVersion: a later release's database is taken as it is, its indexes included.
func TestNewerVersion(t *testing.T) {
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn)
	older(t, conn, 10)
	if _, err := conn.PgConn().Exec(t.Context(), `
		update cairnq_meta set value = '12' where key = 'schema_version';
		update cairnq_meta set value = '1.3' where key = 'protocol_version';
		insert into cairnq_migrations values ('0011_later.sql', 1), ('0012_later.sql', 1);
		drop index cairnq_tasks_claim_idx;
		create index cairnq_tasks_claim_idx on cairnq_tasks (queue, priority desc, run_at_ms) where status = 'queued';
		alter table cairnq_tasks add column later text default 'x'`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	const indexes = "select string_agg(indexdef, ';' order by indexname) from pg_indexes where indexname like 'cairnq%'"
	var before, after, version string
	if err := conn.QueryRow(t.Context(), indexes).Scan(&before); err != nil {
		t.Fatal(err)
	}
	store := openAt(t, dsn)
	exercise(t, store)
	if err := conn.QueryRow(t.Context(), indexes).Scan(&after); err != nil || before != after {
		t.Errorf("the indexes were\n%s\nand are\n%s\n%v", before, after, err)
	}
	if err := conn.QueryRow(t.Context(), "select value from cairnq_meta where key = 'schema_version'").Scan(&version); err != nil || version != "12" {
		t.Errorf("the schema version is %q: %v", version, err)
	}
}

func TestOtherProtocol(t *testing.T) {
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn)
	older(t, conn, 3)
	if _, err := conn.Exec(t.Context(), "update cairnq_meta set value = '2.0' where key = 'protocol_version'"); err != nil {
		t.Fatal(err)
	}
	before := shape(t, conn)
	_, err := postgres.Open(t.Context(), dsn)
	var e *holdfast.ProtocolError
	if !errors.Is(err, holdfast.ErrProtocol) || !errors.As(err, &e) || e.Version != "2.0" {
		t.Errorf("the error is %v, want a ProtocolError of 2.0", err)
	}
	if after := shape(t, conn); after != before {
		t.Errorf("the refused database was changed to\n%s", after)
	}
}

func TestEightProcessesOpenOneNewDatabase(t *testing.T) {
	dsn := pgtest.DSN(t)
	const n = 8
	var commands []*exec.Cmd
	var gates []func() error
	for range n {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), openVariable+"="+dsn)
		cmd.Stderr = os.Stderr
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
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		commands = append(commands, cmd)
		gates = append(gates, func() error { _, err := in.Write([]byte("\n")); return err })
	}
	for _, open := range gates {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range commands {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	fresh := pgtest.DSN(t)
	openAt(t, fresh)
	conn := connect(t, dsn)
	if got, want := shape(t, conn), shape(t, connect(t, fresh)); got != want {
		t.Errorf("the database is\n%s\nand one opened alone\n%s", got, want)
	}
	waitFor(t, conn, "tasks", "select count(*) from cairnq_tasks", n)
}

// TestSecondInstallation: without a schema option, a search_path that leads past the tasks that exist
// is refused.
func TestSecondInstallation(t *testing.T) {
	dsn := pgtest.DSN(t)
	first := openAt(t, dsn, postgres.WithSchema("the first"))
	if _, err := first.Submit(t.Context(), &holdfast.Submission{Name: "n"}); err != nil {
		t.Fatal(err)
	}
	_, err := postgres.Open(t.Context(), dsn)
	if !errors.Is(err, postgres.ErrSecondInstallation) || !strings.Contains(err.Error(), `"public"`) || !strings.Contains(err.Error(), `"the first"`) {
		t.Errorf("the error is %v, want one that names public and the first", err)
	}
	conn := connect(t, dsn)
	var n int
	if err := conn.QueryRow(t.Context(), "select count(*) from pg_tables where schemaname = 'public'").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables were made all the same: %v", n, err)
	}
	// Meant so, it is made.
	second := openAt(t, dsn, postgres.WithSchema("second"))
	if list, err := second.List(t.Context(), holdfast.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("the second sees %d tasks: %v", len(list), err)
	}
	// And a search_path that finds the tasks is served.
	third := openAt(t, with(dsn, "search_path=%22the%20first%22,public"))
	if list, err := third.List(t.Context(), holdfast.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("the third sees %d tasks: %v", len(list), err)
	}
}

func TestSchemaNames(t *testing.T) {
	dsn := pgtest.DSN(t)
	for i, name := range []string{"plain", "Upper", `it"s`, "it's", "with space", "ünï", "a.b", "$1", "select", "cairnq_tasks", strings.Repeat("x", 63)} {
		t.Run(name, func(t *testing.T) {
			exercise(t, openAt(t, dsn, postgres.WithSchema(name)))
			// Also on the application's pool, whose search_path is another.
			pool, err := pgxpool.New(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			store, err := postgres.New(t.Context(), pool, postgres.WithSchema(name))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			for op, err := range everyKind(t.Context(), store, "pool") {
				if err != nil {
					t.Errorf("%s on the pool: %v", op, err)
				}
			}
			waitFor(t, connect(t, dsn), "schemas", "select count(distinct schemaname) from pg_tables where tablename = 'cairnq_tasks'", i+1)
		})
	}
	for _, name := range []string{"pg_mine", "a\x00b", strings.Repeat("x", 64), "information_schema"} {
		if _, err := postgres.Open(t.Context(), dsn, postgres.WithSchema(name)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("schema %q: %v, want ErrInvalid", name, err)
		}
	}
}
