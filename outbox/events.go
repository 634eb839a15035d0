package outbox

import (
	"sync"

	"github.com/eda94727/holdfast/record"
)

// Event says that an entry has changed.
type Event struct {
	Sequence    int64
	OperationID string
	Patient     string
	// State and Code are the entry's after the change.
	State State
	Code  record.Code
	// Missed is how many events before this one were thrown away, because the
	// listener was slower than the queue; it looks at the entries themselves then.
	Missed int
}

// eventsKept is how many events wait for a slow listener.
const eventsKept = 256

type listener struct {
	ch     chan Event
	missed int
}

type listeners struct {
	mu   sync.Mutex
	list map[*listener]struct{}
}

// Events tells of each change of an entry by this Outbox, after it is on disk: for a
// user interface. Nothing waits for a slow listener; it misses events, and is told
// how many. Two events of one entry that are close together may come in the wrong
// order: [Outbox.Entry] has the last word. Entries of [Outbox.EnqueueTx], whose
// commit is not ours, are told of first when they are sent. Call cancel when done.
func (b *Outbox) Events() (ch <-chan Event, cancel func()) {
	l := &listener{ch: make(chan Event, eventsKept)}
	b.events.mu.Lock()
	defer b.events.mu.Unlock()
	if b.events.list == nil {
		b.events.list = map[*listener]struct{}{}
	}
	b.events.list[l] = struct{}{}
	return l.ch, func() {
		b.events.mu.Lock()
		defer b.events.mu.Unlock()
		delete(b.events.list, l)
	}
}

func (l *listeners) tell(entries ...Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == 0 {
		return
	}
	for _, e := range entries {
		for to := range l.list {
			select {
			case to.ch <- Event{e.Sequence, e.OperationID, e.Patient, e.State, e.Code, to.missed}:
				to.missed = 0
			default:
				to.missed++
			}
		}
	}
}
