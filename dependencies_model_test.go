package holdfast_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/eda94727/holdfast"
)

// modelTask is what the rules of dependencies.go say about one task, without a database.
type modelTask struct {
	id       string
	status   holdfast.Status // "" once deleted
	keep     bool
	released bool
	parents  []*modelEdge
}

type modelEdge struct {
	to       int
	finished bool
	met      bool
}

type model []*modelTask

func (m model) pending(i int) (n int) {
	for _, e := range m[i].parents {
		if !e.met {
			n++
		}
	}
	return n
}

func (m model) waiting(i int) bool { return m[i].status == holdfast.Queued && !m[i].released }

// ended tells the children of i. A deleted one counts as ended in no good way.
func (m model) ended(i int, status holdfast.Status) {
	for c, child := range m {
		for _, e := range child.parents {
			if e.to != i || e.met || child.status == "" {
				continue
			}
			if status == holdfast.Succeeded || e.finished {
				e.met = true
				if m.waiting(c) && m.pending(c) == 0 {
					child.released = true
				}
				continue
			}
			if m.waiting(c) && (!child.keep || status == "") {
				child.status = holdfast.Canceled
				m.ended(c, holdfast.Canceled)
			}
		}
	}
}

// add is a submission: what has ended counts at once.
func (m model) add(c int) {
	child := m[c]
	child.status = holdfast.Queued
	vain := false
	for _, e := range child.parents {
		p := m[e.to].status
		e.met = p == holdfast.Succeeded || e.finished && p.Terminal()
		vain = vain || !e.met && p.Terminal() && !child.keep
	}
	child.released = m.pending(c) == 0
	if vain {
		child.status = holdfast.Canceled
	}
}

func (m model) retry(i int) {
	t := m[i]
	t.status = holdfast.Queued
	if !t.released && m.pending(i) == 0 {
		t.released = true
	}
	for _, child := range m {
		for _, e := range child.parents {
			if e.to == i && !child.released {
				e.met = false
			}
		}
	}
}

func (m model) remove(i int) {
	m.ended(i, "")
	for _, child := range m {
		for _, e := range child.parents {
			if e.to == i {
				e.met = true
			}
		}
	}
	m[i].status, m[i].parents = "", nil
}

// Random graphs, submitted in one call or one by one, and random steps by our own library and by a
// foreign one: the database always says what the model says.
func TestDependenciesAgainstAModel(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := context.Background()
		rapid.Check(t, func(r *rapid.T) {
			n := rapid.IntRange(2, 9).Draw(r, "tasks")
			m := make(model, n)
			options := make([][]holdfast.SubmitOption, n)
			name := func(i int) string { return fmt.Sprintf("n%d", i) }
			together := rapid.Bool().Draw(r, "together")
			for i := range m {
				m[i] = &modelTask{keep: rapid.IntRange(0, 3).Draw(r, "keep") == 0}
				if m[i].keep {
					options[i] = append(options[i], holdfast.KeepWaiting())
				}
				for p := range i {
					if kind := rapid.IntRange(0, 4).Draw(r, "edge"); kind < 2 {
						m[i].parents = append(m[i].parents, &modelEdge{to: p, finished: kind == 1})
					}
				}
			}
			submitted := 0
			submit := func() {
				var items []holdfast.Item
				first := submitted
				for i := first; i < n && (together || i == first); i++ {
					o := append([]holdfast.SubmitOption{holdfast.As(name(i))}, options[i]...)
					kept := m[i].parents[:0]
					for _, e := range m[i].parents {
						ref := name(e.to)
						if e.to < first {
							if ref = m[e.to].id; m[e.to].status == "" {
								continue // nobody can wait for a task that is gone
							}
						}
						kept = append(kept, e)
						if e.finished {
							o = append(o, holdfast.AfterFinished(ref))
						} else {
							o = append(o, holdfast.After(ref))
						}
					}
					m[i].parents = kept
					items = append(items, holdfast.NewItem(name(i), nil, o...))
					submitted++
				}
				tasks, err := db.client.SubmitMany(ctx, items)
				if err != nil {
					r.Fatal(err)
				}
				for i, task := range tasks {
					m[first+i].id = task.ID
					m.add(first + i)
				}
			}
			submit()
			for range rapid.IntRange(1, 25).Draw(r, "steps") {
				if submitted < n && rapid.IntRange(0, 2).Draw(r, "submit") == 0 {
					submit()
				}
				i := rapid.IntRange(0, submitted-1).Draw(r, "task")
				own := rapid.Bool().Draw(r, "own")
				task, id := m[i], m[i].id
				done := true
				var err error
				switch verb := rapid.SampledFrom([]string{"ok", "ok", "fail", "fail", "cancel", "retry", "retry", "purge", "unblock"}).Draw(r, "verb"); {
				case (verb == "ok" || verb == "fail") && task.status == holdfast.Queued && task.released:
					done = db.claim(id)
					end := map[string]holdfast.Status{"ok": holdfast.Succeeded, "fail": holdfast.Failed}[verb]
					switch {
					case !own:
						done = done && db.settle(id, end)
					case verb == "ok":
						_, err = db.store.Complete(ctx, &holdfast.Task{ID: id, WorkerID: "foreign"}, nil)
					default:
						_, err = db.store.Fail(ctx, &holdfast.Task{ID: id, WorkerID: "foreign"}, nil, false, 0)
					}
					task.status = end
					m.ended(i, end)
				case verb == "cancel" && task.status == holdfast.Queued:
					if own {
						_, err = db.client.Cancel(ctx, id)
					} else {
						done = db.cancel(id)
					}
					task.status = holdfast.Canceled
					m.ended(i, holdfast.Canceled)
				case verb == "retry" && (task.status == holdfast.Failed || task.status == holdfast.Canceled):
					m.retry(i)
					if own {
						var now *holdfast.Task
						if now, err = db.client.Retry(ctx, id, false); err == nil && now.Waiting() != m.waiting(i) {
							r.Errorf("retry answered a task whose waiting is %v", now.Waiting())
						}
					} else {
						done = db.retry(id)
					}
				case verb == "purge" && task.status.Terminal():
					done = db.purge(id)
					m.remove(i)
				case verb == "unblock" && m.waiting(i):
					_, err = db.client.Unblock(ctx, id)
					task.released = true
				case (verb == "ok" || verb == "fail") && m.waiting(i) && db.claim(id):
					r.Fatalf("%s was claimed while it waits", name(i))
				}
				if err != nil || !done {
					r.Fatalf("%s: done %v, %v", name(i), done, err)
				}
				for j := range submitted {
					want := m[j]
					if want.status == "" {
						continue
					}
					d, err := db.client.Dependencies(ctx, want.id)
					if err != nil {
						r.Fatal(err)
					}
					got := db.get(want.id)
					if got.Status != want.status || got.Waiting() != m.waiting(j) || d.Waiting != m.waiting(j) {
						r.Fatalf("%s is %s, waiting %v and %v; the model says %s, %v", name(j), got.Status, got.Waiting(), d.Waiting, want.status, m.waiting(j))
					}
					if len(want.parents) > 0 && !want.released && d.Pending != m.pending(j) {
						r.Fatalf("%s has %d pending, the model %d", name(j), d.Pending, m.pending(j))
					}
				}
			}
		})
	})
}
