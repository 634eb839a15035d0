package holdfast_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

// In the application's transaction: all or nothing.
func TestDependenciesInATransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		a := db.submit("a")
		for _, commit := range []bool{false, true} {
			tx, err := db.sql.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			client := db.client.In(db.tx(tx))
			tasks, err := client.SubmitMany(ctx, []holdfast.Item{
				holdfast.NewItem("b", nil, holdfast.As("b"), holdfast.After(a)),
				holdfast.NewItem("c", nil, holdfast.After("b")),
			})
			if err != nil {
				t.Fatal(err)
			}
			d, err := client.Dependencies(ctx, tasks[0].ID)
			if err != nil || !d.Waiting || len(d.Parents) != 1 || d.Parents[0].ID != a || d.Parents[0].Met || len(d.Children) != 1 || d.Children[0].ID != tasks[1].ID {
				t.Errorf("%+v, %v", d, err)
			}
			if !commit {
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				if _, err := db.client.Get(ctx, tasks[0].ID); !errors.Is(err, holdfast.ErrNotFound) {
					t.Errorf("after the rollback: %v", err)
				}
				continue
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			db.run(a, holdfast.Succeeded)
			db.run(tasks[0].ID, holdfast.Succeeded)
			db.want(tasks[1].ID, "queued")
		}
	})
}

// An expired lease whose attempts are used up is a failure like any other.
func TestLeaseExpiryEndsAParent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		a := db.submit("a", holdfast.MaxAttempts(1))
		b, c := db.submit("b", holdfast.After(a)), db.submit("c", holdfast.AfterFinished(a))
		if !db.claim(a) {
			t.Fatal("not claimed")
		}
		db.exec("update cairnq_tasks set lease_until_ms = 1 where id = '%s'", a)
		got, err := db.store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"c"}, Limit: 10}}, WorkerID: "w", Lease: time.Minute})
		if err != nil || len(got.Recovered) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		db.want(a, "failed")
		db.want(b, "canceled")
		if now := db.get(c); now.Waiting() {
			t.Error("the child that wants it finished still waits")
		}
	})
}

// A child reads what its parents answered, also when they were purged, in the order it named them.
func TestParentsResults(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		ids := db.graph("a", "b", "c: b a?")
		child := ids["c"]
		db.run(ids["b"], holdfast.Succeeded)
		db.purge(ids["b"])
		db.run(ids["a"], holdfast.Failed)
		got := make(chan []*holdfast.ParentTask, 1)
		startWorker(t, db.store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			w.Handle("c", func(ctx context.Context, run *holdfast.Run) (any, error) {
				parents, err := run.Parents(ctx)
				got <- parents
				return nil, err
			})
		})
		if task, err := db.client.Wait(ctx, child); err != nil || task.Status != holdfast.Succeeded {
			t.Fatal(task, err)
		}
		p := <-got
		if len(p) != 2 || p[0].ID != ids["b"] || p[1].ID != ids["a"] {
			t.Fatalf("parents %+v", p)
		}
		var result struct{ By string }
		if err := p[0].DecodeResult(&result); err != nil || result.By != ids["b"] || !p[0].Deleted || p[0].Status != holdfast.Succeeded || p[0].Name != "b" {
			t.Errorf("the purged parent: %+v, %v, %v", p[0], result, err)
		}
		if f := p[1].Failure(); p[1].Status != holdfast.Failed || f == nil || f.Message != "boom" || p[1].Deleted || !p[1].Finished {
			t.Errorf("the failed parent: %+v", p[1])
		}
		// With the child goes what was kept for it.
		db.purge(child)
		if n := db.value("select (select count(*) from holdfast_purged) + (select count(*) from holdfast_waits) + (select count(*) from holdfast_dependencies)"); n != 0 {
			t.Errorf("%d rows were left behind", n)
		}
	})
}

// A release wakes the workers and those who wait, long before they would look again.
func TestReleaseWakesWorkers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		startWorker(t, db.store, holdfast.WorkerConfig{Poll: time.Hour, Queues: []string{"one", "two"}}, func(w *holdfast.Worker) {
			for _, name := range []string{"a", "b"} {
				w.Handle(name, func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
			}
		})
		foreign := db.submit("foreign", holdfast.Queue("elsewhere"))
		tasks, err := db.client.SubmitMany(ctx, []holdfast.Item{
			holdfast.NewItem("a", nil, holdfast.As("a"), holdfast.Queue("one"), holdfast.After(foreign)),
			holdfast.NewItem("b", nil, holdfast.As("b"), holdfast.Queue("two"), holdfast.After("a")),
		})
		if err != nil {
			t.Fatal(err)
		}
		db.run(foreign, holdfast.Succeeded)
		if task, err := db.client.Wait(ctx, tasks[1].ID); err != nil || task.Status != holdfast.Succeeded {
			t.Fatal(task, err)
		}
	})
}

// Who waits in vain learns for whom.
func TestWaitSaysForWhomATaskWaits(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ids := db.graph("a", "b", "c: a b")
		db.run(ids["a"], holdfast.Succeeded)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err := db.client.Wait(ctx, ids["c"])
		var late *holdfast.WaitTimeoutError
		if !errors.As(err, &late) || late.Why != fmt.Sprintf("it waits for 1 of 2 other tasks: %s (b, queued)", ids["b"]) {
			t.Errorf("%v", err)
		}
	})
}

// A long chain is canceled at once.
func TestALongCascade(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		items := make([]holdfast.Item, 2000)
		for i := range items {
			items[i] = holdfast.NewItem("link", nil, holdfast.As(fmt.Sprint(i)), holdfast.After(fmt.Sprint(max(i-1, 0))))
		}
		items[0] = holdfast.NewItem("first", nil, holdfast.As("0"))
		tasks, err := db.client.SubmitMany(deadline(t), items)
		if err != nil {
			t.Fatal(err)
		}
		db.run(tasks[0].ID, holdfast.Failed)
		if n := db.value("select count(*) from cairnq_tasks where status = 'canceled'"); n != int64(len(items)-1) {
			t.Errorf("%d of %d are canceled", n, len(items)-1)
		}
	})
}

// SQLite's triggers fire themselves on a connection that says so; nothing else comes of it.
func TestCascadeWithRecursiveTriggers(t *testing.T) {
	db := onSQLite(t)
	db.sql.SetMaxOpenConns(1)
	db.exec("pragma recursive_triggers = on")
	ids := db.graph("a", "b: a", "c: b a", "d: b? c?", "e: d")
	db.run(ids["a"], holdfast.Failed)
	for name, status := range map[string]string{"b": "canceled", "c": "canceled", "d": "queued", "e": "waiting"} {
		db.want(ids[name], status)
	}
	if f := db.get(ids["c"]).Failure(); f == nil || f.Code == "" {
		t.Errorf("the record of the cascade: %v", f)
	}
	db.run(ids["d"], holdfast.Succeeded)
	db.want(ids["e"], "queued")
}

// The triggers of a schema of its own work on connections that know nothing of it.
func TestDependenciesInAnotherSchema(t *testing.T) {
	dsn := pgtest.DSN(t)
	ctx := deadline(t)
	store, err := postgres.Open(ctx, dsn, postgres.WithSchema("jobs"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := holdfast.NewClient(store)
	plain, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	tx, err := plain.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := client.In(postgres.SQLTx(tx)).SubmitMany(ctx, []holdfast.Item{
		holdfast.NewItem("a", nil, holdfast.As("a"), holdfast.MaxAttempts(1)),
		holdfast.NewItem("b", nil, holdfast.As("b"), holdfast.AfterFinished("a")),
		holdfast.NewItem("c", nil, holdfast.After("a")),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		"update jobs.cairnq_tasks set status = 'running', worker_id = 'foreign', lease_until_ms = updated_at_ms + 60000 where name = 'a'",
		`update jobs.cairnq_tasks set status = 'failed', error = '{"code": "x"}', lease_until_ms = null, completed_at_ms = updated_at_ms where name = 'a'`,
	} {
		if _, err := plain.ExecContext(ctx, step); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []holdfast.Status{holdfast.Failed, holdfast.Queued, holdfast.Canceled} {
		if now, err := client.Get(ctx, tasks[i].ID); err != nil || now.Status != want || now.Waiting() {
			t.Errorf("%+v, %v", now, err)
		}
	}
	if list, err := client.Attempts(ctx, tasks[0].ID); err != nil || len(list) != 1 {
		t.Errorf("history %v, %v", list, err)
	}
	if _, err := client.Retry(ctx, tasks[2].ID, true); err != nil {
		t.Error(err)
	}
	if _, err := plain.ExecContext(ctx, "delete from jobs.cairnq_tasks where name = 'a'"); err != nil {
		t.Error(err)
	}
}

// A parent that ends while its child is being submitted is not missed, however the two overlap.
func TestAParentEndsWhileItsChildIsSubmitted(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		for i := range 100 {
			parent := db.submit("parent")
			if !db.claim(parent) {
				t.Fatal("not claimed")
			}
			start, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				<-start
				var err error
				if i%2 == 0 {
					_, err = db.store.Complete(ctx, &holdfast.Task{ID: parent, WorkerID: "foreign"}, nil)
				} else {
					_, err = db.store.Fail(ctx, &holdfast.Task{ID: parent, WorkerID: "foreign"}, nil, false, 0)
				}
				ended <- err
			}()
			close(start)
			child, finished := db.submit("child", holdfast.After(parent)), db.submit("finished", holdfast.AfterFinished(parent))
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			db.want(child, map[bool]string{true: "queued", false: "canceled"}[i%2 == 0])
			db.want(finished, "queued")
		}
	})
}

// The same on Postgres, with the overlap as wide as can be: the child's transaction is open while its
// parents end, one of them is deleted, and it does not hold up their worker.
func TestParentsEndWhileTheChildsTransactionIsOpen(t *testing.T) {
	db := onPostgres(t)
	ctx := deadline(t)
	ok, failed, canceled := db.submit("ok"), db.submit("failed"), db.submit("canceled")
	tx, err := db.sql.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := db.client.In(postgres.SQLTx(tx))
	ids := map[string]string{}
	for name, options := range map[string][]holdfast.SubmitOption{
		"queued":  {holdfast.After(ok), holdfast.AfterFinished(failed, canceled)},
		"vain":    {holdfast.After(ok, failed)},
		"keeping": {holdfast.After(failed), holdfast.KeepWaiting()},
		"below":   {holdfast.After(canceled)},
	} {
		task, err := client.Submit(ctx, name, nil, options...)
		if err != nil {
			t.Fatal(err)
		}
		if !task.Waiting() {
			t.Errorf("%s does not wait", name)
		}
		ids[name] = task.ID
	}
	db.run(ok, holdfast.Succeeded)
	db.run(failed, holdfast.Failed)
	if !db.cancel(canceled) {
		t.Error("not canceled")
	}
	// A purge leaves the parents of an open submission alone.
	if gone, err := db.client.Purge(ctx, holdfast.PurgeFilter{}); err != nil || len(gone) != 0 {
		t.Errorf("purged %v, %v", gone, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for name, status := range map[string]string{"queued": "queued", "vain": "canceled", "keeping": "waiting", "below": "canceled"} {
		db.want(ids[name], status)
	}
}
