package processtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/storetest"
)

// work submits, claims and settles until it is killed. Each thing that the store has acknowledged is a
// line of its output, written whole: what has been written stays in the pipe.
func work(ctx context.Context, store *holdfast.Store) error {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }
	worker := fmt.Sprint("w", os.Getpid())
	var wg sync.WaitGroup
	failed := make(chan error, 4)
	for i := range 2 { // two submitters, two workers, on one store
		wg.Go(func() {
			failed <- func() error {
				for n := 0; ; n++ {
					switch rand.N(3) {
					case 0:
						key := fmt.Sprintf("key-%d-%d-%d", os.Getpid(), i, n)
						task, err := store.Submit(ctx, &holdfast.Submission{Name: "job", Key: key, MaxAttempts: 1000})
						if err != nil {
							return err
						}
						say("key %s %s", key, task.ID)
						say("submitted %s", task.ID)
					case 1:
						tasks, err := store.SubmitMany(ctx, []*holdfast.Submission{{Name: "job", MaxAttempts: 1000}, {Name: "job", MaxAttempts: 1000}, {Name: "job", MaxAttempts: 1000}})
						if err != nil {
							return err
						}
						say("together %s %s %s", tasks[0].ID, tasks[1].ID, tasks[2].ID)
					case 2:
						task, err := store.Submit(ctx, &holdfast.Submission{Name: "job", Priority: rand.N(3), MaxAttempts: 1000})
						if err != nil {
							return err
						}
						say("submitted %s", task.ID)
					}
					time.Sleep(time.Millisecond)
				}
			}()
		})
		wg.Go(func() {
			failed <- func() error {
				for {
					got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 4}}, WorkerID: worker, Lease: 300 * time.Millisecond})
					if err != nil {
						return err
					}
					for _, t := range got.Tasks {
						say("claimed %s %d %d %d", t.ID, t.Attempt, t.UpdatedAt.UnixMilli(), t.LeaseUntil.UnixMilli())
					}
					for _, t := range got.Tasks {
						if rand.N(5) == 0 {
							say("failing %s %d", t.ID, t.Attempt) // before: it may not live to say so after
							_, err = store.Fail(ctx, t, json.RawMessage(`{"code":"again"}`), true, 0)
						} else if _, err = store.Complete(ctx, t, json.RawMessage(fmt.Sprintf(`{"by":"%s","attempt":%d}`, worker, t.Attempt))); err == nil {
							say("completed %s %s %d", t.ID, worker, t.Attempt)
						}
						if err != nil && !errors.Is(err, holdfast.ErrLeaseLost) {
							return err
						}
					}
					time.Sleep(time.Millisecond)
				}
			}()
		})
	}
	return <-failed
}

// history is what killed processes were told.
type history struct {
	mu    sync.Mutex
	lines []string
}

// Processes that submit, claim and complete are killed one after the other: nothing that any of them was
// told is missing, no task is claimed under a live lease, and all the work gets done.
func TestKilledProcessesLoseNothing(t *testing.T) {
	kills := 40
	if testing.Short() {
		kills = 10
	}
	onEach(t, func(t *testing.T, d *database) {
		store := d.open(t)
		db := d.sql(t)
		const processes = 3
		var h history
		var wg sync.WaitGroup
		turn := make(chan struct{}, kills)
		for range kills {
			turn <- struct{}{}
		}
		close(turn)
		for range processes {
			wg.Go(func() {
				for range turn {
					// It dies at a random moment after it has done something.
					c := d.start(t, process{Lines: true})
					c.atLeast(1 + rand.N(400))
					c.kill()
					h.mu.Lock()
					for _, line := range c.lines {
						h.lines = append(h.lines, strings.Join(line, " "))
					}
					h.mu.Unlock()
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		storetest.CheckInvariants(t, db)
		if d.name == "sqlite" {
			var sound string
			if err := db.QueryRow("pragma integrity_check").Scan(&sound); err != nil || sound != "ok" {
				t.Fatalf("the file is damaged: %s, %v", sound, err)
			}
		}
		// What is left is finished by one more worker, an hour later, when every lease has ended.
		if _, err := db.Exec("update cairnq_tasks set lease_until_ms = lease_until_ms - 3600000 where status = 'running'"); err != nil {
			t.Fatal(err)
		}
		for {
			got, err := store.Claim(deadline(t), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 100}}, WorkerID: "last", Lease: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Tasks) == 0 {
				break
			}
			for _, own := range got.Tasks {
				if _, err := store.Complete(t.Context(), own, json.RawMessage(`{"by":"last"}`)); err != nil {
					t.Fatal(err)
				}
			}
		}
		storetest.CheckInvariants(t, db)
		var all, left int
		if err := db.QueryRow("select count(*), count(*) filter (where status <> 'succeeded') from cairnq_tasks").Scan(&all, &left); err != nil || left > 0 {
			t.Errorf("%d tasks were not finished, %v", left, err)
		}
		h.check(t, store)
		t.Logf("%d processes were killed; they were told %d things about %d tasks", kills, len(h.lines), all)
	})
}

// check holds the database against what was acknowledged.
func (h *history) check(t *testing.T, store *holdfast.Store) {
	type claim struct{ from, until int64 }
	claims := map[string]map[int]*claim{} // by task and attempt
	completed := map[string]bool{}
	get := func(id string) *holdfast.Task {
		task, err := store.Get(t.Context(), id)
		if err != nil {
			t.Fatalf("a task that was acknowledged is missing: %v", err)
		}
		return task
	}
	for _, line := range h.lines {
		w := strings.Fields(line)
		switch w[0] {
		case "submitted", "together":
			for _, id := range w[1:] {
				get(id)
			}
		case "key":
			task, err := store.GetByKey(t.Context(), w[1])
			if err != nil || task.ID != w[2] {
				t.Fatalf("key %s was acknowledged for %s: %v, %v", w[1], w[2], task, err)
			}
		case "completed":
			if completed[w[1]] {
				t.Errorf("%s was completed twice", w[1])
			}
			completed[w[1]] = true
			var got struct {
				By      string      `json:"by"`
				Attempt json.Number `json:"attempt"`
			}
			if err := get(w[1]).DecodeResult(&got); err != nil || got.By != w[2] || got.Attempt.String() != w[3] {
				t.Errorf("%s: the result is %+v (%v), acknowledged was attempt %s by %s", w[1], got, err, w[3], w[2])
			}
		case "claimed":
			var c claim
			var attempt int
			if _, err := fmt.Sscan(strings.Join(w[2:], " "), &attempt, &c.from, &c.until); err != nil {
				t.Fatal(err)
			}
			if claims[w[1]] == nil {
				claims[w[1]] = map[int]*claim{}
			}
			if claims[w[1]][attempt] != nil {
				t.Errorf("attempt %d of %s was claimed twice", attempt, w[1])
			}
			claims[w[1]][attempt] = &c
			if now := get(w[1]); now.Attempt < attempt {
				t.Errorf("%s is in attempt %d, and %d was claimed", w[1], now.Attempt, attempt)
			}
		}
	}
	failed := map[string]bool{}
	for _, line := range h.lines {
		if w := strings.Fields(line); w[0] == "failing" {
			failed[w[1]+" "+w[2]] = true
		}
	}
	for id, attempts := range claims {
		for n, c := range attempts {
			next := attempts[n+1]
			if next != nil && next.from < c.until && !failed[fmt.Sprint(id, " ", n)] {
				t.Errorf("attempt %d of %s was claimed at %d under the lease of attempt %d until %d", n+1, id, next.from, n, c.until)
			}
		}
	}
}
