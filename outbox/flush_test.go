package outbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/plainfhir"
)

var _ Client = (*plainfhir.Client)(nil)

func strict(o *Options) { o.Strict = true }
func manual(o *Options) { o.ManualMoves = true }

func TestF1OneAtATime(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	b := w.open(k)
	enqueue(t, b, create(p))
	inside, release := make(chan struct{}), make(chan struct{})
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		close(inside)
		<-release
		h.ServeHTTP(rw, r)
	})
	end := make(chan error, 1)
	go func() { _, err := b.Flush(ctx); end <- err }()
	<-inside
	_, err := b.Flush(ctx)
	wantCode(t, err, QueueWorkerBusy)
	wantCode(t, b.Close(), QueueWorkerBusy)
	document, address := w.document(k, p)
	wantCode(t, b.FollowMigration(ctx, p, document, address), QueueWorkerBusy)
	close(release)
	must(t, <-end)
	w.a.unwrap()
	must(t, b.FollowMigration(ctx, p, document, address))
	if r := flushed(t, b); r.Sent != 0 {
		t.Errorf("%+v", r)
	}
}

func TestF2LanesAreInOrderAndDoNotBlockEachOther(t *testing.T) {
	w := newWorld(t)
	p, q := w.patient(), w.patient()
	k := w.client()
	b := w.open(k, func(o *Options) { o.Parallel = 2 })
	var all, mine []string
	for range 40 { // more than a batch
		all = append(all, enqueue(t, b, create(p))...)
	}
	blocked := enqueue(t, b, rename(q, "Ada", 7), create(q)) // the Patient is of version 1
	mine = enqueue(t, b, create(p))
	r := flushed(t, b)
	if r.Committed != 41 || r.Sent != 42 || len(r.Stops) != 1 {
		t.Fatalf("%+v", r)
	}
	if s := r.Stops[0]; s.Patient != q || s.OperationID != blocked[0] || s.State != Conflicted || s.Code != record.VersionConflict {
		t.Errorf("%+v", s)
	}
	seqs := w.done(k, p, append(all, mine...)...)
	if !slices.IsSorted(seqs) {
		t.Errorf("the order at the Host is %v", seqs)
	}
	expect(t, b, blocked[0], Conflicted, record.VersionConflict)
	if e := expect(t, b, blocked[1], Pending, ""); e.Attempts != 0 {
		t.Error("it went past the blocked one")
	}
	// Each state but pending stops a lane.
	for _, state := range []State{Conflicted, Rejected, Quarantined} {
		execSQL(t, w.path, "update queue set "+setState(state)+" where operation_id = '"+blocked[0]+"'")
		if r := flushed(t, b); r.Sent != 0 || len(r.Stops) != 1 || r.Stops[0].State != state {
			t.Errorf("%s: %+v", state, r)
		}
	}
}

func TestF2StrictIsOneLane(t *testing.T) {
	w := newWorld(t)
	p, q := w.patient(), w.patient()
	b := w.open(w.client(), strict)
	first := enqueue(t, b, create(p), create(q), rename(q, "Ada", 7), create(p))
	r := flushed(t, b)
	if r.Committed != 2 || len(r.Stops) != 1 || r.Stops[0].OperationID != first[2] {
		t.Fatalf("%+v", r)
	}
	expect(t, b, first[3], Pending, "")
	must(t, b.Discard(context.Background(), first[2], Change{Reason: "test"}))
	if r := flushed(t, b); r.Committed != 1 || len(r.Stops) != 0 {
		t.Errorf("%+v", r)
	}
}

// Lanes are sent side by side, as many as are allowed and no more, and within a
// lane never two at once.
func TestF2LanesSideBySide(t *testing.T) {
	w := newWorld(t)
	b := w.open(w.client(), func(o *Options) { o.Parallel = 3 })
	for range 6 {
		p := w.patient()
		enqueue(t, b, create(p), create(p))
	}
	var now, most atomic.Int64
	var mu sync.Mutex
	inLane := map[string]int{}
	full := make(chan struct{})
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		n := now.Add(1)
		defer now.Add(-1)
		if most.Load() < n {
			most.Store(n)
		}
		lane := r.Header.Get("Authorization")
		mu.Lock()
		inLane[lane]++
		if inLane[lane] > 1 {
			t.Error("two writes of a lane at once")
		}
		mu.Unlock()
		if n == 3 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		<-full // the first three wait for each other
		h.ServeHTTP(rw, r)
		mu.Lock()
		inLane[lane]--
		mu.Unlock()
	})
	if r := flushed(t, b); r.Committed != 12 {
		t.Errorf("%+v", r)
	}
	if most.Load() != 3 {
		t.Errorf("%d at once", most.Load())
	}
}

func TestF3SubmittedIsOnDiskBeforeAnythingIsSent(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	ids := enqueue(t, b, create(p), create(p))
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		id := strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
		if n := number(t, w.path, "select count(*) from queue where state = 'submitted' and operation_id = '"+id+"'"); n != 1 {
			t.Errorf("%s was sent and is not submitted", id)
		}
		h.ServeHTTP(rw, r)
	})
	if r := flushed(t, b); r.Committed != 2 {
		t.Errorf("%+v", r)
	}
	expect(t, b, ids[1], Committed, "")
}

func TestF4AnotherHostThanTheRoutesGetsNothing(t *testing.T) {
	w := newWorld(t)
	p, q := w.patient(), w.patient()
	k := w.client()
	b := w.open(k, manual)
	enqueue(t, b, create(p))
	flushed(t, b)
	ids := enqueue(t, b, create(p), create(q))
	w.move(p)
	_, err := k.Locate(context.Background(), p)
	must(t, err)
	was := w.b.writes.Load()
	r := flushed(t, b)
	if r.Committed != 1 || len(r.Stops) != 1 || r.Stops[0].Code != QueueRouteUpdateRequired {
		t.Errorf("%+v", r)
	}
	if e := expect(t, b, ids[0], Pending, QueueRouteUpdateRequired); e.Attempts != 0 || e.Unsure {
		t.Errorf("%+v", e)
	}
	if w.b.writes.Load() != was {
		t.Error("the new Host got something")
	}
}

func TestF6SuccessIsCommittedWithTheResult(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	b := w.open(k)
	i := create(p)
	i.Resource = []byte(strings.Replace(string(i.Resource), "{", `{"id":"`+record.NewID()+`",`, 1))
	request, err := i.Request(record.Limits{})
	must(t, err)
	id := request.ID
	update := record.Intent{Operation: record.UpdateResource, Patient: p, OperationID: record.NewID(), BaseVersion: 1, Resource: i.Resource}
	remove := record.Intent{Operation: record.DeleteResource, Patient: p, OperationID: record.NewID(), BaseVersion: 2, ResourceType: "Observation", ResourceID: id}
	lab := create(p)
	lab.Operation = record.CreateLab
	lab.Resource = []byte(strings.Replace(string(lab.Resource), "{", `{"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"laboratory"}]}],`, 1))
	ids := enqueue(t, b, i, update, remove, lab, rename(p, "Ada", 1))
	if r := flushed(t, b); r.Committed != 5 {
		t.Fatalf("%+v", r)
	}
	for n, want := range []record.Result{{Type: "Observation", ID: id, Version: 1, Status: 201}, {Type: "Observation", ID: id, Version: 2, Status: 200},
		{Type: "Observation", ID: id, Version: 3, Status: 204}, {Type: "Observation", Version: 1, Status: 201}, {Type: "Patient", ID: p, Version: 2, Status: 200}} {
		e := expect(t, b, ids[n], Committed, "")
		got := *e.Result
		receipt, err := record.VerifyReceipt(got.Receipt, w.a.host.ID())
		if err != nil || receipt.Operation != ids[n] {
			t.Errorf("%v", err)
		}
		if got.Receipt = ""; want.ID == "" {
			got.ID = ""
		}
		if got != want || e.Unsure {
			t.Errorf("entry %d: %+v, want %+v", n, got, want)
		}
	}
}

// The table of the specification, written down again.
const (
	conflictedCodes = `version_conflict operation_id_conflict`
	rejectedCodes   = `insufficient_scope invalid_token wrong_token_holder authorization_expired_or_revoked representative_not_authorized authorization_expired
		invalid_message invalid_lab_category not_found resource_deleted unsupported_resource_type invalid_resource invalid_resource_id
		invalid_resource_code invalid_resource_status wrong_resource_patient unsupported_resource_content external_validation_rejected`
)

func stateOf(code record.Code) State {
	switch {
	case slices.Contains(strings.Fields(conflictedCodes), string(code)):
		return Conflicted
	case slices.Contains(strings.Fields(rejectedCodes), string(code)):
		return Rejected
	}
	return Pending
}

func TestF7TheTableOfCodes(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client(), manual)
	enqueue(t, b, create(p))
	flushed(t, b) // a token is there
	rows := 0
	for _, info := range record.Codes() {
		if info.Status == 0 {
			continue
		}
		rows++
		id := enqueue(t, b, create(p))[0]
		w.a.code(info.Code, "Retry-After", "7")
		r := flushed(t, b)
		want := stateOf(info.Code)
		if len(r.Stops) != 1 || r.Stops[0].State != want || r.Stops[0].Code != info.Code || r.Stops[0].OperationID != id || r.Stops[0].RetryAfter != 7*time.Second {
			t.Errorf("%s: %+v", info.Code, r)
		}
		expect(t, b, id, want, info.Code)
		w.a.unwrap()
		if want != Pending {
			if r := flushed(t, b); r.Sent != 0 {
				t.Errorf("%s: sent again by itself", info.Code)
			}
			must(t, b.Retry(context.Background(), id, Change{Reason: "test"}))
		}
		if r := flushed(t, b); r.Committed != 1 {
			t.Errorf("%s, afterwards: %+v", info.Code, r)
		}
		expect(t, b, id, Committed, "")
	}
	if rows < 25 {
		t.Errorf("only %d rows", rows)
	}
}

// Codes that no answer of a Host can bring, and such as nobody knows.
func TestF7TheClientsOwnCodes(t *testing.T) {
	w := newWorld(t)
	f := &fake{subject: w.appKey.ID(), host: "h"}
	b := w.open(f)
	for _, code := range []record.Code{record.InvalidReceipt, record.TransportUnavailable, record.InvalidDiscovery, record.WrongDiscoveryPatient,
		record.DirectoryEquivocation, record.DiscoveryExpired, "no_such_code"} {
		f.write = func(context.Context, record.Intent) (record.Result, error) {
			return record.Result{}, fmt.Errorf("wrapped: %w", &record.Error{Code: code, Field: "here", Detail: "why", Err: errors.New("secret")})
		}
		id := enqueue(t, b, create(record.NewID()))[0]
		flushed(t, b)
		e := expect(t, b, id, Pending, code)
		if e.Detail != "here: why" {
			t.Errorf("the detail is %q", e.Detail)
		}
	}
}

func TestF8WhatIsNoProtocolErrorIsTransportUnavailable(t *testing.T) {
	w := newWorld(t)
	f := &fake{subject: w.appKey.ID(), host: "h"}
	b := w.open(f)
	f.write = func(context.Context, record.Intent) (record.Result, error) {
		return record.Result{}, errors.New("Authorization: DPoP secret")
	}
	id := enqueue(t, b, create(record.NewID()))[0]
	flushed(t, b)
	if e := expect(t, b, id, Pending, record.TransportUnavailable); e.Detail != "" || !e.Unsure {
		t.Errorf("%+v", e)
	}
}

// F8 and F10 with what may come back in the place of a Host's answer. Nothing of it
// is believed, and the same operation is done once afterwards.
func TestF8AndF10HostileAnswers(t *testing.T) {
	done := func(change func(rec *httptest.ResponseRecorder)) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			change(rec)
			for name, values := range rec.Header() {
				rw.Header()[name] = values
			}
			rw.WriteHeader(rec.Code)
			rw.Write(rec.Body.Bytes())
		}
	}
	answer := func(status int, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
			rw.WriteHeader(status)
			rw.Write([]byte(body))
		}
	}
	for name, c := range map[string]struct {
		serve func(http.ResponseWriter, *http.Request, http.Handler)
		code  record.Code
		state State
	}{
		"F10 done, but no receipt": {done(func(rec *httptest.ResponseRecorder) { rec.Header().Del("Operation-Receipt") }), record.InvalidReceipt, Pending},
		"F10 an altered receipt": {done(func(rec *httptest.ResponseRecorder) {
			rec.Header().Set("Operation-Receipt", rec.Header().Get("Operation-Receipt")+"A")
		}), record.InvalidReceipt, Pending},
		"F10 200 without receipt":    {answer(200, `{}`), record.InvalidReceipt, Pending},
		"F10 200 with an error body": {answer(200, `{"code":"version_conflict"}`), record.InvalidReceipt, Pending},
		"F10 204":                    {answer(204, ``), record.InvalidReceipt, Pending},
		"409 without a code":         {answer(409, ``), record.TransportUnavailable, Pending},
		"412 without a code":         {answer(412, `<html>version_conflict</html>`), record.TransportUnavailable, Pending},
		"422 with a foreign code":    {answer(422, `{"code":"x"}`), record.TransportUnavailable, Pending},
		"garbage":                    {answer(400, "\xff\x00{"), record.TransportUnavailable, Pending},
		"412 with the code":          {answer(412, `{"code":"version_conflict"}`), record.VersionConflict, Conflicted},
		"the answer is lost":         {done(func(*httptest.ResponseRecorder) { panic(http.ErrAbortHandler) }), record.TransportUnavailable, Pending},
		"closes in the middle": {func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
			rw.Header().Set("Content-Length", "10")
			rw.Write([]byte("x"))
			panic(http.ErrAbortHandler)
		}, record.TransportUnavailable, Pending},
		"hangs": {func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			r.Body.Read(make([]byte, 1<<20))
			<-r.Context().Done()
		}, record.TransportUnavailable, Pending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.patient()
			k := w.client(func(c *client.Config) { c.Timeout = time.Second })
			b := w.open(k)
			enqueue(t, b, create(p))
			flushed(t, b)
			id := enqueue(t, b, create(p))[0]
			w.a.instead(c.serve)
			flushed(t, b)
			e := expect(t, b, id, c.state, c.code)
			if e.Unsure != (c.state == Pending) {
				t.Errorf("unsure is %v", e.Unsure)
			}
			w.a.unwrap()
			if c.state != Pending {
				must(t, b.Retry(context.Background(), id, Change{Reason: "test"}))
			}
			flushed(t, b)
			expect(t, b, id, Committed, "")
			if seqs := w.done(k, p, id); seqs[0] != 3 { // the Patient, and one before
				t.Errorf("it is write %d of the record: something was done twice", seqs[0])
			}
		})
	}
}

// A client that neither answers nor heeds its context does not hold up the queue
// beyond the deadline.
func TestF8AHangingTransport(t *testing.T) {
	w := newWorld(t)
	f := &fake{subject: w.appKey.ID(), host: "h"}
	release := make(chan struct{})
	defer close(release)
	f.write = func(context.Context, record.Intent) (record.Result, error) { <-release; return record.Result{}, nil }
	b := w.open(f, func(o *Options) { o.RequestTimeout = 10 * time.Millisecond })
	id := enqueue(t, b, create(record.NewID()))[0]
	flushed(t, b)
	expect(t, b, id, Pending, record.TransportUnavailable)
}

func TestF10AClientsSuccessNeedsAReceipt(t *testing.T) {
	w := newWorld(t)
	key := record.NewKey()
	i := create(record.NewID())
	r, err := i.Request(record.Limits{})
	must(t, err)
	good := record.Receipt{Host: key.ID(), Record: i.Patient, Client: w.appKey.ID(), Operation: i.OperationID, Fingerprint: record.Fingerprint(r.Method, r.Path, r.IfMatch, r.Body),
		Method: "POST", Type: "Observation", ID: "x", Version: 1, Status: 201, Seq: 1, IssuedAt: 1}
	sign := func(change func(*record.Receipt)) string {
		r := good
		change(&r)
		signed, err := record.SignReceipt(key, r)
		must(t, err)
		return signed
	}
	f := &fake{subject: w.appKey.ID(), host: key.ID()}
	b := w.open(f)
	enqueue(t, b, i)
	for _, receipt := range []string{"", "x", sign(func(r *record.Receipt) { r.Operation = record.NewID() }), sign(func(r *record.Receipt) { r.Fingerprint = "x" }),
		sign(func(r *record.Receipt) { r.Client = key.ID() }), sign(func(r *record.Receipt) { r.Record = record.NewID() })} {
		f.write = func(context.Context, record.Intent) (record.Result, error) {
			return record.Result{Receipt: receipt}, nil
		}
		flushed(t, b)
		expect(t, b, i.OperationID, Pending, record.InvalidReceipt)
	}
	f.write = func(context.Context, record.Intent) (record.Result, error) {
		return record.Result{Receipt: sign(func(*record.Receipt) {})}, nil
	}
	flushed(t, b)
	expect(t, b, i.OperationID, Committed, "")
	// Servers that know no receipts are believed only where that was asked for.
	b.o.NoReceipts = true
	f.write = func(context.Context, record.Intent) (record.Result, error) { return record.Result{ID: "x"}, nil }
	id := enqueue(t, b, create(record.NewID()))[0]
	flushed(t, b)
	expect(t, b, id, Committed, "")
}

// An outcome that cannot be written down (crash point 12) is taken up by the next
// flush of the same process.
func TestF9NothingStaysSubmitted(t *testing.T) {
	for name, fail := range map[string]string{
		"success": `create trigger fail before update on queue when new.state = 'committed' begin select raise(abort, 'no'); end`,
		"failure": `create trigger fail before update on queue when new.error = 'record_frozen' begin select raise(rollback, 'no'); end`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.patient()
			k := w.client()
			b := w.open(k)
			if name == "failure" {
				enqueue(t, b, create(p))
				flushed(t, b)
				w.a.code(record.RecordFrozen)
			}
			id := enqueue(t, b, create(p))[0]
			execSQL(t, w.path, fail)
			if _, err := b.Flush(context.Background()); err == nil {
				t.Error("the flush tells nothing")
			}
			expect(t, b, id, Submitted, "")
			execSQL(t, w.path, "drop trigger fail")
			w.a.unwrap()
			if r := flushed(t, b); r.Committed != 1 {
				t.Errorf("%+v", r)
			}
			e := expect(t, b, id, Committed, "")
			if e.Result.Replayed != (name == "success") {
				t.Errorf("%+v", e.Result)
			}
		})
	}
}

func TestF9AFullDisk(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	b := w.open(k)
	var ids []string
	for range 40 {
		ids = append(ids, enqueue(t, b, create(p))...)
	}
	limit := func(sql string) {
		t.Helper()
		must(t, b.file.Write(context.Background(), "test", func(c *sqlitefile.Conn) error { return c.Exec(sql) }))
	}
	limit("PRAGMA max_page_count = 1") // as many as there are
	_, err := b.Flush(context.Background())
	if !errors.Is(err, sqlitefile.ErrFull) {
		t.Fatalf("%v", err)
	}
	// Enqueue says so too, and what it has said no to is not there.
	full := create(p)
	full.Resource = []byte(strings.Replace(string(full.Resource), "{", `{"x":"`+strings.Repeat("a", 100_000)+`",`, 1))
	if _, err := b.Enqueue(context.Background(), full); !errors.Is(err, sqlitefile.ErrFull) {
		t.Errorf("%v", err)
	}
	limit("PRAGMA max_page_count = 1000000")
	flushed(t, b)
	for _, id := range ids {
		expect(t, b, id, Committed, "")
	}
	if seqs := w.done(k, p, ids...); !slices.IsSorted(seqs) || seqs[39] != 41 {
		t.Errorf("%v", seqs)
	}
}

// The context's end cuts off what runs; its entry is pending, and nothing is begun.
func TestFlushEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	ids := enqueue(t, b, create(p), create(p))
	ctx, cancel := context.WithCancel(context.Background())
	w.a.instead(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		r.Body.Read(make([]byte, 1<<20))
		cancel()
		<-r.Context().Done()
	})
	if _, err := b.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	expect(t, b, ids[0], Pending, record.TransportUnavailable)
	expect(t, b, ids[1], Pending, "")
	w.a.unwrap()
	if r := flushed(t, b); r.Committed != 2 {
		t.Errorf("%+v", r)
	}
}

// An entry that is not what was enqueued is set aside and never sent.
func TestAnAlteredEntryIsQuarantined(t *testing.T) {
	for name, change := range map[string]string{
		"content":   `intent = replace(intent, '1.10', '1.20')`,
		"operation": `operation_id = '` + record.NewID() + `'`,
		"no JSON":   `intent = '{'`,
		"digest":    `digest = 'x'`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.patient()
			b := w.open(w.client())
			enqueue(t, b, create(p), create(p))
			execSQL(t, w.path, "update queue set "+change+" where sequence = 1")
			r := flushed(t, b)
			if r.Sent != 0 || len(r.Stops) != 1 || r.Stops[0].State != Quarantined || r.Stops[0].Code != QueueEntryAltered {
				t.Errorf("%+v", r)
			}
			if w.a.writes.Load() != 0 {
				t.Error("it was sent")
			}
			id := r.Stops[0].OperationID
			wantCode(t, b.Retry(context.Background(), id, Change{Reason: "x"}), QueueStateConflict)
			if _, err := b.Replace(context.Background(), id, create(p), Change{Reason: "x"}); err != nil {
				t.Error(err)
			}
			if r := flushed(t, b); r.Committed != 2 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// No token, header or private key is ever in the file.
func TestNoSecretsInTheFile(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client())
	var secrets []string
	var mu sync.Mutex
	w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		mu.Lock()
		secrets = append(secrets, strings.TrimPrefix(r.Header.Get("Authorization"), "DPoP "), r.Header.Get("DPoP"))
		mu.Unlock()
		h.ServeHTTP(rw, r)
	})
	enqueue(t, b, create(p), rename(p, "Ada", 9))
	flushed(t, b)
	if len(secrets) != 4 || secrets[0] == "" {
		t.Fatal("nothing to look for")
	}
	for _, name := range []string{w.path, w.path + "-wal"} {
		data := readFile(t, name)
		if len(data) == 0 {
			t.Errorf("%s is empty", name)
		}
		for _, s := range append(secrets, "DPoP", `"d":`) {
			if strings.Contains(data, s) {
				t.Errorf("%s holds %.20s…", name, s)
			}
		}
	}
}
