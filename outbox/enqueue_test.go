package outbox

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/eda94727/holdfast/record"
)

func TestE1IdsAreChecked(t *testing.T) {
	w := newWorld(t)
	b := w.open(w.client())
	for _, change := range []func(*record.Intent){
		func(i *record.Intent) { i.Patient = "x" }, func(i *record.Intent) { i.OperationID = "x" }, func(i *record.Intent) { i.Patient = "" },
		func(i *record.Intent) { i.Operation = "upsert" }, func(i *record.Intent) { i.BaseVersion = 1 },
	} {
		i := create(record.NewID())
		change(&i)
		_, err := b.Enqueue(context.Background(), i)
		wantCode(t, err, record.InvalidMessage)
	}
	if n := number(t, w.path, "select (select count(*) from queue) + (select count(*) from queue_routes)"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestE2TheFirstEntryPinsTheRoute(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p, q := w.patient(), w.patient()
	k := w.client()
	b := w.open(k)
	_, err := k.Locate(ctx, p)
	must(t, err)
	enqueue(t, b, create(p), create(q))
	if r, _, _ := b.Route(ctx, p); r != (Route{p, w.a.host.ID(), 1, w.directory.Address(p)}) {
		t.Errorf("%+v", r)
	}
	// A client that has never been online does not know; the first flush finds out.
	if r, found, _ := b.Route(ctx, q); !found || r != (Route{Patient: q}) {
		t.Errorf("%+v", r)
	}
	flushed(t, b)
	if r, _, _ := b.Route(ctx, q); r != (Route{q, w.a.host.ID(), 1, w.directory.Address(q)}) {
		t.Errorf("%+v", r)
	}
}

func TestE3AnotherHostThanTheRoutesIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	b := w.open(k)
	i := create(p)
	enqueue(t, b, i)
	flushed(t, b)
	w.move(p)
	_, err := k.Locate(context.Background(), p)
	must(t, err)
	_, err = b.Enqueue(context.Background(), create(p))
	wantCode(t, err, QueueRouteUpdateRequired)
	if n := number(t, w.path, "select count(*) from queue"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func TestE4TheSameWriteAgainAddsNothing(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	b := w.open(w.client())
	i := create(p)
	enqueue(t, b, i)
	// Other order and white space, the same digits.
	again := i
	again.Resource = []byte(` { "subject":{"reference":"Patient/` + p + `"}, "valueQuantity":{"value":1.10},"code":{"text":"\u0078"}, "status":"final","resourceType":"Observation"} `)
	for _, state := range []State{Pending, Submitted, Committed, Conflicted, Rejected, Discarded, Quarantined} {
		execSQL(t, w.path, "update queue set "+setState(state))
		for _, same := range []record.Intent{i, again} {
			if ids := enqueue(t, b, same); ids[0] != i.OperationID {
				t.Errorf("%s", ids[0])
			}
		}
		expect(t, b, i.OperationID, state, "")
	}
	execSQL(t, w.path, "update queue set "+setState(Pending))
	if r := flushed(t, b); r.Committed != 1 {
		t.Errorf("%+v", r)
	}
	_, err := b.Prune(ctx, b.o.Now().Add(1e9))
	must(t, err)
	enqueue(t, b, again)
	if n := number(t, w.path, "select count(*) from queue"); n != 0 {
		t.Errorf("%d rows after a prune", n)
	}
}

func TestE5AnotherWriteWithTheSameIdIsRefused(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	b := w.open(w.client())
	i := create(p)
	enqueue(t, b, i)
	other := i
	other.Resource = bytes.Replace(i.Resource, []byte("1.10"), []byte("1.1"), 1)
	_, err := b.Enqueue(ctx, other)
	wantCode(t, err, QueueOperationIDConflict)
	other = i
	other.Operation = record.CreateLab
	_, err = b.Enqueue(ctx, other)
	wantCode(t, err, QueueOperationIDConflict)
	flushed(t, b)
	_, err = b.Prune(ctx, b.o.Now().Add(1e9))
	must(t, err)
	_, err = b.Enqueue(ctx, other)
	wantCode(t, err, QueueOperationIDConflict)
}

func TestE6SequencesRiseAndAreNeverUsedTwice(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := b.Enqueue(context.Background(), create(p)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := b.Entries(context.Background(), Filter{})
	must(t, err)
	for i, e := range list {
		if e.Sequence != int64(i+1) || e.Position != e.Sequence {
			t.Errorf("entry %d has sequence %d, position %d", i, e.Sequence, e.Position)
		}
	}
	if len(list) != 50 {
		t.Errorf("%d entries", len(list))
	}
	flushed(t, b)
	_, err = b.Prune(context.Background(), b.o.Now().Add(1e9))
	must(t, err)
	if e := expect(t, b, enqueue(t, b, create(p))[0], Pending, ""); e.Sequence != 51 {
		t.Errorf("after a prune the next is %d", e.Sequence)
	}
}

func TestE7AnIdIsMade(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	i := create(p)
	i.OperationID = ""
	ids := enqueue(t, b, i, i)
	if !record.IsID(ids[0]) || !record.IsID(ids[1]) || ids[0] == ids[1] {
		t.Errorf("%v", ids)
	}
	if r := flushed(t, b); r.Committed != 2 {
		t.Errorf("%+v", r)
	}
}

func TestE8WhatIsEnqueuedDuringAFlushIsSentToo(t *testing.T) {
	w := newWorld(t)
	p, q := w.patient(), w.patient()
	k := w.client()
	b := w.open(k)
	first := enqueue(t, b, create(p), create(p))
	var later []string
	var once sync.Once
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		once.Do(func() { later = enqueue(t, b, create(p), create(q)) })
		h.ServeHTTP(rw, r)
	})
	if r := flushed(t, b); r.Committed != 4 || len(r.Stops) != 0 {
		t.Errorf("%+v", r)
	}
	seqs := w.done(k, p, first[0], first[1], later[0])
	if seqs[0] >= seqs[1] || seqs[1] >= seqs[2] {
		t.Errorf("the order at the Host is %v", seqs)
	}
	w.done(k, q, later[1])
}

// A lane of another patient is served while one hangs.
func TestE8AHangingLaneKeepsNoNewOneWaiting(t *testing.T) {
	w := newWorld(t)
	p, q := w.patient(), w.patient()
	b := w.open(w.client())
	enqueue(t, b, create(p))
	hangs, release := make(chan struct{}), make(chan struct{})
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		if n := w.a.writes.Load(); n == 1 {
			close(hangs)
			<-release
		}
		h.ServeHTTP(rw, r)
	})
	end := make(chan Report, 1)
	go func() { r, _ := b.Flush(context.Background()); end <- r }()
	<-hangs
	changes, cancel := b.Changes()
	defer cancel()
	id := enqueue(t, b, create(q))[0]
	for {
		e, err := b.Entry(context.Background(), id)
		must(t, err)
		if e.State == Committed {
			break
		}
		<-changes
	}
	close(release)
	if r := <-end; r.Committed != 2 {
		t.Errorf("%+v", r)
	}
}

func TestE9WhatCanNeverBeSentIsRefusedAtOnce(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	for name, resource := range map[string]string{
		"too large":  `{"resourceType":"Observation","x":"` + strings.Repeat("a", 1<<20) + `"}`,
		"not JSON":   `{"resourceType":"Observation",`,
		"duplicates": `{"resourceType":"Observation","a":1,"a":2}`,
		"not UTF-8":  "{\"resourceType\":\"Observation\",\"a\":\"\xff\"}",
		"too deep":   `{"resourceType":"Observation","a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		"nothing":    ` `,
		"two values": `{"resourceType":"Observation"} {}`,
	} {
		i := create(p)
		i.Resource = []byte(resource)
		if _, err := b.Enqueue(context.Background(), i); record.CodeOf(err) != record.InvalidMessage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := number(t, w.path, "select count(*) from queue"); n != 0 {
		t.Errorf("%d rows", n)
	}
	// What just fits does.
	i := create(p)
	i.Resource = []byte(`{"resourceType":"Observation","x":"` + strings.Repeat("a", 1<<20-len(`{"resourceType":"Observation","x":""}`)) + `"}`)
	e := expect(t, b, enqueue(t, b, i)[0], Pending, "")
	if _, err := e.Intent(b.o.Limits); err != nil {
		t.Error(err)
	}
}

// The bytes stored are the bytes sent, each time, white space and escapes included.
func TestF5TheSameBytesAreSentEachTime(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	i := create(p)
	i.Resource = []byte("{\"status\" : \"final\",\n\t\"resourceType\":\"Observation\", \"code\":{\"text\":\"\\u0078 \\/ é\"}, \"subject\":{\"reference\":\"Patient/" + p + "\"},\"valueQuantity\":{\"value\":1.10e0}}")
	var mu sync.Mutex
	var bodies []string
	var keys, proofs []string
	lose := atomic.Int64{}
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		var body bytes.Buffer
		body.ReadFrom(r.Body)
		mu.Lock()
		bodies, keys, proofs = append(bodies, body.String()), append(keys, r.Header.Get("Idempotency-Key")), append(proofs, r.Header.Get("DPoP"))
		mu.Unlock()
		if lose.Add(1) <= 2 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		r.Body = http.NoBody
		clone := r.Clone(r.Context())
		clone.Body = readCloser{strings.NewReader(body.String())}
		h.ServeHTTP(rw, clone)
	})
	id := enqueue(t, b, i)[0]
	for range 3 {
		flushed(t, b)
	}
	if e := expect(t, b, id, Committed, ""); e.Attempts != 3 {
		t.Errorf("%d attempts", e.Attempts)
	}
	for n := range bodies {
		if bodies[n] != string(i.Resource) || keys[n] != `"`+id+`"` {
			t.Errorf("attempt %d sent %s %s", n, keys[n], bodies[n])
		}
		if n > 0 && proofs[n] == proofs[n-1] {
			t.Error("a proof was used twice")
		}
	}
	if len(bodies) != 3 {
		t.Errorf("%d requests", len(bodies))
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
