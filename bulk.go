package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// BulkFilter selects the tasks of a bulk operation. Empty fields match everything.
type BulkFilter struct {
	// Status: RetryAll takes Failed (the default) or Canceled; CancelAll Queued, Running or both;
	// DeleteAll one of the three ends, or all.
	Status Status
	// Queue, Name, RootID and CorrelationID have to be equal where they are given.
	Queue         string
	Name          string
	RootID        string
	CorrelationID string
}

// DefaultBulkStep and MaxBulkStep bound the tasks that one transaction of a bulk operation changes.
const (
	DefaultBulkStep = 500
	MaxBulkStep     = 5000
)

// BulkOptions say how a bulk operation goes about it. The zero value is fine.
type BulkOptions struct {
	// Step is how many tasks one transaction changes at most; 0 means DefaultBulkStep.
	Step int
	// ResetAttempts gives the tasks of RetryAll all their attempts again.
	ResetAttempts bool
	// Cursor goes on where another call of the same operation stopped; see BulkProgress.
	Cursor string
	// Progress is called after each step.
	Progress func(BulkProgress)
}

// BulkProgress is how far a bulk operation is.
type BulkProgress struct {
	// Changed counts the tasks that were retried, canceled (or asked to stop) or deleted by this call.
	Changed int
	// Skipped counts those that somebody else changed first.
	Skipped int
	// Cursor is where to go on, with the same filter.
	Cursor string
	// Done: there is nothing left to do.
	Done bool
}

// RetryAll puts failed (or canceled) tasks back in their queues, as Retry does, in the order in which
// they ended.
//
// It and its sisters look for tasks without any lock and change them in steps of their own
// transactions, resting in between, so that other writers get their turn. Tasks that ended (CancelAll:
// were submitted) after the start are left alone. When ctx ends, what was done stays done, and the
// answer's cursor goes on from there. Inside a transaction of the application all steps are part of it.
func (s *Store) RetryAll(ctx context.Context, f BulkFilter, o BulkOptions) (BulkProgress, error) {
	f.Status = cmp.Or(f.Status, Failed)
	look := map[Status]Statement{Failed: StmtBulkFailed, Canceled: StmtBulkEnded}[f.Status]
	if look == "" {
		return BulkProgress{}, cmp.Or(f.Status.check("status"), invalid("status", string(f.Status), "cannot be retried; use failed or canceled"))
	}
	return s.bulk(ctx, "retry", f, o, StmtRetry, look)
}

// CancelAll cancels queued tasks and asks running ones to stop, as Cancel does.
func (s *Store) CancelAll(ctx context.Context, f BulkFilter, o BulkOptions) (BulkProgress, error) {
	looks, ok := map[Status][]Statement{"": {StmtBulkRunning, StmtBulkQueued}, Queued: {StmtBulkQueued}, Running: {StmtBulkRunning}}[f.Status]
	if !ok {
		return BulkProgress{}, cmp.Or(f.Status.check("status"), invalid("status", string(f.Status), "cannot be canceled; use queued or running, or neither for both"))
	}
	return s.bulk(ctx, "cancel", f, o, StmtCancel, looks...)
}

// DeleteAll deletes ended tasks with their keys and their history, in the order in which they ended.
func (s *Store) DeleteAll(ctx context.Context, f BulkFilter, o BulkOptions) (BulkProgress, error) {
	look := StmtBulkEnded
	switch f.Status {
	case "", Succeeded, Canceled:
	case Failed:
		look = StmtBulkFailed
	default:
		return BulkProgress{}, cmp.Or(f.Status.check("status"), invalid("status", string(f.Status), "is not terminal; only succeeded, failed or canceled tasks can be deleted"))
	}
	return s.bulk(ctx, "delete", f, o, StmtDelete, look)
}

// bulkCursor marks the place of a bulk operation: its start, which look it is at, and the last task
// there. Looks whose tasks leave the selection by being changed need no more than the start.
type bulkCursor struct {
	before, after int64
	look          int
	id            string
}

func (c bulkCursor) String() string {
	return fmt.Sprintf("%d.%d.%d.%s", c.before, c.look, c.after, c.id)
}

func parseBulkCursor(text string, looks int) (c bulkCursor, err error) {
	parts := strings.SplitN(text, ".", 4)
	if len(parts) == 4 {
		var e1, e2, e3 error
		c.before, e1 = strconv.ParseInt(parts[0], 10, 64)
		c.look, e2 = strconv.Atoi(parts[1])
		c.after, e3 = strconv.ParseInt(parts[2], 10, 64)
		c.id = parts[3]
		if cmp.Or(e1, e2, e3) == nil && c.look >= 0 && c.look < looks {
			return c, nil
		}
	}
	return c, invalid("cursor", text, "is no cursor of this operation; use the one that it answered")
}

func (s *Store) bulk(ctx context.Context, op string, f BulkFilter, o BulkOptions, act Statement, looks ...Statement) (done BulkProgress, err error) {
	step := cmp.Or(o.Step, DefaultBulkStep)
	if step < 0 || step > MaxBulkStep {
		return done, invalid("step", o.Step, fmt.Sprintf("is not between 1 and %d", MaxBulkStep))
	}
	var at bulkCursor
	if o.Cursor != "" {
		if at, err = parseBulkCursor(o.Cursor, len(looks)); err != nil {
			return done, err
		}
	} else {
		now, err := s.Now(ctx)
		if err != nil {
			return done, err
		}
		at.before = now.UnixMilli()
	}
	done.Cursor = at.String()
	for at.look < len(looks) {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		began := time.Now()
		look := &Row{BeforeMS: at.before, AfterMS: at.after, AfterID: at.id, Limit: int64(step)}
		look.Queue, look.Name, look.RootID, look.CorrelationID = f.Queue, f.Name, f.RootID, f.CorrelationID
		if looks[at.look] == StmtBulkEnded {
			look.Status = f.Status
		}
		var rows []*Row
		if err := s.query(ctx, looks[at.look], func(_ int, a *Row) error {
			rows = append(rows, &Row{Task: Task{ID: a.ID}, Reset: o.ResetAttempts, Now: s.clock().UnixMilli()})
			at.id = a.ID
			if !a.CompletedAt.IsZero() {
				at.after = a.CompletedAt.UnixMilli()
			}
			return nil
		}, look); err != nil {
			return done, err
		}
		if len(rows) == 0 {
			at = bulkCursor{before: at.before, look: at.look + 1}
			if at.look < len(looks) {
				done.Cursor = at.String()
			}
			continue
		}
		var changed []*Row
		if err := s.atomic(ctx, op, func(session Session) error {
			changed = changed[:0]
			return session.Query(ctx, act, func(_ int, a *Row) error { changed = append(changed, a); return nil }, rows...)
		}); err != nil {
			return done, err
		}
		for _, a := range changed {
			if a.Status != "" { // a deleted one has none
				s.settled(a.ID, a.Queue, a.Status)
			}
		}
		done.Changed += len(changed)
		done.Skipped += len(rows) - len(changed)
		done.Cursor = at.String()
		if o.Progress != nil {
			o.Progress(done)
		}
		if !s.inTx && !rest(ctx, time.Since(began)) {
			return done, context.Cause(ctx)
		}
	}
	done.Done = true
	if o.Progress != nil {
		o.Progress(done)
	}
	return done, nil
}

// rest lets others write for as long as a step took, but not for long; false when ctx ended.
func rest(ctx context.Context, took time.Duration) bool {
	timer := time.NewTimer(min(took, sweepPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Redrive puts a failed or canceled task back in its queue with another payload and all its attempts.
// The history of its attempts stays. The payload must be JSON. The error is ErrNotJSON, ErrNotFound,
// or ErrState for a task that is live or succeeded.
func (s *Store) Redrive(ctx context.Context, id string, payload []byte) (*Task, error) {
	if err := checkJSON(payload); err != nil {
		return nil, &NotJSONError{Field: "payload", Err: err}
	}
	if err := s.dialect.CheckJSON(payload); err != nil {
		return nil, &NotJSONError{Field: "payload", Err: err}
	}
	return s.change(ctx, StmtRedrive, "redrive", &Row{Task: Task{ID: id, Payload: payload}})
}

// RetryAll puts failed (or canceled) tasks back in their queues. See Store.RetryAll.
func (c *Client) RetryAll(ctx context.Context, f BulkFilter, o BulkOptions) (BulkProgress, error) {
	return c.store.RetryAll(ctx, f, o)
}

// CancelAll cancels queued tasks and asks running ones to stop. See Store.CancelAll.
func (c *Client) CancelAll(ctx context.Context, f BulkFilter, o BulkOptions) (BulkProgress, error) {
	return c.store.CancelAll(ctx, f, o)
}

// DeleteAll deletes ended tasks. See Store.DeleteAll.
func (c *Client) DeleteAll(ctx context.Context, f BulkFilter, o BulkOptions) (BulkProgress, error) {
	return c.store.DeleteAll(ctx, f, o)
}

// Redrive puts a failed or canceled task back in its queue with another payload, encoded and bounded
// as in Submit. See Store.Redrive.
func (c *Client) Redrive(ctx context.Context, id string, payload any) (*Task, error) {
	raw, err := encode("payload", payload, c.limit)
	if err != nil {
		return nil, err
	}
	return c.store.Redrive(ctx, id, raw)
}
