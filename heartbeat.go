package holdfast

import (
	"context"
	"errors"
	"fmt"
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
	answers, err := w.store.Heartbeat(limited, w.config.ID, w.config.Lease, ids...)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return
		}
		w.survived(fmt.Errorf("holdfast: heartbeat: %w", err))
		for _, a := range held {
			if !began.Before(time.Unix(0, a.lease.Load())) {
				a.lose()
			}
		}
		return
	}
	for _, h := range answers {
		a := held[h.ID]
		delete(held, h.ID)
		a.lease.Store(began.Add(w.config.Lease).UnixNano())
		if h.CancelRequested {
			a.cancel(ErrCancelRequested)
		}
	}
	for _, a := range held {
		// One that has just ended by itself is missing too; lose does nothing to it. One that was
		// completed in the application's transaction ends when its handler returns.
		if !a.completedIn.Load() {
			a.lose()
		}
	}
}
