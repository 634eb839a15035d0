package holdfast

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A task may wait for others, its parents. While it waits its status is queued, but it is due in the
// year 9999, so that no worker of any library claims it; its own time is kept in a table of ours. The
// database itself looks after it, by triggers: whoever ends the last parent releases the child.
//
// The rules:
//   - After wants its parents succeeded. When one fails or is canceled, or is deleted before it has
//     succeeded, the child is canceled, with a record that names the parent, and then its own
//     children by the same rule. With KeepWaiting it waits on: a retry of the parent may still release it.
//   - AfterFinished wants its parents ended, in whatever way.
//   - Parents that have ended already count at once.
//   - A released child is a task like any other: what happens to its parents later does not matter.
//   - A child that is retried goes on waiting for the parents that it waited for, as far as they still
//     exist. A parent that is retried before the child was released is waited for again.

// WaitingRunAt is the run_at_ms of a task that waits for others: the first moment of the year 9999, in
// epoch milliseconds.
const WaitingRunAt = 253370764800000

// Limits of dependencies.
const (
	// MaxParents bounds the tasks that one task may wait for.
	MaxParents = 1000
	// MaxGraphTasks and MaxGraphEdges bound one SubmitMany whose tasks wait for others.
	MaxGraphTasks = 10_000
	MaxGraphEdges = 20_000
)

// Codes of failures that a task gets because of a task that it waited for.
const (
	CodeDependencyFailed   = "dependency_failed"   // it failed
	CodeDependencyCanceled = "dependency_canceled" // it was canceled
	CodeDependencyPurged   = "dependency_purged"   // it was deleted before it had succeeded
)

// Waiting tells whether the task waits for others. See Client.Dependencies.
func (t *Task) Waiting() bool { return t.Status == Queued && t.RunAt.UnixMilli() == WaitingRunAt }

// CycleError names tasks that wait for each other, the first one twice. It matches ErrInvalid.
type CycleError struct {
	// Nodes are ids, or names given with As.
	Nodes []string
}

func (e *CycleError) Error() string {
	return "holdfast: after: these tasks wait for each other and would wait for ever: " + strings.Join(e.Nodes, " → ")
}

// Is reports whether target is ErrInvalid.
func (e *CycleError) Is(target error) bool { return target == ErrInvalid }

// As names the task within one SubmitMany, so that others there can wait for it. The name is not kept.
func As(node string) SubmitOption {
	return func(s *submission) {
		s.refuse(checkText("as", node, true))
		if strings.HasPrefix(node, idPrefix) {
			s.refuse(invalid("as", node, "looks like a task id; use another name"))
		}
		s.Submission.As = node
	}
}

// After makes the task wait until those tasks have succeeded. Each is a task id, or a name that As
// gave to a task of the same SubmitMany, before or behind this one. When one of them fails or is
// canceled, this task is canceled too, unless KeepWaiting says otherwise.
func After(tasks ...string) SubmitOption {
	return func(s *submission) { s.Submission.After = slices.Concat(s.Submission.After, tasks) }
}

// AfterFinished makes the task wait until those tasks have ended, in whatever way. They are named as in After.
func AfterFinished(tasks ...string) SubmitOption {
	return func(s *submission) { s.Submission.AfterFinished = slices.Concat(s.Submission.AfterFinished, tasks) }
}

// KeepWaiting makes the task wait on when one that it waits for fails or is canceled, so that a retry
// of that one can still release it.
func KeepWaiting() SubmitOption { return func(s *submission) { s.Submission.KeepWaiting = true } }

// edge is one dependency: of a node of the same call, or of a task that exists.
type edge struct {
	node     int // index, or -1
	id       string
	finished bool
}

// graph is what the submissions of one call wait for.
type graph struct {
	subs  []*Submission
	edges [][]edge
	order []int // parents before children
}

// planGraph checks the dependencies of the submissions; nil when there are none.
func planGraph(subs []*Submission) (*graph, error) {
	g := &graph{subs: subs}
	byName := map[string]int{}
	total := 0
	for i, sub := range subs {
		total += len(sub.After) + len(sub.AfterFinished)
		if sub.As == "" {
			continue
		}
		if j, taken := byName[sub.As]; taken {
			return nil, indexed(i, invalid("as", sub.As, fmt.Sprintf("is the name of submission %d already; names are unique within a call", j)))
		}
		byName[sub.As] = i
	}
	if total == 0 {
		return nil, nil
	}
	if len(subs) > MaxGraphTasks {
		return nil, invalid("after", len(subs), fmt.Sprintf("is the number of tasks; a call whose tasks wait for others takes at most %d", MaxGraphTasks))
	}
	if total > MaxGraphEdges {
		return nil, invalid("after", total, fmt.Sprintf("is the number of dependencies; one call takes at most %d", MaxGraphEdges))
	}
	g.edges = make([][]edge, len(subs))
	for i, sub := range subs {
		if n := len(sub.After) + len(sub.AfterFinished); n > MaxParents {
			return nil, indexedIf(len(subs) > 1, i, invalid("after", n, fmt.Sprintf("is the number of tasks to wait for; the limit is %d", MaxParents)))
		}
		seen := map[string]bool{}
		for _, list := range [...]struct {
			field    string
			refs     []string
			finished bool
		}{{"after", sub.After, false}, {"after_finished", sub.AfterFinished, true}} {
			for _, ref := range list.refs {
				if seen[ref] {
					continue // the stricter one came first
				}
				seen[ref] = true
				e := edge{node: -1, id: ref, finished: list.finished}
				if node, ok := byName[ref]; ok {
					e = edge{node: node, finished: list.finished}
				} else if !strings.HasPrefix(ref, idPrefix) || len(ref) > MaxNameBytes {
					return nil, indexedIf(len(subs) > 1, i, invalid(list.field, ref, "is no task id, and no task of this call has this name by As"))
				}
				g.edges[i] = append(g.edges[i], e)
			}
		}
	}
	return g, g.sort()
}

// sort finds an order with parents before children, or the cycle that forbids one.
func (g *graph) sort() error {
	left := make([]int, len(g.subs)) // parents not in the order yet
	children := make([][]int, len(g.subs))
	for i, edges := range g.edges {
		for _, e := range edges {
			if e.node >= 0 {
				left[i]++
				children[e.node] = append(children[e.node], i)
			}
		}
	}
	for i, n := range left {
		if n == 0 {
			g.order = append(g.order, i)
		}
	}
	for n := 0; n < len(g.order); n++ {
		for _, c := range children[g.order[n]] {
			if left[c]--; left[c] == 0 {
				g.order = append(g.order, c)
			}
		}
	}
	if len(g.order) == len(g.subs) {
		return nil
	}
	// Whoever is left has a parent that is left: going up must come back to where it was.
	at := slices.IndexFunc(left, func(n int) bool { return n > 0 })
	var path []int
	for !slices.Contains(path, at) {
		path = append(path, at)
		for _, e := range g.edges[at] {
			if e.node >= 0 && left[e.node] > 0 {
				at = e.node
				break
			}
		}
	}
	path = append(path[slices.Index(path, at):], at)
	e := &CycleError{}
	for _, i := range path {
		e.Nodes = append(e.Nodes, g.subs[i].As)
	}
	return e
}

// parents are the tasks that a graph waits for and that exist already, by id.
type parents map[string]*Task

// look reads them. tasks are the nodes; fresh tells which of them are about to be inserted.
func (g *graph) look(ctx context.Context, session Session, tasks []*Task, fresh map[string]bool) (parents, error) {
	known := parents{}
	for i, edges := range g.edges {
		if !fresh[tasks[i].ID] {
			continue // a task that exists already waits for nobody new
		}
		for _, e := range edges {
			if id := g.parent(e, tasks); !fresh[id] {
				known[id] = nil
			}
		}
	}
	rows := make([]*Row, 0, len(known))
	for id := range known {
		rows = append(rows, &Row{Task: Task{ID: id}})
	}
	slices.SortFunc(rows, func(a, b *Row) int { return strings.Compare(a.ID, b.ID) })
	if len(rows) > 0 {
		if err := session.Query(ctx, StmtDependLook, func(i int, a *Row) error { known[a.ID] = &a.Task; return nil }, rows...); err != nil {
			return nil, err
		}
	}
	for i, edges := range g.edges {
		for _, e := range edges {
			if id := g.parent(e, tasks); fresh[tasks[i].ID] && !fresh[id] && known[id] == nil {
				return nil, indexedIf(len(tasks) > 1, i, invalid("after", id, "is the id of no task in this database; it may have been purged"))
			}
		}
	}
	return known, nil
}

func (g *graph) parent(e edge, tasks []*Task) string {
	if e.node >= 0 {
		return tasks[e.node].ID
	}
	return e.id
}

// write records the dependencies of the new tasks, holds those that have to wait, and cancels those
// that wait in vain; it answers the latter, and changes tasks to what is in the database.
func (g *graph) write(ctx context.Context, session Session, tasks []*Task, fresh map[string]bool, known parents, now int64) (ended []*Task, err error) {
	var edges, waits, holds, cancels []*Row
	state := map[string]*Task{}
	for i, t := range tasks {
		if fresh[t.ID] && state[t.ID] == nil {
			c := *tasks[i]
			state[t.ID] = &c
		}
	}
	written := map[string]bool{}
	for _, i := range g.order {
		child := state[tasks[i].ID]
		if child == nil || len(g.edges[i]) == 0 || written[child.ID] {
			continue
		}
		written[child.ID] = true
		var cause *Task
		pending := int64(0)
		seen := map[string]bool{child.ID: true} // two nodes may have become one task by their key
		for position, e := range g.edges[i] {
			id := g.parent(e, tasks)
			if seen[id] {
				continue
			}
			seen[id] = true
			parent := state[id]
			if parent == nil {
				parent = known[id]
			}
			row := &Row{Finished: e.finished, Position: int64(position)}
			row.ID, row.ParentID = child.ID, id
			switch {
			case parent.Status == Succeeded, e.finished && parent.Status.Terminal():
				row.Met = true
			default:
				pending++
				if parent.Status.Terminal() && !g.subs[i].KeepWaiting && cause == nil {
					cause = parent
				}
			}
			edges = append(edges, row)
		}
		waits = append(waits, &Row{Task: Task{ID: child.ID}, Keep: g.subs[i].KeepWaiting, Count: pending, Now: now})
		switch {
		case child.Status != Queued: // replaced by a later node of the same call
		case cause != nil:
			child.Status = Canceled
			cancels = append(cancels, &Row{Task: Task{ID: child.ID, Error: dependencyRecord(cause)}, Now: now})
		case pending > 0:
			holds = append(holds, &Row{Task: Task{ID: child.ID}})
		}
	}
	// In one order, from the oldest parent on: Postgres locks the parents in this order at the commit.
	slices.SortStableFunc(edges, func(a, b *Row) int { return strings.Compare(a.ParentID, b.ParentID) })
	for _, w := range [...]struct {
		stmt Statement
		rows []*Row
	}{{StmtDependOn, edges}, {StmtDependWait, waits}, {StmtDependHold, holds}} {
		if len(w.rows) == 0 {
			continue
		}
		if err := session.Query(ctx, w.stmt, nil, w.rows...); err != nil {
			return nil, err
		}
	}
	byID := map[string]*Task{}
	for _, t := range tasks {
		byID[t.ID] = t
	}
	for _, r := range holds {
		byID[r.ID].RunAt = time.UnixMilli(WaitingRunAt)
	}
	if len(cancels) == 0 {
		return nil, nil
	}
	// The database cancels the children of the first by itself.
	if err := session.Query(ctx, StmtDependCancel, nil, cancels...); err != nil {
		return nil, err
	}
	err = session.Query(ctx, StmtGet, func(_ int, a *Row) error {
		*byID[a.ID] = a.Task
		ended = append(ended, &a.Task)
		return nil
	}, cancels...)
	return ended, err
}

// dependencyRecord is what a task is told that waited for parent in vain; the triggers write the same.
func dependencyRecord(parent *Task) json.RawMessage {
	verb := "failed"
	if parent.Status == Canceled {
		verb = "was canceled"
	}
	details, _ := json.Marshal(map[string]string{"task_id": parent.ID, "name": parent.Name, "status": string(parent.Status)}) // strings always can
	f := &Failure{
		Type: "DependencyError", Code: "dependency_" + string(parent.Status),
		Message: fmt.Sprintf("%s (%s), which this task waited for, %s", parent.ID, parent.Name, verb),
		Details: details,
	}
	return f.record(func(json.RawMessage) error { return nil })
}
