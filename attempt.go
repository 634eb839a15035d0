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
	w      *Worker
	call   *call
	task   *Task
	ctx    context.Context
	cancel context.CancelCauseFunc
	lease  atomic.Int64 // when the lease ends by this process's clock, Unix nanoseconds
	taken  atomic.Bool

	completedIn atomic.Bool // Run.CompleteIn has written in a transaction of the application
}

// call is one call of a handler, with one task or a batch of them. It takes one slot of the worker.
type call struct {
	h        *handler
	attempts []*attempt
	started  time.Time

	// Under the worker's lock:
	placed bool // counts in its name's and its resource's bounds, from the claim on
	slot   bool // takes a slot, from its start
	open   int  // attempts that have not been let go
}

// newCall makes the call for tasks of one name. lease is when their leases end.
func newCall(ctx context.Context, w *Worker, h *handler, tasks []*Task, lease time.Time) *call {
	c := &call{h: h, open: len(tasks), attempts: make([]*attempt, len(tasks))}
	for i, t := range tasks {
		a := &attempt{w: w, call: c, task: t}
		a.lease.Store(lease.UnixNano())
		a.ctx, a.cancel = context.WithCancelCause(ctx)
		c.attempts[i] = a
	}
	return c
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
		lost := &LeaseLostError{TaskID: a.task.ID}
		a.cancel(lost)
		a.w.survived(lost)
		a.w.emit(Event{Kind: TaskLost, Task: a.task, Err: lost})
		a.w.letGo(a)
	}
}

// run calls the handler and settles what it left unsettled, in a goroutine of the call's own.
func (c *call) run(w *Worker) {
	c.started = time.Now()
	for _, a := range c.attempts {
		w.emit(Event{Kind: TaskStarted, Task: a.task})
	}
	if c.h.timeout > 0 {
		timer := time.AfterFunc(c.h.timeout, c.timeUp)
		defer timer.Stop()
	}
	finished := false
	finish := func(results []any, err error) {
		if finished {
			return
		}
		finished = true
		w.free(c)
		for i, a := range c.attempts {
			if a.take() { // else somebody has ended it already: a handler that comes back too late
				a.finish(a.outcome(results[i], err))
			}
		}
	}
	// A handler that ends its goroutine (runtime.Goexit, as t.FailNow does) never returns from
	// protect, but deferred calls run.
	results := make([]any, len(c.attempts))
	defer func() {
		finish(results, &Failure{Type: "Goexit", Code: CodePanic, Message: "the handler ended its goroutine", Retryable: true})
	}()
	err := protect(func() error { return c.h.invoke(c, results) })
	finish(results, err)
}

// protect turns a panic into a failure that holds the stack.
func protect(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := debug.Stack()
			stack = stack[:min(len(stack), maxErrorText/4)]
			details, _ := json.Marshal(map[string]string{"stack": cleanText(string(stack))}) // strings always can
			err = &Failure{Type: "Panic", Code: CodePanic, Message: fmt.Sprintf("the handler panicked: %v", p), Retryable: true, Details: details}
		}
	}()
	return fn()
}

// timeUp ends the attempts of a call that has run for too long. The handler may come back whenever
// it likes.
func (c *call) timeUp() {
	f := &Failure{Type: "HandlerTimeout", Code: CodeHandlerTimeout, Message: fmt.Sprintf("the attempt took longer than %v", c.h.timeout), Retryable: true}
	for _, a := range c.attempts {
		if a.take() {
			a.cancel(ErrAttemptTimeout)
			go a.finish(a.fail(f, ErrAttemptTimeout))
		}
	}
}

// finish settles the attempt that its caller has taken, and lets it go.
func (a *attempt) finish(write write) {
	a.settle(write)
	a.cancel(nil)
	a.w.letGo(a)
}

// write is one way to settle a task.
type write func(ctx context.Context) (Status, error)

// outcome decides what a handler's return means.
func (a *attempt) outcome(result any, err error) write {
	var snooze *snoozeError
	var discard *discardError
	switch {
	case errors.As(err, &snooze):
		return a.release(min(snooze.d, MaxDelay))
	case errors.As(err, &discard):
		return a.discard(discard)
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
	return a.complete(raw)
}

func (a *attempt) complete(result json.RawMessage) write {
	return func(ctx context.Context) (Status, error) { return a.w.store.Complete(ctx, a.task, result) }
}

func (a *attempt) fail(f *Failure, cause error) write {
	raw := f.record(a.w.store.dialect.CheckJSON)
	delay := min(max(a.call.h.backoff(a.task.Attempt, cause), 0), MaxDelay)
	return func(ctx context.Context) (Status, error) {
		status, err := a.w.store.Fail(ctx, a.task, raw, f.Retryable, delay)
		if err == nil {
			a.w.log.Info("holdfast: an attempt failed", "task", a.task.ID, "name", a.task.Name, "attempt", a.task.Attempt, "of", a.task.MaxAttempts, "code", f.Code, "error", f.Message, "now", status)
		}
		return status, err
	}
}

func (a *attempt) release(delay time.Duration) write {
	return func(ctx context.Context) (Status, error) { return a.w.store.Release(ctx, a.task, delay) }
}

// discard ends the task as canceled, with the reason as its error: a cancel that the handler asks
// for itself.
func (a *attempt) discard(d *discardError) write {
	raw := (&Failure{Type: "Discarded", Code: CodeDiscarded, Message: d.reason}).record(a.w.store.dialect.CheckJSON)
	return func(ctx context.Context) (Status, error) { return a.w.store.Discard(ctx, a.task, raw) }
}

// confirm checks that the application committed what CompleteIn wrote.
func (a *attempt) confirm(ctx context.Context) (Status, error) {
	now, err := a.w.store.Status(ctx, a.task.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return Succeeded, nil // purged already
	case err != nil:
		return "", err
	case now.Status != Running:
		a.w.store.wakeTask(a.task.ID)
		return now.Status, nil
	}
	f := &Failure{Type: "NotCommitted", Code: CodeTaskError, Message: "the handler returned without committing the transaction of CompleteIn", Retryable: true}
	return a.fail(f, nil)(ctx)
}

// refusals is how often an outcome is tried that the database can be reached for and does not take: a
// trigger or constraint of the application is in its way, say.
const refusals = 5

// settle writes the outcome. A database that does not answer is asked again while the lease lasts,
// which the heartbeat keeps up: a result is not given up before the task is somebody else's. An outcome
// that the database refuses becomes a failure that says so; if it refuses that too, the lease ends.
func (a *attempt) settle(write write) {
	refused := 0
	// The attempt's context may have ended; its outcome is to be written all the same.
	ctx := context.WithoutCancel(a.ctx)
	pause := 20 * time.Millisecond
	for {
		status, err := write(ctx)
		switch {
		case err == nil:
			a.w.emit(Event{Kind: TaskSettled, Task: a.task, Status: status, Took: time.Since(a.call.started)})
			return
		case isLost(err):
			a.w.survived(fmt.Errorf("holdfast: the outcome of attempt %d came too late: %w", a.task.Attempt, err))
			a.w.emit(Event{Kind: TaskLost, Task: a.task, Err: err})
			return
		case errors.Is(err, ErrClosed), !time.Now().Before(time.Unix(0, a.lease.Load())):
			a.w.survived(fmt.Errorf("holdfast: the outcome of %s could not be written before its lease ended: %w", a.task.ID, err))
			a.w.emit(Event{Kind: TaskLost, Task: a.task, Err: err})
			return
		}
		if !passing(err) {
			refused++
			switch refused {
			case refusals:
				write = a.fail(&Failure{Type: typeName(err), Code: CodeTaskError, Message: "the outcome could not be written: " + err.Error(), Retryable: true}, err)
			case 2 * refusals:
				a.w.survived(fmt.Errorf("holdfast: the database refuses the outcome of %s, and the failure that says so; it waits for its lease to end: %w", a.task.ID, err))
				a.w.emit(Event{Kind: TaskLost, Task: a.task, Err: err})
				return
			}
		}
		a.w.survived(fmt.Errorf("holdfast: the outcome of %s is not written yet and will be tried again: %w", a.task.ID, err))
		time.Sleep(pause)
		pause = min(pause*2, time.Second)
	}
}

// passing tells whether an error has to do with the state of the database, not with what was to be written.
func passing(err error) bool {
	for _, e := range []error{ErrUnavailable, ErrBusy, ErrFull, ErrReadOnly, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
