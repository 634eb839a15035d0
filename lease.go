package holdfast

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Held is a lease that a heartbeat found still held.
type Held struct {
	// ID is the task's.
	ID string
	// LeaseUntil is when the extended lease ends. It is zero when another transaction had the task's row
	// locked: the lease is still held, but was not extended.
	LeaseUntil time.Time
	// CancelRequested tells that somebody asked the task to stop.
	CancelRequested bool
}

// Heartbeat extends the leases of those of the tasks that worker still holds, in one statement, and
// answers them in the order of ids. A task that is missing from the answer is lost.
func (s *Store) Heartbeat(ctx context.Context, worker string, lease time.Duration, ids ...string) ([]Held, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if err := cmp.Or(checkText("worker_id", worker, true), checkLease(lease)); err != nil {
		return nil, err
	}
	found := make(map[string]Held, len(ids))
	row := &Row{IDs: ids, Lease: lease.Milliseconds()}
	row.WorkerID = worker
	err := s.query(ctx, StmtHeartbeat, func(_ int, a *Row) error {
		found[a.ID] = Held{ID: a.ID, LeaseUntil: a.LeaseUntil, CancelRequested: !a.CancelRequestedAt.IsZero()}
		return nil
	}, row)
	if err != nil {
		return nil, err
	}
	held := make([]Held, 0, len(found))
	for _, id := range ids {
		if h, ok := found[id]; ok {
			held = append(held, h)
			delete(found, id)
		}
	}
	return held, nil
}

// CancelRequests answers those of the tasks that are running and were asked to stop.
func (s *Store) CancelRequests(ctx context.Context, ids ...string) (asked []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	err = s.query(ctx, StmtCancelAsked, func(_ int, a *Row) error { asked = append(asked, a.ID); return nil }, &Row{IDs: ids})
	return asked, err
}

// Progress records how far a task is: nil and "" leave the old value. progress is 0 to 1.
func (s *Store) Progress(ctx context.Context, own *Task, progress *float64, message string) error {
	if progress != nil && !(*progress >= 0 && *progress <= 1) {
		return invalid("progress", *progress, "is not between 0 and 1")
	}
	row := &Row{Task: Task{ID: own.ID, WorkerID: own.WorkerID, Progress: progress, Message: cleanText(message), row: own.row}}
	_, err := s.owned(ctx, StmtProgress, row)
	return err
}

// Succeed ends a task as succeeded, also when a cancel was requested. own names the task and its
// worker; result is JSON or nil. The error is ErrLeaseLost when the task is no longer the worker's.
func (s *Store) Succeed(ctx context.Context, own *Task, result json.RawMessage) (Status, error) {
	return s.finish(ctx, StmtSucceed, own, result)
}

// Complete ends a task as succeeded, or as canceled (without the result) when a cancel was requested.
func (s *Store) Complete(ctx context.Context, own *Task, result json.RawMessage) (Status, error) {
	return s.finish(ctx, StmtComplete, own, result)
}

func (s *Store) finish(ctx context.Context, stmt Statement, own *Task, result json.RawMessage) (Status, error) {
	if result != nil {
		if err := s.checkJSON("result", result); err != nil {
			return "", err
		}
	}
	row := &Row{Task: Task{ID: own.ID, WorkerID: own.WorkerID, Result: result, row: own.row}}
	return s.owned(ctx, stmt, row)
}

// Fail records a failure. The task becomes queued again after delay if retryable and attempts are
// left, otherwise failed; canceled when a cancel was requested.
func (s *Store) Fail(ctx context.Context, own *Task, failure json.RawMessage, retryable bool, delay time.Duration) (Status, error) {
	if err := checkDuration("delay", delay); err != nil {
		return "", err
	}
	if failure == nil {
		failure = emptyObject
	}
	if err := s.checkJSON("error", failure); err != nil {
		return "", err
	}
	row := &Row{Task: Task{ID: own.ID, WorkerID: own.WorkerID, Error: failure, row: own.row}, Retryable: retryable, Delay: delay.Milliseconds()}
	return s.owned(ctx, StmtFail, row)
}

// Discard ends a running task as canceled, with the failure as its error: a cancel by the worker that
// holds it. The error is ErrLeaseLost when the task is no longer the worker's; nothing is written then.
func (s *Store) Discard(ctx context.Context, own *Task, failure json.RawMessage) (status Status, err error) {
	if failure == nil {
		failure = emptyObject
	}
	if err := s.checkJSON("error", failure); err != nil {
		return "", err
	}
	var ended *Row
	now := s.clock().UnixMilli()
	err = s.atomic(ctx, "discard", func(session Session) error {
		row := func() *Row { return &Row{Task: Task{ID: own.ID, WorkerID: own.WorkerID, row: own.row}, Now: now} }
		// A cancel asks nobody whose the task is, so a write that does comes first.
		held, err := queryOne(ctx, session, StmtProgress, row())
		if err == nil && held == nil {
			err = &LeaseLostError{TaskID: own.ID}
		}
		if err != nil {
			return err
		}
		if _, err := queryOne(ctx, session, StmtCancel, row()); err != nil {
			return err
		}
		fail := row()
		fail.Error = failure
		ended = nil
		if err := session.Query(ctx, StmtFail, func(_ int, a *Row) error { ended = a; return nil }, fail); err != nil {
			return err
		}
		if ended == nil { // the lease has ended between the statements
			return &LeaseLostError{TaskID: own.ID}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	s.settled(ended.ID, ended.Queue, ended.Status)
	return ended.Status, nil
}

// Release puts a running task back without spending its attempt: queued again after delay (at 0, in
// its old place), or canceled when a cancel was requested.
func (s *Store) Release(ctx context.Context, own *Task, delay time.Duration) (Status, error) {
	if err := checkDuration("delay", delay); err != nil {
		return "", err
	}
	return s.owned(ctx, StmtRelease, &Row{Task: Task{ID: own.ID, WorkerID: own.WorkerID, row: own.row}, Delay: delay.Milliseconds()})
}

// ReleaseMany releases every task that its worker still holds, and tells how many those were.
func (s *Store) ReleaseMany(ctx context.Context, own []*Task) (int, error) {
	if len(own) == 0 {
		return 0, nil
	}
	rows := make([]*Row, len(own))
	for i, t := range own {
		rows[i] = &Row{Task: Task{ID: t.ID, WorkerID: t.WorkerID, row: t.row}}
	}
	var done []*Row
	err := s.query(ctx, StmtRelease, func(_ int, a *Row) error { done = append(done, a); return nil }, rows...)
	if err != nil {
		return 0, err
	}
	for _, a := range done {
		s.settled(a.ID, a.Queue, a.Status)
	}
	return len(done), nil
}

// owned runs a write that only the holder of a live lease may make.
func (s *Store) owned(ctx context.Context, stmt Statement, row *Row) (status Status, err error) {
	err = s.query(ctx, stmt, func(_ int, a *Row) error {
		status = a.Status
		s.settled(a.ID, a.Queue, a.Status)
		return nil
	}, row)
	if err == nil && status == "" {
		err = &LeaseLostError{TaskID: row.ID}
	}
	return status, err
}

// errorText reduces any error to what every database can keep.
func errorText(err error) string { return cleanText(err.Error()) }

// isLost tells whether a worker's write failed because the task is not its own any more.
func isLost(err error) bool { return errors.Is(err, ErrLeaseLost) }
