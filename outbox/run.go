package outbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/eda94727/holdfast/record"
)

// Backoff says how soon a lane is tried again. Zero fields mean the defaults.
type Backoff struct {
	// First is the pause after the first failure; 0 means 1 second. It doubles with
	// each further one.
	First time.Duration
	// Most bounds it; 0 means 5 minutes. A Host that asks for more, by Retry-After,
	// gets it.
	Most time.Duration
}

func (o Backoff) withDefaults() Backoff {
	if o.First <= 0 {
		o.First = time.Second
	}
	if o.Most <= 0 {
		o.Most = 5 * time.Minute
	}
	o.Most = max(o.Most, o.First)
	return o
}

// pause returns the pause after so many failures: half of it is certain and half
// left to chance, so that many queues do not come back at once.
func (o Backoff) pause(failures int, retryAfter time.Duration) time.Duration {
	pause := o.Most
	if failures < 30 && o.First<<(failures-1) < o.Most {
		pause = o.First << (failures - 1)
	}
	pause = pause/2 + rand.N(pause/2+1)
	if retryAfter > 0 {
		// Never before the Host wants it.
		return max(pause, retryAfter+rand.N(retryAfter/10+1))
	}
	return pause
}

// delay is when a lane that failed is tried again. Times are of the monotonic
// clock, which no change of the computer's time touches.
type delay struct {
	failures int
	until    time.Time // zero: not before somebody has changed its entry
}

// laneStarts begins to note whether somebody changes an entry of the lane by hand
// while it is being sent.
func (b *Outbox) laneStarts(lane string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touched[lane] = false
}

// laneEnded keeps when a lane is due again.
func (b *Outbox) laneEnded(e laneEnd) {
	b.mu.Lock()
	defer b.mu.Unlock()
	touched := b.touched[e.lane]
	delete(b.touched, e.lane)
	switch {
	case e.host == "" || e.err != nil || e.sent == 0:
	case e.stop != nil && (e.stop.Code == record.TransportUnavailable || e.stop.Code == record.HostUnavailable):
		b.doubtful[e.host] = true
	default:
		delete(b.doubtful, e.host)
	}
	switch {
	case e.err != nil:
	case e.stop == nil || touched: // what stopped it may be settled by now
		delete(b.delays, e.lane)
	case e.stop.State == Pending || e.stop.State == Submitted:
		d := b.delays[e.lane]
		if e.committed > 0 {
			d.failures = 0
		}
		d.failures++
		d.until = time.Now().Add(b.o.Retry.pause(d.failures, e.stop.RetryAfter))
		b.delays[e.lane] = d
	default:
		b.delays[e.lane] = delay{}
	}
}

// doubts tells whether a Host did not answer when it was asked last.
func (b *Outbox) doubts(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doubtful[host]
}

func (b *Outbox) forgetDelay(lane string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.delays, lane)
	if _, running := b.touched[lane]; running {
		b.touched[lane] = true
	}
}

// forgetEmpty forgets lanes that were due before a look at all lanes and have not
// been started by it: there is nothing in them any more.
func (b *Outbox) forgetEmpty(before time.Time, started map[string]laneState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for lane, d := range b.delays {
		if _, running := started[lane]; !running && !d.until.IsZero() && d.until.Before(before) {
			delete(b.delays, lane)
		}
	}
}

func (b *Outbox) due(lane string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, found := b.delays[lane]
	return !found || !d.until.IsZero() && !time.Now().Before(d.until)
}

// nextDue returns how long it is until a lane that failed is due, of those that were not
// due yet at a time.
func (b *Outbox) nextDue(after time.Time) (wait time.Duration, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first time.Time
	for _, d := range b.delays {
		if d.until.After(after) && (first.IsZero() || d.until.Before(first)) {
			first = d.until
		}
	}
	return time.Until(first), !first.IsZero()
}

// lookAgain is how often Run looks into the file without a reason: entries that
// another connection put there, or a flush by hand that was in the way.
const lookAgain = time.Minute

// Run sends what waits until ctx ends: at once when something is enqueued or
// changed, and again after a pause that grows with each failure of a lane, or that
// the Host asks for. A lane that fails keeps no other waiting.
//
// When ctx ends, nothing new is begun, and requests that are running have
// [Options.Grace] to end. Then it returns nil; it returns [ErrClosed] if the queue is
// closed, and [QueueHasNoClient] where nothing can be sent. Failures of the file (a
// full disk, say) are logged and tried again like a lane's.
func (b *Outbox) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		late := time.NewTimer(b.o.Grace)
		defer late.Stop()
		select {
		case <-late.C:
			cut()
		case <-ended:
		}
	}()
	go b.watchShared(ended)
	failures := 0
	for {
		_, err := b.flush(ctx, work, true)
		if ctx.Err() != nil {
			return nil
		}
		wait, any := b.nextDue(time.Time{})
		if !any || wait > lookAgain {
			wait = lookAgain
		}
		wake := b.woken
		switch {
		case err == nil:
			failures = 0
		case errors.Is(err, ErrClosed), errors.Is(err, QueueHasNoClient):
			return err
		case errors.Is(err, QueueWorkerBusy):
			wait = min(wait, b.o.Retry.First)
		default:
			failures++
			b.o.Log.ErrorContext(ctx, "queue cannot be read or written", "code", string(record.CodeOf(err)), "err", err)
			wait, wake = b.o.Retry.pause(failures, 0), nil
		}
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-b.closed:
			timer.Stop()
			return ErrClosed
		case <-wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// watchShared wakes the runner after commits of others, once the application has put
// an entry into a transaction of its own.
func (b *Outbox) watchShared(ended <-chan struct{}) {
	select {
	case <-b.shared:
	case <-ended:
		return
	}
	changes, cancel := b.file.Changes()
	defer cancel()
	for {
		select {
		case <-changes:
			b.wake()
		case <-ended:
			return
		}
	}
}
