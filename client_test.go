package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

func TestWaitSaysWhyATaskIsStuck(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		ctx := context.Background()
		for _, c := range []struct {
			name string
			make func(t *testing.T) *holdfast.Task
			why  string
		}{
			{"never claimed", func(t *testing.T) *holdfast.Task { return submitMany(t, client, "nobody", 1)[0] }, `never claimed; is a worker running for name "nobody" on queue "default"?`},
			{"delayed", func(t *testing.T) *holdfast.Task {
				return submitMany(t, client, "later", 1, holdfast.Delay(time.Hour))[0]
			}, "it waits until "},
			{"running", func(t *testing.T) *holdfast.Task {
				task := submitMany(t, client, "long", 1)[0]
				claimN(t, store, "w7", 1, holdfast.Draw{Names: []string{"long"}})
				return task
			}, "still running, attempt 1 of 3, on worker w7"},
		} {
			t.Run(c.name, func(t *testing.T) {
				task := c.make(t)
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				_, err := client.Wait(short, task.ID)
				var timeout *holdfast.WaitTimeoutError
				if !errors.As(err, &timeout) || timeout.TaskID != task.ID || !strings.Contains(timeout.Why, c.why) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want a timeout that says %q", err, c.why)
				}
			})
		}
		if _, err := client.Wait(ctx, "task_NOSUCH"); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("waiting for nothing: %v", err)
		}
	})
}

// WaitByKey follows the key when a replace gives it to another task.
func TestWaitByKeyFollowsTheKey(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		ctx := deadline(t)
		if _, err := client.Submit(ctx, "job", 1, holdfast.Key("k")); err != nil {
			t.Fatal(err)
		}
		claimN(t, store, "w", 1) // the first is running, so that the replace leaves it live
		type answer struct {
			task *holdfast.Task
			err  error
		}
		got := make(chan answer, 1)
		go func() {
			task, err := client.WaitByKey(ctx, "k")
			got <- answer{task, err}
		}()
		second, err := client.Submit(ctx, "job", 2, holdfast.Key("k", holdfast.Replace))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range claimN(t, store, "w", 1) {
			if _, err := store.Complete(ctx, task, nil); err != nil {
				t.Fatal(err)
			}
		}
		if a := <-got; a.err != nil || a.task.ID != second.ID {
			t.Errorf("got %+v, %v", a.task, a.err)
		}
	})
}

func TestWatchYieldsEachChange(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		ctx := deadline(t)
		task := submitMany(t, client, "job", 1)[0]
		var seen []string
		for now, err := range client.Watch(ctx, task.ID) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, string(now.Status)+" "+now.Message)
			switch len(seen) {
			case 1:
				claimN(t, store, "w", 1)
			case 2:
				if err := store.Progress(ctx, now, nil, "half"); err != nil {
					t.Fatal(err)
				}
			case 3:
				if _, err := store.Complete(ctx, now, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := strings.Join(seen, ", "); got != "queued , running , running half, succeeded half" {
			t.Error(got)
		}
	})
}

func TestCallTellsHowTheTaskEnded(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		startWorker(t, store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			w.Handle("bad", func(context.Context, *holdfast.Run) (any, error) {
				return nil, holdfast.Permanent(errors.New("no such patient"))
			})
			w.Handle("gone", func(context.Context, *holdfast.Run) (any, error) { return nil, holdfast.Discard("gone") })
		})
		ctx := deadline(t)
		err := client.Call(ctx, "bad", nil, nil)
		var failed *holdfast.TaskFailedError
		if !errors.As(err, &failed) || failed.Failure.Message != "no such patient" || !errors.Is(err, holdfast.ErrTaskFailed) {
			t.Errorf("got %v", err)
		}
		if err := client.Call(ctx, "gone", nil, nil); !errors.Is(err, holdfast.ErrTaskCanceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestQueueLimitHoldsSubmitsBack(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store, holdfast.WithQueueLimit("default", 3, 50*time.Millisecond))
		ctx := deadline(t)
		submitMany(t, client, "job", 2, holdfast.Delay(time.Hour))
		submitMany(t, client, "job", 1)
		_, err := client.Submit(ctx, "job", nil)
		var full *holdfast.QueueFullError
		if !errors.As(err, &full) || full.Queue != "default" || full.Depth != 3 || full.Waited < 50*time.Millisecond {
			t.Fatalf("got %v", err)
		}
		if _, err := client.Submit(ctx, "job", nil, holdfast.Queue("other")); err != nil {
			t.Errorf("another queue: %v", err)
		}
		// Room that comes in time lets the submit through.
		patient := holdfast.NewClient(store, holdfast.WithQueueLimit("default", 3, time.Minute))
		done := make(chan error, 1)
		go func() {
			_, err := patient.Submit(ctx, "job", nil)
			done <- err
		}()
		claimN(t, store, "w", 1)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The limit also holds for tasks that handlers submit.
func TestQueueLimitHoldsInHandlers(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store, holdfast.WithQueueLimit("small", 1, time.Millisecond))
		got := make(chan error, 2)
		startWorker(t, store, holdfast.WorkerConfig{Client: client}, func(w *holdfast.Worker) {
			w.Handle("parent", func(ctx context.Context, run *holdfast.Run) (any, error) {
				for range 2 {
					_, err := run.Client().Submit(ctx, "child", nil, holdfast.Queue("small"))
					got <- err
				}
				return nil, nil
			})
		})
		if _, err := client.Submit(deadline(t), "parent", nil); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("the first: %v", err)
		}
		if err := <-got; !errors.Is(err, holdfast.ErrQueueFull) {
			t.Errorf("the second: %v", err)
		}
	})
}

func TestRetentionSweepsWhileTheClientIsOpen(t *testing.T) {
	clock := newClock()
	store := newStore(t, sqlite.WithClock(clock.Now))
	plain := holdfast.NewClient(store)
	ctx := deadline(t)
	submitMany(t, plain, "old", 1200)
	kept := submitMany(t, plain, "kept", 1)
	for range 2 {
		for _, task := range claimN(t, store, "w", 1201) {
			if _, err := store.Complete(ctx, task, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	clock.Move(2 * time.Hour)
	client := holdfast.NewClient(store, holdfast.WithRetention(holdfast.Retention{Name: "old", Age: time.Hour}), holdfast.WithSweepInterval(time.Millisecond), holdfast.WithLogger(quiet))
	defer client.Close()
	for {
		left, err := client.List(ctx, holdfast.Filter{Limit: 2000})
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 1 && left[0].ID == kept[0].ID {
			return
		}
		if len(left) == 0 {
			t.Fatal("the sweep deleted what its rule does not name")
		}
	}
}

func TestOptionsRefuseBadInput(t *testing.T) {
	client := holdfast.NewClient(newStore(t), holdfast.WithPayloadLimit(100))
	ctx := context.Background()
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	for _, c := range []struct {
		field   string
		payload any
		options []holdfast.SubmitOption
	}{
		{"max_attempts", nil, []holdfast.SubmitOption{holdfast.MaxAttempts(0)}},
		{"max_attempts", nil, []holdfast.SubmitOption{holdfast.MaxAttempts(math.MaxInt32 + 1)}},
		{"priority", nil, []holdfast.SubmitOption{holdfast.Priority(math.MinInt32 - 1)}},
		{"delay", nil, []holdfast.SubmitOption{holdfast.Delay(-1)}},
		{"queue", nil, []holdfast.SubmitOption{holdfast.Queue("")}},
		{"queue", nil, []holdfast.SubmitOption{holdfast.Queue(strings.Repeat("ü", 128))}},
		{"key", nil, []holdfast.SubmitOption{holdfast.Key("a\x00b")}},
		{"correlation_id", nil, []holdfast.SubmitOption{holdfast.CorrelationID("\xff")}},
		{"strategy", nil, []holdfast.SubmitOption{holdfast.Key("k", "reuse_live")}},
		{"payload", strings.Repeat("x", 100), nil},
	} {
		_, err := client.Submit(ctx, "job", c.payload, c.options...)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != c.field {
			t.Errorf("%s: got %v", c.field, err)
		}
	}
	for name, payload := range map[string]any{"NaN": math.NaN(), "infinity": math.Inf(1), "cycle": cyclic, "function": func() {}, "UTF-8": "\xff", "raw UTF-8": json.RawMessage("\"\xff\"")} {
		_, err := client.Submit(ctx, "job", payload)
		var bad *holdfast.NotJSONError
		if !errors.As(err, &bad) || bad.Field != "payload" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if tasks, err := client.List(ctx, holdfast.Filter{}); err != nil || len(tasks) != 0 {
		t.Errorf("%d tasks were written all the same, %v", len(tasks), err)
	}
}

func TestDigitsAreKept(t *testing.T) {
	client := holdfast.NewClient(newStore(t))
	ctx := context.Background()
	for _, digits := range []string{`9007199254740993`, `{"n":12345678901234567890.10}`, `1.10`, `1e400`} {
		task, err := client.Submit(ctx, "job", json.RawMessage(digits))
		if err != nil {
			t.Fatal(err)
		}
		if task, err = client.Get(ctx, task.ID); err != nil || string(task.Payload) != digits {
			t.Errorf("%s came back as %s, %v", digits, task.Payload, err)
		}
	}
}
