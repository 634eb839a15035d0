package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
	"github.com/eda94727/holdfast/storetest"
)

// childWorks submits, claims and settles until it is killed. Each thing that the store has
// acknowledged is a line of its output, written whole: what has been written stays in the pipe.
func childWorks(ctx context.Context, path string) error {
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
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

func TestKilledProcessesLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	openAt(t, path).Close()
	kills := 40
	if testing.Short() {
		kills = 10
	}
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
				cmd := child(t, "work", path)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Error(err)
					return
				}
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				// It dies at a random moment after it has done something.
				lines, after := bufio.NewScanner(out), 1+rand.N(400)
				var own []string
				killed := false
				for lines.Scan() {
					own = append(own, lines.Text())
					if len(own) == after {
						killed = cmd.Process.Kill() == nil
					}
				}
				if err := cmd.Wait(); err == nil || !killed {
					t.Errorf("a child ended before it was killed: %v", err)
				}
				h.mu.Lock()
				h.lines = append(h.lines, own...)
				h.mu.Unlock()
			}
		})
	}
	wg.Wait()
	db := openSQL(t, path)
	storetest.CheckInvariants(t, db)
	if got := strings1(t, db, "pragma integrity_check"); got[0] != "ok" {
		t.Fatalf("the file is damaged: %v", got)
	}

	// What is left is finished by one more worker, an hour later, when every lease has ended.
	store := openAt(t, path, sqlite.WithClock(func() time.Time { return time.Now().Add(time.Hour) }))
	for {
		tasks := claimFrom(t, store, "default", 100)
		if len(tasks) == 0 {
			break
		}
		for _, own := range tasks {
			if _, err := store.Complete(t.Context(), own, json.RawMessage(`{"by":"last"}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.CheckInvariants(t, db)
	if got := strings1(t, db, "select id from cairnq_tasks where status <> 'succeeded'"); len(got) > 0 {
		t.Errorf("%d tasks were not finished: %v", len(got), got[0])
	}
	h.check(t, store)
	t.Logf("%d processes were killed; they were told %d things about %s tasks", kills, len(h.lines), strings1(t, db, "select count(*) from cairnq_tasks")[0])
}

// check holds the file against what was acknowledged.
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
			if got, want := string(get(w[1]).Result), fmt.Sprintf(`{"by":"%s","attempt":%s}`, w[2], w[3]); got != want {
				t.Errorf("%s: the result is %s, acknowledged was %s", w[1], got, want)
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
