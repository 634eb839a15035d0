package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast/internal/sqlitefile"
)

func planFile(t *testing.T) *sqlitefile.File {
	t.Helper()
	file, err := sqlitefile.Open(t.Context(), filepath.Join(t.TempDir(), "tasks.db"), sqlitefile.Options{Temporary: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := migrate(t.Context(), file, time.Now); err != nil {
		t.Fatal(err)
	}
	return file
}

// fill inserts n tasks of every status, many more than fit a page.
func fill(t *testing.T, file *sqlitefile.File, n int) {
	t.Helper()
	if err := file.Write(t.Context(), "fill", func(c *sqlitefile.Conn) error {
		return c.Exec(fmt.Sprintf(`
			insert into cairnq_tasks (id, name, queue, status, payload, metadata, error, attempt, priority, worker_id, lease_until_ms, run_at_ms, root_id, correlation_id, created_at_ms, updated_at_ms, completed_at_ms)
			with recursive n(i) as (select 1 union all select i + 1 from n where i < %d),
			s as (select i, case i %% 10 when 0 then 'queued' when 1 then 'failed' when 2 then 'canceled' when 3 then case when i %% 100 = 3 then 'running' else 'queued' end else 'succeeded' end as status from n)
			select 'task_' || i, 'name' || (i %% 7), 'queue' || (i %% 3), status, '{}', iif(i %% 50 = 0, '{"holdfast_partition":"p' || (i %% 9) || '"}', '{}'),
				iif(status = 'failed', '{}', null), 0, i %% 5, null,
				iif(status = 'running', 1000000 + i, null), 1000000 + i, iif(i %% 20 = 0, 'task_1', 'task_' || i), iif(i %% 4 = 0, 'c' || (i %% 1000), null),
				1000000 + i, 1000000 + i, iif(status in ('succeeded', 'failed', 'canceled'), 1000000 + i, null)
			from s;
			insert into cairnq_task_keys (key, task_id, created_at_ms, updated_at_ms) select 'key' || id, id, 1, 1 from cairnq_tasks where rowid %% 3 = 0;`, n))
	}); err != nil {
		t.Fatal(err)
	}
}

// wantPlans says for each statement how it must find its tasks, whatever the planner's statistics are.
// What follows a slash is an optional parameter.
var wantPlans = map[string]string{
	"busy":                "INDEX cairnq_tasks_lease_idx",
	"cancel":              byID,
	"claim_name":          "COVERING INDEX cairnq_tasks_claim_name_idx (queue=? AND status=? AND name>?)",
	"claim_next":          "COVERING INDEX cairnq_tasks_claim_name_idx (queue=? AND status=? AND name=? AND priority<?)",
	"claim_next_any":      "COVERING INDEX cairnq_tasks_claim_idx (queue=? AND status=? AND priority<?)",
	"claim_partition":     "INDEX holdfast_partition_idx (queue=? AND name=? AND <expr>>?)",
	"claim_pick":          "COVERING INDEX cairnq_tasks_claim_name_idx (queue=? AND status=? AND name=? AND priority=? AND run_at_ms<?)",
	"claim_pick_any":      "COVERING INDEX cairnq_tasks_claim_idx (queue=? AND status=? AND priority=? AND run_at_ms<?)",
	"claim_pick_part":     "INDEX holdfast_partition_idx (queue=? AND name=? AND <expr>=?)",
	"claim_read":          byRow,
	"claim_take":          byRow,
	"complete":            byID,
	"complete/rowid":      byRow,
	"complete_plain":      byRow,
	"depth":               "COVERING INDEX cairnq_tasks_claim_",
	"fail":                byID,
	"fail/rowid":          byRow,
	"get":                 byID,
	"get_by_key":          byID,
	"heartbeat":           byID,
	"next_lease":          "COVERING INDEX cairnq_tasks_lease_idx",
	"progress":            byID,
	"progress/rowid":      byRow,
	"purge":               "INDEX cairnq_tasks_completed_idx (completed_at_ms>? AND completed_at_ms<?)",
	"purge/queue":         "INDEX cairnq_tasks_queue_completed_idx (queue=? AND completed_at_ms>? AND completed_at_ms<?)",
	"recover":             "COVERING INDEX cairnq_tasks_lease_idx (lease_until_ms>? AND lease_until_ms<?)",
	"release":             byID,
	"release/rowid":       byRow,
	"retry":               byID,
	"running_counts":      "INDEX cairnq_tasks_lease_idx",
	"cancel_requests":     byID,
	"status":              byID,
	"status_by_key":       byID,
	"succeed":             byID,
	"succeed/rowid":       byRow,
	"worker_expire":       "INDEX cairnq_tasks_lease_idx (lease_until_ms>?)",
	"worker_tasks":        "INDEX cairnq_tasks_lease_idx",
	"list/root_id":        "INDEX cairnq_tasks_root_idx (root_id=?)",
	"list/correlation_id": "INDEX cairnq_tasks_correlation_idx (correlation_id=?)",
	"attempts":            "INDEX holdfast_attempts_task_idx (task_id=?)",
	"bulk_ended":          "INDEX cairnq_tasks_co",      // completed, or correlation
	"bulk_failed":         "INDEX cairnq_tasks_",        // status and completed, or correlation
	"bulk_queued":         "USING INDEX cairnq_tasks_c", // of queued tasks, or correlation
	"bulk_running":        "INDEX cairnq_tasks_",        // lease, or correlation
	"bulk_ended/queue":    "INDEX cairnq_tasks_",
	"delete":              byID,
	"redrive":             byID,
	"tree":                "INDEX cairnq_tasks_root_idx (root_id=?)",
	"tree_live":           "INDEX cairnq_tasks_root_idx (root_id=?)",
	"depend_cancel":       byID,
	"depend_children":     "INDEX holdfast_dependencies_parent_idx (parent_id=?)",
	"depend_hold":         byID,
	"depend_look":         byID,
	"depend_parents":      "SEARCH d USING PRIMARY KEY (child_id=?)",
	"depend_release":      byID,
	"depend_results":      "SEARCH d USING PRIMARY KEY (child_id=?)",
	"depend_wait":         byID,
	// No index of the protocol has the order of a list, and counts of everything read everything.
	"list":  "SCAN cairnq_tasks",
	"stats": "SCAN cairnq_tasks",
	// These read no task. The last three make triggers.
	"depend_get": "", "depend_on": "", "depend_released": "", "depend_deleted": "", "depend_finished": "", "depend_retried": "",
	"insert": "", "put_key": "", "meta": "", "limits": "", "limits_for": "", "limit_put": "", "limit_pause": "", "limit_drop": "", "limit_spend": "",
	"worker_put": "", "worker_seen": "", "worker_delete": "", "worker_locks": "", "workers": "",
	"schedule_get": bySchedule, "schedule_lock": bySchedule, "schedule_move": bySchedule, "schedule_pause": bySchedule, "schedule_drop": bySchedule,
	"schedule_next": "INDEX holdfast_schedules_due_idx (next_at_ms>?)", "schedule_due": "INDEX holdfast_schedules_due_idx (next_at_ms<?)",
	"schedule_list": "", "schedule_put": "",
}

const (
	byID       = "INDEX sqlite_autoindex_cairnq_tasks_1 (id=?)"
	bySchedule = "INDEX sqlite_autoindex_holdfast_schedules_1 (name=?)"
	byRow      = "INTEGER PRIMARY KEY (rowid=?)"
)

// sorting are the statements that sort what they have found, which is little or cannot be helped.
var sorting = []string{"list", "stats", "running_counts", "limits", "worker_tasks", "workers", "bulk_ended", "bulk_failed", "bulk_queued", "bulk_running",
	"depend_children", "depend_parents", "depend_results", "tree_live"}

func TestPlans(t *testing.T) {
	exec := func(file *sqlitefile.File, sql string) {
		t.Helper()
		if err := file.Write(context.Background(), "test", func(c *sqlitefile.Conn) error { return c.Exec(sql) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, regime := range []struct {
		name string
		make func(file *sqlitefile.File)
	}{
		{"no statistics", func(file *sqlitefile.File) { fill(t, file, 5000) }},
		{"analyzed when empty, then grown", func(file *sqlitefile.File) { exec(file, "analyze"); fill(t, file, 5000) }},
		{"analyzed when all is queued", func(file *sqlitefile.File) {
			fill(t, file, 5000)
			exec(file, "update cairnq_tasks set status = 'queued', lease_until_ms = null, completed_at_ms = null, error = null; analyze")
		}},
		{"analyzed when all is running", func(file *sqlitefile.File) {
			fill(t, file, 5000)
			exec(file, "update cairnq_tasks set status = 'running', lease_until_ms = 1, completed_at_ms = null, error = null; analyze")
		}},
		{"analyzed when all has ended", func(file *sqlitefile.File) {
			fill(t, file, 5000)
			exec(file, "update cairnq_tasks set status = 'succeeded', lease_until_ms = null, completed_at_ms = rowid, error = null; analyze")
		}},
		{"50,000 tasks, analyzed", func(file *sqlitefile.File) { fill(t, file, 50_000); exec(file, "analyze") }},
		{"50,000 tasks, as the writer looks after them", func(file *sqlitefile.File) { fill(t, file, 50_000); exec(file, "PRAGMA optimize(0x10002)") }},
	} {
		t.Run(regime.name, func(t *testing.T) {
			file := planFile(t)
			regime.make(file)
			eachPlan(t, file, func(name string, given []string, plan []string) {
				want, known := wantPlans[name]
				for _, g := range []string{"root_id", "correlation_id", "queue", "rowid"} {
					if w, ok := wantPlans[name+"/"+g]; ok && slices.Contains(given, g) {
						want = w
					}
				}
				text := strings.Join(plan, "\n\t")
				scans := strings.Contains(text, "SCAN cairnq_task")
				sorts := strings.Contains(text, "TEMP B-TREE")
				switch {
				case !known:
					t.Errorf("%s is not in the table of this test", name)
				case !strings.Contains(text, want), want == "" && strings.Contains(text, "cairnq_tasks"):
					t.Errorf("%s with %v: the plan is\n\t%s\nwant %s", name, given, text, want)
				case scans && !strings.HasPrefix(want, "SCAN") && name != "bulk_queued", strings.Contains(text, "AUTOMATIC"), sorts && !slices.Contains(sorting, name):
					t.Errorf("%s with %v: the plan reads too much:\n\t%s", name, given, text)
				}
			})
		})
	}
}

// eachPlan calls fn with the plan of each statement, in each of its variants.
func eachPlan(t *testing.T, file *sqlitefile.File, fn func(name string, given []string, plan []string)) {
	t.Helper()
	if err := file.Read(t.Context(), func(c *sqlitefile.Conn) error {
		for name, v := range statements() {
			for mask := uint(0); mask < 1<<len(v.optional); mask++ {
				sql, _ := v.text.Render(v.style, mask)
				s, _, err := c.DB.Prepare("explain query plan " + sql)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				var given, plan []string
				for i, o := range v.text.Optional {
					if mask&(1<<i) != 0 {
						given = append(given, o)
					}
				}
				err = sqlitefile.Rows(s, func() error { plan = append(plan, s.ColumnText(3)); return nil })
				s.Close()
				if err != nil {
					return err
				}
				fn(string(name), given, plan)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
