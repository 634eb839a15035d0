package holdfast

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Run is one attempt at a task, as its handler sees it.
type Run struct {
	a *attempt
}

// Task is the task as it was claimed.
func (r *Run) Task() *Task { return r.a.task }

// Attempt counts from 1.
func (r *Run) Attempt() int { return r.a.task.Attempt }

// Context is the task's own context: the handler's, or, in a batch, that of this one task.
func (r *Run) Context() context.Context { return r.a.ctx }

// Complete ends one task of a batch with its result, before the handler returns. It does nothing
// when the task has ended already.
func (r *Run) Complete(ctx context.Context, result any) error {
	raw, err := r.a.w.encodeResult(result)
	if err != nil {
		return err
	}
	if r.a.take() {
		r.a.finish(r.a.complete(raw))
	}
	return nil
}

// Fail ends one task of a batch by an error, as if its handler had returned it. It does nothing when
// the task has ended already.
func (r *Run) Fail(ctx context.Context, err error) error {
	if err == nil {
		return invalid("error", "", "is nil; use Complete for a success")
	}
	if r.a.take() {
		r.a.finish(r.a.outcome(nil, err))
	}
	return nil
}

// Log is the worker's logger with the task's id, name, queue and attempt.
func (r *Run) Log() *slog.Logger {
	t := r.a.task
	return r.a.w.log.With("task", t.ID, "name", t.Name, "queue", t.Queue, "attempt", t.Attempt)
}

// Client submits tasks that join this task's tree: their parent is this task, unless an option says
// otherwise.
func (r *Run) Client() *Client { return r.a.w.client.with(Parent(r.a.task)) }

// Progress records how far the task is, 0 to 1, and a message for people; an empty message leaves
// the old one. The error is ErrLeaseLost when the task is no longer this attempt's.
func (r *Run) Progress(ctx context.Context, progress float64, message string) error {
	if err := r.a.alive(); err != nil {
		return err
	}
	err := r.a.w.store.Progress(ctx, r.a.task, &progress, message)
	if isLost(err) {
		r.a.lose()
	}
	return err
}

// CompleteIn ends the task with its result inside the application's own transaction: the result and
// the application's rows are kept together, or neither is. The handler commits, then returns nil; if
// it returns an error, or does not commit, the attempt has failed.
func (r *Run) CompleteIn(ctx context.Context, tx Tx, result any) error {
	if err := r.a.alive(); err != nil {
		return err
	}
	raw, err := r.a.w.encodeResult(result)
	if err != nil {
		return err
	}
	status, err := r.a.w.store.In(tx).Complete(ctx, r.a.task, raw)
	if err != nil {
		return err
	}
	if status == Canceled {
		return fmt.Errorf("holdfast: %s: %w", r.a.task.ID, ErrCancelRequested)
	}
	r.a.completedIn.Store(true)
	return nil
}

// encodeResult refuses what no database keeps.
func (w *Worker) encodeResult(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw, err := encode("result", v, w.config.ResultLimit)
	if err != nil {
		return nil, err
	}
	if err := w.store.dialect.CheckJSON(raw); err != nil {
		return nil, &NotJSONError{Field: "result", Err: err}
	}
	return raw, nil
}
