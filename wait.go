package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"
)

// Waiting looks at the task after firstLook, then at distances that grow to lastLook, and at once
// when this process learns of the task's end.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// Wait waits until the task has ended, and answers it, whatever its end. When ctx ends first, the
// error is a WaitTimeoutError that says why the task may be stuck; the task goes on, and Wait can be
// called again.
func (c *Client) Wait(ctx context.Context, id string) (*Task, error) {
	return c.wait(ctx, id, func() (*Task, error) { return c.store.Status(ctx, id) })
}

// WaitByKey waits until the task that stands under the key has ended. When the key passes to another
// task meanwhile, it waits for that one.
func (c *Client) WaitByKey(ctx context.Context, key string) (*Task, error) {
	return c.wait(ctx, "", func() (*Task, error) { return c.store.StatusByKey(ctx, key) })
}

func (c *Client) wait(ctx context.Context, id string, look func() (*Task, error)) (*Task, error) {
	var ear *Listener
	defer func() {
		if ear != nil {
			ear.Close()
		}
	}()
	pause := firstLook
	for {
		if ear == nil && id != "" {
			ear = c.store.dialect.Hub().ListenTask(id) // before the look, so that nothing is missed
		}
		now, err := look()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, c.waitTimeout(ctx, id)
		case err != nil:
			return nil, err
		case now.Status.Terminal():
			return c.store.Get(ctx, now.ID)
		case now.ID != id:
			if ear != nil {
				ear.Close()
				ear = nil
			}
			id = now.ID
			continue
		}
		if !sleep(ctx, ear, pause) {
			return nil, c.waitTimeout(ctx, id)
		}
		pause = min(pause*3/2, lastLook)
	}
}

// sleep waits for the listener or the pause; false when ctx ended.
func sleep(ctx context.Context, ear *Listener, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	defer ear.Disarm()
	select {
	case <-ear.Arm():
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// waitTimeout finds out why the task may be stuck.
func (c *Client) waitTimeout(ctx context.Context, id string) error {
	e := &WaitTimeoutError{TaskID: id, Err: context.Cause(ctx), Why: "its state could not be read"}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if id == "" {
		e.Why = "nothing stands under the key yet"
		return e
	}
	t, err := c.store.Get(short, id)
	if err != nil {
		return e
	}
	e.Status = t.Status
	now, err := c.store.Now(short)
	if err != nil {
		now = time.Now()
	}
	switch {
	case t.Waiting():
		e.Why = "it waits for others"
		if d, err := c.store.Dependencies(short, id); err == nil {
			e.Why = d.why()
		}
	case t.Status == Queued && t.RunAt.After(now):
		e.Why = fmt.Sprintf("it waits until %s (attempt %d of %d)", t.RunAt.Format(time.RFC3339), t.Attempt+1, t.MaxAttempts)
	case t.Status == Queued && t.Attempt == 0:
		e.Why = fmt.Sprintf("it was never claimed; is a worker running for name %q on queue %q?", t.Name, t.Queue)
	case t.Status == Queued:
		e.Why = fmt.Sprintf("it waits to be claimed for attempt %d of %d", t.Attempt+1, t.MaxAttempts)
	case t.Status == Running:
		e.Why = fmt.Sprintf("it is still running, attempt %d of %d, on worker %s", t.Attempt, t.MaxAttempts, t.WorkerID)
	default:
		e.Why = "it ended just now"
	}
	return e
}

// Watch yields the task each time it has changed, from its present state to its end, whoever changes it.
// It looks every 100 ms, and at once when this process learns of the end; states that come and go in
// between are not seen. It ends after a terminal state or an error: ErrNotFound, or the cause of ctx's end.
func (c *Client) Watch(ctx context.Context, id string) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		ear := c.store.dialect.Hub().ListenTask(id)
		defer ear.Close()
		var last *Task
		for {
			t, err := c.store.Get(ctx, id)
			if err != nil {
				yield(nil, err)
				return
			}
			// All of it is compared: updated_at does not tell apart what happens within a millisecond.
			if last == nil || !reflect.DeepEqual(last, t) {
				if !yield(t, nil) || t.Status.Terminal() {
					return
				}
				last = t
			}
			if !sleep(ctx, ear, firstLook) {
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// Call submits a task, waits for its end, and decodes its result into out (nil if it does not
// matter). The errors are TaskFailedError, ErrTaskCanceled, and those of Submit and Wait.
func (c *Client) Call(ctx context.Context, name string, payload, out any, options ...SubmitOption) error {
	if c.store.inTx {
		return errors.New("holdfast: Call inside a transaction would wait for ever, since no worker sees the task before the commit; use Submit")
	}
	t, err := c.Submit(ctx, name, payload, options...)
	if err != nil {
		return err
	}
	return c.outcome(ctx, t.ID, out)
}

// outcome waits for the task and turns its end into a result or an error.
func (c *Client) outcome(ctx context.Context, id string, out any) error {
	t, err := c.Wait(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case t.Status == Failed:
		return &TaskFailedError{TaskID: t.ID, Failure: t.Failure()}
	case t.Status == Canceled:
		return fmt.Errorf("holdfast: %s: %w", t.ID, ErrTaskCanceled)
	case out == nil:
		return nil
	}
	return t.DecodeResult(out)
}
