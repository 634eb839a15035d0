package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// heartbeatLoop extends the leases of everything held, and tells attempts that lost theirs.
func (w *Worker) heartbeatLoop(ctx context.Context) {
	beat := time.NewTicker(w.config.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		held := map[string]*attempt{}
		ids := []string{}
		w.mu.Lock()
		for a := range w.held {
			held[a.task.ID] = a
			ids = append(ids, a.task.ID)
		}
		w.mu.Unlock()
		if len(ids) == 0 {
			continue
		}
		w.beat(ctx, held, ids)
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
		// One that has just ended by itself is missing too; lose does nothing to it.
		a.lose()
	}
}
