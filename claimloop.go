package holdfast

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// claimLoop keeps the slots filled. Claims are made under a context of their own, which goes on for a
// while when the worker stops.
func (w *Worker) claimLoop(ctx, claims context.Context) {
	ear := w.store.dialect.Hub().ListenQueues(w.config.Queues...)
	defer ear.Close()
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		claim, ok := w.plan()
		if !ok {
			return
		}
		wait := w.config.Poll
		if claim != nil {
			began := time.Now()
			got, err := w.store.Claim(claims, *claim)
			switch {
			case err != nil:
				if claims.Err() == nil {
					w.survived(fmt.Errorf("holdfast: claim: %w", err))
				} else {
					w.log.Warn("holdfast: a claim was cut off by the worker's end; what it took, if anything, waits for its leases to end", "error", err)
				}
				failures++
				wait = min(w.config.Poll<<min(failures, 6), 10*time.Second)
				wait = wait/2 + rand.N(wait/2)
			case len(got.Tasks) > 0:
				failures = 0
				w.begin(ctx, got.Tasks, began)
				continue
			default:
				failures = 0
				if got.Next > 0 {
					wait = min(wait, got.Next)
				}
			}
		}
		timer.Reset(wait)
		var wake <-chan struct{}
		if claim != nil && failures == 0 {
			wake = ear.Arm()
		}
		select {
		case <-wake:
		case <-w.freed(claim):
		case <-timer.C:
		case <-w.stopping:
		}
		ear.Disarm()
	}
}

// freed is the signal that a slot came free. It is of no interest when everything could be claimed
// and nothing was found.
func (w *Worker) freed(claim *Claim) <-chan struct{} {
	if claim != nil && len(claim.Draws) == w.draws() {
		return nil
	}
	return w.wake
}

// draws is how many draws a claim has when nothing is at its bound.
func (w *Worker) draws() int {
	n := len(w.special)
	if len(w.plain) > 0 {
		n++
	}
	return n
}

const (
	// quickHandler is how fast handlers must be for tasks to be claimed ahead: then a claim takes longer
	// than its tasks, and the slots would wait for it. Slow tasks are left to workers with free slots.
	quickHandler = 5 * time.Millisecond
	// aheadOf is how many times the worker's concurrency is claimed ahead, some 20 ms of work.
	aheadOf = 4
)

// plan is the next claim: nil when there is no room, and not ok when the worker stops. Each name with
// a bound of its own draws its own quota, all others share one; names at their bound are left out, so
// their backlog holds nobody up, and the first draw rotates, so that none starves behind another's.
func (w *Worker) plan() (claim *Claim, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == stopped {
		return nil, false
	}
	if w.isAway() {
		return nil, true
	}
	calls := w.config.Concurrency - w.active - len(w.ready)
	ahead := 0
	if n := w.config.Concurrency; w.average > 0 && w.average <= quickHandler && len(w.plain) > 0 {
		// Claimed when half of them are gone; outcomes that are being written count, so that a slow
		// database holds the claims back.
		ahead = min(aheadOf*n, (aheadOf+2)*n-len(w.held))
		if calls+ahead < (aheadOf*n+1)/2 {
			return nil, true
		}
	}
	room := calls + max(ahead, 0)
	if room <= 0 {
		return nil, true
	}
	tasks := w.tasksInBytes()
	if tasks == 0 {
		return nil, true
	}
	c := &Claim{Queues: w.config.Queues, WorkerID: w.config.ID, Lease: w.config.Lease, Calls: room, Resources: map[string]int{}}
	for name, capacity := range w.config.Resources {
		c.Resources[name] = capacity - w.used[name]
	}
	for _, h := range w.special {
		// A name with bounds of its own is never claimed ahead.
		n := calls
		if h.concurrency > 0 {
			n = min(n, h.concurrency-h.active)
		}
		if h.resource != "" {
			n = min(n, c.Resources[h.resource])
		}
		if n > 0 {
			c.Draws = append(c.Draws, Draw{Names: []string{h.name}, Limit: min(n*h.size, tasks), Batch: h.size, Resource: h.resource})
		}
	}
	if len(w.plain) > 0 {
		c.Draws = append(c.Draws, Draw{Names: w.plain, Limit: min(room, tasks)})
	}
	if len(c.Draws) == 0 {
		return nil, true
	}
	if n := len(c.Draws); n > 1 {
		w.turn++
		first := w.turn % n
		c.Draws = append(slices.Clone(c.Draws[first:]), c.Draws[:first]...)
	}
	return c, true
}

// tasksInBytes is how many more tasks fit into the bound on payload bytes, by the average of those
// claimed lately. One is always allowed while nothing is held.
func (w *Worker) tasksInBytes() int {
	limit := w.config.PayloadBytes
	switch {
	case limit <= 0:
		return 1 << 30
	case w.payload == 0: // nothing is known yet, so one shows the way
		return 1 - min(len(w.held), 1)
	case len(w.held) == 0:
		return int(max(1, limit/w.payload))
	}
	return int(max(0, (limit-w.bytes)/w.payload))
}

// begin takes in claimed tasks and starts them. began is when the claim was sent: their leases end no
// sooner than that plus the lease's length.
func (w *Worker) begin(ctx context.Context, tasks []*Task, began time.Time) {
	lease := began.Add(w.config.Lease)
	var late []*attempt
	w.mu.Lock()
	add := func(h *handler, tasks []*Task) {
		c := newCall(ctx, w, h, tasks, lease)
		for _, a := range c.attempts {
			w.held[a] = struct{}{}
			size := int64(len(a.task.Payload))
			w.bytes += size
			if w.payload == 0 {
				w.payload = max(size, 1)
			}
			w.payload += (size - w.payload) / 8
		}
		c.placed = true
		h.active++
		if h.resource != "" {
			w.used[h.resource]++
		}
		if w.state == stopped || w.droppedSince(began) {
			late = append(late, c.attempts...)
			return
		}
		w.ready = append(w.ready, c)
	}
	batches := map[*handler][]*Task{}
	for i, t := range tasks {
		h := w.handlers[t.Name]
		if h.size == 1 {
			add(h, tasks[i:i+1])
			continue
		}
		if batches[h] = append(batches[h], t); len(batches[h]) == h.size {
			add(h, batches[h])
			delete(batches, h)
		}
	}
	for h, list := range batches {
		add(h, list)
	}
	w.fill()
	w.mu.Unlock()
	if err := w.handBack(late); err != nil {
		w.survived(err)
	}
}

// fill starts claimed calls in free slots. The worker's lock is held.
func (w *Worker) fill() {
	n := 0
	for n < len(w.ready) && w.active < w.config.Concurrency {
		c := w.ready[n]
		n++
		w.active++
		c.slot = true
		go c.run(w)
	}
	w.ready = slices.Delete(w.ready, 0, n)
}

// free gives the call's slot to the next one, while its outcome is still being written.
func (w *Worker) free(c *call) {
	took := time.Since(c.started)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.slot {
		return
	}
	if w.average == 0 {
		w.average = max(took, 1)
	} else {
		w.average += (took - w.average) / 16
	}
	w.vacate(c)
	w.fill()
	w.signal()
}

// vacate gives back the places that a call takes. The worker's lock is held.
func (w *Worker) vacate(c *call) {
	if c.slot {
		c.slot = false
		w.active--
	}
	if c.placed {
		c.placed = false
		c.h.active--
		if c.h.resource != "" {
			w.used[c.h.resource]--
		}
	}
}

func (w *Worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// letGo forgets an attempt that has ended. When it was the last of its call, the call's slot is free,
// even if the handler goes on. It may be called more than once.
func (w *Worker) letGo(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.held[a]; !ok {
		return
	}
	delete(w.held, a)
	w.bytes -= int64(len(a.task.Payload))
	if a.call.open--; a.call.open == 0 {
		w.vacate(a.call)
		w.fill()
	}
	w.closeIfEmpty()
	w.signal()
}

func (w *Worker) closeIfEmpty() {
	if w.state == stopped && len(w.held) == 0 {
		w.stopped.Do(func() { close(w.empty) })
	}
}
