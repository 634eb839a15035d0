package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

func submitMany(t testing.TB, client *holdfast.Client, name string, n int, options ...holdfast.SubmitOption) []*holdfast.Task {
	t.Helper()
	items := make([]holdfast.Item, n)
	for i := range items {
		items[i] = holdfast.NewItem(name, i, options...)
	}
	tasks, err := client.SubmitMany(context.Background(), items)
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// peak counts how many are inside at once.
type peak struct{ now, max atomic.Int64 }

func (p *peak) enter() {
	n := p.now.Add(1)
	for old := p.max.Load(); n > old && !p.max.CompareAndSwap(old, n); old = p.max.Load() {
	}
}
func (p *peak) leave() { p.now.Add(-1) }

// A name's own concurrency and a shared resource bound calls, and a name at its bound does not hold
// others up behind 10,000 of its tasks.
func TestBoundedNamesDoNotBlockOthers(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		submitMany(t, client, "slow", 10_000, holdfast.Priority(5))
		release := make(chan struct{})
		var slow peak
		entered := make(chan struct{}, 10)
		fast := make(chan struct{}, 50)
		startWorker(t, store, holdfast.WorkerConfig{Concurrency: 8, Grace: time.Second}, func(w *holdfast.Worker) {
			w.Handle("slow", func(ctx context.Context, _ *holdfast.Run) (any, error) {
				slow.enter()
				defer slow.leave()
				select {
				case entered <- struct{}{}:
				default:
				}
				select {
				case <-release:
				case <-ctx.Done():
				}
				return nil, nil
			}, holdfast.HandlerConcurrency(2))
			w.Handle("fast", func(context.Context, *holdfast.Run) (any, error) { fast <- struct{}{}; return nil, nil })
		})
		<-entered
		<-entered
		submitMany(t, client, "fast", 50)
		for range 50 {
			select {
			case <-fast:
			case <-deadline(t).Done():
				t.Fatal("the fast name starved")
			}
		}
		if n := slow.max.Load(); n != 2 {
			t.Errorf("%d calls of the bounded name at once", n)
		}
		close(release)
	})
}

func TestResourceIsSharedByNames(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		var gpu peak
		var done sync.WaitGroup
		done.Add(40)
		startWorker(t, store, holdfast.WorkerConfig{Concurrency: 16, Resources: map[string]int{"gpu": 3}}, func(w *holdfast.Worker) {
			for _, name := range []string{"train", "infer"} {
				w.Handle(name, func(context.Context, *holdfast.Run) (any, error) {
					gpu.enter()
					time.Sleep(time.Millisecond) // give others the chance to come in too
					gpu.leave()
					done.Done()
					return nil, nil
				}, holdfast.UseResource("gpu"))
			}
		})
		submitMany(t, client, "train", 20)
		submitMany(t, client, "infer", 20)
		done.Wait()
		if n := gpu.max.Load(); n > 3 {
			t.Errorf("%d calls used the resource of capacity 3", n)
		}
	})
}

// With one slot and two bounded names that both have a backlog, each name gets its turn.
func TestTurnsRotate(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		submitMany(t, client, "a", 100, holdfast.Priority(9))
		submitMany(t, client, "b", 100)
		order := make(chan string, 200)
		startWorker(t, store, holdfast.WorkerConfig{Concurrency: 1}, func(w *holdfast.Worker) {
			for _, name := range []string{"a", "b"} {
				w.Handle(name, func(context.Context, *holdfast.Run) (any, error) { order <- name; return nil, nil }, holdfast.HandlerConcurrency(1))
			}
		})
		seen := map[string]int{}
		for range 20 {
			seen[<-order]++
		}
		if seen["a"] < 8 || seen["b"] < 8 {
			t.Errorf("of 20 turns a got %d and b got %d", seen["a"], seen["b"])
		}
	})
}

func TestBatches(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		type in struct{ N int }
		double := holdfast.Define[in, int]("double")
		for _, c := range []struct {
			name string
			fn   func(ctx context.Context, batch []holdfast.BatchItem[in, int]) error
			want func(n int) holdfast.Status
		}{
			{"results by task", func(_ context.Context, batch []holdfast.BatchItem[in, int]) error {
				for _, item := range batch {
					*item.Result = item.In.N * 2
				}
				return nil
			}, func(int) holdfast.Status { return holdfast.Succeeded }},
			{"error fails the unsettled", func(ctx context.Context, batch []holdfast.BatchItem[in, int]) error {
				for _, item := range batch {
					if item.In.N%2 == 0 {
						if err := item.Run.Complete(ctx, item.In.N*2); err != nil {
							return err
						}
					}
				}
				return holdfast.Permanent(errors.New("odd ones are not for me"))
			}, func(n int) holdfast.Status {
				if n%2 == 0 {
					return holdfast.Succeeded
				}
				return holdfast.Failed
			}},
			{"settled one by one, twice is once", func(ctx context.Context, batch []holdfast.BatchItem[in, int]) error {
				for _, item := range batch {
					*item.Result = -1
					if item.In.N%3 == 0 {
						if err := item.Run.Fail(ctx, holdfast.Permanent(errors.New("three"))); err != nil {
							return err
						}
					}
					if err := item.Run.Complete(ctx, item.In.N*2); err != nil {
						return err
					}
				}
				return nil
			}, func(n int) holdfast.Status {
				if n%3 == 0 {
					return holdfast.Failed
				}
				return holdfast.Succeeded
			}},
			{"panic fails all", func(context.Context, []holdfast.BatchItem[in, int]) error { panic("no") }, func(int) holdfast.Status { return holdfast.Failed }},
		} {
			t.Run(c.name, func(t *testing.T) {
				store := newStore(t)
				client := holdfast.NewClient(store)
				items := make([]holdfast.Item, 25)
				for i := range items {
					items[i] = double.Item(in{i}, holdfast.MaxAttempts(1))
				}
				ctx := deadline(t)
				tasks, err := client.SubmitMany(ctx, items)
				if err != nil {
					t.Fatal(err)
				}
				bad, err := client.Submit(ctx, "double", "no object", holdfast.MaxAttempts(1))
				if err != nil {
					t.Fatal(err)
				}
				var largest atomic.Int64
				startWorker(t, store, holdfast.WorkerConfig{Concurrency: 2}, func(w *holdfast.Worker) {
					double.HandleBatch(w, 10, func(ctx context.Context, batch []holdfast.BatchItem[in, int]) error {
						largest.Store(max(largest.Load(), int64(len(batch))))
						return c.fn(ctx, batch)
					})
				})
				for i, task := range tasks {
					task, err := client.Wait(ctx, task.ID)
					if err != nil {
						t.Fatal(err)
					}
					if task.Status != c.want(i) {
						t.Errorf("%d: %s, want %s", i, task.Status, c.want(i))
					}
					if task.Status == holdfast.Succeeded && string(task.Result) != fmt.Sprint(i*2) {
						t.Errorf("%d: result %s", i, task.Result)
					}
				}
				if bad, err = client.Wait(ctx, bad.ID); err != nil || bad.Failure() == nil || bad.Failure().Code != holdfast.CodeInvalidPayload {
					t.Errorf("undecodable payload: %+v, %v", bad, err)
				}
				if n := largest.Load(); n < 2 || n > 10 {
					t.Errorf("largest batch %d", n)
				}
			})
		}
	})
}

// A batch takes what is due and does not wait to be filled.
func TestBatchIsNotPadded(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		sizes := make(chan int, 10)
		startWorker(t, store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			w.HandleBatch("job", 100, func(_ context.Context, batch []*holdfast.Run) (map[string]any, error) {
				sizes <- len(batch)
				return nil, nil
			})
		})
		submitMany(t, client, "job", 3)
		for got := 0; got < 3; {
			select {
			case n := <-sizes:
				got += n
			case <-deadline(t).Done():
				t.Fatal("the batch waited to be filled")
			}
		}
	})
}

// A cancel of one task of a batch ends that task's context only.
func TestCancelInsideBatch(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		tasks := submitMany(t, client, "job", 2)
		ctx := deadline(t)
		startWorker(t, store, holdfast.WorkerConfig{Lease: time.Second, Heartbeat: 20 * time.Millisecond}, func(w *holdfast.Worker) {
			w.HandleBatch("job", 2, func(call context.Context, batch []*holdfast.Run) (map[string]any, error) {
				for _, run := range batch {
					if run.Task().ID == tasks[0].ID {
						if _, err := client.Cancel(ctx, tasks[0].ID); err != nil {
							return nil, err
						}
						<-run.Context().Done()
						if err := context.Cause(run.Context()); !errors.Is(err, holdfast.ErrCancelRequested) {
							return nil, err
						}
					}
				}
				return nil, call.Err()
			})
		})
		for i, want := range []holdfast.Status{holdfast.Canceled, holdfast.Succeeded} {
			task, err := client.Wait(ctx, tasks[i].ID)
			if err != nil || task.Status != want {
				t.Errorf("task %d: %+v, %v; want %s", i, task, err, want)
			}
		}
	})
}

func TestPayloadBytesHoldClaimsBack(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		big := strings.Repeat("x", 10_000)
		for range 20 {
			if _, err := client.Submit(context.Background(), "job", big); err != nil {
				t.Fatal(err)
			}
		}
		var inside peak
		var done sync.WaitGroup
		done.Add(20)
		startWorker(t, store, holdfast.WorkerConfig{Concurrency: 20, PayloadBytes: 35_000}, func(w *holdfast.Worker) {
			w.Handle("job", func(context.Context, *holdfast.Run) (any, error) {
				inside.enter()
				time.Sleep(6 * time.Millisecond) // long enough for the others to come in if they could
				inside.leave()
				done.Done()
				return nil, nil
			})
		})
		done.Wait()
		if n := inside.max.Load(); n > 3 {
			t.Errorf("%d payloads of 10 kB were held at once within 35 kB", n)
		}
	})
}

func TestDiscardEndsAsCanceled(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		startWorker(t, store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			w.Handle("job", func(context.Context, *holdfast.Run) (any, error) { return nil, holdfast.Discard("the patient is gone") })
		})
		ctx := deadline(t)
		task, err := client.Submit(ctx, "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		task, err = client.Wait(ctx, task.ID)
		if err != nil || task.Status != holdfast.Canceled || task.Failure().Code != holdfast.CodeDiscarded {
			t.Errorf("%+v, %v", task, err)
		}
	})
}

func TestMiddlewareAndEvents(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		var mu sync.Mutex
		var trace []string
		note := func(s string) { mu.Lock(); trace = append(trace, s); mu.Unlock() }
		wrap := func(name string) holdfast.Middleware {
			return func(next holdfast.HandlerFunc) holdfast.HandlerFunc {
				return func(ctx context.Context, run *holdfast.Run) (any, error) {
					note(name + " in")
					defer note(name + " out")
					return next(ctx, run)
				}
			}
		}
		w := startWorker(t, store, holdfast.WorkerConfig{Backoff: holdfast.Exponential(1, 1), Middleware: []holdfast.Middleware{wrap("outer"), wrap("inner")}}, func(w *holdfast.Worker) {
			w.Handle("job", func(_ context.Context, run *holdfast.Run) (any, error) {
				note("handler")
				if run.Attempt() == 1 {
					return nil, errors.New("once")
				}
				return nil, nil
			})
		})
		events, missed, cancel := w.Subscribe(10)
		ctx := deadline(t)
		if _, err := client.Submit(ctx, "job", nil); err != nil {
			t.Fatal(err)
		}
		want := []holdfast.Event{{Kind: holdfast.TaskStarted}, {Kind: holdfast.TaskSettled, Status: holdfast.Queued}, {Kind: holdfast.TaskStarted}, {Kind: holdfast.TaskSettled, Status: holdfast.Succeeded}}
		var got []holdfast.Event
		for range want {
			select {
			case e := <-events:
				got = append(got, e)
			case <-ctx.Done():
				t.Fatalf("%d events came, want %d", len(got), len(want))
			}
		}
		// The next attempt may begin before the end of the last is told.
		slices.SortStableFunc(got, func(a, b holdfast.Event) int { return a.Task.Attempt - b.Task.Attempt })
		for i, w := range want {
			if got[i].Kind != w.Kind || got[i].Status != w.Status || got[i].Task.Attempt != 1+i/2 {
				t.Errorf("event %d: %s %s of attempt %d, want %s %s", i, got[i].Kind, got[i].Status, got[i].Task.Attempt, w.Kind, w.Status)
			}
		}
		cancel()
		if _, open := <-events; open || missed() != 0 {
			t.Errorf("after cancel: open %v, missed %d", open, missed())
		}
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(trace[:5], ", "); got != "outer in, inner in, handler, inner out, outer out" {
			t.Error(got)
		}
	})
}
