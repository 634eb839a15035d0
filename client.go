package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Client submits tasks and asks about them. It is safe for concurrent use.
type Client struct {
	store   *Store
	log     *slog.Logger
	limit   int
	depths  map[string]depthLimit
	options []SubmitOption // of every submission, before its own
	wrap    []SubmitMiddleware

	retention []Retention
	sweepEach time.Duration
	stop      context.CancelFunc
	sweeping  *sync.WaitGroup

	refused error // the first option that is out of its limits
}

// ClientOption changes how NewClient works. An option that is out of its limits makes every submit of the
// client fail with an InvalidError, and nothing is swept.
type ClientOption func(*Client)

func (c *Client) refuse(err error) { c.refused = cmp.Or(c.refused, err) }

// WithPayloadLimit bounds payload and metadata, in bytes of JSON, at least 1; DefaultPayloadLimit unless
// said.
func WithPayloadLimit(bytes int) ClientOption {
	return func(c *Client) {
		if bytes < 1 {
			c.refuse(invalid("payload_limit", bytes, "is below 1 byte"))
		}
		c.limit = bytes
	}
}

// WithLogger sets where the client says what nobody asked for, such as a sweep that failed;
// slog.Default unless said.
func WithLogger(log *slog.Logger) ClientOption { return func(c *Client) { c.log = log } }

// SubmitFunc submits all or none, and answers the tasks in the order of the submissions.
type SubmitFunc func(ctx context.Context, subs []*Submission) ([]*Task, error)

// SubmitMiddleware wraps submitting: to add metadata, to trace, to refuse. It sees the submissions
// after their options were applied and may change them; it must not add or drop any.
type SubmitMiddleware func(next SubmitFunc) SubmitFunc

// WithSubmitMiddleware wraps every submit of the client; the first is the outermost.
func WithSubmitMiddleware(middleware ...SubmitMiddleware) ClientOption {
	return func(c *Client) { c.wrap = append(c.wrap, middleware...) }
}

type depthLimit struct {
	depth int
	wait  time.Duration
}

// WithQueueLimit holds submits back while the queue has depth queued tasks, delayed ones included:
// a submit waits for room for up to wait, then fails with QueueFullError. depth is at least 1. The limit is this client's
// (and, by Run.Client, its handlers'); concurrent submits may overshoot it by their number.
func WithQueueLimit(queue string, depth int, wait time.Duration) ClientOption {
	return func(c *Client) {
		if depth < 1 {
			c.refuse(invalid("queue_limit", depth, "is below 1, so that nothing could ever be submitted"))
		}
		c.refuse(cmp.Or(checkText("queue", queue, true), checkDuration("wait", wait)))
		c.depths[queue] = depthLimit{depth, wait}
	}
}

// WithRetention deletes ended tasks by these rules, in small batches, every minute while the client
// is open. Call Close to end it.
func WithRetention(rules ...Retention) ClientOption {
	return func(c *Client) {
		for _, r := range rules {
			c.refuse(r.filter().check())
		}
		c.retention = append(c.retention, rules...)
	}
}

// WithSweepInterval sets how often retention sweeps, at least a millisecond; a minute unless said.
func WithSweepInterval(d time.Duration) ClientOption {
	return func(c *Client) {
		if d < time.Millisecond {
			c.refuse(invalid("sweep_interval", d, "is below a millisecond"))
		}
		c.sweepEach = d
	}
}

// NewClient makes a client on the store. Only one with retention rules needs to be closed.
func NewClient(store *Store, options ...ClientOption) *Client {
	c := &Client{store: store, log: slog.Default(), limit: DefaultPayloadLimit, depths: map[string]depthLimit{}, sweepEach: time.Minute, sweeping: &sync.WaitGroup{}}
	for _, o := range options {
		o(c)
	}
	if c.refused != nil {
		c.log.Error("holdfast: the client is not usable", "error", c.refused)
		return c
	}
	if len(c.retention) > 0 {
		ctx, stop := context.WithCancel(context.Background())
		c.stop = stop
		c.sweeping.Go(func() { c.sweep(ctx) })
	}
	return c
}

// Close ends the retention sweep. The store stays open.
func (c *Client) Close() {
	if c.stop != nil {
		c.stop()
		c.sweeping.Wait()
	}
}

// Store is the store under the client.
func (c *Client) Store() *Store { return c.store }

// In answers a client that does everything inside the application's own transaction; see sqlite.Tx
// and postgres.Tx. Rolled back means that nothing was submitted and nobody was woken.
func (c *Client) In(tx Tx) *Client {
	in := *c
	in.store = c.store.In(tx)
	return &in
}

// with answers a client whose submissions have more options.
func (c *Client) with(options ...SubmitOption) *Client {
	w := *c
	w.options = append(append([]SubmitOption{}, c.options...), options...)
	return &w
}

// Submit makes a task. payload is encoded as JSON by encoding/json's rules for types; a
// json.RawMessage is taken as it is.
func (c *Client) Submit(ctx context.Context, name string, payload any, options ...SubmitOption) (*Task, error) {
	if c.refused != nil {
		return nil, c.refused
	}
	sub, err := Item{name, payload, options}.build(c.limit, c.options)
	if err != nil {
		return nil, err
	}
	if len(c.wrap) == 0 {
		if err := c.holdBack(ctx, sub.Queue, 1); err != nil {
			return nil, err
		}
		return c.store.Submit(ctx, sub)
	}
	tasks, err := c.submitAll(ctx, []*Submission{sub})
	if err != nil {
		return nil, err
	}
	return tasks[0], nil
}

// submitAll goes through the middleware, then waits for room and submits.
func (c *Client) submitAll(ctx context.Context, subs []*Submission) ([]*Task, error) {
	submit := func(ctx context.Context, subs []*Submission) ([]*Task, error) {
		perQueue := map[string]int{}
		for _, sub := range subs {
			perQueue[sub.Queue]++
		}
		for queue, n := range perQueue {
			if err := c.holdBack(ctx, queue, n); err != nil {
				return nil, err
			}
		}
		return c.store.SubmitMany(ctx, subs)
	}
	for i := len(c.wrap) - 1; i >= 0; i-- {
		submit = c.wrap[i](submit)
	}
	tasks, err := submit(ctx, subs)
	if err == nil && len(tasks) != len(subs) {
		return nil, fmt.Errorf("holdfast: submit middleware answered %d tasks for %d submissions", len(tasks), len(subs))
	}
	return tasks, err
}

// SubmitMany makes all the tasks or none, in one transaction. The answers stand in the order of the
// items.
func (c *Client) SubmitMany(ctx context.Context, items []Item) ([]*Task, error) {
	if c.refused != nil {
		return nil, c.refused
	}
	subs := make([]*Submission, len(items))
	for i, item := range items {
		sub, err := item.build(c.limit, c.options)
		if err != nil {
			return nil, indexed(i, err)
		}
		subs[i] = sub
	}
	return c.submitAll(ctx, subs)
}

// holdBack waits until the queue has room for n more, if it has a limit. A submission larger than
// the limit needs an empty queue.
func (c *Client) holdBack(ctx context.Context, queue string, n int) error {
	queue = cmp.Or(queue, DefaultQueue)
	limit, ok := c.depths[queue]
	if !ok {
		return nil
	}
	start := time.Now()
	pause := 10 * time.Millisecond
	for {
		room, err := c.store.QueueDepth(ctx, queue, limit.depth)
		if err != nil || room >= min(n, limit.depth) {
			return err
		}
		waited := time.Since(start)
		// Inside a transaction nothing that others do can be seen, so waiting would be for ever.
		if waited >= limit.wait || c.store.inTx {
			return &QueueFullError{Queue: queue, Depth: limit.depth, Waited: waited}
		}
		select {
		case <-time.After(min(pause, limit.wait-waited)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(pause*2, 250*time.Millisecond)
	}
}

// Get reads a task; the error is ErrNotFound when there is none.
func (c *Client) Get(ctx context.Context, id string) (*Task, error) { return c.store.Get(ctx, id) }

// GetByKey reads the task that stands under a key now.
func (c *Client) GetByKey(ctx context.Context, key string) (*Task, error) {
	return c.store.GetByKey(ctx, key)
}

// List answers tasks, newest first.
func (c *Client) List(ctx context.Context, f Filter) ([]*Task, error) { return c.store.List(ctx, f) }

// Cancel ends a queued task, and asks a running one to stop. See Store.Cancel.
func (c *Client) Cancel(ctx context.Context, id string) (*Task, error) {
	return c.store.Cancel(ctx, id)
}

// CancelByKey cancels the task that stands under a key now.
func (c *Client) CancelByKey(ctx context.Context, key string) (*Task, error) {
	return c.store.CancelByKey(ctx, key)
}

// Retry queues a failed or canceled task again. See Store.Retry.
func (c *Client) Retry(ctx context.Context, id string, resetAttempts bool) (*Task, error) {
	return c.store.Retry(ctx, id, resetAttempts)
}

// RetryByKey retries the task that stands under a key now.
func (c *Client) RetryByKey(ctx context.Context, key string, resetAttempts bool) (*Task, error) {
	return c.store.RetryByKey(ctx, key, resetAttempts)
}

// Purge deletes ended tasks. See Store.Purge.
func (c *Client) Purge(ctx context.Context, f PurgeFilter) ([]string, error) {
	return c.store.Purge(ctx, f)
}

// Stats counts tasks by queue and status. See Store.Stats.
func (c *Client) Stats(ctx context.Context, queue string) ([]QueueStats, error) {
	return c.store.Stats(ctx, queue)
}

// QueueDepth answers the room left in a queue of at most max queued tasks.
func (c *Client) QueueDepth(ctx context.Context, queue string, max int) (int, error) {
	return c.store.QueueDepth(ctx, queue, max)
}

// SetLimit sets or changes a limit that all workers share. See Limit.
func (c *Client) SetLimit(ctx context.Context, l Limit) error { return c.store.SetLimit(ctx, l) }

// Limits lists all shared limits and pauses.
func (c *Client) Limits(ctx context.Context) ([]Limit, error) { return c.store.Limits(ctx) }

// PauseQueue keeps all workers from claiming of the queue. See Store.PauseQueue.
func (c *Client) PauseQueue(ctx context.Context, queue string) error {
	return c.store.PauseQueue(ctx, queue)
}

// ResumeQueue ends a pause.
func (c *Client) ResumeQueue(ctx context.Context, queue string) error {
	return c.store.ResumeQueue(ctx, queue)
}

// Drain waits until nothing of the queue is due or running. See Store.Drain.
func (c *Client) Drain(ctx context.Context, queue string) error { return c.store.Drain(ctx, queue) }
