package holdfast_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// begin opens a transaction of the application, which the test's end rolls back if nothing else ended it.
func (d *database) begin(t testing.TB, ctx context.Context) *sql.Tx {
	tx, err := d.sql.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	return tx
}

// What becomes of a task whose handler completes it in a transaction of the application.
func TestCompleteIn(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		db.exec("create table app (id text)")
		boom := errors.New("boom")
		work := func(ctx context.Context, run *holdfast.Run, end func(*sql.Tx) error) (any, error) {
			tx := db.begin(t, ctx)
			defer tx.Rollback()
			if _, err := tx.Exec("insert into app values ('" + run.Task().ID + "')"); err != nil {
				return nil, err
			}
			if err := run.CompleteIn(ctx, db.tx(tx), map[string]int{"attempt": run.Attempt()}); err != nil {
				return nil, err
			}
			return nil, end(tx)
		}
		handlers := map[string]holdfast.HandlerFunc{
			"commit": func(ctx context.Context, run *holdfast.Run) (any, error) { return work(ctx, run, (*sql.Tx).Commit) },
			"roll back once": func(ctx context.Context, run *holdfast.Run) (any, error) {
				if run.Attempt() == 1 {
					return work(ctx, run, func(tx *sql.Tx) error { return errors.Join(boom, tx.Rollback()) })
				}
				return work(ctx, run, (*sql.Tx).Commit)
			},
			"forget to commit": func(ctx context.Context, run *holdfast.Run) (any, error) {
				return work(ctx, run, (*sql.Tx).Rollback)
			},
			"no JSON": func(ctx context.Context, run *holdfast.Run) (any, error) {
				tx := db.begin(t, ctx)
				defer tx.Rollback()
				err := run.CompleteIn(ctx, db.tx(tx), func() {})
				if !errors.Is(err, holdfast.ErrNotJSON) {
					t.Errorf("a result that is no JSON: %v", err)
				}
				return nil, err
			},
			"canceled": func(ctx context.Context, run *holdfast.Run) (any, error) {
				if _, err := db.client.Cancel(context.WithoutCancel(ctx), run.Task().ID); err != nil {
					return nil, err
				}
				_, err := work(ctx, run, (*sql.Tx).Commit)
				if !errors.Is(err, holdfast.ErrCancelRequested) {
					t.Errorf("a canceled task was completed: %v", err)
				}
				return nil, err
			},
		}
		settled := make(chan holdfast.Event, 100)
		startWorker(t, db.store, holdfast.WorkerConfig{Backoff: holdfast.Exponential(2, 2), OnEvent: func(e holdfast.Event) {
			if e.Kind != holdfast.TaskStarted {
				settled <- e
			}
		}}, func(w *holdfast.Worker) {
			for name, fn := range handlers {
				w.Handle(name, fn)
			}
		})
		ctx := deadline(t)
		for _, c := range []struct {
			name   string
			status holdfast.Status
			result string
			code   string
			events []holdfast.Status
			rows   int64
		}{
			{"commit", holdfast.Succeeded, "1", "", []holdfast.Status{holdfast.Succeeded}, 1},
			{"roll back once", holdfast.Succeeded, "2", holdfast.CodeHandlerError, []holdfast.Status{holdfast.Queued, holdfast.Succeeded}, 1},
			{"forget to commit", holdfast.Failed, "", holdfast.CodeTaskError, []holdfast.Status{holdfast.Queued, holdfast.Failed}, 0},
			{"no JSON", holdfast.Failed, "", holdfast.CodeHandlerError, []holdfast.Status{holdfast.Queued, holdfast.Failed}, 0},
			{"canceled", holdfast.Canceled, "", holdfast.CodeHandlerError, []holdfast.Status{holdfast.Canceled}, 0},
		} {
			task, err := db.client.Submit(ctx, c.name, nil, holdfast.MaxAttempts(2))
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.events {
				if e := <-settled; e.Kind != holdfast.TaskSettled || e.Status != want || e.Task.ID != task.ID {
					t.Errorf("%s: event %d is %s %s (%v), want settled %s", c.name, i, e.Kind, e.Status, e.Err, want)
				}
			}
			task, err = db.client.Wait(ctx, task.ID)
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Attempt int }
			if task.Status != c.status || (task.Result != nil) != (c.result != "") || task.DecodeResult(&got) != nil || c.result != "" && got.Attempt != int(c.result[0]-'0') {
				t.Errorf("%s: the task is %s with result %s, want %s with %q", c.name, task.Status, task.Result, c.status, c.result)
			}
			if f := task.Failure(); (f != nil) != (c.code != "") || f != nil && f.Code != c.code {
				t.Errorf("%s: the failure is %v, want code %q", c.name, f, c.code)
			}
			if n := db.value("select count(*) from app where id = '%s'", task.ID); n != c.rows {
				t.Errorf("%s: %d rows of the application, want %d", c.name, n, c.rows)
			}
		}
	})
}

// A handler whose attempt has ended can no longer complete the task, in its own transaction either.
func TestCompleteInTooLate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		var started, release chan struct{} = make(chan struct{}), make(chan struct{})
		late := make(chan error, 1)
		var first atomic.Bool
		startWorker(t, db.store, holdfast.WorkerConfig{Backoff: holdfast.Exponential(time.Hour, time.Hour)}, func(w *holdfast.Worker) {
			w.Handle("job", func(ctx context.Context, run *holdfast.Run) (any, error) {
				if first.Swap(true) {
					return nil, nil
				}
				close(started)
				<-release
				tx := db.begin(t, ctx)
				defer tx.Rollback()
				late <- run.CompleteIn(context.Background(), db.tx(tx), "too late")
				return nil, tx.Commit()
			}, holdfast.AttemptTimeout(20*time.Millisecond))
		})
		ctx := deadline(t)
		task, err := db.client.Submit(ctx, "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		<-started
		for now, err := range db.client.Watch(ctx, task.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if now.Status == holdfast.Queued && now.Attempt == 1 {
				break
			}
		}
		close(release)
		if err := <-late; !errors.Is(err, holdfast.ErrLeaseLost) {
			t.Errorf("got %v", err)
		}
		if task, err = db.client.Get(ctx, task.ID); err != nil || task.Status != holdfast.Queued || task.Result != nil {
			t.Errorf("%+v, %v", task, err)
		}
	})
}

// While a handler's transaction with CompleteIn is open, Postgres keeps its task's row locked. That must
// hold up neither the heartbeats of the worker's other tasks, nor its stop, and the task counts as its
// own until the transaction ends.
func TestAnOpenTransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := onPostgres(t)
	open, release := make(chan struct{}), make(chan struct{})
	committed := make(chan error, 1)
	lost := make(chan holdfast.Event, 10)
	w := holdfast.NewWorker(db.store, holdfast.WorkerConfig{
		Log: quiet, Lease: 600 * time.Millisecond, Heartbeat: 100 * time.Millisecond, PlainLease: true,
		OnEvent: func(e holdfast.Event) {
			if e.Kind == holdfast.TaskLost {
				lost <- e
			}
		},
	})
	w.Handle("in", func(ctx context.Context, run *holdfast.Run) (any, error) {
		tx := db.begin(t, ctx)
		defer tx.Rollback()
		if err := run.CompleteIn(ctx, db.tx(tx), "done"); err != nil {
			return nil, err
		}
		close(open)
		<-release
		err := tx.Commit()
		committed <- err
		return nil, err
	})
	w.Handle("other", func(ctx context.Context, _ *holdfast.Run) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	ctx := deadline(t)
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	other := submitMany(t, db.client, "other", 1)[0]
	in := submitMany(t, db.client, "in", 1)[0]
	<-open
	// Until the leases that were there have ended twice over.
	began, err := db.store.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for now := began; now.Before(began.Add(1200 * time.Millisecond)); {
		task, err := db.client.Get(ctx, other.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now, err = db.store.Now(ctx); err != nil {
			t.Fatal(err)
		}
		if task.Status == holdfast.Running && task.LeaseUntil.Before(now) {
			t.Fatalf("the other task's lease ended at %v, it is %v", task.LeaseUntil, now)
		}
	}
	select {
	case e := <-lost:
		t.Errorf("%s was lost: %v", e.Task.Name, e.Err)
	default:
	}
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := w.Stop(soon); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(start); took > 4500*time.Millisecond {
		t.Errorf("stop took %v", took)
	}
	if task, err := db.client.Get(ctx, other.ID); err != nil || task.Status != holdfast.Queued || task.Attempt != 0 {
		t.Errorf("the other task was not handed back: %+v, %v", task, err)
	}
	close(release)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if task, err := db.client.Get(ctx, in.ID); err != nil || task.Status != holdfast.Succeeded || string(task.Result) != `"done"` {
		t.Errorf("the completed task: %+v, %v", task, err)
	}
}
