package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eda94727/holdfast"
)

// In these tests time stands still until everybody waits, so hours pass in an instant and every
// moment is exact. The database is real.

// inBubble runs fn with a store, a client, and a worker that runs the handler; all end with fn.
func inBubble(t *testing.T, config holdfast.WorkerConfig, handler holdfast.HandlerFunc, fn func(ctx context.Context, store *holdfast.Store, client *holdfast.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		config.Log = quiet
		w := holdfast.NewWorker(store, config)
		w.Handle("job", handler)
		ctx := context.Background()
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		fn(ctx, store, holdfast.NewClient(store))
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestRetriesWaitAsTheBackoffSays(t *testing.T) {
	var starts []time.Time
	inBubble(t, holdfast.WorkerConfig{}, func(context.Context, *holdfast.Run) (any, error) {
		starts = append(starts, time.Now())
		return nil, errors.New("again")
	}, func(ctx context.Context, _ *holdfast.Store, client *holdfast.Client) {
		task, err := client.Submit(ctx, "job", nil, holdfast.MaxAttempts(8))
		if err != nil {
			t.Fatal(err)
		}
		if task, err = client.Wait(ctx, task.ID); err != nil || task.Status != holdfast.Failed {
			t.Fatal(task, err)
		}
	})
	if len(starts) != 8 {
		t.Fatalf("%d starts", len(starts))
	}
	for i, window := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		window *= time.Second
		// A worker looks when the task is due, to the millisecond of the columns.
		if got := starts[i+1].Sub(starts[i]); got < window/2 || got > window+2*time.Millisecond {
			t.Errorf("attempt %d came %v after the one before, outside of [%v, %v)", i+2, got, window/2, window)
		}
	}
}

func TestDelayedTasksStartWhenTheyAreDue(t *testing.T) {
	var started chan time.Time // made in the bubble, where waiting for it counts as waiting
	inBubble(t, holdfast.WorkerConfig{Poll: time.Hour}, func(context.Context, *holdfast.Run) (any, error) {
		started <- time.Now()
		return nil, nil
	}, func(ctx context.Context, _ *holdfast.Store, client *holdfast.Client) {
		started = make(chan time.Time, 1)
		begin := time.Now()
		if _, err := client.Submit(ctx, "job", nil, holdfast.Delay(90*time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got := (<-started).Sub(begin); got < 90*time.Minute || got > 90*time.Minute+2*time.Millisecond {
			t.Errorf("it started after %v", got)
		}
	})
}

func TestHeartbeatsKeepALongTask(t *testing.T) {
	inBubble(t, holdfast.WorkerConfig{Lease: 30 * time.Second}, func(ctx context.Context, run *holdfast.Run) (any, error) {
		select {
		case <-time.After(3 * time.Hour):
			return run.Attempt(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, func(ctx context.Context, store *holdfast.Store, client *holdfast.Client) {
		task, err := client.Submit(ctx, "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		// Another worker finds nothing to recover, at any moment of the heartbeat's round.
		for range 40 {
			time.Sleep(time.Second)
			got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "other", Lease: time.Minute})
			if err != nil || len(got.Tasks)+len(got.Recovered) != 0 {
				t.Fatalf("another worker got %+v, %v", got, err)
			}
		}
		if task, err = client.Wait(ctx, task.ID); err != nil || task.Status != holdfast.Succeeded || task.Attempt != 1 {
			t.Errorf("%+v, %v", task, err)
		}
	})
}

// A cancel reaches the handler within about a second, long before the next heartbeat.
func TestCancelReachesTheHandlerSoon(t *testing.T) {
	var canceled chan time.Time
	inBubble(t, holdfast.WorkerConfig{Lease: time.Hour}, func(ctx context.Context, _ *holdfast.Run) (any, error) {
		<-ctx.Done()
		canceled <- time.Now()
		return nil, context.Cause(ctx)
	}, func(ctx context.Context, _ *holdfast.Store, client *holdfast.Client) {
		canceled = make(chan time.Time, 1)
		task, err := client.Submit(ctx, "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		asked := time.Now()
		if _, err := client.Cancel(ctx, task.ID); err != nil {
			t.Fatal(err)
		}
		if got := (<-canceled).Sub(asked); got > time.Second {
			t.Errorf("it took %v", got)
		}
		if task, err = client.Wait(ctx, task.ID); err != nil || task.Status != holdfast.Canceled {
			t.Errorf("%+v, %v", task, err)
		}
	})
}

func TestAttemptTimeoutAbandonsADeafHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		w := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: quiet, Concurrency: 1})
		w.Handle("job", func(context.Context, *holdfast.Run) (any, error) {
			time.Sleep(time.Hour) // it hears nothing
			return "too late", nil
		}, holdfast.AttemptTimeout(time.Minute))
		w.Handle("next", func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
		ctx := context.Background()
		if err := w.Start(ctx); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		task, err := client.Submit(ctx, "job", nil, holdfast.MaxAttempts(1))
		if err != nil {
			t.Fatal(err)
		}
		if task, err = client.Wait(ctx, task.ID); err != nil || task.Failure().Code != holdfast.CodeHandlerTimeout {
			t.Fatalf("%+v, %v", task, err)
		}
		if took := time.Since(begin); took > 61*time.Second {
			t.Errorf("the failure came after %v", took)
		}
		if err := client.Call(ctx, "next", nil, nil); err != nil { // the slot is free again
			t.Error(err)
		}
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("the slot came free after %v", took)
		}
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		if task, err = client.Get(ctx, task.ID); err != nil || task.Status != holdfast.Failed || task.Result != nil {
			t.Errorf("the late return changed the task: %+v, %v", task, err)
		}
	})
}

func TestSubmitMiddlewareSeesAndChangesSubmissions(t *testing.T) {
	var order []string
	wrap := func(name string) holdfast.SubmitMiddleware {
		return func(next holdfast.SubmitFunc) holdfast.SubmitFunc {
			return func(ctx context.Context, subs []*holdfast.Submission) ([]*holdfast.Task, error) {
				order = append(order, name)
				for _, s := range subs {
					if s.Name == "forbidden" {
						return nil, errors.New("not here")
					}
					s.Metadata = json.RawMessage(`{"trace":"` + name + `"}`)
				}
				return next(ctx, subs)
			}
		}
	}
	client := holdfast.NewClient(newStore(t), holdfast.WithSubmitMiddleware(wrap("outer"), wrap("inner")))
	ctx := context.Background()
	task, err := client.Submit(ctx, "job", nil)
	if err != nil || string(task.Metadata) != `{"trace":"inner"}` || len(order) != 2 || order[0] != "outer" {
		t.Errorf("%+v, %v, %v", task, err, order)
	}
	if tasks, err := client.SubmitMany(ctx, []holdfast.Item{holdfast.NewItem("a", 1), holdfast.NewItem("b", 2)}); err != nil || len(tasks) != 2 {
		t.Error(tasks, err)
	}
	if _, err := client.Submit(ctx, "forbidden", nil); err == nil || err.Error() != "not here" {
		t.Error(err)
	}
}
