package holdfast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// attempt is one claim of one task by this worker. It ends once: by its handler's return, its time
// limit, a lost lease, or the worker's stop; whoever takes it settles it, and everybody else keeps
// their hands off.
type attempt struct {
	w       *Worker
	h       *handler
	task    *Task
	ctx     context.Context
	cancel  context.CancelCauseFunc
	slot    bool         // counts in Worker.active; under the worker's lock
	lease   atomic.Int64 // when the lease ends by this process's clock, Unix nanoseconds
	taken   atomic.Bool
	started time.Time

	completedIn atomic.Bool // Run.CompleteIn has written in a transaction of the application
}

func newAttempt(ctx context.Context, w *Worker, t *Task, lease time.Time) *attempt {
	a := &attempt{w: w, h: w.handlers[t.Name], task: t}
	a.lease.Store(lease.UnixNano())
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	return a
}

// take answers true to the one who ends the attempt.
func (a *attempt) take() bool { return a.taken.CompareAndSwap(false, true) }

// alive refuses the writes of a handler whose attempt has ended, even if the same worker holds the
// task again.
func (a *attempt) alive() error {
	if !a.taken.Load() {
		return nil
	}
	if errors.Is(context.Cause(a.ctx), ErrWorkerStopping) {
		return fmt.Errorf("holdfast: %s: %w", a.task.ID, ErrWorkerStopping)
	}
	return &LeaseLostError{TaskID: a.task.ID}
}

// lose ends the attempt because the task is no longer this worker's.
func (a *attempt) lose() {
	if a.take() {
		a.cancel(&LeaseLostError{TaskID: a.task.ID})
		a.w.survived(&LeaseLostError{TaskID: a.task.ID})
		a.w.letGo(a)
	}
}

// execute runs the handler and settles the task, in a goroutine of the attempt's own.
func (a *attempt) execute() {
	defer a.cancel(nil)
	a.started = time.Now()
	if a.h.timeout > 0 {
		timer := time.AfterFunc(a.h.timeout, a.timeUp)
		defer timer.Stop()
	}
	result, err := a.call()
	if !a.take() {
		return // somebody else has ended it: a handler that comes back too late
	}
	a.w.free(a)
	a.settle(a.outcome(result, err))
	a.w.letGo(a)
}

// timeUp ends an attempt that has run for too long. The handler may come back whenever it likes.
func (a *attempt) timeUp() {
	if !a.take() {
		return
	}
	a.cancel(ErrAttemptTimeout)
	a.w.free(a)
	f := &Failure{Type: "HandlerTimeout", Code: CodeHandlerTimeout, Message: fmt.Sprintf("the attempt took longer than %v", a.h.timeout), Retryable: true}
	a.settle(a.fail(f, ErrAttemptTimeout))
	a.w.letGo(a)
}

// call runs the handler; a panic, or a handler that ends its goroutine, is a failure.
func (a *attempt) call() (result any, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		message := fmt.Sprintf("the handler panicked: %v", p)
		if p == nil {
			message = "the handler ended its goroutine (runtime.Goexit)"
		}
		stack := debug.Stack()
		if len(stack) > maxErrorText/4 {
			stack = stack[:maxErrorText/4]
		}
		details, _ := json.Marshal(map[string]string{"stack": cleanText(string(stack))}) // strings always can
		result, err = nil, &Failure{Type: "Panic", Code: CodePanic, Message: message, Retryable: true, Details: details}
		if p == nil {
			// The goroutine is ending; what execute would have done is done here.
			if a.take() {
				a.w.free(a)
				a.settle(a.outcome(nil, err))
				a.w.letGo(a)
			}
		}
	}()
	result, err = a.h.fn(a.ctx, &Run{a})
	returned = true
	return result, err
}

// write is one way to settle a task.
type write func(ctx context.Context) error

// outcome decides what a handler's return means.
func (a *attempt) outcome(result any, err error) write {
	var snooze *snoozeError
	switch {
	case errors.As(err, &snooze):
		return a.release(snooze.d)
	case err != nil && errors.Is(context.Cause(a.ctx), ErrWorkerStopping):
		return a.release(0)
	case err != nil:
		return a.fail(failureOf(err), err)
	case a.completedIn.Load():
		return a.confirm
	}
	raw, err := a.w.encodeResult(result)
	if err != nil {
		return a.fail(&Failure{Type: typeName(err), Code: CodeUnserializableResult, Message: err.Error()}, err)
	}
	return func(ctx context.Context) error {
		_, err := a.w.store.Complete(ctx, a.task, raw)
		return err
	}
}

func (a *attempt) fail(f *Failure, err error) write {
	raw := f.record(a.w.store.dialect.CheckJSON)
	delay := min(max(a.h.backoff(a.task.Attempt, err), 0), MaxDelay)
	return func(ctx context.Context) error {
		status, err := a.w.store.Fail(ctx, a.task, raw, f.Retryable, delay)
		if err == nil {
			a.w.log.Info("holdfast: an attempt failed", "task", a.task.ID, "name", a.task.Name, "attempt", a.task.Attempt, "of", a.task.MaxAttempts, "code", f.Code, "error", f.Message, "now", status)
		}
		return err
	}
}

func (a *attempt) release(delay time.Duration) write {
	return func(ctx context.Context) error {
		_, err := a.w.store.Release(ctx, a.task, delay)
		return err
	}
}

// confirm checks that the application committed what CompleteIn wrote.
func (a *attempt) confirm(ctx context.Context) error {
	now, err := a.w.store.Status(ctx, a.task.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil // purged already
	case err != nil:
		return err
	case now.Status != Running:
		a.w.store.wakeTask(a.task.ID)
		return nil
	}
	f := &Failure{Type: "NotCommitted", Code: CodeTaskError, Message: "the handler returned without committing the transaction of CompleteIn", Retryable: true}
	return a.fail(f, nil)(ctx)
}

// settle writes the outcome. A database that does not answer is asked again while the lease lasts,
// which the heartbeat keeps up: a result is not given up before the task is somebody else's.
func (a *attempt) settle(write write) {
	// The attempt's context may have ended; its outcome is to be written all the same.
	ctx := context.WithoutCancel(a.ctx)
	pause := 20 * time.Millisecond
	for {
		err := write(ctx)
		switch {
		case err == nil:
			return
		case isLost(err):
			a.w.survived(fmt.Errorf("holdfast: the outcome of attempt %d came too late: %w", a.task.Attempt, err))
			return
		case errors.Is(err, ErrClosed), !time.Now().Before(time.Unix(0, a.lease.Load())):
			a.w.survived(fmt.Errorf("holdfast: the outcome of %s could not be written before its lease ended: %w", a.task.ID, err))
			return
		}
		a.w.survived(fmt.Errorf("holdfast: the outcome of %s is not written yet and will be tried again: %w", a.task.ID, err))
		time.Sleep(pause)
		pause = min(pause*2, time.Second)
	}
}
