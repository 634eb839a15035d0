package holdfast_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
			{"failed once", func(t *testing.T) *holdfast.Task {
				task := submitMany(t, client, "again", 1)[0]
				if _, err := store.Fail(ctx, claimN(t, store, "w", 1, holdfast.Draw{Names: []string{"again"}})[0], nil, true, 0); err != nil {
					t.Fatal(err)
				}
				return task
			}, "waits to be claimed for attempt 2 of 3"},
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
		// By key the task is named as well, so that the wait can go on by id.
		keyed := submitMany(t, client, "nobody", 1, holdfast.Key("k"))[0]
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := client.WaitByKey(short, "k")
		var timeout *holdfast.WaitTimeoutError
		if !errors.As(err, &timeout) || timeout.TaskID != keyed.ID || timeout.Status != holdfast.Queued || !strings.Contains(timeout.Why, "never claimed") || !errors.Is(err, holdfast.ErrWaitTimeout) {
			t.Errorf("by key: %v", err)
		}
		if _, err := client.WaitByKey(ctx, "none"); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("waiting for nothing by key: %v", err)
		}
		if room, err := client.QueueDepth(ctx, "default", 10); err != nil || room != 6 {
			t.Errorf("room %d, %v", room, err)
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

// Changes within one millisecond, which updated_at does not tell apart, are seen all the same.
func TestWatchSeesChangesOfOneMillisecond(t *testing.T) {
	still := newClock()
	store := newStore(t, sqlite.WithClock(still.Now))
	client := holdfast.NewClient(store)
	ctx := deadline(t)
	task := submitMany(t, client, "job", 1)[0]
	var seen []string
	for now, err := range client.Watch(ctx, task.ID) {
		if err != nil {
			t.Fatalf("after %v: %v", seen, err)
		}
		p := 0.0
		if now.Progress != nil {
			p = *now.Progress
		}
		seen = append(seen, fmt.Sprintf("%s %d %v +%v", now.Status, now.Attempt, p, now.RunAt.Sub(now.CreatedAt)))
		switch len(seen) {
		case 1: // claimed and put back between two looks
			_, err = store.Release(ctx, claimN(t, store, "w", 1)[0], time.Hour)
			still.Move(time.Hour)
		case 2:
			claimN(t, store, "w", 1)
		case 3:
			p = 0.5
			err = store.Progress(ctx, now, &p, "")
		case 4:
			p = 0.75
			err = store.Progress(ctx, now, &p, "")
		case 5:
			_, err = store.Cancel(ctx, task.ID)
		case 6:
			_, err = store.Complete(ctx, now, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(seen, ", "); got != "queued 0 0 +0s, queued 0 0 +1h0m0s, running 1 0 +1h0m0s, running 1 0.5 +1h0m0s, running 1 0.75 +1h0m0s, running 1 0.75 +1h0m0s, canceled 1 0.75 +1h0m0s" {
		t.Error(got)
	}
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
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		plain := holdfast.NewClient(store)
		ctx := deadline(t)
		end := func(status holdfast.Status, n int) {
			t.Helper()
			tasks := claimN(t, store, "w", n)
			if len(tasks) != n {
				t.Fatalf("claimed %d, want %d", len(tasks), n)
			}
			for _, task := range tasks {
				var err error
				if status == holdfast.Failed {
					_, err = store.Fail(ctx, task, nil, false, 0)
				} else {
					_, err = store.Complete(ctx, task, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		submitMany(t, plain, "old", 1200) // more than a sweep deletes at once
		end(holdfast.Succeeded, 1200)
		submitMany(t, plain, "job", 3, holdfast.Queue("other"))
		end(holdfast.Failed, 3)
		kept := map[string]bool{}
		for _, tasks := range [][]*holdfast.Task{submitMany(t, plain, "job", 1, holdfast.Queue("other")), submitMany(t, plain, "young", 1)} {
			kept[tasks[0].ID] = true
		}
		end(holdfast.Succeeded, 2)
		kept[submitMany(t, plain, "old", 1)[0].ID] = true // has not ended

		client := holdfast.NewClient(store, holdfast.WithSweepInterval(time.Millisecond), holdfast.WithLogger(quiet),
			holdfast.WithRetention(holdfast.Retention{Name: "old"}, holdfast.Retention{Queue: "other", Status: holdfast.Failed}),
			holdfast.WithRetention(holdfast.Retention{Age: time.Hour}))
		defer client.Close()
		for {
			left, err := client.List(ctx, holdfast.Filter{Limit: 2000})
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, task := range left {
				if kept[task.ID] {
					found++
				}
			}
			if found != len(kept) {
				t.Fatal("the sweep deleted what no rule names")
			}
			if len(left) == found {
				return
			}
		}
	})
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

// A client with an option that is out of its limits submits nothing and sweeps nothing.
func TestClientOptionsRefuseBadInput(t *testing.T) {
	store := newStore(t)
	for _, c := range []struct {
		field  string
		option holdfast.ClientOption
	}{
		{"payload_limit", holdfast.WithPayloadLimit(0)},
		{"payload_limit", holdfast.WithPayloadLimit(-1)},
		{"queue_limit", holdfast.WithQueueLimit("q", 0, time.Second)},
		{"queue_limit", holdfast.WithQueueLimit("q", -1, time.Second)},
		{"wait", holdfast.WithQueueLimit("q", 1, -time.Second)},
		{"queue", holdfast.WithQueueLimit("", 1, time.Second)},
		{"older_than", holdfast.WithRetention(holdfast.Retention{Age: -1})},
		{"status", holdfast.WithRetention(holdfast.Retention{Status: "done"})},
		{"status", holdfast.WithRetention(holdfast.Retention{Status: holdfast.Queued})},
		{"name", holdfast.WithRetention(holdfast.Retention{Age: 1}, holdfast.Retention{Name: "\xff"})},
		{"sweep_interval", holdfast.WithSweepInterval(0)},
	} {
		var said strings.Builder
		client := holdfast.NewClient(store, c.option, holdfast.WithRetention(holdfast.Retention{}), holdfast.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
		for op, err := range map[string]error{
			"submit":      second(client.Submit(t.Context(), "job", nil)),
			"submit many": second(client.SubmitMany(t.Context(), []holdfast.Item{holdfast.NewItem("job", nil)})),
			"schedule":    second(client.PutSchedule(t.Context(), holdfast.Schedule{Name: "s", Spec: "@daily", Task: "job"})),
		} {
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) || bad.Field != c.field {
				t.Errorf("%s, %s: got %v", c.field, op, err)
			}
		}
		client.Close()
		if !strings.Contains(said.String(), "level=ERROR") || !strings.Contains(said.String(), c.field) {
			t.Errorf("%s: the log says %q", c.field, said.String())
		}
	}
	if tasks, err := holdfast.NewClient(store).List(t.Context(), holdfast.Filter{}); err != nil || len(tasks) != 0 {
		t.Errorf("%d tasks were written all the same, %v", len(tasks), err)
	}
}

func second[T any](_ T, err error) error { return err }

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
