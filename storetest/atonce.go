package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/eda94727/holdfast"
)

// together runs fn n times at once and waits for all.
func (x *test) together(n int, fn func(i int) error) {
	x.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	x.must(errors.Join(errs...))
}

// atOnceRules are about several goroutines on two stores.
var atOnceRules = []rule{
	{"no task is claimed twice, and none is left", func(x *test) {
		const tasks, workers = 300, 8
		stores := []*holdfast.Store{x.s, x.Again(x)}
		var mu sync.Mutex
		owner := map[string]string{}
		var submitted, settled atomic.Int64
		x.together(workers, func(i int) error {
			store, worker := stores[i%2], fmt.Sprint("w", i)
			for settled.Load() < tasks {
				if n := submitted.Add(3); n <= tasks {
					for range 3 {
						if _, err := store.Submit(x.ctx, &holdfast.Submission{Name: fmt.Sprint("n", n%2), Priority: int(n % 3)}); err != nil {
							return err
						}
					}
				}
				got, err := store.Claim(x.ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{named(2, "n0"), {AnyName: true, Limit: 2}}, WorkerID: worker, Lease: lease})
				if err != nil {
					return err
				}
				if len(got.Tasks) > 4 {
					return fmt.Errorf("%d tasks were claimed of 4", len(got.Tasks))
				}
				for _, t := range got.Tasks {
					mu.Lock()
					if was, ok := owner[t.ID]; ok {
						mu.Unlock()
						return fmt.Errorf("%s was claimed by %s and by %s", t.ID, was, worker)
					}
					owner[t.ID] = worker
					mu.Unlock()
					if t.Attempt != 1 || t.WorkerID != worker {
						return fmt.Errorf("%s is in attempt %d of %s, claimed by %s", t.ID, t.Attempt, t.WorkerID, worker)
					}
					if _, err := store.Complete(x.ctx, t, nil); err != nil {
						return err
					}
					settled.Add(1)
				}
			}
			return nil
		})
		is(x, "succeeded", x.number("select count(*) from cairnq_tasks where status = 'succeeded' and attempt = 1"), tasks)
		is(x, "the number of tasks", x.rows(), tasks)
	}},
	{"one expired task is recovered once", func(x *test) {
		stores := []*holdfast.Store{x.s, x.Again(x)}
		for range 10 {
			t := x.running("lost", holdfast.Submission{})
			x.pass(lease)
			var recovered, claimed atomic.Int64
			x.together(6, func(i int) error {
				got, err := stores[i%2].Claim(x.ctx, holdfast.Claim{Queues: []string{"default"}, Draws: anyName(5), WorkerID: fmt.Sprint("w", i), Lease: lease})
				if err == nil {
					recovered.Add(int64(len(got.Recovered)))
					claimed.Add(int64(len(got.Tasks)))
				}
				return err
			})
			is(x, "recovered", recovered.Load(), 1)
			// One that skips what another holds just now may leave it to the next claim.
			if got := x.claim("last", 1); claimed.Load()+int64(len(got)) != 1 {
				x.Fatalf("%d and %d claims took the task, want one", claimed.Load(), len(got))
			}
			now := x.get(t.ID)
			is(x, "the attempt", now.Attempt, 2)
			x.must(second(x.s.Complete(x.ctx, now, nil)))
		}
	}},
	{"of submits at once, each task keeps its own fields", func(x *test) {
		tasks := make([]*holdfast.Task, 64)
		for round := range 5 {
			x.together(len(tasks), func(i int) (err error) {
				tasks[i], err = x.s.Submit(x.ctx, &holdfast.Submission{Name: fmt.Sprint("job", i), Priority: i, Payload: json.RawMessage(fmt.Sprintf(`{"round":%d,"i":%d}`, round, i))})
				return err
			})
			for i, t := range tasks {
				is(x, "the payload", string(t.Payload), fmt.Sprintf(`{"round":%d,"i":%d}`, round, i))
				same(x, "the task as read", x.get(t.ID), t)
			}
			is(x, "the number of tasks", x.rows(), int64(len(tasks)*(round+1)))
		}
	}},
	{"of submits with one key at once, one makes the task", func(x *test) {
		stores := []*holdfast.Store{x.s, x.Again(x)}
		for round := range 5 {
			key := fmt.Sprint("k", round)
			ids := make([]string, 8)
			x.together(len(ids), func(i int) error {
				t, err := stores[i%2].Submit(x.ctx, &holdfast.Submission{Name: "job", Key: key})
				if err == nil {
					ids[i] = t.ID
				}
				return err
			})
			for _, id := range ids {
				is(x, "the task answered", id, ids[0])
			}
			is(x, "the number of tasks", x.rows(), int64(round+1))
		}
	}},
	{"of rejecting submits with one key at once, one succeeds", func(x *test) {
		stores := []*holdfast.Store{x.s, x.Again(x)}
		var won atomic.Int64
		x.together(8, func(i int) error {
			_, err := stores[i%2].Submit(x.ctx, &holdfast.Submission{Name: "job", Key: "k", Strategy: holdfast.Reject})
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, holdfast.ErrAlreadyExists) {
				return err
			}
			return nil
		})
		is(x, "those that succeeded", won.Load(), 1)
		is(x, "the number of tasks", x.rows(), 1)
	}},
	{"of replacing submits with one key at once, one task stays live", func(x *test) {
		stores := []*holdfast.Store{x.s, x.Again(x)}
		x.together(8, func(i int) error {
			return second(stores[i%2].Submit(x.ctx, &holdfast.Submission{Name: "job", Key: "k", Strategy: holdfast.Replace}))
		})
		is(x, "live tasks", x.number("select count(*) from cairnq_tasks where status = 'queued'"), 1)
		is(x, "canceled tasks", x.number("select count(*) from cairnq_tasks where status = 'canceled'"), 7)
		is(x, "the key's task", x.keyed("k").Status, holdfast.Queued)
	}},
	{"submits of the same keys in different orders do not wait for each other", func(x *test) {
		stores := []*holdfast.Store{x.s, x.Again(x)}
		x.together(8, func(i int) error {
			keys := []string{"a", "b", "c"}
			for range 10 {
				var subs []*holdfast.Submission
				for j := range keys {
					subs = append(subs, &holdfast.Submission{Name: "job", Key: keys[(i+j*(1+i%2))%3], Strategy: holdfast.Replace})
				}
				if err := second(stores[i%2].SubmitMany(x.ctx, subs)); err != nil {
					return err
				}
			}
			return nil
		})
		is(x, "live tasks", x.number("select count(*) from cairnq_tasks where status = 'queued'"), 3)
		is(x, "the number of keys", x.number("select count(*) from cairnq_task_keys"), 3)
	}},
	{"a cancel and a completion at once end the task once", func(x *test) {
		stores := []*holdfast.Store{x.s, x.Again(x)}
		for range 20 {
			t := x.running("w", holdfast.Submission{})
			var status holdfast.Status
			x.together(2, func(i int) error {
				if i == 0 {
					_, err := stores[1].Cancel(x.ctx, t.ID)
					if errors.Is(err, holdfast.ErrState) {
						err = nil // too late
					}
					return err
				}
				var err error
				status, err = stores[0].Complete(x.ctx, t, nil)
				return err
			})
			now := x.get(t.ID)
			is(x, "the status answered", status, now.Status)
			is(x, "that a cancel in time won", now.CancelRequestedAt.IsZero(), now.Status == holdfast.Succeeded)
		}
	}},
	{"purges and submits of one key at once leave no key without task", func(x *test) {
		stores := []*holdfast.Store{x.s, x.Again(x)}
		x.together(4, func(i int) error {
			for range 15 {
				if i%2 == 0 {
					t, err := stores[0].Submit(x.ctx, &holdfast.Submission{Name: "job", Key: "k", Strategy: holdfast.ReuseLive})
					if err != nil {
						return err
					}
					if _, err := stores[0].Cancel(x.ctx, t.ID); err != nil && !errors.Is(err, holdfast.ErrState) && !errors.Is(err, holdfast.ErrNotFound) {
						return err
					}
				} else if err := second(stores[1].Purge(x.ctx, holdfast.PurgeFilter{})); err != nil {
					return err
				}
			}
			return nil
		})
		is(x, "keys without task", x.number("select count(*) from cairnq_task_keys k where not exists (select 1 from cairnq_tasks t where t.id = k.task_id)"), 0)
		x.submit(holdfast.Submission{Key: "k"})
	}},
}
