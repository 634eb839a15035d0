package holdfast

import (
	"sync"
	"sync/atomic"
	"time"
)

// EventKind says what an Event is about.
type EventKind string

const (
	// TaskStarted: a handler begins with the task.
	TaskStarted EventKind = "started"
	// TaskSettled: an attempt has ended and its outcome is in the database; Status says what the task
	// is now (queued: another attempt, or put back).
	TaskSettled EventKind = "settled"
	// TaskLost: the attempt was for nothing; Err says why. Somebody else has the task, or will.
	TaskLost EventKind = "lost"
	// TaskReturned: the worker stopped and handed the task back.
	TaskReturned EventKind = "returned"
)

// Event is something that happened to a task in this worker.
type Event struct {
	// Kind says what happened.
	Kind EventKind
	Task *Task // as it was claimed; read only
	// Status is what the task is now, for TaskSettled; otherwise empty.
	Status Status
	Took   time.Duration // of the handler's call, for TaskSettled
	// Err says why, for TaskLost; otherwise nil.
	Err error
}

// events passes events to subscribers.
type events struct {
	mu   sync.Mutex
	subs map[*subscription]struct{}
	some atomic.Bool
}

type subscription struct {
	c      chan Event
	missed atomic.Int64
}

// Subscribe tells what happens in this worker from now on, until cancel is called: each attempt's
// events in order, though the next attempt may begin before the end of the last is told. The channel
// holds buffer events; a subscriber that is too slow misses some, never holds the worker up, and
// learns from missed how many it missed. To follow one task from any process, use Client.Watch.
func (w *Worker) Subscribe(buffer int) (ch <-chan Event, missed func() int64, cancel func()) {
	s := &subscription{c: make(chan Event, max(buffer, 1))}
	e := &w.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subs == nil {
		e.subs = map[*subscription]struct{}{}
	}
	e.subs[s] = struct{}{}
	e.some.Store(true)
	return s.c, s.missed.Load, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if _, ok := e.subs[s]; ok {
			delete(e.subs, s)
			close(s.c)
		}
		e.some.Store(len(e.subs) > 0)
	}
}

// emit tells the hook and the subscribers.
func (w *Worker) emit(ev Event) {
	if w.config.OnEvent != nil {
		w.config.OnEvent(ev)
	}
	e := &w.events
	if !e.some.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.subs {
		select {
		case s.c <- ev:
		default:
			s.missed.Add(1)
		}
	}
}
