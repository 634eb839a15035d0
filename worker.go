package holdfast

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
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
	// Lease is how long a task stays this worker's without a sign of life; 30 s if 0. A worker that
	// dies silently holds its tasks for that long.
	Lease time.Duration
	// Heartbeat is how often leases are extended; a third of Lease if 0.
	Heartbeat time.Duration
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
	// Client is what handlers submit with; a plain one on the store if nil.
	Client *Client
	// Log is slog.Default if nil.
	Log *slog.Logger
	// OnError is told what the worker survived: a claim or a heartbeat that failed, a result that came
	// too late. It is called from the worker's goroutines and must not block. May be nil.
	OnError func(error)
}

// HandlerFunc runs one attempt. What it returns is the task's result, encoded as JSON; nil is none.
// An error fails the attempt; see Permanent, Snooze and Failure. ctx ends, with a telling
// context.Cause, when the task is canceled (ErrCancelRequested), the lease is lost (ErrLeaseLost),
// the attempt's time is up (ErrAttemptTimeout) or the worker stops (ErrWorkerStopping).
type HandlerFunc func(ctx context.Context, run *Run) (result any, err error)

// HandlerOption changes how one handler's tasks run.
type HandlerOption func(*handler)

// AttemptTimeout bounds one attempt. When the time is up its context ends and the attempt has failed
// with code handler_timeout, whatever the handler does.
func AttemptTimeout(d time.Duration) HandlerOption { return func(h *handler) { h.timeout = d } }

// RetryBackoff is the handler's own backoff.
func RetryBackoff(b Backoff) HandlerOption { return func(h *handler) { h.backoff = b } }

type handler struct {
	name    string
	fn      HandlerFunc
	timeout time.Duration
	backoff Backoff
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
	ready    []*attempt            // claimed, not started
	active   int                   // handlers that run
	average  time.Duration         // how long handlers have taken lately; 0 when not known

	wake     chan struct{} // capacity 1: a slot came free, or the worker shall stop
	stopping chan struct{} // closed when Stop begins
	empty    chan struct{} // closed when nothing is held after stopping
	end      context.CancelFunc
	stopped  sync.Once
	loops    sync.WaitGroup
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
		handlers: map[string]*handler{}, held: map[*attempt]struct{}{},
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

// Handle registers the handler of a name. It panics when the name has one already, or when the
// worker has started: both are mistakes of the program.
func (w *Worker) Handle(name string, fn HandlerFunc, options ...HandlerOption) {
	h := &handler{name: name, fn: fn, backoff: w.config.Backoff}
	for _, o := range options {
		o(h)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := checkText("name", name, true); err != nil {
		panic(err)
	}
	if w.handlers[name] != nil {
		panic(fmt.Sprintf("holdfast: name %q has a handler already", name))
	}
	if w.state != idle {
		panic(fmt.Sprintf("holdfast: handler %q was registered after the worker had started", name))
	}
	w.handlers[name] = h
}

func (w *Worker) check() error {
	c := &w.config
	switch {
	case c.Concurrency < 1:
		return invalid("concurrency", c.Concurrency, "is below 1")
	case c.Lease < 10*time.Millisecond:
		return invalid("lease", c.Lease, "is below 10ms")
	case c.Heartbeat <= 0 || c.Heartbeat > c.Lease/2:
		return invalid("heartbeat", c.Heartbeat, "must be above 0 and at most half of the lease, so that one that fails loses nothing")
	case c.Poll < time.Millisecond:
		return invalid("poll", c.Poll, "is below 1ms")
	case len(w.handlers) == 0:
		return invalid("handlers", "", "are missing: register at least one with Handle")
	}
	for _, q := range c.Queues {
		if err := checkText("queue", q, true); err != nil {
			return err
		}
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
	w.state = started
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	names := make([]string, 0, len(w.handlers))
	for n := range w.handlers {
		names = append(names, n)
	}
	slices.Sort(names)
	w.loops.Go(func() { w.claimLoop(base, names) })
	w.loops.Go(func() { w.heartbeatLoop(base) })
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
	unstarted := w.ready
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
	err = errors.Join(err, w.handBack(left))
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

// handBack releases the leases of attempts that have not ended by themselves.
func (w *Worker) handBack(list []*attempt) error {
	var tasks []*Task
	for _, a := range list {
		if a.take() {
			a.cancel(ErrWorkerStopping)
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
	// The caller's time is over; the write has a little of its own. If it fails, the leases end.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := w.store.ReleaseMany(ctx, tasks); err != nil {
		return fmt.Errorf("holdfast: %d tasks could not be handed back and wait for their leases to end: %w", len(tasks), err)
	}
	return nil
}

// claimLoop keeps the slots filled.
func (w *Worker) claimLoop(ctx context.Context, names []string) {
	ear := w.store.dialect.Hub().ListenQueues(w.config.Queues...)
	defer ear.Close()
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		room := w.room()
		if room < 0 {
			return
		}
		wait := w.config.Poll
		if room > 0 {
			began := time.Now()
			got, err := w.store.Claim(ctx, Claim{Queues: w.config.Queues, Draws: []Draw{{Names: names, Limit: room}}, WorkerID: w.config.ID, Lease: w.config.Lease})
			switch {
			case err != nil:
				if ctx.Err() == nil {
					w.survived(fmt.Errorf("holdfast: claim: %w", err))
				}
				failures++
				wait = min(w.config.Poll<<min(failures, 6), 10*time.Second)
				wait = wait/2 + mathrand.N(wait/2)
			case len(got.Tasks) > 0:
				failures = 0
				w.begin(ctx, got.Tasks, began)
				continue
			default:
				failures = 0
				if got.Next > 0 && got.Next < wait {
					wait = got.Next
				}
			}
		}
		timer.Reset(wait)
		var wake <-chan struct{}
		if room > 0 && failures == 0 {
			wake = ear.Arm()
		}
		select {
		case <-wake:
		case <-w.freed(room):
		case <-timer.C:
		case <-w.stopping:
		}
		ear.Disarm()
	}
}

// freed is the signal that a slot came free; of no interest while there was room and no work.
func (w *Worker) freed(room int) <-chan struct{} {
	if room > 0 {
		return nil
	}
	return w.wake
}

// quickHandler is how fast handlers must be for tasks to be claimed ahead: then a claim takes longer
// than its tasks, and the slots would wait for it. Slow tasks are left to workers with free slots.
const quickHandler = 5 * time.Millisecond

// room is how many tasks to claim now; -1 when the worker stops.
func (w *Worker) room() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == stopped {
		return -1
	}
	free := w.config.Concurrency - w.active - len(w.ready)
	if w.average == 0 || w.average > quickHandler {
		return max(free, 0)
	}
	// At most as many again as run at once, claimed when half of them are gone; outcomes that are
	// being written count, so that a slow database holds the claims back.
	ahead := min(w.config.Concurrency, 3*w.config.Concurrency-len(w.held))
	if room := free + ahead; room > 0 && room >= (w.config.Concurrency+1)/2 {
		return room
	}
	return 0
}

// begin takes in claimed tasks and starts them. began is when the claim was sent: their leases end no
// sooner than that plus the lease's length.
func (w *Worker) begin(ctx context.Context, tasks []*Task, began time.Time) {
	var late []*attempt
	w.mu.Lock()
	for _, t := range tasks {
		a := newAttempt(ctx, w, t, began.Add(w.config.Lease))
		w.held[a] = struct{}{}
		if w.state == stopped {
			late = append(late, a)
			continue
		}
		w.ready = append(w.ready, a)
	}
	w.fill()
	w.mu.Unlock()
	if err := w.handBack(late); err != nil {
		w.survived(err)
	}
}

// fill starts claimed tasks in free slots. The worker's lock is held.
func (w *Worker) fill() {
	n := 0
	for n < len(w.ready) && w.active < w.config.Concurrency {
		a := w.ready[n]
		n++
		w.active++
		a.slot = true
		go a.execute()
	}
	w.ready = slices.Delete(w.ready, 0, n)
}

// free gives the attempt's slot to the next task, while its outcome is still being written.
func (w *Worker) free(a *attempt) {
	took := time.Since(a.started)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !a.slot {
		return
	}
	a.slot = false
	w.active--
	if w.average == 0 {
		w.average = max(took, 1)
	} else {
		w.average += (took - w.average) / 16
	}
	w.fill()
	w.signal()
}

func (w *Worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// letGo forgets an attempt that has ended and frees its slot. It may be called more than once.
func (w *Worker) letGo(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.held[a]; !ok {
		return
	}
	delete(w.held, a)
	if a.slot {
		a.slot = false
		w.active--
	}
	w.fill()
	w.closeIfEmpty()
	w.signal()
}

func (w *Worker) closeIfEmpty() {
	if w.state == stopped && len(w.held) == 0 {
		w.stopped.Do(func() { close(w.empty) })
	}
}

// survived reports what went wrong and did not end the worker.
func (w *Worker) survived(err error) {
	w.log.Warn("holdfast: the worker goes on after an error", "error", err)
	if w.config.OnError != nil {
		w.config.OnError(err)
	}
}
