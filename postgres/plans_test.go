package postgres

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/internal/sqltext"
)

// crowd fills the table: 100,000 queued tasks, of which 50,000 are not due and stand at a higher
// priority and 10,000 have other names, 20,000 that ended, 500 that run, and keys.
const crowd = `
insert into cairnq_tasks (id, name, queue, status, payload, priority, run_at_ms, created_at_ms, updated_at_ms, root_id)
	select 'task_later' || i, 'n', 'default', 'queued', '{}', 5, 9000000000000 + i, i, i, 'task_later' || i from generate_series(1, 50000) i;
insert into cairnq_tasks (id, name, queue, status, payload, priority, run_at_ms, created_at_ms, updated_at_ms, root_id)
	select 'task_other' || i, 'other', 'default', 'queued', '{}', 3, i, i, i, 'task_other' || i from generate_series(1, 10000) i;
insert into cairnq_tasks (id, name, queue, status, payload, priority, run_at_ms, created_at_ms, updated_at_ms, root_id)
	select 'task_due' || i, 'n', 'default', 'queued', '{}', i % 3, i, i, i, 'task_due' || i from generate_series(1, 40000) i;
insert into cairnq_tasks (id, name, queue, status, payload, run_at_ms, created_at_ms, updated_at_ms, completed_at_ms, root_id, error, correlation_id)
	select 'task_ended' || i, 'n', 'default', case when i % 10 = 0 then 'failed' else 'succeeded' end, '{}', i, i, i, i, 'task_root' || i,
		case when i % 10 = 0 then '{}'::jsonb end, 'c' || i from generate_series(1, 20000) i;
insert into cairnq_tasks (id, name, queue, status, payload, attempt, worker_id, lease_until_ms, run_at_ms, created_at_ms, updated_at_ms, root_id)
	select 'task_running' || i, 'n', 'default', 'running', '{}', 1, 'w', 9000000000000 + i, i, i, i, 'task_running' || i from generate_series(1, 500) i;
insert into cairnq_task_keys select 'key' || i, 'task_ended' || i, i, i from generate_series(1, 20000) i;
`

func crowded(t testing.TB) (*pgx.Conn, *holdfast.Store) {
	t.Helper()
	dsn := pgtest.DSN(t)
	store, err := Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.PgConn().Exec(t.Context(), crowd).ReadAll(); err != nil {
		t.Fatal(err)
	}
	return conn, store
}

// fewTasks leaves 100 due tasks in a table as small as it was at first.
func fewTasks(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	for _, sql := range []string{
		"create temporary table few as select * from cairnq_tasks where id like 'task_due%' limit 100",
		"truncate cairnq_tasks cascade",
		"insert into cairnq_tasks select * from few",
		"vacuum analyze",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// full lists the statements that may read the whole table, with the reason.
var full = map[string]string{
	"stats": "counts every task",
	"list":  "lists every task, newest first, unless a filter has an index",
	// In this table every task is queued, and the walk ends at its limit.
	"bulk_queued": "walks through queued tasks",
}

// TestPlans explains every statement in every variant, with and without statistics, and fails where
// one reads the whole task table.
func TestPlans(t *testing.T) {
	conn, _ := crowded(t)
	ctx := t.Context()
	texts, err := sqltext.Load(files, "sql", nil)
	if err != nil {
		t.Fatal(err)
	}
	sql := load("")
	row := &holdfast.Row{Key: "key7", Value: "{}", IDs: []string{"task_due1", "task_due2"}, Queues: []string{"default", "none"}, Names: []string{"n", "none"},
		Lease: 1000, Older: 1000, Now: time.Now().UnixMilli(), Limit: 64, Below: 4, Kind: holdfast.LimitQueue, BeforeMS: 5, BeforeID: "task_due5", Partition: "p"}
	row.ID, row.Queue, row.Name, row.WorkerID, row.Status, row.RootID, row.CorrelationID = "task_x", "default", "n", "w", holdfast.Failed, "task_root5", "c5"
	row.Payload, row.Metadata, row.Result, row.Error = []byte("{}"), []byte("{}"), []byte("{}"), []byte("{}")
	seq := regexp.MustCompile(`Seq Scan on cairnq_task(s|_keys)`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := conn.Exec(ctx, "vacuum analyze"); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range texts {
			for mask := range uint(1) << len(text.Optional) {
				if full[name] != "" {
					continue
				}
				one := &statement{name: name}
				var params []string
				one.sql, params = sql[holdfast.Statement(name)].text.Render(sqltext.Dollar, mask)
				for _, p := range params {
					one.params = append(one.params, column(p))
				}
				args := one.arguments(row)
				if strings.HasSuffix(name, "_many") {
					args = one.manyArguments(slices.Repeat([]*holdfast.Row{row}, groupSize))
				}
				tx, err := conn.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				rows, err := tx.Query(ctx, "explain "+one.sql, append([]any{pgx.QueryExecModeExec}, args...)...)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err := tx.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if plan := strings.Join(lines, "\n"); seq.MatchString(plan) {
					t.Errorf("%s (variant %b, statistics %v) reads a whole table:\n%s", name, mask, analyzed, plan)
				}
			}
		}
	}
}

// TestGroupPlan: a group of outcomes looks its tasks up also in a table so small, and without
// statistics, that the planner would rather read all of it.
func TestGroupPlan(t *testing.T) {
	dsn := pgtest.DSN(t)
	store, err := Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, `alter table cairnq_tasks set (autovacuum_enabled = off);
		insert into cairnq_tasks (id, name, queue, status, payload, worker_id, lease_until_ms, run_at_ms, created_at_ms, updated_at_ms, root_id)
		select 'task_' || i, 'n', 'default', 'running', '{}', 'w', 9000000000000, i, i, i, 'task_' || i from generate_series(1, 20000) i`); err != nil {
		t.Fatal(err)
	}
	rows := make([]*holdfast.Row, groupSize)
	for i := range rows {
		rows[i] = &holdfast.Row{Task: holdfast.Task{ID: fmt.Sprint("task_", i*7), WorkerID: "w", Result: []byte("1")}}
	}
	one := load("").find(stmtCompleteMany, rows[0])
	lines, err := conn.Query(ctx, "explain "+one.sql, append([]any{pgx.QueryExecModeExec}, one.manyArguments(rows)...)...)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(lines, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "Index Scan using cairnq_tasks_pkey") {
		t.Errorf("the plan:\n%s", text)
	}
}

// TestClaimCost: a claim among 100,000 tasks, half of them not due and at a higher priority, reads
// about as much as one among 100. Pages and not time are counted, since pages do not depend on what
// else the machine does.
func TestClaimCost(t *testing.T) {
	conn, _ := crowded(t)
	ctx := t.Context()
	if _, err := conn.Exec(ctx, "vacuum analyze"); err != nil {
		t.Fatal(err)
	}
	sql := load("")
	row := &holdfast.Row{Queues: []string{"default"}, Names: []string{"n"}, Lease: 1000, Limit: 16}
	row.WorkerID = "w"
	one := sql.find(stmtClaim, row)
	pages := func() int {
		t.Helper()
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		var report []struct {
			Plan struct {
				Hit  int     `json:"Shared Hit Blocks"`
				Read int     `json:"Shared Read Blocks"`
				Rows float64 `json:"Actual Rows"`
			} `json:"Plan"`
		}
		if err := tx.QueryRow(ctx, "explain (analyze, buffers, format json) "+one.sql, append([]any{pgx.QueryExecModeExec}, one.arguments(row)...)...).Scan(&report); err != nil {
			t.Fatal(err)
		}
		if report[0].Plan.Rows != 16 {
			t.Fatalf("claimed %v, want 16", report[0].Plan.Rows)
		}
		return report[0].Plan.Hit + report[0].Plan.Read
	}
	many := slices.Min([]int{pages(), pages(), pages()})
	fewTasks(t, conn)
	few := slices.Min([]int{pages(), pages(), pages()})
	t.Logf("%d pages among 100,000 tasks, %d among 100", many, few)
	if many > 2*few {
		t.Errorf("%d pages among 100,000 tasks, %d among 100", many, few)
	}
}

// TestKeptPlans: what a claim runs has one plan for each connection, which may have been made when the table looked different from
// now. Made in tables that mislead the planner as much as we could think of, the plan reads no more pages in the crowd than one that
// was made for the crowd.
func TestKeptPlans(t *testing.T) {
	// Beside the crowd, tasks of other names before the due ones, and 30 leases that have ended.
	const now = crowd + `
		insert into cairnq_tasks (id, name, queue, status, payload, priority, run_at_ms, created_at_ms, updated_at_ms, root_id)
			select 'task_before' || i, 'other', 'default', 'queued', '{}', i % 3, 0, i, i, 'task_before' || i from generate_series(1, 10000) i;
		insert into cairnq_tasks (id, name, queue, status, payload, attempt, worker_id, lease_until_ms, run_at_ms, created_at_ms, updated_at_ms, root_id)
			select 'task_dead' || i, 'n', 'default', 'running', '{}', 1, 'w', i, i, i, i, 'task_dead' || i from generate_series(1, 30) i;`
	pages := func(t *testing.T, before string, analyze bool, after string) map[holdfast.Statement]int {
		dsn := pgtest.DSN(t)
		store, err := Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		ctx := t.Context()
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		row := &holdfast.Row{Queues: []string{"default"}, Names: []string{"n"}, Lease: 1000, Limit: 16}
		row.WorkerID, row.Error = "w", []byte("{}")
		sql := load("")
		statements := []holdfast.Statement{holdfast.StmtRecover, stmtClaim, stmtClaimAfter}
		// each runs the statements under the plans that the connection has or makes now, and undoes what they did.
		each := func(how string, answer func(holdfast.Statement, pgx.Rows)) {
			t.Helper()
			for _, stmt := range statements {
				tx, err := conn.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(ctx, sql.find(stmtClaimKept, row).sql); err != nil {
					t.Fatal(err)
				}
				one := sql.find(stmt, row)
				args := make([]string, len(one.params))
				for i, a := range one.arguments(row) {
					args[i] = fmt.Sprintf("'%v'", a)
				}
				list := ""
				if len(args) > 0 {
					list = "(" + strings.Join(args, ", ") + ")"
				}
				rows, err := tx.Query(ctx, how+" execute kept_"+string(stmt)+list, pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					t.Fatal(err)
				}
				answer(stmt, rows)
				if rows.Close(); rows.Err() != nil {
					t.Fatalf("%s: %v", stmt, rows.Err())
				}
				if err := tx.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		script := "alter table cairnq_tasks set (autovacuum_enabled = off);" + before // statistics would end the plans
		for _, stmt := range statements {
			script += ";prepare kept_" + string(stmt) + " as " + sql.find(stmt, row).sql
		}
		exec := func(sql string) {
			t.Helper()
			if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
				t.Fatal(err)
			}
		}
		exec(script)
		if analyze {
			exec("vacuum analyze")
		}
		each("", func(holdfast.Statement, pgx.Rows) {})
		exec(after)
		read := map[holdfast.Statement]int{}
		each("explain (analyze, buffers, format json)", func(stmt holdfast.Statement, rows pgx.Rows) {
			var report []struct {
				Plan struct {
					Hit  int     `json:"Shared Hit Blocks"`
					Read int     `json:"Shared Read Blocks"`
					Rows float64 `json:"Actual Rows"`
				} `json:"Plan"`
			}
			for rows.Next() {
				if err := rows.Scan(&report); err != nil {
					t.Fatal(err)
				}
			}
			plan := report[0].Plan
			if want := map[holdfast.Statement]float64{holdfast.StmtRecover: 16, stmtClaim: 16, stmtClaimAfter: 1}[stmt]; plan.Rows != want {
				t.Fatalf("%s answers %v rows, want %v", stmt, plan.Rows, want)
			}
			read[stmt] = plan.Hit + plan.Read
		})
		return read
	}
	made := pages(t, now, true, "")
	t.Logf("made for the crowd: %v", made)
	const insert = "insert into cairnq_tasks (id, name, queue, status, payload, run_at_ms, created_at_ms, updated_at_ms, completed_at_ms) "
	for _, c := range []struct {
		name, before string
		analyze      bool
	}{
		{"an empty table, without statistics", "", false},
		{"an empty table", "", true},
		{"a few tasks, without statistics", insert + "select 'task_' || i, 'n', 'default', 'queued', '{}', i, i, i, null from generate_series(1, 100) i", false},
		{"a few tasks", insert + "select 'task_' || i, 'n', 'default', 'queued', '{}', i, i, i, null from generate_series(1, 100) i", true},
		{"ended tasks", insert + "select 'task_' || i, 'n', 'default', 'succeeded', '{}', i, i, i, i from generate_series(1, 50000) i", true},
		{"another name", insert + "select 'task_' || i, 'other', 'default', 'queued', '{}', i, i, i, null from generate_series(1, 50000) i", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for stmt, n := range pages(t, c.before, c.analyze, now) {
				t.Logf("%s: %d", stmt, n)
				if n > 2*made[stmt] {
					t.Errorf("%s reads %d pages, and %d when planned for the crowd", stmt, n, made[stmt])
				}
			}
		})
	}
}

// BenchmarkClaimAmong claims 16 and gives them back, among few tasks and among many.
func BenchmarkClaimAmong(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			conn, store := crowded(b)
			if n == 100 {
				fewTasks(b, conn)
			} else if _, err := conn.Exec(b.Context(), "vacuum analyze"); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N {
				got, err := store.Claim(b.Context(), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"n"}, Limit: 16}}, WorkerID: "w", Lease: time.Minute})
				if err != nil || len(got.Tasks) != 16 {
					b.Fatalf("claimed %d: %v", len(got.Tasks), err)
				}
				b.StopTimer()
				if _, err := store.ReleaseMany(b.Context(), got.Tasks); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
