// Package dirtest gives tests a real Directory over HTTP and TLS.
package dirtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/directory/service"
)

// World is a Directory over real HTTP and TLS, with two admitted Hosts.
type World struct {
	t       *testing.T
	URL     string
	Keys    []*record.Key
	Service *service.Service
	Client  directory.Client
	Now     time.Time
	A, B    *record.Key
	Record  string
	Address string
}

// New makes a Directory on a database, with keys or one of its own.
func New(t *testing.T, database string, keys ...*record.Key) *World {
	w := &World{t: t, Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), A: record.NewKey(), B: record.NewKey(), Record: record.NewID()}
	if len(keys) == 0 {
		keys = []*record.Key{record.NewKey()}
	}
	w.Keys = keys
	var handler http.Handler
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	t.Cleanup(server.Close)
	w.URL = server.URL + "/dir"
	var err error
	w.Service, err = service.Open(context.Background(), service.Config{URL: w.URL, Database: database, Keys: keys, Now: func() time.Time { return w.Now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Service.Close() })
	handler = w.Service.Handler()
	w.Client = directory.Client{HTTP: server.Client()}
	w.Address = w.Service.Address(w.Record)
	for _, key := range []*record.Key{w.A, w.B} {
		if err := w.Service.AdmitHost(context.Background(), key.ID(), "host"); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// HostRef makes up a Host of a key.
func HostRef(key *record.Key) record.HostRef {
	return record.HostRef{ID: key.ID(), FHIRBase: "https://h-" + key.Public().Thumbprint()[:6] + ".example/fhir", Issuer: "https://h.example"}
}

// Publication prepares one.
func (w *World) Publication(gen int64, prev string, to *record.Key) record.Publication {
	return record.Publication{Directory: w.URL, Address: w.Address, Record: w.Record, Generation: gen, Prev: prev,
		Host: HostRef(to), Reason: "test", IssuedAt: w.Now.Unix(), Expires: w.Now.Add(10 * time.Minute).Unix()}
}

// Publish signs a publication, sends it over HTTP and reads the answer.
func (w *World) Publish(p record.Publication, signers ...*record.Key) (record.Location, error) {
	w.t.Helper()
	signed, err := record.SignPublication(signers, p)
	if err != nil {
		w.t.Fatal(err)
	}
	document, err := w.Client.Publish(context.Background(), w.Address, signed)
	if err != nil {
		return record.Location{}, err
	}
	l, err := record.VerifyLocation(document, w.Service.Quorum())
	if err != nil {
		w.t.Fatalf("the Directory's own document: %v", err)
	}
	return l, nil
}

// Chain publishes n generations, alternating between the two Hosts.
func (w *World) Chain(n int) (all []record.Location) {
	w.t.Helper()
	keys := []*record.Key{w.A, w.B}
	prev := ""
	for gen := 1; gen <= n; gen++ {
		to := keys[(gen-1)%2]
		signers := []*record.Key{to}
		if gen > 1 {
			signers = keys
		}
		l, err := w.Publish(w.Publication(int64(gen), prev, to), signers...)
		if err != nil {
			w.t.Fatal(err)
		}
		prev = l.Hash()
		all = append(all, l)
	}
	return all
}

// Pin is what clients pin.
func (w *World) Pin() directory.Pin { return w.Service.Pin() }
