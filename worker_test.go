package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
)

func newStore(t testing.TB, options ...sqlite.Option) *holdfast.Store {
	t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Memory, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// opener opens a store on a database of its own.
type opener func(t testing.TB) *holdfast.Store

// onBothDatabases runs the test on SQLite in memory and on a real Postgres.
func onBothDatabases(t *testing.T, test func(t *testing.T, newStore opener)) {
	t.Run("sqlite", func(t *testing.T) { test(t, func(t testing.TB) *holdfast.Store { return newStore(t) }) })
	t.Run("postgres", func(t *testing.T) {
		test(t, func(t testing.TB) *holdfast.Store {
			store, err := postgres.Open(context.Background(), pgtest.DSN(t), postgres.WithLogger(quiet))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
			return store
		})
	})
}

var quiet = slog.New(slog.DiscardHandler)

// startWorker starts a worker that the test's end stops.
func startWorker(t testing.TB, store *holdfast.Store, config holdfast.WorkerConfig, register func(*holdfast.Worker)) *holdfast.Worker {
	t.Helper()
	if config.Log == nil {
		config.Log = quiet
	}
	w := holdfast.NewWorker(store, config)
	register(w)
	if err := w.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type addIn struct{ A, B int }
type addOut struct{ Sum int }

var add = holdfast.Define[addIn, addOut]("math.add", holdfast.MaxAttempts(2))

func TestCallReturnsTheHandlersResult(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		startWorker(t, store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			add.Handle(w, func(_ context.Context, run *holdfast.Run, in addIn) (addOut, error) {
				return addOut{in.A + in.B}, run.Progress(context.Background(), 0.5, "half")
			})
		})
		out, err := add.Call(deadline(t), client, addIn{2, 3})
		if err != nil || out.Sum != 5 {
			t.Fatalf("got %v, %v", out, err)
		}
	})
}

// What a handler returns decides what becomes of its task.
func TestOutcomes(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		boom := errors.New("boom\x00\xff")
		for _, c := range []struct {
			name    string
			handler func(context.Context, *holdfast.Run) (any, error)
			status  holdfast.Status
			attempt int
			code    string
			text    string
		}{
			{"value", func(context.Context, *holdfast.Run) (any, error) { return 1, nil }, holdfast.Succeeded, 1, "", ""},
			{"error, all attempts", func(context.Context, *holdfast.Run) (any, error) { return nil, boom }, holdfast.Failed, 3, holdfast.CodeHandlerError, "boom\uFFFD\uFFFD"},
			{"error, then value", func(_ context.Context, r *holdfast.Run) (any, error) {
				if r.Attempt() < 2 {
					return nil, boom
				}
				return 2, nil
			}, holdfast.Succeeded, 2, holdfast.CodeHandlerError, "boom"},
			{"permanent", func(context.Context, *holdfast.Run) (any, error) {
				return nil, fmt.Errorf("wrapped: %w", holdfast.Permanent(boom))
			}, holdfast.Failed, 1, holdfast.CodeHandlerError, "wrapped: boom"},
			{"failure of its own", func(context.Context, *holdfast.Run) (any, error) {
				return nil, &holdfast.Failure{Code: "no_such_patient", Message: "nobody"}
			}, holdfast.Failed, 1, "no_such_patient", "nobody"},
			{"panic", func(context.Context, *holdfast.Run) (any, error) { panic("ouch") }, holdfast.Failed, 3, holdfast.CodePanic, "ouch"},
			{"no JSON", func(context.Context, *holdfast.Run) (any, error) { return func() {}, nil }, holdfast.Failed, 1, holdfast.CodeUnserializableResult, "JSON"},
			{"too large", func(context.Context, *holdfast.Run) (any, error) { return strings.Repeat("x", 2000), nil }, holdfast.Failed, 1, holdfast.CodeUnserializableResult, "limit"},
			{"timeout", func(ctx context.Context, _ *holdfast.Run) (any, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}, holdfast.Failed, 3, holdfast.CodeHandlerTimeout, "longer than"},
			{"snooze once", func() holdfast.HandlerFunc {
				var n atomic.Int32
				return func(context.Context, *holdfast.Run) (any, error) {
					if n.Add(1) == 1 {
						return nil, holdfast.Snooze(time.Millisecond)
					}
					return nil, nil
				}
			}(), holdfast.Succeeded, 1, "", ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				client := holdfast.NewClient(store)
				startWorker(t, store, holdfast.WorkerConfig{Backoff: holdfast.Exponential(2, 2), ResultLimit: 1000}, func(w *holdfast.Worker) {
					w.Handle("job", c.handler, holdfast.AttemptTimeout(300*time.Millisecond))
				})
				ctx := deadline(t)
				task, err := client.Submit(ctx, "job", nil)
				if err != nil {
					t.Fatal(err)
				}
				task, err = client.Wait(ctx, task.ID)
				if err != nil {
					t.Fatal(err)
				}
				if task.Status != c.status || task.Attempt != c.attempt {
					t.Errorf("status %s after attempt %d, want %s after %d", task.Status, task.Attempt, c.status, c.attempt)
				}
				f := task.Failure()
				switch {
				case c.code == "" && f != nil:
					t.Errorf("failure %v", f)
				case c.code != "" && (f == nil || f.Code != c.code || !strings.Contains(f.Message, c.text)):
					t.Errorf("failure %v, want code %s and %q", f, c.code, c.text)
				}
				if c.code == holdfast.CodePanic && !strings.Contains(string(f.Details), "worker_test.go") {
					t.Errorf("details hold no stack: %s", f.Details)
				}
			})
		}
	})
}

// The handler's context says why it ended.
func TestContextCauses(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		block := func(cause chan<- error, started chan<- struct{}) holdfast.HandlerFunc {
			return func(ctx context.Context, _ *holdfast.Run) (any, error) {
				started <- struct{}{}
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		}
		t.Run("cancel", func(t *testing.T) {
			store, cause, started := newStore(t), make(chan error, 1), make(chan struct{}, 1)
			client := holdfast.NewClient(store)
			startWorker(t, store, holdfast.WorkerConfig{Lease: time.Second, Heartbeat: 20 * time.Millisecond}, func(w *holdfast.Worker) { w.Handle("job", block(cause, started)) })
			ctx := deadline(t)
			task, err := client.Submit(ctx, "job", nil)
			if err != nil {
				t.Fatal(err)
			}
			<-started
			if _, err := client.Cancel(ctx, task.ID); err != nil {
				t.Fatal(err)
			}
			if got := <-cause; !errors.Is(got, holdfast.ErrCancelRequested) {
				t.Errorf("cause %v", got)
			}
			task, err = client.Wait(ctx, task.ID)
			if err != nil || task.Status != holdfast.Canceled {
				t.Errorf("%v, %v", task, err)
			}
		})
		t.Run("lost lease", func(t *testing.T) {
			store, cause, started := newStore(t), make(chan error, 1), make(chan struct{}, 1)
			client := holdfast.NewClient(store)
			survived := make(chan error, 100)
			w := startWorker(t, store, holdfast.WorkerConfig{Lease: time.Second, Heartbeat: 20 * time.Millisecond, OnError: func(err error) { survived <- err }}, func(w *holdfast.Worker) {
				w.Handle("job", block(cause, started))
			})
			ctx := deadline(t)
			task, err := client.Submit(ctx, "job", nil, holdfast.MaxAttempts(1))
			if err != nil {
				t.Fatal(err)
			}
			<-started
			// Somebody else settles it under this worker's name, as a process with a copied id would.
			if _, err := store.Succeed(ctx, &holdfast.Task{ID: task.ID, WorkerID: w.ID()}, nil); err != nil {
				t.Fatal(err)
			}
			if got := <-cause; !errors.Is(got, holdfast.ErrLeaseLost) {
				t.Errorf("cause %v", got)
			}
			for got := range survived {
				// On a busy machine a heartbeat may also miss its deadline, and that is told as well.
				if errors.Is(got, holdfast.ErrLeaseLost) {
					break
				} else if !errors.Is(got, context.DeadlineExceeded) {
					t.Errorf("told %v", got)
				}
			}
		})
		t.Run("stop", func(t *testing.T) {
			store, cause, started := newStore(t), make(chan error, 1), make(chan struct{}, 1)
			client := holdfast.NewClient(store)
			w := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: quiet})
			w.Handle("job", block(cause, started))
			ctx := deadline(t)
			if err := w.Start(ctx); err != nil {
				t.Fatal(err)
			}
			task, err := client.Submit(ctx, "job", nil)
			if err != nil {
				t.Fatal(err)
			}
			<-started
			soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			if err := w.Stop(soon); err != nil {
				t.Fatal(err)
			}
			if got := <-cause; !errors.Is(got, holdfast.ErrWorkerStopping) {
				t.Errorf("cause %v", got)
			}
			task, err = client.Get(ctx, task.ID)
			if err != nil || task.Status != holdfast.Queued || task.Attempt != 0 {
				t.Errorf("not handed back unspent: %+v, %v", task, err)
			}
		})
	})
}

// A handler that ignores its context neither holds Stop beyond its deadline nor keeps the task.
func TestStopDoesNotWaitForADeafHandler(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		release, started := make(chan struct{}), make(chan struct{}, 1)
		defer close(release)
		late := make(chan error, 1)
		w := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: quiet})
		w.Handle("deaf", func(_ context.Context, run *holdfast.Run) (any, error) {
			started <- struct{}{}
			<-release
			late <- run.Progress(context.Background(), 1, "too late")
			return "too late", nil
		})
		ctx := deadline(t)
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		task, err := client.Submit(ctx, "deaf", nil)
		if err != nil {
			t.Fatal(err)
		}
		<-started
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := w.Stop(soon); err != nil {
			t.Fatal(err)
		}
		got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 10}}, WorkerID: "next", Lease: time.Minute})
		if err != nil || len(got.Tasks) != 1 || got.Tasks[0].ID != task.ID || got.Tasks[0].Attempt != 1 {
			t.Fatalf("the next worker got %+v, %v", got, err)
		}
		release <- struct{}{}
		if err := <-late; !errors.Is(err, holdfast.ErrWorkerStopping) {
			t.Errorf("a late write got %v", err)
		}
		if task, err = client.Get(ctx, task.ID); err != nil || task.WorkerID != "next" || task.Status != holdfast.Running {
			t.Errorf("the late handler changed the task: %+v, %v", task, err)
		}
	})
}

func TestWorkerRefusesBadConfigs(t *testing.T) {
	store := newStore(t)
	for field, config := range map[string]holdfast.WorkerConfig{
		"concurrency": {Concurrency: -1},
		"lease":       {Lease: time.Millisecond, Heartbeat: 1},
		"heartbeat":   {Lease: time.Second, Heartbeat: time.Second},
		"poll":        {Poll: 1},
		"queue":       {Queues: []string{""}},
		"worker_id":   {ID: strings.Repeat("x", 256)},

		"grace":         {Grace: -1},
		"result_limit":  {ResultLimit: -1},
		"payload_bytes": {PayloadBytes: -1},
		"resource gpu":  {Resources: map[string]int{"gpu": 0}},
		"payload_limit": {Client: holdfast.NewClient(store, holdfast.WithPayloadLimit(-1), holdfast.WithLogger(quiet))},
	} {
		w := holdfast.NewWorker(store, config)
		w.Handle("job", func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
		var bad *holdfast.InvalidError
		if err := w.Start(context.Background()); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	b := holdfast.Exponential(time.Second, 30*time.Second)
	for attempt, window := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 7: 30, 100_000: 30} {
		window *= time.Second
		for range 100 {
			if d := b(attempt, nil); d < window/2 || d >= window {
				t.Fatalf("attempt %d: %v is outside of [%v, %v)", attempt, d, window/2, window)
			}
		}
	}
	if d := holdfast.Exponential(1, 1<<62+1<<61)(100, nil); d <= 0 {
		t.Errorf("overflow: %v", d)
	}
}
