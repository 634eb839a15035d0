package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// graph submits named tasks; each entry is "name", or "name: parent parent", with ? after a parent that
// only has to finish and ! after the name of a task that keeps waiting. It answers ids by name.
func (d *database) graph(spec ...string) map[string]string {
	d.t.Helper()
	var items []holdfast.Item
	var names []string
	for _, s := range spec {
		name, parents, _ := strings.Cut(s, ":")
		name, keep := strings.CutSuffix(name, "!")
		options := []holdfast.SubmitOption{holdfast.As(name)}
		if keep {
			options = append(options, holdfast.KeepWaiting())
		}
		for _, p := range strings.Fields(parents) {
			if p, ok := strings.CutSuffix(p, "?"); ok {
				options = append(options, holdfast.AfterFinished(p))
				continue
			}
			options = append(options, holdfast.After(p))
		}
		names = append(names, name)
		items = append(items, holdfast.NewItem(name, nil, options...))
	}
	tasks, err := d.client.SubmitMany(context.Background(), items)
	if err != nil {
		d.t.Fatal(err)
	}
	ids := map[string]string{}
	for i, t := range tasks {
		ids[names[i]] = t.ID
		if now := d.get(t.ID); now.Status != t.Status || !now.RunAt.Equal(t.RunAt) {
			d.t.Errorf("%s was answered as %s at %v, and is %s at %v", names[i], t.Status, t.RunAt, now.Status, now.RunAt)
		}
	}
	return ids
}

// Each rule as a small story: a graph, what a foreign worker does, and what becomes of the tasks.
func TestDependencies(t *testing.T) {
	for _, c := range []struct {
		rule  string
		graph []string
		do    string // "ok a", "fail a", "cancel a", "retry a", "purge a", separated by commas
		want  string // "b waiting", …
	}{
		{"a child waits for its parent", []string{"a", "b: a"}, "", "a queued, b waiting"},
		{"a parent named later", []string{"b: a", "a"}, "", "a queued, b waiting"},
		{"success releases", []string{"a", "b: a"}, "ok a", "b queued"},
		{"success of one of two does not", []string{"a", "b", "c: a b"}, "ok a", "c waiting"},
		{"success of both does", []string{"a", "b", "c: a b"}, "ok a, ok b", "c queued"},
		{"failure cancels", []string{"a", "b: a"}, "fail a", "b canceled"},
		{"failure cancels all below", []string{"a", "b: a", "c: b", "d: c a"}, "fail a", "b canceled, c canceled, d canceled"},
		{"a canceled parent cancels", []string{"a", "b: a", "c: b"}, "cancel a", "b canceled, c canceled"},
		{"a waiting task that is canceled cancels its own", []string{"a", "b: a", "c: b", "d: b?"}, "cancel b", "a queued, b canceled, c canceled, d queued"},
		{"finished wants any end: failure", []string{"a", "b: a?"}, "fail a", "b queued"},
		{"finished wants any end: cancel", []string{"a", "b: a?"}, "cancel a", "b queued"},
		{"finished wants any end: success", []string{"a", "b: a?"}, "ok a", "b queued"},
		{"a cascade releases who wants it finished", []string{"a", "b: a", "c: b", "d: b? c? a?"}, "fail a", "d queued"},
		{"a cascade through a diamond", []string{"a", "b: a", "c: a", "d: b c", "e: d?"}, "fail a", "d canceled, e queued"},
		{"both kinds of one parent mean success", []string{"a", "b: a a?"}, "fail a", "b canceled"},
		{"keep waiting", []string{"a", "b!: a"}, "fail a", "b waiting"},
		{"keep waiting, then the retry succeeds", []string{"a", "b!: a"}, "fail a, retry a, ok a", "b queued"},
		{"keep waiting stops a cascade", []string{"a", "b!: a", "c: b"}, "fail a", "b waiting, c waiting"},
		{"keep waiting ends with the parent's purge", []string{"a", "b!: a", "c: b"}, "fail a, purge a", "b canceled, c canceled"},
		{"a purge of a parent that succeeded does not matter", []string{"a", "z", "b: a z"}, "ok a, purge a, ok z", "b queued"},
		{"a purge of a parent that failed does not matter to finished", []string{"a", "z", "b: a? z"}, "fail a, purge a, ok z", "b queued"},
		{"a retried parent is waited for again", []string{"a", "z", "b: a? z"}, "fail a, retry a, ok z", "b waiting"},
		{"and counts when it ends again", []string{"a", "z", "b: a? z"}, "fail a, retry a, ok z, fail a", "b queued"},
		{"a retry after the release does not matter", []string{"a", "b: a?"}, "fail a, retry a", "a queued, b queued"},
		{"a retried child waits again", []string{"a", "b: a"}, "cancel b, retry b", "b waiting"},
		{"a retried child waits for a parent that failed", []string{"a", "b: a"}, "fail a, retry b", "b waiting"},
		{"and is released by that one's retry", []string{"a", "b: a"}, "fail a, retry b, retry a, ok a", "b queued"},
		{"and is canceled again by its failure", []string{"a", "b: a"}, "fail a, retry b, retry a, fail a", "b canceled"},
		{"in the other order too", []string{"a", "b: a"}, "fail a, retry a, retry b, ok a", "b queued"},
		{"a child retried after its parent's success starts", []string{"a", "b: a"}, "cancel b, ok a, retry b", "b queued"},
		{"a child retried after its failed parent's purge starts", []string{"a", "b: a"}, "fail a, purge a, retry b", "b queued"},
		{"a child that ran and failed does not wait again", []string{"a", "b: a?"}, "fail a, fail b, retry a, retry b", "b queued"},
		{"a canceled child is not released", []string{"a", "b: a"}, "cancel b, ok a", "b canceled"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db *database) {
				ids := db.graph(c.graph...)
				for _, step := range strings.Split(c.do, ",") {
					verb, name, _ := strings.Cut(strings.TrimSpace(step), " ")
					id, done := ids[name], true
					switch verb {
					case "ok":
						db.run(id, holdfast.Succeeded)
					case "fail":
						db.run(id, holdfast.Failed)
					case "cancel":
						done = db.cancel(id)
					case "retry":
						done = db.retry(id)
					case "purge":
						done = db.purge(id)
					}
					if !done {
						t.Fatalf("%s was not possible", step)
					}
				}
				for _, w := range strings.Split(c.want, ",") {
					name, status, _ := strings.Cut(strings.TrimSpace(w), " ")
					db.want(ids[name], status)
				}
				if n := db.value("select count(*) from cairnq_tasks where status <> 'queued' and completed_at_ms is null"); n != 0 {
					t.Errorf("%d ended tasks say nothing of when", n)
				}
			})
		})
	}
}

// What our own operations answer is what is in the database.
func TestOwnOperationsOnWaitingTasks(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		ids := db.graph("a", "b: a", "c: b")
		if task, err := db.client.Cancel(ctx, ids["b"]); err != nil || task.Status != holdfast.Canceled {
			t.Fatalf("%v, %v", task, err)
		}
		db.want(ids["c"], "canceled")
		f := db.get(ids["c"]).Failure()
		if f == nil || f.Code != holdfast.CodeDependencyCanceled || f.Retryable || !strings.Contains(f.Message, ids["b"]+" (b), which this task waited for, was canceled") {
			t.Errorf("the record of the cascade: %+v", f)
		}
		task, err := db.client.Retry(ctx, ids["b"], true)
		if err != nil || !task.Waiting() {
			t.Fatalf("a retried child was answered as %+v, %v", task, err)
		}
		db.want(ids["b"], "waiting")
		task, err = db.client.Unblock(ctx, ids["b"])
		if err != nil || task.Waiting() || task.Status != holdfast.Queued {
			t.Fatalf("an unblocked child was answered as %+v, %v", task, err)
		}
		if _, err := db.client.Unblock(ctx, ids["a"]); !errors.Is(err, holdfast.ErrState) {
			t.Errorf("unblocking a task that does not wait: %v", err)
		}
		db.run(ids["b"], holdfast.Failed)
		db.run(ids["a"], holdfast.Failed)
		if _, err := db.client.Purge(ctx, holdfast.PurgeFilter{}); err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			t.Fatal(err)
		}
	})
}

// A claim of ours never finds a waiting task, and says when to look again in a time that exists.
func TestWaitingTasksAreNotClaimed(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		ids := db.graph("a", "b: a")
		ask := holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 10}}, WorkerID: "w", Lease: time.Minute}
		got, err := db.store.Claim(ctx, ask)
		if err != nil || len(got.Tasks) != 1 || got.Tasks[0].ID != ids["a"] {
			t.Fatalf("claimed %+v, %v", got, err)
		}
		again, err := db.store.Claim(ctx, ask)
		if err != nil || len(again.Tasks) != 0 || again.Next < 0 || again.Next > 24*time.Hour {
			t.Fatalf("claimed %+v, %v", again, err)
		}
		if _, err := db.store.Complete(ctx, got.Tasks[0], nil); err != nil {
			t.Fatal(err)
		}
		got, err = db.store.Claim(ctx, ask)
		if err != nil || len(got.Tasks) != 1 || got.Tasks[0].ID != ids["b"] {
			t.Fatalf("claimed %+v, %v", got, err)
		}
	})
}

// A delay counts from the submission, as for any task, and holds beyond the release.
func TestDelayOfAWaitingTask(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		a := db.submit("a")
		before := time.Now()
		b := db.submit("b", holdfast.After(a), holdfast.Delay(time.Hour))
		db.want(b, "waiting")
		d, err := db.client.Dependencies(deadline(t), b)
		if err != nil || !d.Waiting || d.Pending != 1 || d.RunAt.Before(before.Add(time.Hour-time.Second)) || d.RunAt.After(time.Now().Add(time.Hour+time.Second)) {
			t.Errorf("%+v, %v", d, err)
		}
		db.run(a, holdfast.Succeeded)
		if task := db.get(b); task.Waiting() || !task.RunAt.Equal(d.RunAt) {
			t.Errorf("released to start at %v, want %v", task.RunAt, d.RunAt)
		}
		if db.claim(b) {
			t.Error("claimed before its delay was over")
		}
	})
}

// Parents that have ended count at once.
func TestParentsThatHaveEndedAlready(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ok, failed, canceled := db.submit("ok"), db.submit("failed"), db.submit("canceled")
		db.run(ok, holdfast.Succeeded)
		db.run(failed, holdfast.Failed)
		db.cancel(canceled)
		for _, c := range []struct {
			options []holdfast.SubmitOption
			want    string
			code    string
		}{
			{[]holdfast.SubmitOption{holdfast.After(ok)}, "queued", ""},
			{[]holdfast.SubmitOption{holdfast.After(ok), holdfast.AfterFinished(failed, canceled)}, "queued", ""},
			{[]holdfast.SubmitOption{holdfast.After(ok, failed)}, "canceled", holdfast.CodeDependencyFailed},
			{[]holdfast.SubmitOption{holdfast.After(canceled)}, "canceled", holdfast.CodeDependencyCanceled},
			{[]holdfast.SubmitOption{holdfast.After(failed), holdfast.KeepWaiting()}, "waiting", ""},
		} {
			task, err := db.client.Submit(deadline(t), "child", nil, c.options...)
			if err != nil {
				t.Fatal(err)
			}
			db.want(task.ID, c.want)
			now := db.get(task.ID)
			if now.Status != task.Status || !now.RunAt.Equal(task.RunAt) {
				t.Errorf("answered %s at %v, is %s at %v", task.Status, task.RunAt, now.Status, now.RunAt)
			}
			if f := task.Failure(); (f == nil) != (c.code == "") || f != nil && f.Code != c.code {
				t.Errorf("failure %+v, want %q", f, c.code)
			}
		}
		// In one call the cascade goes down as well.
		tasks, err := db.client.SubmitMany(deadline(t), []holdfast.Item{
			holdfast.NewItem("c", nil, holdfast.As("c"), holdfast.After("b")),
			holdfast.NewItem("b", nil, holdfast.As("b"), holdfast.After(failed)),
			holdfast.NewItem("d", nil, holdfast.AfterFinished("c")),
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"canceled", "canceled", "queued"} {
			db.want(tasks[i].ID, want)
			if tasks[i].Status != db.get(tasks[i].ID).Status {
				t.Errorf("answered %s", tasks[i].Status)
			}
		}
	})
}

// Mistakes are refused before anything is written, with what is wrong and what to do.
func TestDependencyMistakes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		item := func(name string, options ...holdfast.SubmitOption) holdfast.Item {
			return holdfast.NewItem(name, nil, options...)
		}
		many := make([]string, holdfast.MaxParents+1)
		for i := range many {
			many[i] = fmt.Sprintf("task_%d", i)
		}
		var edges []holdfast.Item
		for range holdfast.MaxGraphEdges/holdfast.MaxParents + 1 {
			edges = append(edges, item("x", holdfast.After(many[1:]...)))
		}
		for _, c := range []struct {
			name, field, text string
			items             []holdfast.Item
		}{
			{"unknown name", "after", "no task of this call has this name", []holdfast.Item{item("a", holdfast.After("b"))}},
			{"unknown id", "after", "no task in this database", []holdfast.Item{item("a", holdfast.AfterFinished("task_01J00000000000000000000000"))}},
			{"name twice", "as", "submission 0 already", []holdfast.Item{item("a", holdfast.As("x")), item("b", holdfast.As("x"), holdfast.After("x"))}},
			{"name like an id", "as", "looks like a task id", []holdfast.Item{item("a", holdfast.As("task_x"))}},
			{"empty name", "as", "empty", []holdfast.Item{item("a", holdfast.As(""))}},
			{"too many parents", "after", "the limit is 1000", []holdfast.Item{item("a", holdfast.After(many...))}},
			{"too many edges", "after", "at most 20000", edges},
		} {
			_, err := db.client.SubmitMany(deadline(t), c.items)
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		_, err := db.client.SubmitMany(deadline(t), []holdfast.Item{
			item("free", holdfast.As("free")),
			item("a", holdfast.As("a"), holdfast.After("free", "c")),
			item("b", holdfast.As("b"), holdfast.AfterFinished("a")),
			item("c", holdfast.As("c"), holdfast.After("b")),
			item("below", holdfast.After("c")),
		})
		var cycle *holdfast.CycleError
		if !errors.As(err, &cycle) || !errors.Is(err, holdfast.ErrInvalid) || len(cycle.Nodes) != 4 || cycle.Nodes[0] != cycle.Nodes[3] {
			t.Errorf("a cycle: %v", err)
		}
		if _, err := db.client.SubmitMany(deadline(t), []holdfast.Item{item("a", holdfast.As("a"), holdfast.After("a"))}); !errors.As(err, &cycle) || cycle.Error() != "holdfast: after: these tasks wait for each other and would wait for ever: a → a" {
			t.Errorf("itself: %v", err)
		}
		if n := db.value("select count(*) from cairnq_tasks"); n != 0 {
			t.Errorf("%d tasks were written", n)
		}
	})
}

// With keys: a task that exists already stays as it is, and stands in for the new one in the graph.
func TestDependenciesAndKeys(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		first := db.submit("first", holdfast.Key("k"))
		tasks, err := db.client.SubmitMany(ctx, []holdfast.Item{
			holdfast.NewItem("x", nil, holdfast.As("x")),
			holdfast.NewItem("keyed", nil, holdfast.As("keyed"), holdfast.Key("k"), holdfast.After("x")),
			holdfast.NewItem("child", nil, holdfast.After("keyed")),
		})
		if err != nil {
			t.Fatal(err)
		}
		if tasks[1].ID != first {
			t.Fatalf("the key's task is %s, not %s", tasks[1].ID, first)
		}
		db.want(first, "queued")
		db.want(tasks[2].ID, "waiting")
		// Replace cancels the old task, and with it those that wait for it.
		replaced, err := db.client.Submit(ctx, "second", nil, holdfast.Key("k", holdfast.Replace), holdfast.AfterFinished(first))
		if err != nil {
			t.Fatal(err)
		}
		db.want(first, "canceled")
		db.want(tasks[2].ID, "canceled")
		db.want(replaced.ID, "queued")
		// Two of one call that become one task wait for nobody in a circle.
		tasks, err = db.client.SubmitMany(ctx, []holdfast.Item{
			holdfast.NewItem("p", nil, holdfast.As("p"), holdfast.Key("same")),
			holdfast.NewItem("q", nil, holdfast.As("q"), holdfast.Key("same"), holdfast.After("p")),
			holdfast.NewItem("r", nil, holdfast.After("p", "q")),
		})
		if err != nil || tasks[0].ID != tasks[1].ID {
			t.Fatal(tasks, err)
		}
		db.want(tasks[0].ID, "queued")
		db.run(tasks[0].ID, holdfast.Succeeded)
		db.want(tasks[2].ID, "queued")
	})
}
