package outbox

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
)

// A lane that hangs keeps no other waiting, neither one that is new nor one that is to
// be tried again.
func TestRunTriesAgainWhileAnotherLaneHangs(t *testing.T) {
	w := newWorld(t)
	hanging, failing := w.patient(), w.patient()
	b := w.open(w.client(), quick)
	release := make(chan struct{})
	hangs := make(chan struct{})
	var fails atomic.Int64
	stuck := enqueue(t, b, create(hanging))[0]
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Header.Get("Idempotency-Key") == `"`+stuck+`"` {
			close(hangs)
			<-release
		} else if fails.Add(1) <= 3 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		h.ServeHTTP(rw, r)
	})
	running(t, b)
	<-hangs
	e := until(t, b, enqueue(t, b, create(failing))[0], Committed)
	if e.Attempts != 4 {
		t.Errorf("%d attempts", e.Attempts)
	}
	expect(t, b, stuck, Submitted, "")
	close(release)
	until(t, b, stuck, Committed)
}

// While a lane that is tried again hangs, the runner rests.
func TestTheRunnerRestsWhileALaneHangs(t *testing.T) {
	w := newWorld(t)
	b := w.open(w.client(), quick)
	hangs, release := make(chan struct{}), make(chan struct{})
	var tries, scans atomic.Int64
	b.step = func(point string) {
		if point == "scan" {
			scans.Add(1)
		}
	}
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		if tries.Add(1) == 1 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		close(hangs)
		<-release
		h.ServeHTTP(rw, r)
	})
	id := enqueue(t, b, create(w.patient()))[0]
	running(t, b)
	<-hangs
	time.Sleep(100 * time.Millisecond) // how much does it do in that time?
	if n := scans.Load(); n > 10 {
		t.Errorf("it looked %d times", n)
	}
	close(release)
	until(t, b, id, Committed)
}

// Many patients of a Host that hangs leave room for those of another.
func TestAHangingHostLeavesRoomForOthers(t *testing.T) {
	for _, runner := range []bool{true, false} {
		w := newWorld(t)
		elsewhere := w.patient()
		k := w.client()
		b := w.open(k, quick, func(o *Options) { o.Parallel = 4 })
		enqueue(t, b, create(elsewhere))
		must(t, flushAll(b))
		w.move(elsewhere)
		must(t, b.Follow(context.Background(), elsewhere))
		// The Host is known not to answer.
		var ids []string
		for range 8 {
			ids = append(ids, enqueue(t, b, create(w.patient()))...)
		}
		w.a.code(record.HostUnavailable)
		flushed(t, b)
		hangs, release := make(chan struct{}, 100), make(chan struct{})
		var most, now atomic.Int64
		w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			hangs <- struct{}{}
			<-release
			h.ServeHTTP(rw, r)
			now.Add(-1)
		})
		end := make(chan error, 1)
		if runner {
			running(t, b)
		} else {
			go func() { _, err := b.Flush(context.Background()); end <- err }()
		}
		<-hangs
		<-hangs
		until(t, b, enqueue(t, b, create(elsewhere))[0], Committed)
		if most.Load() > 2 {
			t.Errorf("%d of 4 places went to the Host that hangs", most.Load())
		}
		close(release)
		for _, id := range ids {
			until(t, b, id, Committed)
		}
		if !runner {
			must(t, <-end)
		}
	}
}

// A change by hand that comes between the outcome and the lane's end is not lost.
func TestAChangeAtTheLanesEndIsNotLost(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	id := enqueue(t, b, rename(p, "Ada", 9))[0]
	var once sync.Once
	next := make(chan string, 1)
	b.step = func(point string) {
		if point == "settled" {
			once.Do(func() {
				fresh, err := b.Rebase(context.Background(), id, 1, because)
				if err != nil {
					t.Error(err)
				}
				next <- fresh
			})
		}
	}
	running(t, b)
	until(t, b, <-next, Committed)
}

// A lane that never gets empty gives way to the others.
func TestALaneThatIsNeverEmptyGivesWay(t *testing.T) {
	w := newWorld(t)
	lanes := []string{w.patient(), w.patient()}
	slices.Sort(lanes)
	for _, busy := range []int{0, 1} {
		p, q := lanes[busy], lanes[1-busy]
		b, err := w.tryOpen(w.client(), func(o *Options) { o.Parallel = 1 })
		must(t, err)
		var done atomic.Bool
		other := create(q)
		var extra atomic.Int64
		w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
			if r.Header.Get("Idempotency-Key") == `"`+other.OperationID+`"` {
				done.Store(true)
			} else if !done.Load() && extra.Add(1) < 2000 {
				enqueue(t, b, create(p), create(p))
			}
			h.ServeHTTP(rw, r)
		})
		enqueue(t, b, create(p), create(p))
		if busy == 1 {
			w.a.wrap(func(next http.Handler) http.Handler { return next })
			flushed(t, b)
		}
		enqueue(t, b, other)
		must(t, flushAll(b))
		expect(t, b, other.OperationID, Committed, "")
		if extra.Load() >= 2000 {
			t.Error("the other lane waited until the busy one was empty")
		}
		w.a.unwrap()
		must(t, b.Close())
	}
}

// Lanes that have become empty behind the runner's back do not keep it busy.
func TestTheRunnerForgetsEmptyLanes(t *testing.T) {
	w := newWorld(t)
	b := w.open(w.client())
	b.delays["gone"] = delay{failures: 1, until: time.Now().Add(-time.Second)}
	_, err := b.flush(context.Background(), context.Background(), true)
	must(t, err)
	if _, any := b.nextDue(time.Time{}); any {
		t.Error("the runner would look again at once, for ever")
	}
}

func TestRunEndsWhenTheQueueIsClosed(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b, err := w.tryOpen(w.client())
	must(t, err)
	end := make(chan error, 1)
	go func() { end <- b.Run(context.Background()) }()
	until(t, b, enqueue(t, b, create(p))[0], Committed)
	for err = b.Close(); errors.Is(err, QueueWorkerBusy); err = b.Close() { // until the runner rests
		time.Sleep(time.Millisecond)
	}
	must(t, err)
	select {
	case err := <-end:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("Run goes on")
	}
}

// The computer's clock may jump: order, retries and identity do not depend on it.
func TestTheClockJumps(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	var clock atomic.Int64
	start := time.Now().UnixMilli()
	clock.Store(start)
	b := w.open(k, quick, func(o *Options) { o.Now = func() time.Time { return time.UnixMilli(clock.Load()) } })
	var ids []string
	for _, jump := range []time.Duration{0, 100 * 365 * 24 * time.Hour, -200 * 365 * 24 * time.Hour, 0, -time.Hour} {
		clock.Store(start + jump.Milliseconds())
		ids = append(ids, enqueue(t, b, create(p))...)
	}
	w.a.code(record.RateLimited)
	flushed(t, b)
	clock.Store(start - 1e12)
	w.a.unwrap()
	running(t, b)
	for n, id := range ids {
		if e := until(t, b, id, Committed); e.Sequence != int64(n+1) {
			t.Errorf("%+v", e)
		}
	}
	if seqs := w.done(k, p, ids...); !slices.IsSorted(seqs) {
		t.Errorf("%v", seqs)
	}
	// What was changed in the future is not older than now.
	clock.Store(start - 2e12)
	if n, err := b.Prune(ctx, b.o.Now()); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	clock.Store(start)
	if n, err := b.Prune(ctx, b.o.Now()); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	events, cancel := b.Events()
	slow, cancelSlow := b.Events()
	defer cancelSlow()
	id := enqueue(t, b, rename(p, "Ada", 9))[0]
	flushed(t, b)
	next, err := b.Rebase(context.Background(), id, 1, because)
	must(t, err)
	flushed(t, b)
	for _, want := range []Event{{1, id, p, Pending, "", 0}, {1, id, p, Submitted, "", 0}, {1, id, p, Conflicted, record.VersionConflict, 0},
		{1, id, p, Discarded, record.VersionConflict, 0}, {2, next, p, Pending, "", 0}, {2, next, p, Submitted, "", 0}, {2, next, p, Committed, "", 0}} {
		if got := <-events; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	cancel()
	// Nobody waits for a slow listener, and it is told what it has missed.
	for range eventsKept + 3 {
		enqueue(t, b, create(p))
	}
	for range eventsKept {
		if e := <-slow; e.Missed != 0 {
			t.Fatalf("%+v", e)
		}
	}
	last := enqueue(t, b, create(p))[0]
	if e := <-slow; e.Missed != 10 || e.OperationID != last {
		t.Errorf("%+v", e)
	}
	select {
	case e := <-events:
		t.Errorf("after cancel: %+v", e)
	default:
	}
}

// Limits that have become smaller refuse what is new, and spoil nothing old.
func TestSmallerLimitsSpoilNothing(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	b, err := w.tryOpen(k)
	must(t, err)
	big := create(p)
	big.Resource = []byte(strings.Replace(string(big.Resource), `"text":"x"`, `"text":"`+strings.Repeat("x", 5000)+`"`, 1))
	enqueue(t, b, big)
	must(t, b.Close())
	b = w.open(k, func(o *Options) { o.Limits.Bytes = 1000 })
	must(t, flushAll(b))
	expect(t, b, big.OperationID, Committed, "")
	big.OperationID = record.NewID()
	_, err = b.Enqueue(context.Background(), big)
	wantCode(t, err, record.InvalidMessage)
}

// The client renews a token once by itself; only a second refusal is one.
func TestF7AuthorizationIsRenewedOnce(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	enqueue(t, b, create(p))
	flushed(t, b)
	for refusals, want := range map[int64]State{1: Committed, 2: Rejected} {
		var n atomic.Int64
		w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
			if n.Add(1) <= refusals {
				rw.Header().Set("WWW-Authenticate", "DPoP")
				rw.WriteHeader(http.StatusUnauthorized)
				rw.Write([]byte(`{"code":"authorization_expired"}`))
				return
			}
			h.ServeHTTP(rw, r)
		})
		id := enqueue(t, b, create(p))[0]
		flushed(t, b)
		e, err := b.Entry(context.Background(), id)
		must(t, err)
		if e.State != want || e.Attempts != 1 {
			t.Errorf("after %d refusals: %+v", refusals, e)
		}
		if want == Rejected {
			w.a.unwrap()
			must(t, b.Discard(context.Background(), id, because))
		}
	}
}

func TestFollowAsksTheDirectory(t *testing.T) {
	w, _, b, p, waiting, _, _ := moved(t)
	ctx := context.Background()
	wantCode(t, b.Follow(ctx, record.NewID()), UnknownQueueRoute)
	must(t, b.Follow(ctx, p))
	flushed(t, b)
	expect(t, b, waiting, Committed, "")
	if r, _, _ := b.Route(ctx, p); r.Host != w.b.host.ID() {
		t.Errorf("%+v", r)
	}
}
