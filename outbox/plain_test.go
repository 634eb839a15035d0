package outbox

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/plainfhir"
)

// clinic is an ordinary FHIR server: a real Host behind a door that lets anybody in,
// makes every request a new operation, and keeps the receipts to itself.
type clinic struct {
	*httptest.Server
	lose atomic.Int64 // how many more answers to writes get lost
}

func (w *world) clinic(patient string) *clinic {
	w.t.Helper()
	c := &clinic{}
	var token, nonce atomic.Value
	inner := w.a.server.Client()
	watch := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if header := r.Header.Get("Authorization"); header != "" {
			token.Store(strings.TrimPrefix(header, "DPoP "))
		}
		answer, err := inner.Transport.RoundTrip(r)
		if err == nil {
			nonce.Store(answer.Header.Get("DPoP-Nonce"))
		}
		return answer, err
	})}
	ref := w.a.host.Ref()
	k, err := client.New(client.Config{Key: w.appKey, Host: &ref, HTTP: watch})
	must(w.t, err)
	_, err = k.Read(context.Background(), patient, "Patient", patient)
	must(w.t, err)
	c.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		path := strings.TrimPrefix(r.URL.RequestURI(), "/fhir")
		out, err := http.NewRequest(r.Method, ref.FHIRBase+path, bytes.NewReader(body))
		if err != nil {
			w.t.Error(err)
			return
		}
		out.Header = r.Header.Clone()
		base, _, _ := strings.Cut(ref.FHIRBase+path, "?")
		proof, err := record.NewProof(w.appKey, record.ProofParams{Method: r.Method, URL: base, AccessToken: token.Load().(string), Nonce: nonce.Load().(string)})
		if err != nil {
			w.t.Error(err)
		}
		out.Header.Set("Authorization", "DPoP "+token.Load().(string))
		out.Header.Set("DPoP", proof)
		out.Header.Set("Idempotency-Key", `"`+record.NewID()+`"`)
		out.Header.Set("Content-Digest", record.ContentDigest(body))
		answer, err := inner.Do(out)
		if err != nil {
			w.t.Error(err)
			return
		}
		defer answer.Body.Close()
		nonce.Store(answer.Header.Get("DPoP-Nonce"))
		if r.Method != http.MethodGet && c.lose.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header {
			if name != "Operation-Receipt" {
				rw.Header()[name] = values
			}
		}
		rw.WriteHeader(answer.StatusCode)
		io.Copy(rw, answer.Body)
	}))
	w.t.Cleanup(c.Close)
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Delivery to an ordinary FHIR server: the promise of record/plainfhir, through the
// queue.
func TestAnOrdinaryFHIRServer(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	c := w.clinic(p)
	own := w.client() // to look at what is there
	_, err := own.Locate(ctx, p)
	must(t, err)
	k, err := plainfhir.New(plainfhir.Config{Base: c.URL + "/fhir", Subject: w.appKey.ID(), HTTP: c.Client()})
	must(t, err)
	b := w.open(k, func(o *Options) { o.NoReceipts = true })
	count := func() (n int) {
		for _, err := range own.Search(ctx, p, "Observation", nil) {
			must(t, err)
			n++
		}
		return n
	}
	lost := func(id string) Entry {
		t.Helper()
		c.lose.Store(1)
		flushed(t, b)
		e := expect(t, b, id, Pending, record.TransportUnavailable)
		if !e.Unsure {
			t.Error("it is sure")
		}
		flushed(t, b)
		return e
	}
	// A creation whose answer was lost makes one resource.
	id := enqueue(t, b, create(p))[0]
	lost(id)
	made := expect(t, b, id, Committed, "")
	if n := count(); n != 1 || !made.Result.Replayed || made.Result.ID == "" || made.Result.Version != 1 || made.Result.Receipt != "" {
		t.Errorf("%d resources, %+v", n, made.Result)
	}
	update := func(value string, base int64) record.Intent {
		i := create(p)
		i.Operation, i.BaseVersion = record.UpdateResource, base
		i.Resource = []byte(strings.Replace(strings.Replace(string(i.Resource), "{", `{"id":"`+made.Result.ID+`",`, 1), "1.10", value, 1))
		return i
	}
	// An update whose answer was lost is settled by reading back.
	id = enqueue(t, b, update("1.20", 1))[0]
	lost(id)
	if e := expect(t, b, id, Committed, ""); !e.Result.Replayed || e.Result.Version != 2 {
		t.Errorf("%+v", e.Result)
	}
	// If somebody else writes in between, it cannot be told whether ours was done: it is a
	// conflict that says so.
	id = enqueue(t, b, update("1.30", 2))[0]
	c.lose.Store(1)
	flushed(t, b)
	_, err = own.Write(ctx, update("1.40", 3))
	must(t, err)
	flushed(t, b)
	if e := expect(t, b, id, Conflicted, record.VersionConflict); !e.Unsure {
		t.Error("nobody can be sure")
	}
	_, err = b.Rebase(ctx, id, 4, because)
	wantCode(t, err, QueueOutcomeUnknown)
	word := because
	word.Unsure = true
	id, err = b.Rebase(ctx, id, 4, word)
	must(t, err)
	flushed(t, b)
	if e := expect(t, b, id, Committed, ""); e.Result.Version != 5 {
		t.Errorf("%+v", e.Result)
	}
	// A real conflict, and one after another in a lane.
	ids := enqueue(t, b, update("1.50", 5), update("1.60", 6), update("1.70", 2))
	flushed(t, b)
	expect(t, b, ids[0], Committed, "")
	expect(t, b, ids[1], Committed, "")
	if e := expect(t, b, ids[2], Conflicted, record.VersionConflict); e.Unsure {
		t.Error("the server has judged its first attempt")
	}
	must(t, b.Discard(ctx, ids[2], because))
	// A deletion whose answer was lost.
	id = enqueue(t, b, record.Intent{Operation: record.DeleteResource, Patient: p, ResourceType: "Observation", ResourceID: made.Result.ID, BaseVersion: 7})[0]
	lost(id)
	if e := expect(t, b, id, Committed, ""); !e.Result.Replayed || count() != 0 {
		t.Errorf("%+v", e.Result)
	}
	if v, err := b.Verify(ctx); err != nil || len(v.Problems) > 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// Such a server's success is none for a queue that asks for receipts.
func TestF10AnOrdinaryServerGivesNoReceipts(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	c := w.clinic(p)
	k, err := plainfhir.New(plainfhir.Config{Base: c.URL + "/fhir", Subject: w.appKey.ID(), HTTP: c.Client()})
	must(t, err)
	b := w.open(k)
	id := enqueue(t, b, create(p))[0]
	flushed(t, b)
	expect(t, b, id, Pending, record.InvalidReceipt)
}
