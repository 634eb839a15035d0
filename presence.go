package holdfast

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// presence is a worker's own entry in the registry. The unit is the worker, not the process: each has
// a row and a lock of its own, so one that stops, or loses its session, takes nothing from another of
// the same process.
type presence struct {
	live   Liveness // nil where the dialect has none
	timing LivenessTiming
	every  time.Duration // between signs of life
	keep   time.Duration // how long the row is kept without one
	warned bool          // that there is no lock; used by one goroutine at a time

	mu      sync.Mutex // may be taken under the worker's lock, not the other way round
	record  workerRecord
	entered bool       // the row was written
	lock    WorkerLock // nil: a plain lease, or lost
	proof   time.Time  // when the last proof was begun
	drop    *time.Timer
	away    bool      // the leases count as lost, and nothing is claimed
	dropped time.Time // when that was last so
	left    bool
}

const (
	// enterWithin bounds the registration at a worker's start; if it takes longer, the worker begins
	// with plain leases and is registered later.
	enterWithin = 5 * time.Second
	// proveWithin bounds one proof, and each step of getting a lost session back.
	proveWithin = time.Second
	// buryWithin bounds one takeover: somebody may hold a lock on one of the rows.
	buryWithin = 10 * time.Second
	// leaveWithin bounds the last write of a worker that stops.
	leaveWithin = 2 * time.Second
)

// enter registers the worker. Only a worker id that is taken is an error: whatever else is wrong
// leaves the worker with plain leases, and is tried again later.
func (w *Worker) enter(ctx context.Context) error {
	p := &w.presence
	p.live, _ = w.store.dialect.(Liveness)
	if p.live != nil {
		p.timing = p.live.Timing()
	}
	p.every = max(w.config.Heartbeat, time.Second)
	p.keep = max(w.config.Lease, 3*p.every)
	p.record = workerRecord{
		State: WorkerRunning, Host: hostname(), PID: os.Getpid(), Queues: w.config.Queues,
		Names: slices.Sorted(maps.Keys(w.handlers)), Concurrency: w.config.Concurrency,
	}
	ctx, cancel := context.WithTimeout(ctx, enterWithin)
	defer cancel()
	err := w.enlist(ctx, true)
	if errors.Is(err, ErrWorkerTaken) {
		return invalid("worker_id", w.config.ID, "belongs to a worker that is running; give each worker an id of its own, or none")
	}
	if err != nil {
		w.survived(fmt.Errorf("holdfast: the worker is not registered yet, so if its process dies its tasks wait for their leases to end: %w", err))
	}
	return nil
}

// enlist takes the lock, if there is one to take, and writes the row. At the start, whatever stands
// under the worker's id belongs to a predecessor that is dead.
func (w *Worker) enlist(ctx context.Context, start bool) error {
	p := &w.presence
	began := time.Now()
	lock, err := w.takeLock(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	r := p.record
	p.mu.Unlock()
	r.Token, r.Locked = newToken(), 0
	if lock != nil {
		r.Locked = 1
	}
	entered, err := w.store.putWorker(ctx, w.config.ID, r, p.keep, start && lock != nil)
	if err == nil && !entered && lock != nil {
		err = errors.New("the row of an earlier worker of this id is still there")
	}
	if err != nil {
		if lock != nil {
			lock.Release()
		}
		return err
	}
	if !entered {
		return nil // a row that will be forgotten is in the way; the next sign of life tries again
	}
	p.hold(lock, r)
	p.proven(began, w.dropNow)
	return nil
}

// takeLock answers nil where only leases can be had, and says so once.
func (w *Worker) takeLock(ctx context.Context) (WorkerLock, error) {
	p := &w.presence
	if p.live == nil || w.config.PlainLease {
		return nil, nil
	}
	lock, err := p.live.Enter(ctx, w.config.ID)
	var only *LeaseOnlyError
	if errors.As(err, &only) {
		if !p.warned {
			p.warned = true
			w.log.Warn("holdfast: no fast recovery here: if this process dies, its tasks wait for their leases to end", "reason", only, "lease", w.config.Lease)
		}
		return nil, nil
	}
	return lock, err
}

// hold notes a lock and the row that goes with it.
func (p *presence) hold(lock WorkerLock, r workerRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lock, p.record.Token, p.record.Locked, p.entered = lock, r.Token, r.Locked, true
}

// proven counts a proof that was begun at that time, and puts off the drop. It answers false while
// the worker is away: then the leases have to be cleared first.
func (p *presence) proven(began time.Time, drop func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return false
	}
	p.count(began, drop)
	return true
}

// count is proven under the lock.
func (p *presence) count(began time.Time, drop func()) {
	if p.timing.Beat == 0 || p.lock == nil || p.left {
		return
	}
	p.proof = began
	left := p.timing.Hold - time.Since(began)
	if p.drop == nil {
		p.drop = time.AfterFunc(left, drop)
	} else {
		p.drop.Reset(left)
	}
}

// dropNow is the timer's: the last proof has grown too old, unless one came in this moment.
func (w *Worker) dropNow() {
	p := &w.presence
	p.mu.Lock()
	late := !p.left && time.Since(p.proof) >= p.timing.Hold
	p.mu.Unlock()
	if late {
		w.dropLeases()
	}
}

// dropLeases treats everything held as lost, before anybody may take it.
func (w *Worker) dropLeases() {
	p := &w.presence
	p.mu.Lock()
	if p.away || p.left {
		p.mu.Unlock()
		return
	}
	p.away, p.dropped = true, time.Now()
	p.mu.Unlock()
	// A claim that is under way is handed back when it comes in; see droppedSince.
	w.mu.Lock()
	held := slices.Collect(maps.Keys(w.held))
	w.mu.Unlock()
	w.log.Warn("holdfast: the worker's session is lost and could not be renewed in time; its tasks are left to others", "tasks", len(held))
	for _, a := range held {
		a.lose()
	}
}

// isAway tells whether the worker may claim nothing, because others may take what it holds.
func (w *Worker) isAway() bool {
	w.presence.mu.Lock()
	defer w.presence.mu.Unlock()
	return w.presence.away
}

// droppedSince tells whether leases that were claimed at that time count as lost.
func (w *Worker) droppedSince(began time.Time) bool {
	w.presence.mu.Lock()
	defer w.presence.mu.Unlock()
	return !w.presence.dropped.Before(began)
}

// attend keeps the worker's row, proves its lock and looks for the dead, until ctx ends; then it
// takes the row away and gives up the lock.
func (w *Worker) attend(ctx context.Context) {
	p := &w.presence
	var others sync.WaitGroup
	if p.timing.Beat > 0 {
		others.Go(func() { w.guard(ctx) })
	}
	if p.timing.Look > 0 {
		others.Go(func() { w.lookOut(ctx) })
	}
	sign := time.NewTicker(p.every)
	defer sign.Stop()
	stopping := w.stopping
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-stopping:
			stopping = nil
			p.mu.Lock()
			p.record.State = WorkerStopping
			p.mu.Unlock()
		case <-sign.C:
		}
		if ctx.Err() == nil {
			w.giveSign(ctx)
		}
	}
	others.Wait()
	w.leave()
}

// giveSign renews the row, or writes it where it is missing.
func (w *Worker) giveSign(ctx context.Context) {
	p := &w.presence
	ctx, cancel := context.WithTimeout(ctx, p.every)
	defer cancel()
	p.mu.Lock()
	r, entered, lock := p.record, p.entered, p.lock
	p.mu.Unlock()
	var err error
	switch {
	case !entered:
		err = w.enlist(ctx, false)
	case r.Locked == 1 && lock == nil:
		return // guard is at work
	default:
		var found bool
		if found, err = w.store.seeWorker(ctx, w.config.ID, r.Token, r, p.keep); err == nil && !found {
			p.mu.Lock()
			same := p.record.Token == r.Token && p.lock == lock
			p.mu.Unlock()
			if same {
				_, err = w.store.putWorker(ctx, w.config.ID, r, p.keep, false)
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		w.survived(fmt.Errorf("holdfast: the worker's entry in the registry: %w", err))
	}
}

// guard proves the lock again and again, and gets it back when it is lost.
func (w *Worker) guard(ctx context.Context) {
	p := &w.presence
	beat := time.NewTicker(p.timing.Beat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		p.mu.Lock()
		lock := p.lock
		p.mu.Unlock()
		if lock == nil {
			continue
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, proveWithin)
		err := lock.Prove(limited)
		cancel()
		if err != nil && ctx.Err() == nil {
			w.log.Warn("holdfast: the worker's session is lost", "error", err)
			began = w.regain(ctx, lock)
		}
		if ctx.Err() == nil {
			w.comeBack(ctx, began)
		}
	}
}

// regain takes the lock again in a new session, and answers when that was begun.
func (w *Worker) regain(ctx context.Context, lock WorkerLock) (began time.Time) {
	p := &w.presence
	p.mu.Lock()
	p.lock = nil
	p.mu.Unlock()
	lock.Release()
	pause := 20 * time.Millisecond
	for ctx.Err() == nil {
		began = time.Now()
		limited, cancel := context.WithTimeout(ctx, 2*proveWithin)
		err := w.relock(limited)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(pause*2, 500*time.Millisecond)
	}
	return began
}

// relock is one try of regain.
func (w *Worker) relock(ctx context.Context) error {
	p := &w.presence
	p.mu.Lock()
	r := p.record
	p.mu.Unlock()
	lock, err := p.live.Enter(ctx, w.config.ID)
	var only *LeaseOnlyError
	if errors.As(err, &only) {
		return w.goPlain(ctx, r.Token)
	}
	if err != nil {
		return err
	}
	old := r.Token
	r.Token = newToken()
	there, err := w.store.seeWorker(ctx, w.config.ID, old, r, p.keep)
	if err == nil && !there {
		// Somebody has buried this worker, so the leases are lost, whatever the clock says.
		w.dropLeases()
		_, err = w.store.putWorker(ctx, w.config.ID, r, p.keep, true)
	}
	if err != nil {
		lock.Release()
		return err
	}
	p.hold(lock, r)
	return nil
}

// goPlain gives up for good on a lock that cannot be had any more: since a failover, the way to the
// database leads through a pooler, say. The next sign of life registers the worker anew.
func (w *Worker) goPlain(ctx context.Context, token string) error {
	w.dropLeases() // others may take them until the row is gone
	if err := w.store.forgetWorker(ctx, w.config.ID, token); err != nil {
		return err
	}
	if err := w.store.endLeases(ctx, w.config.ID); err != nil {
		return err
	}
	p := &w.presence
	p.mu.Lock()
	p.entered, p.record.Token, p.record.Locked, p.away = false, "", 0, false
	if p.drop != nil {
		p.drop.Stop()
	}
	p.mu.Unlock()
	w.signal()
	return nil
}

// comeBack counts a proof. A worker that was away ends what still stands under its name, since its
// attempts have ended, and claims again.
func (w *Worker) comeBack(ctx context.Context, began time.Time) {
	p := &w.presence
	if p.proven(began, w.dropNow) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, 2*proveWithin)
	defer cancel()
	if err := w.store.endLeases(limited, w.config.ID); err != nil {
		if ctx.Err() == nil {
			w.survived(fmt.Errorf("holdfast: the leases that the worker lost: %w", err)) // and the next proof tries again
		}
		return
	}
	p.mu.Lock()
	p.away = false
	p.count(began, w.dropNow)
	p.mu.Unlock()
	w.log.Info("holdfast: the worker's session is back")
	w.signal()
}

// leave takes the worker out of the registry. If that fails, the others find its lock free and do it.
func (w *Worker) leave() {
	p := &w.presence
	p.mu.Lock()
	p.left = true
	lock, token, entered := p.lock, p.record.Token, p.entered
	if p.drop != nil {
		p.drop.Stop()
	}
	p.mu.Unlock()
	if entered {
		ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
		defer cancel()
		if err := w.store.forgetWorker(ctx, w.config.ID, token); err != nil {
			w.survived(fmt.Errorf("holdfast: the worker's entry in the registry could not be removed: %w", err))
		}
	}
	if lock != nil {
		lock.Release()
	}
}

// lookOut looks for workers whose lock is free, and ends their leases when it has been so for long
// enough.
func (w *Worker) lookOut(ctx context.Context) {
	p := &w.presence
	type suspect struct {
		token string
		since time.Time
	}
	suspects := map[string]suspect{}
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		wait := p.timing.Look*4/5 + rand.N(p.timing.Look*2/5)
		for _, s := range suspects {
			wait = min(wait, max(p.timing.Grace-time.Since(s.since), 20*time.Millisecond))
		}
		timer.Reset(min(wait<<failures, 10*time.Second))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		list, err := p.live.Gone(ctx, w.store.clock())
		if err != nil {
			if ctx.Err() == nil && failures == 0 {
				w.survived(fmt.Errorf("holdfast: looking for workers that died: %w", err))
			}
			failures = min(failures+1, 5)
			continue
		}
		failures = 0
		now := time.Now() // not before the answer: see Liveness
		before := suspects
		suspects = map[string]suspect{}
		for _, g := range list {
			if g.ID == w.config.ID {
				continue
			}
			s, known := before[g.ID]
			if !known || s.token != g.Token {
				s = suspect{g.Token, now}
			}
			if !g.Stale && now.Sub(s.since) < p.timing.Grace {
				suspects[g.ID] = s
				continue
			}
			limited, cancel := context.WithTimeout(ctx, buryWithin)
			tasks, buried, err := w.store.bury(limited, p.live, g)
			cancel()
			switch {
			case ctx.Err() != nil:
			case err != nil:
				suspects[g.ID] = s
				failures = min(failures+1, 5)
				w.survived(fmt.Errorf("holdfast: the leases of worker %q, which is gone: %w", g.ID, err))
			case buried:
				w.log.Warn("holdfast: a worker died; its leases are ended", "dead", g.ID, "tasks", tasks)
			}
		}
	}
}
