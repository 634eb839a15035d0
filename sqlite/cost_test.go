package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
	"github.com/eda94727/holdfast/internal/sqlitefile"
)

// steps counts what SQLite's machine does on the connection while fn runs, and how many of the steps
// went from row to row without an index.
func steps(t *testing.T, c *sqlitefile.Conn, fn func() error) (all, scanned int) {
	t.Helper()
	count := func() (all, scanned int) {
		for _, v := range statements() {
			v.mu.RLock()
			for _, q := range v.byMask {
				s, err := c.Stmt(&q.Query)
				if err != nil {
					t.Fatal(err)
				}
				all += s.Status(sqlite3.STMTSTATUS_VM_STEP, true)
				scanned += s.Status(sqlite3.STMTSTATUS_FULLSCAN_STEP, true)
			}
			v.mu.RUnlock()
		}
		return all, scanned
	}
	count()
	if err := fn(); err != nil {
		t.Fatal(err)
	}
	return count()
}

// A claim reads the index entries that it takes and a few more, however many tasks wait, due or not.
func TestClaimCostsTheSameWithManyTasks(t *testing.T) {
	claims := map[string]holdfast.Claim{
		"any name":    {Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 10}}},
		"two names":   {Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"a", "b"}, Limit: 10}}},
		"two queues":  {Queues: []string{"default", "other"}, Draws: []holdfast.Draw{{Names: []string{"a"}, Limit: 10}, {AnyName: true, Limit: 3}}},
		"not here":    {Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"z"}, Limit: 10}}},
		"none is due": {Queues: []string{"later"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 10}}},
	}
	cost := map[string][2]int{}
	for i, n := range []int{100, 100_000} {
		file := planFile(t)
		now := time.UnixMilli(1_000_000)
		// Half of the tasks are not due, and those have the higher priority.
		if err := file.Write(t.Context(), "fill", func(c *sqlitefile.Conn) error {
			return c.Exec(fmt.Sprintf(`insert into cairnq_tasks (id, name, queue, status, payload, priority, run_at_ms, root_id, created_at_ms, updated_at_ms)
				with recursive n(i) as (select 1 union all select i + 1 from n where i < %d)
				select 'task_' || i, iif(i %% 3, 'a', 'b'), iif(i %% 10 = 0, 'later', 'default'), 'queued', '{}', 1 - i %% 2, iif(i %% 2 and i %% 10, 500000, 2000000) + i, 'task_' || i, 1, 1 from n`, n))
		}); err != nil {
			t.Fatal(err)
		}
		for name, c := range claims {
			c.WorkerID, c.Lease, c.Now = "w", time.Minute, now
			rollback := errors.New("rollback")
			err := file.Write(t.Context(), "claim", func(conn *sqlitefile.Conn) error {
				var found *holdfast.Claimed
				all, scanned := steps(t, conn, func() (err error) {
					if _, _, err = claiming.Claimable(context.Background(), claimer{native{conn}}, &c); err == nil {
						found, err = claiming.Claim(context.Background(), claimer{native{conn}}, &c, &claiming.Turns{})
					}
					return err
				})
				if want := map[string]int{"any name": 10, "two names": 10, "two queues": 13}[name]; len(found.Tasks) != want {
					t.Errorf("%s: %d tasks were claimed of %d, want %d", name, len(found.Tasks), n, want)
				}
				if scanned > 40 { // the lists of row numbers and names are read from end to end
					t.Errorf("%s: %d steps without an index", name, scanned)
				}
				pair := cost[name]
				pair[i] = all
				cost[name] = pair
				return rollback
			})
			if !errors.Is(err, rollback) {
				t.Fatal(err)
			}
		}
	}
	for name, c := range cost {
		t.Logf("%s: %d steps with 100 tasks, %d with 100,000", name, c[0], c[1])
		if c[1] > c[0]+c[0]/4 {
			t.Errorf("%s: a claim takes %d steps with 100 tasks and %d with 100,000", name, c[0], c[1])
		}
	}
}

// Likewise heartbeats and the ends of tasks.
func TestSettlingCostsTheSameWithManyTasks(t *testing.T) {
	var cost [2]int
	for i, n := range []int{200, 50_000} {
		file := planFile(t)
		fill(t, file, n)
		if err := file.Write(t.Context(), "settle", func(conn *sqlitefile.Conn) error {
			ctx, r := context.Background(), native{conn}
			now := time.UnixMilli(1).Add(time.Hour)
			found, err := claiming.Claim(ctx, claimer{r}, &holdfast.Claim{
				Queues: []string{"queue0"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 2}}, WorkerID: "w", Lease: time.Minute, Now: now,
			}, &claiming.Turns{})
			if err != nil || len(found.Tasks) != 2 {
				return fmt.Errorf("%d tasks were claimed: %w", len(found.Tasks), err)
			}
			answers := 0
			count := func(int, *holdfast.Row) error { answers++; return nil }
			cost[i], _ = steps(t, conn, func() error {
				beat := &holdfast.Row{Now: now.UnixMilli(), Lease: 1000}
				beat.WorkerID = "w"
				for _, one := range found.Tasks {
					beat.IDs = append(beat.IDs, one.ID)
				}
				if err := r.Query(ctx, holdfast.StmtHeartbeat, count, beat); err != nil {
					return err
				}
				for _, one := range found.Tasks {
					end := &holdfast.Row{Now: now.UnixMilli()}
					end.ID, end.WorkerID = one.ID, "w"
					if err := r.Query(ctx, holdfast.StmtComplete, count, end); err != nil {
						return err
					}
				}
				return nil
			})
			if answers != 4 {
				t.Errorf("%d answers, want 4", answers)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d steps with 200 tasks, %d with 50,000", cost[0], cost[1])
	if cost[1] > cost[0]+cost[0]/4 {
		t.Errorf("a heartbeat and two ends take %d steps with 200 tasks and %d with 50,000", cost[0], cost[1])
	}
}
