package holdfast

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// cancelCheck is how often a worker looks whether somebody has asked its tasks to stop. It only reads;
// heartbeats ask too.
const cancelCheck = time.Second

// heartbeatLoop extends the leases of everything held, tells attempts that lost theirs, and looks for
// cancel requests in between.
func (w *Worker) heartbeatLoop(ctx context.Context) {
	tick := time.NewTicker(min(w.config.Heartbeat, cancelCheck))
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		held := map[string]*attempt{}
		ids := []string{}
		w.mu.Lock()
		for a := range w.held {
			held[a.task.ID] = a
			ids = append(ids, a.task.ID)
		}
		w.mu.Unlock()
		switch {
		case time.Since(last) >= w.config.Heartbeat-cancelCheck/10:
			last = time.Now()
			if len(ids) > 0 {
				w.beat(ctx, held, ids)
			}
		case len(ids) > 0:
			w.checkCancels(ctx, held, ids)
		}
	}
}

func (w *Worker) checkCancels(ctx context.Context, held map[string]*attempt, ids []string) {
	asked, err := w.store.CancelRequests(ctx, ids...)
	if err != nil {
		return // the heartbeat will tell
	}
	for _, id := range asked {
		held[id].cancel(ErrCancelRequested)
	}
}

// beat is one heartbeat, one statement for all leases.
func (w *Worker) beat(ctx context.Context, held map[string]*attempt, ids []string) {
	began := time.Now()
	// No longer than until the next one: a database that hangs must not hide that leases end.
	limited, cancel := context.WithTimeout(ctx, w.config.Heartbeat)
	defer cancel()
	locked, err := w.extend(limited, held, ids)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		w.survived(fmt.Errorf("holdfast: heartbeat: %w", err))
		for _, a := range held {
			if !a.completedIn.Load() && !began.Before(time.Unix(0, a.lease.Load())) {
				a.lose()
			}
		}
		return
	}
	for _, a := range held {
		// One that has just ended by itself is missing too; lose does nothing to it. One that was
		// completed in the application's transaction ends when its handler returns.
		if !a.completedIn.Load() {
			a.lose()
		}
	}
	// A row is mostly locked for the moment of some other write, such as a handler's progress.
	for pause := 5 * time.Millisecond; len(locked) > 0 && time.Since(began)+pause < w.config.Heartbeat/2; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-limited.Done():
			return
		}
		if locked, err = w.extend(limited, locked, slices.Collect(maps.Keys(locked))); err != nil {
			return // the next heartbeat will tell
		}
	}
}

// extend sends one heartbeat. It takes the attempts that are still held out of held, and answers those
// among them whose lease was not extended, as another transaction had the row locked.
func (w *Worker) extend(ctx context.Context, held map[string]*attempt, ids []string) (locked map[string]*attempt, err error) {
	began := time.Now()
	answers, err := w.store.Heartbeat(ctx, w.config.ID, w.config.Lease, ids...)
	if err != nil {
		return nil, err
	}
	locked = map[string]*attempt{}
	for _, h := range answers {
		a := held[h.ID]
		delete(held, h.ID)
		switch {
		case !h.LeaseUntil.IsZero():
			a.lease.Store(began.Add(w.config.Lease).UnixNano())
		case !a.completedIn.Load():
			locked[h.ID] = a
		}
		if h.CancelRequested {
			a.cancel(ErrCancelRequested)
		}
	}
	return locked, nil
}
