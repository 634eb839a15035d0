package holdfast

import (
	"context"
	"time"
)

// Retention says how long ended tasks are kept. Empty fields match everything; where several rules
// match a task, the first to call for its end wins.
type Retention struct {
	// Queue, Status (a terminal one) and Name narrow the rule.
	Queue  string
	Status Status
	Name   string
	// Age is the least time since the task ended; 0 to MaxDelay.
	Age time.Duration
}

func (r Retention) filter() PurgeFilter {
	return PurgeFilter{OlderThan: r.Age, Queue: r.Queue, Status: r.Status, Name: r.Name, Limit: sweepBatch}
}

const (
	sweepBatch = 500
	// sweepPause lets others write between the batches of a long sweep.
	sweepPause = 20 * time.Millisecond
)

func (c *Client) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		for _, rule := range c.retention {
			if err := c.sweepRule(ctx, rule); err != nil && ctx.Err() == nil {
				c.log.Warn("holdfast: a retention sweep failed and will be tried again", "error", err, "queue", rule.Queue, "name", rule.Name, "status", rule.Status)
			}
		}
		timer.Reset(c.sweepEach)
	}
}

func (c *Client) sweepRule(ctx context.Context, rule Retention) error {
	for {
		ids, err := c.store.Purge(ctx, rule.filter())
		if err != nil || len(ids) < sweepBatch {
			return err
		}
		select {
		case <-time.After(sweepPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
