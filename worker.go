package holdfast

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// WorkerConfig says how a worker works. The zero value is a good start.
type WorkerConfig struct {
	// Queues to claim from; "default" if empty.
	Queues []string
	// Concurrency is how many tasks run at once; 10 if 0.
	Concurrency int
	// Resources names shared resources and how many calls may use each at once; see UseResource.
	Resources map[string]int
	// PayloadBytes bounds the payloads of the tasks held at once: above it nothing is claimed, except
	// that one task is always taken. 0 is no bound.
	PayloadBytes int64
	// Lease is how long a task stays this worker's without a sign of life; 30 s if 0. A worker that
	// dies silently holds its tasks for that long, unless it is registered with a lock (see Liveness).
	Lease time.Duration
	// Heartbeat is how often leases are extended; a third of Lease if 0.
	Heartbeat time.Duration
	// PlainLease leaves out fast recovery (see Liveness) for this worker: no lock, and on Postgres no
	// connection for it. If its process dies, its tasks wait for their leases to end; in return a
	// database that is away for some seconds cancels no handlers.
	PlainLease bool
	// Poll is how often the worker looks for work when nothing wakes it; 500 ms if 0.
	Poll time.Duration
	// Backoff is how long failed attempts wait; Exponential(1 s, 30 s) if nil. Handlers may have
	// their own.
	Backoff Backoff
	// Grace is how long Run lets handlers finish once its context has ended; 30 s if 0.
	Grace time.Duration
	// ResultLimit bounds a result in bytes of JSON; DefaultPayloadLimit if 0.
	ResultLimit int
	// ID names the worker in the task table; host, process and a random part if empty.
	ID string
	// Schedules are declared when the worker starts, which then drives all schedules of the database, as
	// a Scheduler does. Without any it drives none.
	Schedules []Schedule
	// Client is what handlers submit with; a plain one on the store if nil.
	Client *Client
	// Log is slog.Default if nil.
	Log *slog.Logger
	// OnError is told what the worker survived: a claim or a heartbeat that failed, a result that came
	// too late. It is called from the worker's goroutines and must not block. May be nil.
	OnError func(error)
	// OnEvent is told what happens to each task, from the worker's goroutines; it must not block. May be
	// nil. See also Worker.Subscribe.
	OnEvent func(Event)
	// Middleware wraps every handler; the first is the outermost.
	Middleware []Middleware
}

// Worker claims tasks that it has handlers for and runs them.
type Worker struct {
	store  *Store
	client *Client
	config WorkerConfig
	log    *slog.Logger

	mu       sync.Mutex
	state    workerState
	handlers map[string]*handler
	held     map[*attempt]struct{} // every lease that this worker answers for
	ready    []*call               // claimed, not started
	active   int                   // calls that run
	bytes    int64                 // payloads of what is held
	payload  int64                 // average payload of what was claimed lately
	used     map[string]int        // calls claimed or running, by resource
	average  time.Duration         // how long calls have taken lately; 0 when not known

	plain   []string   // names that share one draw
	special []*handler // those with quotas of their own
	turn    int        // which of the draws comes first

	scheduler *Scheduler // nil without schedules

	events   events
	presence presence

	wake     chan struct{} // capacity 1: a slot came free, or the worker shall stop
	stopping chan struct{} // closed when Stop begins
	empty    chan struct{} // closed when nothing is held after stopping
	end      context.CancelFunc
	// Of the claims alone; claimed is closed when there are no more.
	endClaims context.CancelFunc
	claimed   chan struct{}
	stopped   sync.Once
	loops     sync.WaitGroup
}

type workerState int

const (
	idle workerState = iota
	started
	stopped
)

// NewWorker makes a worker on the store. Register handlers, then call Run, or Start and Stop.
func NewWorker(store *Store, config WorkerConfig) *Worker {
	config.Concurrency = cmp.Or(config.Concurrency, 10)
	config.Lease = cmp.Or(config.Lease, 30*time.Second)
	config.Heartbeat = cmp.Or(config.Heartbeat, config.Lease/3)
	config.Poll = cmp.Or(config.Poll, 500*time.Millisecond)
	config.Grace = cmp.Or(config.Grace, 30*time.Second)
	config.ResultLimit = cmp.Or(config.ResultLimit, DefaultPayloadLimit)
	if len(config.Queues) == 0 {
		config.Queues = []string{DefaultQueue}
	}
	if config.Backoff == nil {
		config.Backoff = Exponential(time.Second, 30*time.Second)
	}
	config.ID = cmp.Or(config.ID, newWorkerID())
	w := &Worker{
		store: store, client: config.Client, config: config, log: config.Log,
		handlers: map[string]*handler{}, held: map[*attempt]struct{}{}, used: map[string]int{},
		wake: make(chan struct{}, 1), stopping: make(chan struct{}), empty: make(chan struct{}),
	}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.log = w.log.With("worker", config.ID)
	if w.client == nil {
		w.client = NewClient(store)
	}
	return w
}

func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	b := make([]byte, 4)
	rand.Read(b) // never fails
	return fmt.Sprintf("%.200s-%d-%s", host, os.Getpid(), hex.EncodeToString(b))
}

// ID is the worker's name in the task table.
func (w *Worker) ID() string { return w.config.ID }

func (w *Worker) check() error {
	c := &w.config
	switch {
	case c.Concurrency < 1:
		return invalid("concurrency", c.Concurrency, "is below 1")
	case c.Lease < 10*time.Millisecond:
		return invalid("lease", c.Lease, "is below 10ms")
	case c.Lease > MaxDelay:
		return checkLease(c.Lease)
	case c.Heartbeat <= 0 || c.Heartbeat > c.Lease/2:
		return invalid("heartbeat", c.Heartbeat, "must be above 0 and at most half of the lease, so that one that fails loses nothing")
	case c.Poll < time.Millisecond:
		return invalid("poll", c.Poll, "is below 1ms")
	case c.Grace < 0:
		return invalid("grace", c.Grace, "is negative; use a small one to stop at once, such as 1ms")
	case c.ResultLimit < 1:
		return invalid("result_limit", c.ResultLimit, "is below 1 byte")
	case c.PayloadBytes < 0:
		return invalid("payload_bytes", c.PayloadBytes, "is negative; use 0 for no bound")
	case w.client.refused != nil:
		return w.client.refused
	case len(w.handlers) == 0:
		return invalid("handlers", "", "are missing: register at least one with Handle")
	}
	for _, q := range c.Queues {
		if err := checkText("queue", q, true); err != nil {
			return err
		}
	}
	for name, capacity := range c.Resources {
		if capacity < 1 {
			return invalid("resource "+name, capacity, "is below 1, so that no call could ever take a place")
		}
	}
	for _, h := range w.handlers {
		if err := h.check(c.Resources); err != nil {
			return err
		}
	}
	if err := w.checkSchedules(); err != nil {
		return err
	}
	return checkText("worker_id", c.ID, true)
}

// Run works until ctx ends, then stops within the config's Grace: handlers may finish, and what is
// left is handed back. It answers nil after a clean stop.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.config.Grace)
	defer cancel()
	return w.Stop(grace)
}

// Start begins to work and returns. Only Stop ends the work: ctx gives values, not an end. A worker
// starts once.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != idle {
		return errors.New("holdfast: a worker starts only once; make a new one")
	}
	if err := w.check(); err != nil {
		return err
	}
	if err := w.enter(ctx); err != nil {
		return err
	}
	w.state = started
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	claims, endClaims := context.WithCancel(base)
	w.end, w.endClaims, w.claimed = end, endClaims, make(chan struct{})
	names := slices.Sorted(maps.Keys(w.handlers))
	for _, n := range names {
		if h := w.handlers[n]; h.special() {
			w.special = append(w.special, h)
		} else {
			w.plain = append(w.plain, n)
		}
	}
	w.startSchedules(ctx)
	w.loops.Go(func() {
		defer close(w.claimed)
		w.claimLoop(base, claims)
	})
	w.loops.Go(func() { w.heartbeatLoop(base) })
	w.loops.Go(func() { w.attend(base) })
	w.log.Info("holdfast: worker started", "queues", w.config.Queues, "names", names, "concurrency", w.config.Concurrency)
	return nil
}

// Stop claims no more, hands back at once what has not begun, and waits for the handlers. Shortly
// before ctx's deadline their contexts end with ErrWorkerStopping, and what is unfinished at the
// deadline is handed back for other workers, attempt unspent, whatever its handler does. Stop returns
// at the deadline at the latest, give or take the last write. Without a deadline it waits for ever.
func (w *Worker) Stop(ctx context.Context) (err error) {
	w.mu.Lock()
	switch w.state {
	case idle:
		w.state = stopped
		w.mu.Unlock()
		return nil
	case started:
		w.state = stopped
		close(w.stopping)
	}
	var unstarted []*attempt
	for _, c := range w.ready {
		unstarted = append(unstarted, c.attempts...)
	}
	w.ready = nil
	w.closeIfEmpty()
	w.mu.Unlock()
	err = w.handBack(unstarted)

	soft, cancel := beforeDeadline(ctx)
	defer cancel()
	select {
	case <-w.empty:
	case <-soft.Done():
		w.mu.Lock()
		for a := range w.held {
			a.cancel(ErrWorkerStopping)
		}
		w.mu.Unlock()
		select {
		case <-w.empty:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	left := make([]*attempt, 0, len(w.held))
	for a := range w.held {
		left = append(left, a)
	}
	w.mu.Unlock()
	if len(left) > 0 {
		w.log.Warn("holdfast: handlers did not end in time; their tasks are handed back", "tasks", len(left))
	}
	// A claim that is under way may bring more, and those are handed back too. One that is cut off may
	// have been committed, and nobody would run what it took until the leases end.
	late := time.AfterFunc(lastWrite, w.endClaims)
	defer late.Stop()
	err = errors.Join(err, w.handBack(left))
	<-w.claimed
	w.end()
	w.loops.Wait()
	w.log.Info("holdfast: worker stopped", "handed_back", len(unstarted)+len(left))
	return err
}

// beforeDeadline ends a little before ctx does, so that canceled handlers have time to return.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(d)
	return context.WithDeadline(ctx, d.Add(-min(2*time.Second, left/4)))
}

// lastWrite is what a write may take once the caller's time is over.
const lastWrite = 5 * time.Second

// handBack releases the leases of attempts that have not ended by themselves. Those whose outcome is in a
// transaction of the application are left to it: while it is open, their rows are locked.
func (w *Worker) handBack(list []*attempt) error {
	var tasks []*Task
	for _, a := range list {
		if a.take() {
			a.cancel(ErrWorkerStopping)
			if a.completedIn.Load() {
				continue
			}
			w.emit(Event{Kind: TaskReturned, Task: a.task})
			tasks = append(tasks, a.task)
		}
	}
	defer func() {
		for _, a := range list {
			w.letGo(a)
		}
	}()
	if len(tasks) == 0 {
		return nil
	}
	// If it fails, the leases end.
	ctx, cancel := context.WithTimeout(context.Background(), lastWrite)
	defer cancel()
	if _, err := w.store.ReleaseMany(ctx, tasks); err != nil {
		return fmt.Errorf("holdfast: %d tasks could not be handed back and wait for their leases to end: %w", len(tasks), err)
	}
	return nil
}

// survived reports what went wrong and did not end the worker.
func (w *Worker) survived(err error) {
	w.log.Warn("holdfast: the worker goes on after an error", "error", err)
	if w.config.OnError != nil {
		w.config.OnError(err)
	}
}

// Handles tells whether the worker has a handler for the name.
func (w *Worker) Handles(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handlers[name] != nil
}
