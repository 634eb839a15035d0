package outbox

import (
	"context"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eda94727/holdfast/record"
)

func quick(o *Options) { o.Retry = Backoff{First: 5 * time.Millisecond, Most: 20 * time.Millisecond} }

// running starts Run and returns how to stop it.
func running(t *testing.T, b *Outbox) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- b.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-end:
			must(t, err)
		case <-time.After(20 * time.Second):
			t.Fatal("Run does not stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

// until waits for an entry's state, by the file's own signals.
func until(t *testing.T, b *Outbox, id string, state State) Entry {
	t.Helper()
	changes, cancel := b.Changes()
	defer cancel()
	late := time.After(20 * time.Second)
	for {
		e, err := b.Entry(context.Background(), id)
		must(t, err)
		if e.State == state {
			return e
		}
		select {
		case <-changes:
		case <-late:
			t.Fatalf("the entry is %s %s, not %s", e.State, e.Code, state)
		}
	}
}

func TestRunSendsWhatIsEnqueued(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	before := enqueue(t, b, create(p))[0]
	stop := running(t, b)
	until(t, b, before, Committed)
	until(t, b, enqueue(t, b, create(p))[0], Committed)
	blocked := enqueue(t, b, rename(p, "Ada", 9))[0]
	until(t, b, blocked, Conflicted)
	id, err := b.Rebase(context.Background(), blocked, 1, because)
	must(t, err)
	until(t, b, id, Committed)
	stop()
	must(t, b.Close())
}

// What fails is tried again after a pause, and keeps no other lane waiting.
func TestRunTriesAgain(t *testing.T) {
	w := newWorld(t)
	p, q := w.patient(), w.patient()
	b := w.open(w.client(), quick)
	id := enqueue(t, b, create(p))[0]
	fail := true
	fails, goOn := make(chan struct{}), make(chan struct{})
	var tries int
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Header.Get("Idempotency-Key") == `"`+id+`"` && fail {
			if tries++; tries == 4 {
				fail = false
				close(fails)
				<-goOn
			}
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		h.ServeHTTP(rw, r)
	})
	running(t, b)
	<-fails
	until(t, b, enqueue(t, b, create(q))[0], Committed)
	close(goOn)
	if e := until(t, b, id, Committed); e.Attempts != 5 {
		t.Errorf("%d attempts", e.Attempts)
	}
}

// A Host's Retry-After is heeded: until then a lane is not due, whatever wakes the
// runner; a change by hand makes it due at once.
func TestRunHeedsRetryAfter(t *testing.T) {
	w := newWorld(t)
	p, q := w.patient(), w.patient()
	b := w.open(w.client(), quick)
	w.a.code(record.RateLimited, "Retry-After", "3600")
	id := enqueue(t, b, create(p))[0]
	running(t, b)
	changes, cancel := b.Changes()
	defer cancel()
	for expectAny(t, b, id).Code != record.RateLimited {
		<-changes
	}
	w.a.unwrap()
	until(t, b, enqueue(t, b, create(q))[0], Committed) // a flush has passed the lane by
	if e := expect(t, b, id, Pending, record.RateLimited); e.Attempts != 1 {
		t.Errorf("%d attempts", e.Attempts)
	}
	if wait, any := b.nextDue(time.Time{}); !any || wait < 59*time.Minute {
		t.Errorf("due in %v", wait)
	}
	word := because
	word.Unsure = true
	next, err := b.Replace(context.Background(), id, create(p), word)
	must(t, err)
	until(t, b, next, Committed)
}

func expectAny(t *testing.T, b *Outbox, id string) Entry {
	t.Helper()
	e, err := b.Entry(context.Background(), id)
	must(t, err)
	return e
}

func TestBackoff(t *testing.T) {
	o := Backoff{}.withDefaults()
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 10: 5 * time.Minute, 500: 5 * time.Minute} {
		for range 100 {
			if got := o.pause(n, 0); got < want/2 || got > want {
				t.Errorf("after %d failures %v, want %v at most", n, got, want)
			}
			if got := o.pause(n, time.Hour); got < time.Hour || got > 66*time.Minute {
				t.Errorf("after %d failures %v, want an hour", n, got)
			}
		}
	}
}

// Run lets what is under way end within its grace, and cuts it off then.
func TestRunStops(t *testing.T) {
	for name, grace := range map[string]time.Duration{"in time": time.Minute, "cut off": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.patient()
			b := w.open(w.client(), func(o *Options) { o.Grace = grace })
			ids := enqueue(t, b, create(p), create(p))
			ctx, cancel := context.WithCancel(context.Background())
			w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
				cancel()
				if name == "cut off" {
					r.Body.Read(make([]byte, 1<<20))
					<-r.Context().Done()
					return
				}
				h.ServeHTTP(rw, r)
			})
			must(t, b.Run(ctx))
			if name == "in time" {
				expect(t, b, ids[0], Committed, "")
			} else {
				expect(t, b, ids[0], Pending, record.TransportUnavailable)
			}
			if e := expect(t, b, ids[1], Pending, ""); e.Attempts != 0 {
				t.Error("another was begun")
			}
		})
	}
}

// Nothing runs on after Close.
func TestNothingIsLeftRunning(t *testing.T) {
	here := goleak.IgnoreCurrent()
	f := &fake{subject: record.NewKey().ID(), host: "h", write: func(context.Context, record.Intent) (record.Result, error) {
		return record.Result{}, record.HostUnavailable
	}}
	b, err := Open(context.Background(), t.TempDir()+"/q.db", f, Options{})
	must(t, err)
	id := enqueue(t, b, create(record.NewID()))[0]
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error)
	go func() { end <- b.Run(ctx) }()
	for expectAny(t, b, id).Code == "" {
		time.Sleep(time.Millisecond)
	}
	cancel()
	must(t, <-end)
	must(t, b.Close())
	goleak.VerifyNone(t, here)
}
