package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// A handler may have a backoff of its own, which is told the attempt and the error.
func TestHandlersOwnBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		boom := errors.New("boom")
		var starts []time.Time
		w := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: quiet, Backoff: holdfast.Exponential(time.Hour, time.Hour)})
		w.Handle("job", func(context.Context, *holdfast.Run) (any, error) {
			starts = append(starts, time.Now())
			return nil, boom
		}, holdfast.RetryBackoff(func(attempt int, err error) time.Duration {
			if !errors.Is(err, boom) {
				t.Errorf("the backoff was told %v", err)
			}
			return time.Duration(attempt) * time.Minute
		}))
		ctx := context.Background()
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		task, err := client.Submit(ctx, "job", nil, holdfast.MaxAttempts(4))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Wait(ctx, task.ID); err != nil {
			t.Fatal(err)
		}
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
		if len(starts) != 4 {
			t.Fatalf("%d starts", len(starts))
		}
		for i := 1; i < 4; i++ {
			want := time.Duration(i) * time.Minute
			if got := starts[i].Sub(starts[i-1]); got < want || got > want+2*time.Millisecond {
				t.Errorf("attempt %d came after %v, want %v", i+1, got, want)
			}
		}
	})
}

// A payload that does not fit the handler's type fails with a code of its own, and is tried again as any
// other failure: a newer program may be able to read it.
func TestUndecodablePayloadBacksOff(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		var asked []int
		startWorker(t, store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			add.Handle(w, func(context.Context, *holdfast.Run, addIn) (addOut, error) {
				t.Error("the handler was called")
				return addOut{}, nil
			}, holdfast.RetryBackoff(func(attempt int, _ error) time.Duration {
				asked = append(asked, attempt)
				return time.Millisecond
			}))
		})
		ctx := deadline(t)
		task, err := client.Submit(ctx, add.Name(), "no object", holdfast.MaxAttempts(3))
		if err != nil {
			t.Fatal(err)
		}
		task, err = client.Wait(ctx, task.ID)
		if err != nil || task.Status != holdfast.Failed || task.Attempt != 3 || task.Failure().Code != holdfast.CodeInvalidPayload || !strings.Contains(task.Failure().Message, "payload") {
			t.Errorf("%+v, %v, %v", task, task.Failure(), err)
		}
		past, err := client.Attempts(ctx, task.ID)
		if err != nil || len(past) != 3 || past[0].Failure().Code != holdfast.CodeInvalidPayload {
			t.Errorf("history %+v, %v", past, err)
		}
		if len(asked) != 3 {
			t.Errorf("the backoff was asked for attempts %v", asked)
		}
	})
}

// A failure record that cannot be kept is reduced to its text, which is cleaned.
func TestFailureThatCannotBeKept(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		failures := map[string]*holdfast.Failure{
			"broken details": {Code: "c", Message: "m", Details: json.RawMessage(`{"a":`)},
			"not UTF-8":      {Code: "c", Message: "m", Details: json.RawMessage("\"\xff\"")},
			"huge details":   {Code: "c", Message: "m", Details: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)},
			"dirty texts":    {Type: "t\x00", Code: "c\xff", Message: "m\x00\xff", Details: json.RawMessage(`{"kept":true}`)},
			"huge message":   {Code: "c", Message: strings.Repeat("ä", 1<<20)},
		}
		startWorker(t, store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			w.Handle("job", func(_ context.Context, run *holdfast.Run) (any, error) {
				var name string
				if err := run.Task().Decode(&name); err != nil {
					return nil, err
				}
				return nil, failures[name]
			})
		})
		ctx := deadline(t)
		for name := range failures {
			task, err := client.Submit(ctx, "job", name, holdfast.MaxAttempts(1))
			if err != nil {
				t.Fatal(err)
			}
			task, err = client.Wait(ctx, task.ID)
			if err != nil || task.Status != holdfast.Failed {
				t.Fatalf("%s: %+v, %v", name, task, err)
			}
			f := task.Failure()
			kept := name == "dirty texts"
			if (f.Details != nil) != kept || !strings.HasPrefix(f.Code, "c") || strings.Contains(f.Message+f.Code+f.Type, "\x00") || !utf8.ValidString(f.Message+f.Code+f.Type) || f.Message == "" || len(task.Error) > 128<<10 {
				t.Errorf("%s: recorded %.200s", name, task.Error)
			}
		}
	})
}

// An attempt that has been abandoned writes nothing any more, even while the same worker has the task again.
func TestLateWritesOfAnAbandonedAttempt(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		late := make(chan error, 3)
		second, wrote, stop := make(chan struct{}), make(chan struct{}), make(chan struct{})
		startWorker(t, store, holdfast.WorkerConfig{Backoff: holdfast.Exponential(2, 2)}, func(w *holdfast.Worker) {
			w.Handle("job", func(ctx context.Context, run *holdfast.Run) (any, error) {
				if run.Attempt() == 1 {
					defer close(stop)
					<-second // it hears nothing of its own end
					late <- run.Progress(context.Background(), 0.9, "late")
					late <- run.Complete(context.Background(), "late") // does nothing
					late <- run.Fail(context.Background(), errors.New("late"))
					close(wrote)
					return "late", nil
				}
				close(second)
				<-wrote
				<-stop
				return "in time", run.Progress(ctx, 0.1, "again")
			}, holdfast.AttemptTimeout(200*time.Millisecond))
		})
		ctx := deadline(t)
		task, err := client.Submit(ctx, "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		task, err = client.Wait(ctx, task.ID)
		if err != nil || task.Status != holdfast.Succeeded || task.Attempt != 2 || string(task.Result) != `"in time"` || task.Message != "again" {
			t.Errorf("%+v, %v", task, err)
		}
		if err := <-late; !errors.Is(err, holdfast.ErrLeaseLost) {
			t.Errorf("late progress: %v", err)
		}
		for range 2 {
			if err := <-late; err != nil {
				t.Errorf("settling a second time: %v", err)
			}
		}
	})
}

// What a handler logs says which task it is about.
func TestRunLog(t *testing.T) {
	store := newStore(t)
	client := holdfast.NewClient(store)
	var said strings.Builder
	w := startWorker(t, store, holdfast.WorkerConfig{Log: slog.New(slog.NewTextHandler(&said, nil))}, func(w *holdfast.Worker) {
		w.Handle("job", func(_ context.Context, run *holdfast.Run) (any, error) {
			run.Log().Info("hello")
			return nil, nil
		})
	})
	task, err := client.Submit(t.Context(), "job", nil, holdfast.Queue("default"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Wait(deadline(t), task.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(deadline(t)); err != nil { // it writes no more
		t.Fatal(err)
	}
	for _, want := range []string{"msg=hello", "worker=" + w.ID(), "task=" + task.ID, "name=job", "queue=default", "attempt=1"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, said.String())
		}
	}
}

// A handler that returns after its lease has ended, and another worker has the task, changes nothing: also
// not when it discards the task.
func TestOutcomesOfALostTask(t *testing.T) {
	for name, outcome := range map[string]func() (any, error){
		"value":     func() (any, error) { return "late", nil },
		"error":     func() (any, error) { return nil, errors.New("late") },
		"permanent": func() (any, error) { return nil, holdfast.Permanent(errors.New("late")) },
		"snooze":    func() (any, error) { return nil, holdfast.Snooze(time.Hour) },
		"discard":   func() (any, error) { return nil, holdfast.Discard("late") },
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			store := newStore(t, sqlite.WithClock(clock.Now))
			client := holdfast.NewClient(store)
			started, release := make(chan struct{}), make(chan struct{})
			ended := make(chan holdfast.Event, 10)
			startWorker(t, store, holdfast.WorkerConfig{Concurrency: 1, Lease: time.Hour, OnEvent: func(e holdfast.Event) { // one slot: it cannot take the task again itself
				if e.Kind != holdfast.TaskStarted {
					ended <- e
				}
			}}, func(w *holdfast.Worker) {
				w.Handle("job", func(context.Context, *holdfast.Run) (any, error) {
					close(started)
					<-release
					return outcome()
				})
			})
			ctx := deadline(t)
			task, err := client.Submit(ctx, "job", nil)
			if err != nil {
				t.Fatal(err)
			}
			<-started
			// As a process that was stopped for two hours sees it: its next heartbeat is yet to come.
			clock.Move(2 * time.Hour)
			got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "other", Lease: time.Hour})
			if err != nil || len(got.Tasks) != 1 {
				t.Fatal(got, err)
			}
			close(release)
			if e := <-ended; e.Kind != holdfast.TaskLost || !errors.Is(e.Err, holdfast.ErrLeaseLost) {
				t.Errorf("the event is %s %s, %v; want lost", e.Kind, e.Status, e.Err)
			}
			now, err := client.Get(ctx, task.ID)
			if err != nil || now.Status != holdfast.Running || now.WorkerID != "other" || !now.CancelRequestedAt.IsZero() || now.Attempt != 2 || now.Error != nil {
				t.Errorf("the other worker's task was changed: %+v, %v", now, err)
			}
		})
	}
}

// An outcome that the database refuses, by a rule of the application's own say, does not hold the worker up
// for ever: it becomes a failure that says so.
func TestOutcomeThatTheDatabaseRefuses(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		if db.store.Dialect().Name() == "sqlite" {
			db.exec(`create trigger app_rule before update on cairnq_tasks when new.result = '"refused"' begin select raise(abort, 'not this one'); end`)
		} else {
			db.exec(`alter table cairnq_tasks add constraint app_rule check (result::text <> '"refused"')`)
		}
		startWorker(t, db.store, holdfast.WorkerConfig{Backoff: holdfast.Exponential(2, 2)}, func(w *holdfast.Worker) {
			w.Handle("refused", func(context.Context, *holdfast.Run) (any, error) { return "refused", nil })
			w.Handle("for ever", func(context.Context, *holdfast.Run) (any, error) {
				return nil, holdfast.Snooze(200 * 365 * 24 * time.Hour)
			})
		})
		ctx := deadline(t)
		task, err := db.client.Submit(ctx, "refused", nil, holdfast.MaxAttempts(2))
		if err != nil {
			t.Fatal(err)
		}
		if task, err = db.client.Wait(ctx, task.ID); err != nil {
			t.Fatal(err)
		}
		if task.Status != holdfast.Failed || task.Attempt != 2 || !strings.Contains(task.Failure().Message, "could not be written") {
			t.Errorf("%+v, %v", task, task.Failure())
		}
		// A delay beyond the limit is the limit.
		task, err = db.client.Submit(ctx, "for ever", nil)
		if err != nil {
			t.Fatal(err)
		}
		for now, err := range db.client.Watch(ctx, task.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if now.Status == holdfast.Queued && now.RunAt.After(now.CreatedAt) {
				if d := now.RunAt.Sub(now.UpdatedAt); d != holdfast.MaxDelay {
					t.Errorf("snoozed for %v", d)
				}
				break
			}
		}
	})
}
