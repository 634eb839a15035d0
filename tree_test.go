package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/eda94727/holdfast"
)

// What handlers submit joins the tree of their task; the tree is drawn and canceled as one.
func TestTree(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		var below []*holdfast.Task
		startWorker(t, db.store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
			w.Handle("import", func(ctx context.Context, run *holdfast.Run) (any, error) {
				elsewhere := holdfast.Queue("elsewhere")
				tasks, err := run.Client().SubmitMany(ctx, []holdfast.Item{
					holdfast.NewItem("fetch", nil, elsewhere, holdfast.As("fetch")),
					holdfast.NewItem("parse", nil, elsewhere, holdfast.After("fetch")),
				})
				if err != nil {
					return nil, err
				}
				t, err := run.Client().Submit(ctx, "page", nil, elsewhere, holdfast.Parent(tasks[0]))
				below = append(tasks, t)
				return nil, err
			})
		})
		root := db.submit("import")
		other := db.submit("alone", holdfast.Queue("elsewhere"))
		if task, err := db.client.Wait(ctx, root); err != nil || task.Status != holdfast.Succeeded {
			t.Fatal(task, err)
		}
		db.claim(below[0].ID)
		draw := func(text string) string {
			for name, id := range map[string]string{"ROOT": root, "FETCH": below[0].ID, "PARSE": below[1].ID, "PAGE": below[2].ID} {
				text = strings.ReplaceAll(text, name, id)
			}
			return text
		}
		for _, id := range []string{root, below[2].ID} {
			tree, err := db.client.Tree(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := tree.String(), draw("ROOT  import  succeeded\n├─ FETCH  fetch  running, attempt 1 of 3\n│  └─ PAGE  page  queued\n└─ PARSE  parse  queued, waits for others\n"); got != want {
				t.Errorf("drawn as\n%swant\n%s", got, want)
			}
		}
		var bad *holdfast.InvalidError
		if _, err := db.client.CancelTree(ctx, below[0].ID); !errors.As(err, &bad) || !strings.Contains(err.Error(), root) {
			t.Errorf("canceling from the middle: %v", err)
		}
		// The root may be gone already.
		db.purge(root)
		done, err := db.client.CancelTree(ctx, root)
		if err != nil || done.Canceled != 2 || done.Asked != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		tree, err := db.client.Tree(ctx, root)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := tree.String(), draw("ROOT  (purged)\n├─ FETCH  fetch  running, attempt 1 of 3, asked to stop\n│  └─ PAGE  page  canceled\n└─ PARSE  parse  canceled\n"); got != want {
			t.Errorf("drawn as\n%swant\n%s", got, want)
		}
		db.want(other, "queued")
		if done, err = db.client.CancelTree(ctx, other); err != nil || done.Canceled != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		for _, ask := range []func(context.Context, string) error{
			func(ctx context.Context, id string) error { _, err := db.client.Tree(ctx, id); return err },
			func(ctx context.Context, id string) error { _, err := db.client.CancelTree(ctx, id); return err },
		} {
			if err := ask(ctx, "task_none"); !errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("no tree: %v", err)
			}
		}
	})
}

// A tree larger than one step is canceled whole.
func TestCancelALargeTree(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		root := db.get(db.submit("root"))
		submitMany(t, db.client, "child", 1200, holdfast.Parent(root))
		db.claim(root.ID)
		done, err := db.client.CancelTree(deadline(t), root.ID)
		if err != nil || done.Canceled != 1200 || done.Asked != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
