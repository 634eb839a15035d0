package holdfast

import (
	"context"
	"fmt"
	"time"
)

// HandlerFunc runs one attempt. What it returns is the task's result, encoded as JSON; nil is none.
// An error fails the attempt; see Permanent, Snooze, Discard and Failure. ctx ends, with a telling
// context.Cause, when the task is canceled (ErrCancelRequested), the lease is lost (ErrLeaseLost),
// the attempt's time is up (ErrAttemptTimeout) or the worker stops (ErrWorkerStopping).
type HandlerFunc func(ctx context.Context, run *Run) (result any, err error)

// BatchFunc runs one attempt at each of several tasks of one name. It may settle tasks one by one
// with Run.Complete and Run.Fail; settling twice does nothing. When it returns without an error,
// every other task succeeds with its result in the returned map, by task id, or with none; when it
// returns an error, every other task fails by it. ctx ends when there is nothing left to do; each
// task has a context of its own in Run.Context.
type BatchFunc func(ctx context.Context, batch []*Run) (results map[string]any, err error)

// Middleware wraps handlers: for logging, tracing, transactions, recovery of what only the
// application knows. The first of a list is the outermost. Batch handlers are not wrapped.
type Middleware func(next HandlerFunc) HandlerFunc

// HandlerOption changes how one handler's tasks run.
type HandlerOption func(*handler)

// AttemptTimeout bounds one call. When the time is up its context ends and its attempts have failed
// with code handler_timeout, whatever the handler does.
func AttemptTimeout(d time.Duration) HandlerOption { return func(h *handler) { h.timeout = d } }

// RetryBackoff is the handler's own backoff.
func RetryBackoff(b Backoff) HandlerOption { return func(h *handler) { h.backoff = b } }

// HandlerConcurrency bounds the handler's calls at once in this worker, inside the worker's own
// Concurrency. A name at its bound is not claimed, so it does not hold others up.
func HandlerConcurrency(n int) HandlerOption { return func(h *handler) { h.concurrency = n } }

// UseResource lets each call take a place of a resource named in WorkerConfig.Resources, which
// several handlers may share: a GPU, a license, a printer.
func UseResource(name string) HandlerOption { return func(h *handler) { h.resource = name } }

type handler struct {
	name        string
	fn          HandlerFunc
	batch       BatchFunc
	size        int // tasks a call: 1, or the batch's bound
	timeout     time.Duration
	backoff     Backoff
	concurrency int // 0 for no bound of its own
	resource    string

	active int // calls claimed or running; under the worker's lock
}

// special handlers draw quotas of their own from a claim.
func (h *handler) special() bool { return h.concurrency > 0 || h.resource != "" || h.size > 1 }

// Handle registers the handler of a name. It panics when the name has one already, or when the
// worker has started: both are mistakes of the program.
func (w *Worker) Handle(name string, fn HandlerFunc, options ...HandlerOption) {
	for i := len(w.config.Middleware) - 1; i >= 0; i-- {
		fn = w.config.Middleware[i](fn)
	}
	w.register(&handler{name: name, fn: fn, size: 1}, options)
}

// HandleBatch registers a handler that takes up to size tasks in one call. A call takes what is due,
// at once: a batch is never filled up by waiting. One call counts as one in every bound.
func (w *Worker) HandleBatch(name string, size int, fn BatchFunc, options ...HandlerOption) {
	w.register(&handler{name: name, batch: fn, size: size}, options)
}

func (w *Worker) register(h *handler, options []HandlerOption) {
	h.backoff = w.config.Backoff
	for _, o := range options {
		o(h)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch err := checkText("name", h.name, true); {
	case err != nil:
		panic(err)
	case w.handlers[h.name] != nil:
		panic(fmt.Sprintf("holdfast: name %q has a handler already", h.name))
	case w.state != idle:
		panic(fmt.Sprintf("holdfast: handler %q was registered after the worker had started", h.name))
	}
	w.handlers[h.name] = h
}

func (h *handler) check(resources map[string]int) error {
	switch {
	case h.concurrency < 0:
		return invalid("concurrency of "+h.name, h.concurrency, "is negative")
	case h.size < 1:
		return invalid("batch size of "+h.name, h.size, "is below 1")
	case h.timeout < 0:
		return invalid("timeout of "+h.name, h.timeout, "is negative")
	case h.resource != "" && resources[h.resource] < 1:
		return invalid("resource of "+h.name, h.resource, "has no capacity; name it in WorkerConfig.Resources")
	}
	return nil
}

// invoke calls the handler and puts the results of its attempts where they belong.
func (h *handler) invoke(c *call, results []any) (err error) {
	if h.batch == nil {
		a := c.attempts[0]
		results[0], err = h.fn(a.ctx, &Run{a})
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	runs := make([]*Run, len(c.attempts))
	for i, a := range c.attempts {
		runs[i] = &Run{a}
	}
	byID, err := h.batch(ctx, runs)
	for i, a := range c.attempts {
		results[i] = byID[a.task.ID]
	}
	return err
}

// context ends when all attempts of the call have ended, with the last one's cause.
func (c *call) context() (context.Context, context.CancelFunc) {
	first := c.attempts[0]
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(first.ctx))
	left := make(chan struct{}, len(c.attempts))
	stops := make([]func() bool, len(c.attempts))
	for i, a := range c.attempts {
		stops[i] = context.AfterFunc(a.ctx, func() {
			left <- struct{}{}
			if len(left) == cap(left) {
				cancel(context.Cause(a.ctx))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// HandleBatch registers a handler of the definition's tasks that takes up to size of them in one
// call. Tasks whose payload does not fit In fail by themselves, with code invalid_payload, and are
// not in the batch. See Worker.HandleBatch.
func (d Definition[In, Out]) HandleBatch(w *Worker, size int, fn func(ctx context.Context, batch []BatchItem[In, Out]) error, options ...HandlerOption) {
	w.HandleBatch(d.name, size, func(ctx context.Context, runs []*Run) (map[string]any, error) {
		items := make([]BatchItem[In, Out], 0, len(runs))
		for _, run := range runs {
			item := BatchItem[In, Out]{Run: run, Result: new(Out)}
			if err := run.Task().Decode(&item.In); err != nil {
				if err := run.Fail(ctx, invalidPayload(err)); err != nil {
					return nil, err
				}
				continue
			}
			items = append(items, item)
		}
		if len(items) == 0 {
			return nil, nil
		}
		if err := fn(ctx, items); err != nil {
			return nil, err
		}
		results := make(map[string]any, len(items))
		for _, item := range items {
			results[item.Run.Task().ID] = item.Result
		}
		return results, nil
	}, options...)
}

// BatchItem is one task of a typed batch: its input, and the place for its result.
type BatchItem[In, Out any] struct {
	// Run is the attempt at this task.
	Run *Run
	// In is its payload.
	In In
	// Result is where the handler puts its result; the zero value of Out unless it does.
	Result *Out
}

func invalidPayload(err error) *Failure {
	return &Failure{Type: "InvalidPayload", Code: CodeInvalidPayload, Message: errorText(err), Retryable: true}
}
