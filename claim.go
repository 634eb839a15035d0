package holdfast

import (
	"context"
	"encoding/json"
	"time"
)

// Claim asks for tasks to run. Draws are served in order, in one transaction, after one recovery.
type Claim struct {
	// Queues are claimed from as if they were one; at least one.
	Queues []string
	// Draws say of which names, and how many. Without any nothing is claimed, but leases are recovered.
	Draws []Draw
	// WorkerID is who claims; the later writes must name it.
	WorkerID string
	// Lease is how long the tasks are the worker's unless a heartbeat extends it: 1 ms to MaxDelay.
	Lease time.Duration
	// Calls bounds the draws together, in calls (see Draw.Batch); 0 does not.
	Calls int
	// Resources is how many calls each named resource has room for (see Draw.Resource).
	Resources map[string]int
	// Recover is what recovery writes into tasks whose attempts are used up.
	Recover json.RawMessage
	// Now is the time where the library gives it.
	Now time.Time
}

// Draw is one quota of a claim: up to Limit tasks of these names, in the protocol's order.
type Draw struct {
	// AnyName claims every name; otherwise only those in Names are claimed, and none if it is empty.
	AnyName bool
	Names   []string
	// Limit is how many tasks to take at most; negative is refused.
	Limit int
	// Batch is how many tasks one call takes; 0 means 1.
	Batch int
	// Resource that each call takes a place of, if any.
	Resource string
}

// Quota tells a dialect how much of each draw is left to take, as the draws before it used up the
// calls and resources that they share.
type Quota struct {
	calls     int // left; below 0 for no bound
	resources map[string]int
}

// Quota starts the account of a claim's draws.
func (c *Claim) Quota() *Quota {
	q := &Quota{calls: -1, resources: map[string]int{}}
	if c.Calls > 0 {
		q.calls = c.Calls
	}
	for name, n := range c.Resources {
		q.resources[name] = n
	}
	return q
}

// Limit is how many tasks the draw may take now.
func (q *Quota) Limit(d *Draw) int {
	batch, limit := max(d.Batch, 1), d.Limit
	if q.calls >= 0 {
		limit = min(limit, q.calls*batch)
	}
	if d.Resource != "" {
		limit = min(limit, q.resources[d.Resource]*batch)
	}
	return max(limit, 0)
}

// Took counts what the draw has taken.
func (q *Quota) Took(d *Draw, tasks int) {
	batch := max(d.Batch, 1)
	calls := (tasks + batch - 1) / batch
	if q.calls >= 0 {
		q.calls -= calls
	}
	if d.Resource != "" {
		q.resources[d.Resource] -= calls
	}
}

// Claimed is what a claim found.
type Claimed struct {
	// Tasks are running now, under the claim's lease.
	Tasks []*Task
	// Recovered tasks had expired leases. Only ID, Queue and Status are set.
	Recovered []*Task
	// Next is how long from the claim until a task becomes due or a lease ends; 0 where that is not
	// known.
	Next time.Duration
}

// Claim recovers expired leases and then takes tasks, in one transaction. A cheap look without any
// lock comes first, so an idle worker costs next to nothing.
func (s *Store) Claim(ctx context.Context, c Claim) (*Claimed, error) {
	if err := checkText("worker_id", c.WorkerID, true); err != nil {
		return nil, err
	}
	if len(c.Queues) == 0 {
		return nil, invalid("queues", "", "is empty; name at least one queue")
	}
	if err := checkLease(c.Lease); err != nil {
		return nil, err
	}
	var err error
	if c.Queues, err = checkSet("queues", c.Queues); err != nil {
		return nil, err
	}
	draws := c.Draws
	c.Draws = make([]Draw, len(draws))
	for i, d := range draws {
		if err := checkLimit("limit", d.Limit); err != nil {
			return nil, err
		}
		if d.Names, err = checkSet("names", d.Names); err != nil {
			return nil, err
		}
		c.Draws[i] = d
	}
	c.Recover = leaseExpired
	if c.Now.IsZero() {
		c.Now = s.clock()
	}
	if !s.inTx {
		now, next, err := s.dialect.Claimable(ctx, &c)
		if err != nil {
			return nil, err
		}
		if !now {
			return &Claimed{Next: next}, nil
		}
	}
	found, err := s.session.Claim(ctx, &c)
	if err != nil {
		return nil, err
	}
	for _, t := range found.Recovered {
		s.settled(t.ID, t.Queue, t.Status)
	}
	return found, nil
}
