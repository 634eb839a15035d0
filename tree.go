package holdfast

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxTreeTasks is how many tasks of a tree are shown.
const MaxTreeTasks = 10_000

// TreeNode is a task of a tree with those that its handler submitted.
type TreeNode struct {
	// Task is without payload, result, error and metadata. Of a task that was purged there is only the ID.
	Task     *Task
	Children []*TreeNode // in the order in which they were submitted
	// Truncated, at the root: the tree has more than MaxTreeTasks tasks, and some are missing.
	Truncated bool
}

// Tree reads the tree that a task belongs to: its root, and everything that was submitted by its
// handlers or with the option Parent. id may name any task of the tree, or a root that was purged.
func (s *Store) Tree(ctx context.Context, id string) (*TreeNode, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	t, err := s.one(ctx, StmtTree, &Row{Task: Task{ID: id}, Limit: 1})
	if err != nil {
		return nil, err
	}
	root := id
	if t != nil && t.RootID != "" {
		root = t.RootID
	}
	nodes := map[string]*TreeNode{}
	var list []*TreeNode
	if err := s.query(ctx, StmtTree, func(_ int, a *Row) error {
		n := &TreeNode{Task: &a.Task}
		nodes[a.ID] = n
		list = append(list, n)
		return nil
	}, &Row{Task: Task{ID: root}, Limit: MaxTreeTasks + 1}); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("holdfast: %s: %w", id, ErrNotFound)
	}
	truncated := len(list) > MaxTreeTasks
	slices.SortFunc(list, func(a, b *TreeNode) int { return strings.Compare(a.Task.ID, b.Task.ID) })
	top := nodes[root]
	if top == nil {
		top = &TreeNode{Task: &Task{ID: root, RootID: root}}
	}
	top.Truncated = truncated
	for _, n := range list {
		if n == top {
			continue
		}
		parent := nodes[n.Task.ParentID]
		if parent == nil || parent == n {
			parent = top // purged
		}
		parent.Children = append(parent.Children, n)
	}
	return top, nil
}

// String draws the tree, a line for each task.
func (n *TreeNode) String() string {
	var b strings.Builder
	n.draw(&b, "", "", "")
	if n.Truncated {
		fmt.Fprintf(&b, "(only %d tasks are shown)\n", MaxTreeTasks)
	}
	return b.String()
}

func (n *TreeNode) draw(b *strings.Builder, indent, branch, below string) {
	fmt.Fprintf(b, "%s%s%s\n", indent, branch, describe(n.Task))
	for i, c := range n.Children {
		if i == len(n.Children)-1 {
			c.draw(b, indent+below, "└─ ", "   ")
		} else {
			c.draw(b, indent+below, "├─ ", "│  ")
		}
	}
}

func describe(t *Task) string {
	if t.Status == "" {
		return t.ID + "  (purged)"
	}
	s := fmt.Sprintf("%s  %s  %s", t.ID, t.Name, t.Status)
	switch {
	case t.Waiting():
		s += ", waits for others"
	case t.Status == Queued && t.Attempt > 0:
		s += fmt.Sprintf(", attempt %d of %d next", t.Attempt+1, t.MaxAttempts)
	case t.Status == Running && !t.CancelRequestedAt.IsZero():
		s += fmt.Sprintf(", attempt %d of %d, asked to stop", t.Attempt, t.MaxAttempts)
	case t.Status == Running:
		s += fmt.Sprintf(", attempt %d of %d", t.Attempt, t.MaxAttempts)
	case t.Attempt > 1:
		s += fmt.Sprintf(" after %d attempts", t.Attempt)
	}
	return s
}

// CanceledTree is what CancelTree did.
type CanceledTree struct {
	Canceled int // queued tasks that ended
	Asked    int // running tasks that were asked to stop
}

// CancelTree cancels all live tasks of a tree, as Cancel does, in steps of at most DefaultBulkStep
// tasks, running ones first, until there are none: what a handler submits meanwhile is canceled too.
// A task that a handler submits after that, because it does not heed its own cancel, is not. The
// error is ErrNotFound, or ErrInvalid for a task that is not the root of its tree.
func (s *Store) CancelTree(ctx context.Context, root string) (done CanceledTree, err error) {
	if err := checkID("id", root); err != nil {
		return done, err
	}
	t, err := s.one(ctx, StmtTree, &Row{Task: Task{ID: root}, Limit: 1})
	if err != nil {
		return done, err
	}
	if t != nil && t.ID == root && t.RootID != "" && t.RootID != root {
		return done, invalid("id", root, "is not the root of its tree; that is "+t.RootID)
	}
	for {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		began := time.Now()
		var rows []*Row
		if err := s.query(ctx, StmtTreeLive, func(_ int, a *Row) error {
			rows = append(rows, &Row{Task: Task{ID: a.ID}, Now: s.clock().UnixMilli()})
			return nil
		}, &Row{Task: Task{ID: root}, Limit: DefaultBulkStep}); err != nil {
			return done, err
		}
		if len(rows) == 0 {
			break
		}
		var changed []*Row
		if err := s.atomic(ctx, "cancel", func(session Session) error {
			changed = changed[:0]
			return session.Query(ctx, StmtCancel, func(_ int, a *Row) error { changed = append(changed, a); return nil }, rows...)
		}); err != nil {
			return done, err
		}
		for _, a := range changed {
			if a.Status == Running {
				done.Asked++
			} else {
				done.Canceled++
			}
			s.settled(a.ID, a.Queue, a.Status)
		}
		if !s.inTx && !rest(ctx, time.Since(began)) {
			return done, context.Cause(ctx)
		}
	}
	if t == nil && done == (CanceledTree{}) {
		err = fmt.Errorf("holdfast: %s: %w", root, ErrNotFound)
	}
	return done, err
}

// Tree reads the tree that a task belongs to. See Store.Tree.
func (c *Client) Tree(ctx context.Context, id string) (*TreeNode, error) {
	return c.store.Tree(ctx, id)
}

// CancelTree cancels all live tasks of a tree. See Store.CancelTree.
func (c *Client) CancelTree(ctx context.Context, root string) (CanceledTree, error) {
	return c.store.CancelTree(ctx, root)
}
