package holdfast

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Dependencies tells whom a task waits or waited for, and who waits for it.
type Dependencies struct {
	// TaskID is the task that was asked about.
	TaskID string
	// Waiting is true while the task cannot be claimed because of its parents.
	Waiting bool
	// Pending is how many of its parents it still waits for.
	Pending int
	// KeepWaiting: a parent's failure does not cancel it.
	KeepWaiting bool
	// RunAt is the earliest start of a waiting task, once it is released; zero for any other.
	RunAt time.Time
	// ReleasedAt is when it stopped waiting; zero while it waits, and for a task that never did.
	ReleasedAt time.Time
	// Parents, in the order in which the submitter named them.
	Parents []*ParentTask
	// Children are the tasks that wait or waited for this one, at most MaxParents of them, oldest first.
	Children []*ChildTask
}

// ParentTask is a task that another waits or waited for.
type ParentTask struct {
	// ID and Name are the parent's.
	ID     string
	Name   string
	Status Status // as of now; of a deleted one, its last, or "" where that is not known
	// Finished: any end would do; otherwise it had to succeed.
	Finished bool
	// Met: it has ended as it should.
	Met bool
	// Deleted: the task was purged. Its name, status, result and error are kept as long as it has children.
	Deleted bool
	// Result and Error are JSON, or nil; only Run.Parents and Store.Parents read them.
	Result, Error json.RawMessage
}

// DecodeResult reads the parent's result into v. A parent without result leaves v as it is.
func (p *ParentTask) DecodeResult(v any) error {
	if p.Result == nil {
		return nil
	}
	return decode("result", p.Result, v)
}

// Failure answers the record of the parent's last failure, or nil where there is none.
func (p *ParentTask) Failure() *Failure { return parseFailure(p.Error) }

// ChildTask is a task that waits or waited for another.
type ChildTask struct {
	// ID, Name and Status are the child's, as of now.
	ID       string
	Name     string
	Status   Status
	Finished bool // see ParentTask
	// Met: this task has ended as the child needs it.
	Met bool
}

// why says in a sentence what a waiting task waits for.
func (d *Dependencies) why() string {
	var open []string
	for _, p := range d.Parents {
		if p.Met {
			continue
		}
		if len(open) == 5 {
			open = append(open, "…")
			break
		}
		status := string(p.Status)
		if p.Deleted {
			status = "deleted"
		}
		open = append(open, fmt.Sprintf("%s (%s, %s)", p.ID, p.Name, status))
	}
	return fmt.Sprintf("it waits for %d of %d other tasks: %s", d.Pending, len(d.Parents), strings.Join(open, ", "))
}

// Dependencies reads whom a task waits or waited for, and who waits for it. A task without
// dependencies has none of either; the error is ErrNotFound when there is no task.
func (s *Store) Dependencies(ctx context.Context, id string) (*Dependencies, error) {
	t, err := s.Status(ctx, id)
	if err != nil {
		return nil, err
	}
	d := &Dependencies{TaskID: id}
	row := &Row{Task: Task{ID: id}, Limit: MaxParents}
	if err := s.query(ctx, StmtDependGet, func(_ int, a *Row) error {
		d.Pending, d.KeepWaiting, d.ReleasedAt = int(a.Count), a.Keep, a.ReleasedAt
		if a.ReleasedAt.IsZero() && t.Status == Queued {
			d.Waiting, d.RunAt = true, a.RunAt
		}
		return nil
	}, row); err != nil {
		return nil, err
	}
	if d.Parents, err = s.parents(ctx, StmtDependParents, id); err != nil {
		return nil, err
	}
	err = s.query(ctx, StmtDependChildren, func(_ int, a *Row) error {
		d.Children = append(d.Children, &ChildTask{ID: a.ID, Name: a.Name, Status: a.Status, Finished: a.Finished, Met: a.Met})
		return nil
	}, row)
	return d, err
}

// Parents reads the tasks that a task waits or waited for, with their results, in the order in which
// the submitter named them.
func (s *Store) Parents(ctx context.Context, id string) ([]*ParentTask, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	return s.parents(ctx, StmtDependResults, id)
}

func (s *Store) parents(ctx context.Context, stmt Statement, id string) (list []*ParentTask, err error) {
	err = s.query(ctx, stmt, func(_ int, a *Row) error {
		list = append(list, &ParentTask{ID: a.ID, Name: a.Name, Status: a.Status, Finished: a.Finished, Met: a.Met, Deleted: a.Purged, Result: a.Result, Error: a.Error})
		return nil
	}, &Row{Task: Task{ID: id}})
	return list, err
}

// Unblock lets a task that waits for others start without them. The error is ErrNotFound, or ErrState
// for a task that does not wait.
func (s *Store) Unblock(ctx context.Context, id string) (*Task, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	row := &Row{Task: Task{ID: id}, Now: s.clock().UnixMilli()}
	var t *Task
	err := s.atomic(ctx, "unblock", func(session Session) (err error) {
		if t, err = queryOne(ctx, session, StmtDependRelease, row); err != nil || t == nil {
			return err
		}
		return session.Query(ctx, StmtDependReleased, nil, row)
	})
	if err != nil {
		return nil, err
	}
	if t == nil {
		now, err := s.Status(ctx, id)
		if err != nil {
			return nil, err
		}
		return nil, &StateError{TaskID: id, Op: "unblock", Status: now.Status}
	}
	s.settled(t.ID, t.Queue, t.Status)
	return t, nil
}

// Dependencies reads whom a task waits or waited for, and who waits for it. See Store.Dependencies.
func (c *Client) Dependencies(ctx context.Context, id string) (*Dependencies, error) {
	return c.store.Dependencies(ctx, id)
}

// Unblock lets a task that waits for others start without them. See Store.Unblock.
func (c *Client) Unblock(ctx context.Context, id string) (*Task, error) {
	return c.store.Unblock(ctx, id)
}

// Parents reads the tasks that this one waited for, with their results, in the order in which its
// submitter named them; none for a task that did not wait.
func (r *Run) Parents(ctx context.Context) ([]*ParentTask, error) {
	return r.a.w.store.Parents(ctx, r.a.task.ID)
}
