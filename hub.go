package holdfast

import (
	"sync"
	"sync/atomic"
)

// Hub passes on what happened in the database, inside this process: a queue may have something to
// claim, a task may have ended. A wake-up is a hint. It may be false, it is never needed for
// correctness, and several may become one.
type Hub struct {
	// onListen, if set, is told what listeners are armed for, each time that it changes and in that
	// order, so that a dialect watches its database only while it must.
	onListen func(queues, tasks bool)

	mu    sync.RWMutex
	byKey map[topic]map[*Listener]struct{}
	some  atomic.Int32 // listeners, so that waking nobody costs nothing

	armMu sync.Mutex
	armed struct{ queues, tasks int }

	schedules wakers // of the drivers of schedules, whom other processes' commits do not wake
}

type topic struct {
	task bool
	name string
}

// NewHub makes a hub. onListen may be nil; see Hub.
func NewHub(onListen func(queues, tasks bool)) *Hub {
	return &Hub{onListen: onListen, byKey: map[topic]map[*Listener]struct{}{}}
}

// WakeQueue tells that a task on the queue may have become claimable.
func (h *Hub) WakeQueue(queue string) { h.wake(topic{false, queue}) }

// WakeTask tells that a task may have ended.
func (h *Hub) WakeTask(id string) { h.wake(topic{true, id}) }

func (h *Hub) wake(t topic) {
	if h.some.Load() == 0 {
		return
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	for l := range h.byKey[t] {
		l.signal()
	}
}

// WakeAll wakes every listener: anything may have happened.
func (h *Hub) WakeAll() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, set := range h.byKey {
		for l := range set {
			l.signal()
		}
	}
}

// ListenQueues subscribes to the queues.
func (h *Hub) ListenQueues(queues ...string) *Listener {
	topics := make([]topic, len(queues))
	for i, q := range queues {
		topics[i] = topic{false, q}
	}
	return h.listen(topics)
}

// ListenTask subscribes to the end of one task.
func (h *Hub) ListenTask(id string) *Listener { return h.listen([]topic{{true, id}}) }

func (h *Hub) listen(topics []topic) *Listener {
	l := &Listener{hub: h, topics: topics, c: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range topics {
		if h.byKey[t] == nil {
			h.byKey[t] = map[*Listener]struct{}{}
		}
		h.byKey[t][l] = struct{}{}
	}
	h.some.Add(1)
	return l
}

// Listener receives wake-ups of its topics from the moment it was made: what happens between a look
// at the database and the next wait is not lost.
type Listener struct {
	hub    *Hub
	topics []topic
	c      chan struct{}
	armed  bool
}

func (l *Listener) signal() {
	select {
	case l.c <- struct{}{}:
	default:
	}
}

// Arm says that its owner is going to wait on the channel. Only while some listener is armed are
// other processes watched.
func (l *Listener) Arm() <-chan struct{} {
	if !l.armed {
		l.armed = true
		l.arm(1)
	}
	return l.c
}

// Disarm says that its owner has stopped waiting. Wake-ups from this process still arrive.
func (l *Listener) Disarm() {
	if l.armed {
		l.armed = false
		l.arm(-1)
	}
}

// Close ends the subscription.
func (l *Listener) Close() {
	l.Disarm()
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range l.topics {
		delete(h.byKey[t], l)
		if len(h.byKey[t]) == 0 {
			delete(h.byKey, t)
		}
	}
	h.some.Add(-1)
}

func (l *Listener) arm(n int) {
	h := l.hub
	h.armMu.Lock()
	defer h.armMu.Unlock()
	count := &h.armed.queues
	if len(l.topics) > 0 && l.topics[0].task {
		count = &h.armed.tasks
	}
	before := *count
	*count += n
	if h.onListen != nil && (before == 0) != (*count == 0) {
		h.onListen(h.armed.queues > 0, h.armed.tasks > 0)
	}
}
