package holdfast

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"
)

// SchedulerConfig says how a Scheduler works. The zero value drives what the database has.
type SchedulerConfig struct {
	// Schedules are declared when it starts. All schedules of the database are driven, also those that
	// others declared.
	Schedules []Schedule
	// Poll is how often it looks for schedules that other programs have changed, with one statement
	// each time; 5 s if 0. Its own and this process's it knows at once.
	Poll time.Duration
	// Client gives the limits and defaults of what is declared; a plain one on the store if nil.
	Client *Client
	// Log is slog.Default if nil.
	Log *slog.Logger
	// OnError is told what it survived: a database that did not answer, a schedule that it cannot read.
	// May be nil.
	OnError func(error)
}

// Scheduler submits the tasks of schedules when their ticks are due. Any number may drive the same
// database, in any number of processes; there is no leader. A Worker with schedules has one built in.
type Scheduler struct {
	store  *Store
	config SchedulerConfig
	log    *slog.Logger
	todo   []*declaration // what is to be declared

	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// NewScheduler makes a scheduler on the store. Call Start, and Stop at the end.
func NewScheduler(store *Store, config SchedulerConfig) *Scheduler {
	config.Poll = cmp.Or(config.Poll, 5*time.Second)
	if config.Client == nil {
		config.Client = NewClient(store)
	}
	s := &Scheduler{store: store, config: config, log: config.Log}
	if s.log == nil {
		s.log = slog.Default()
	}
	return s
}

// Start checks and declares the schedules and begins to drive. Only bad declarations are errors
// (ErrInvalid, ErrNotJSON): a database that does not answer is asked again while it works. Only Stop
// ends it: ctx gives values, and bounds the first try to declare. A scheduler starts once.
func (s *Scheduler) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		return errors.New("holdfast: a scheduler starts only once; make a new one")
	}
	if err := s.check(); err != nil {
		return err
	}
	s.begin(ctx)
	return nil
}

// check refuses bad declarations, and keeps the others for begin.
func (s *Scheduler) check() error {
	if s.config.Poll < time.Millisecond {
		return invalid("poll", s.config.Poll, "is below 1ms; use such as 5s")
	}
	names := map[string]bool{}
	s.todo = nil
	for _, one := range s.config.Schedules {
		d, err := s.config.Client.declare(one)
		if err != nil {
			return err
		}
		if names[one.Name] {
			return invalid("schedule name", one.Name, "is declared twice; give each schedule a name of its own")
		}
		names[one.Name] = true
		s.todo = append(s.todo, d)
	}
	return nil
}

// begin declares and drives.
func (s *Scheduler) begin(ctx context.Context) {
	if err := s.declareAll(ctx); err != nil {
		s.survived(err)
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.drive(base)
	}()
}

// Stop ends it; a transaction in flight is rolled back or done when Stop returns. It may be called
// more than once, and before Start.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		close(s.done)
		return
	}
	if s.cancel != nil {
		s.cancel()
	}
	<-s.done
}

// declareAll declares what is not declared yet.
func (s *Scheduler) declareAll(ctx context.Context) error {
	for len(s.todo) > 0 {
		if _, err := s.config.Client.store.putSchedule(ctx, s.todo[0]); err != nil {
			return err
		}
		s.todo = s.todo[1:]
	}
	return nil
}

// drive sleeps until the next tick and submits it, until ctx ends.
func (s *Scheduler) drive(ctx context.Context) {
	ear, deaf := s.store.dialect.Hub().schedules.listen()
	defer deaf()
	timer := time.NewTimer(0)
	defer timer.Stop()
	broken := map[string]time.Time{}
	forget := time.Now()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ear:
			clear(broken) // perhaps it was declared anew
		case <-timer.C:
		}
		if time.Since(forget) > time.Minute {
			clear(broken)
			forget = time.Now()
		}
		var wait time.Duration
		err := s.declareAll(ctx)
		known := len(broken)
		if err == nil {
			_, wait, err = s.store.fireSchedules(ctx, broken, s.told)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && len(broken) == known:
			s.survived(err)
			failures++
			wait = min(100*time.Millisecond<<min(failures, 8), 10*time.Second)
		default:
			if err != nil {
				s.survived(err) // broken schedules; the others go on
			}
			failures = 0
			if wait == 0 || wait > s.config.Poll {
				wait = s.config.Poll - mathrand.N(s.config.Poll/8+1)
			}
		}
		// Those who drive the same schedules do not all come at the same moment.
		timer.Reset(wait + mathrand.N(5*time.Millisecond))
	}
}

func (s *Scheduler) told(f fired) {
	if !f.missedFrom.IsZero() {
		s.log.Warn("holdfast: ticks of a schedule were missed and left out by its policy", "schedule", f.name, "from", f.missedFrom, "submitted", f.tasks)
	} else if f.late > defaultGrace {
		s.log.Warn("holdfast: ticks of a schedule are submitted late", "schedule", f.name, "late", f.late, "submitted", f.tasks)
	}
}

func (s *Scheduler) survived(err error) {
	s.log.Warn("holdfast: the scheduler goes on after an error", "error", err)
	if s.config.OnError != nil {
		s.config.OnError(err)
	}
}

// checkSchedules makes the worker's scheduler, or refuses its declarations.
func (w *Worker) checkSchedules() error {
	if len(w.config.Schedules) == 0 {
		return nil
	}
	s := NewScheduler(w.store, SchedulerConfig{Schedules: w.config.Schedules, Client: w.client, Log: w.log, OnError: w.config.OnError})
	if err := s.check(); err != nil {
		return err
	}
	w.scheduler = s
	return nil
}

// startSchedules drives until the worker stops.
func (w *Worker) startSchedules(ctx context.Context) {
	if s := w.scheduler; s != nil {
		s.begin(ctx)
		w.loops.Go(func() {
			<-w.stopping
			s.Stop()
		})
	}
}

// wakers are the drivers of this process. The zero value has none.
type wakers struct {
	mu  sync.Mutex
	set map[chan struct{}]struct{}
}

func (w *wakers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.set {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (w *wakers) listen() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = map[chan struct{}]struct{}{}
	}
	w.set[c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.set, c)
	}
}
