package holdfast_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// Parents end, are canceled, retried and deleted while children that wait for them are submitted, by
// many at once. Afterwards nobody waits for what has happened already, and nothing is miscounted.
func TestDependenciesUnderLoad(t *testing.T) {
	const (
		writers = 8
		rounds  = 50
	)
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		var mu sync.Mutex
		var known []string
		some := func(n int) (ids []string) {
			mu.Lock()
			defer mu.Unlock()
			for range min(n, len(known)) {
				// Mostly the newest, which are the ones that change.
				ids = append(ids, known[len(known)-1-rand.IntN(min(len(known), 40))])
			}
			return ids
		}
		check := func(err error) {
			if err != nil && !errors.Is(err, holdfast.ErrState) && !errors.Is(err, holdfast.ErrNotFound) && !errors.Is(err, holdfast.ErrLeaseLost) && !errors.Is(err, holdfast.ErrInvalid) {
				t.Error(err)
			}
		}
		work := func(limit int, fails float64) int {
			got, err := db.store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: limit}}, WorkerID: "w", Lease: time.Minute})
			if err != nil {
				t.Error(err)
				return 0
			}
			var wg sync.WaitGroup
			for _, task := range got.Tasks {
				wg.Go(func() {
					var err error
					if rand.Float64() < fails {
						_, err = db.store.Fail(ctx, task, nil, false, 0)
					} else {
						_, err = db.store.Complete(ctx, task, nil)
					}
					check(err)
				})
			}
			wg.Wait()
			return len(got.Tasks)
		}
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range rounds {
					switch rand.IntN(10) {
					case 0:
						for _, id := range some(1) {
							_, err := db.client.Cancel(ctx, id)
							check(err)
						}
					case 1:
						for _, id := range some(1) {
							_, err := db.client.Retry(ctx, id, true)
							check(err)
						}
					case 2:
						if _, err := db.client.Purge(ctx, holdfast.PurgeFilter{Limit: 2}); err != nil {
							t.Error(err)
						}
					case 3, 4, 5, 6:
						items := []holdfast.Item{
							holdfast.NewItem("x", nil, holdfast.As("x"), holdfast.After(some(2)...)),
							holdfast.NewItem("y", nil, holdfast.As("y"), holdfast.AfterFinished(some(3)...)),
							holdfast.NewItem("z", nil, holdfast.After("x"), holdfast.AfterFinished("y")),
							holdfast.NewItem("keep", nil, holdfast.After(append(some(1), "y")...), holdfast.KeepWaiting()),
							holdfast.NewItem("free", nil),
						}
						tasks, err := db.client.SubmitMany(ctx, items)
						check(err)
						if err != nil { // a parent was deleted meanwhile
							tasks = []*holdfast.Task{db.get(db.submit("fresh"))}
						}
						mu.Lock()
						for _, task := range tasks {
							known = append(known, task.ID)
						}
						mu.Unlock()
					default:
						work(1+rand.IntN(8), 0.05)
					}
				}
			})
		}
		wg.Wait()
		for work(100, 0) > 0 {
		}
		yes := map[string]string{"sqlite": "1", "postgres": "true"}[db.store.Dialect().Name()]
		if n := db.count("status = 'queued'") - db.value("select count(*) from cairnq_tasks t join holdfast_waits w on w.task_id = t.id where t.status = 'queued' and w.released_at_ms is null and w.pending > 0 and t.run_at_ms = %d", holdfast.WaitingRunAt); n != 0 {
			t.Errorf("%d queued tasks neither wait nor were claimed", n)
		}
		if n := db.value("select count(*) from holdfast_waits w where w.released_at_ms is null and w.pending <> (select count(*) from holdfast_dependencies d where d.child_id = w.task_id and d.met <> %s)", yes); n != 0 {
			t.Errorf("%d tasks count their parents wrongly", n)
		}
		// A parent that had failed when the child was submitted may go again; that it counted stays.
		if n := db.value(`select count(*) from holdfast_dependencies d join holdfast_waits w on w.task_id = d.child_id left join cairnq_tasks p on p.id = d.parent_id
			where w.released_at_ms is null and (d.met = %s and d.finished <> %s and p.status <> 'succeeded'
				or d.met <> %s and (p.id is null or p.status = 'succeeded' or d.finished = %s and p.status in ('failed', 'canceled')))`, yes, yes, yes, yes); n != 0 {
			t.Errorf("%d dependencies do not know how their parents ended", n)
		}
		if n := db.value("select count(*) from holdfast_settling"); n != 0 {
			t.Errorf("%d rows were left to be settled", n)
		}
		if n := db.value("select count(*) from holdfast_dependencies d where not exists (select 1 from cairnq_tasks t where t.id = d.child_id)"); n != 0 {
			t.Errorf("%d dependencies outlived their tasks", n)
		}
		if n := db.value("select count(*) from holdfast_purged p where not exists (select 1 from holdfast_dependencies d where d.parent_id = p.id)"); n != 0 {
			t.Errorf("%d purged parents outlived their children", n)
		}
		t.Logf("%d tasks, %d of them never released", len(known), db.value("select count(*) from holdfast_waits where released_at_ms is null"))
	})
}
