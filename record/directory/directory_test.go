package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a Directory over real HTTP and TLS, with two admitted Hosts.
type world struct {
	t       *testing.T
	service *Service
	server  *httptest.Server
	client  Client
	now     time.Time
	a, b    *record.Key
	record  string
	address string
}

func newWorld(t *testing.T, database string, keys ...*record.Key) *world {
	w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), a: record.NewKey(), b: record.NewKey(), record: record.NewID()}
	if len(keys) == 0 {
		keys = []*record.Key{record.NewKey()}
	}
	var handler http.Handler
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	t.Cleanup(w.server.Close)
	var err error
	w.service, err = Open(context.Background(), Config{URL: w.server.URL + "/dir", Database: database, Keys: keys, Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.service.Close() })
	handler = w.service.Handler()
	w.client = Client{HTTP: w.server.Client()}
	w.address = w.service.Address(w.record)
	for _, key := range []*record.Key{w.a, w.b} {
		if err := w.service.AdmitHost(context.Background(), key.ID(), "host"); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func hostRef(key *record.Key) record.HostRef {
	return record.HostRef{ID: key.ID(), FHIRBase: "https://h-" + key.Public().Thumbprint()[:6] + ".example/fhir", Issuer: "https://h.example"}
}

func (w *world) publication(gen int64, prev string, to *record.Key) record.Publication {
	return record.Publication{Directory: w.service.config.URL, Address: w.address, Record: w.record, Generation: gen, Prev: prev,
		Host: hostRef(to), Reason: "test", IssuedAt: w.now.Unix(), Expires: w.now.Add(10 * time.Minute).Unix()}
}

func (w *world) publish(p record.Publication, signers ...*record.Key) (record.Location, error) {
	w.t.Helper()
	signed, err := record.SignPublication(signers, p)
	if err != nil {
		w.t.Fatal(err)
	}
	document, err := w.client.Publish(context.Background(), w.address, signed)
	if err != nil {
		return record.Location{}, err
	}
	l, err := record.VerifyLocation(document, w.service.Quorum())
	if err != nil {
		w.t.Fatalf("the Directory's own document: %v", err)
	}
	return l, nil
}

// chain publishes n generations, alternating between the two Hosts.
func (w *world) chain(n int) (all []record.Location) {
	w.t.Helper()
	keys := []*record.Key{w.a, w.b}
	prev := ""
	for gen := 1; gen <= n; gen++ {
		to := keys[(gen-1)%2]
		signers := []*record.Key{to}
		if gen > 1 {
			signers = keys
		}
		l, err := w.publish(w.publication(int64(gen), prev, to), signers...)
		if err != nil {
			w.t.Fatal(err)
		}
		prev = l.Hash()
		all = append(all, l)
	}
	return all
}

func (w *world) pin() Pin { return Pin{w.service.config.URL, w.service.Quorum()} }

func TestPublish(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		w := newWorld(t, url)
		if _, err := w.client.Document(context.Background(), w.address); !errors.Is(err, record.NotFound) {
			t.Errorf("an unpublished record: %v", err)
		}
		first := w.publication(1, "", w.a)
		if _, err := w.publish(first, w.b); !errors.Is(err, record.PublisherNotAuthorized) {
			t.Errorf("signed by another Host: %v", err)
		}
		stranger := record.NewKey()
		if _, err := w.publish(w.publication(1, "", stranger), stranger); !errors.Is(err, record.PublisherNotAuthorized) {
			t.Errorf("a Host that is not admitted: %v", err)
		}
		one, err := w.publish(first, w.a)
		if err != nil || one.Generation != 1 || one.Host.ID != w.a.ID() {
			t.Fatalf("%+v, %v", one, err)
		}
		if again, err := w.publish(first, w.a); err != nil || again.Hash() != one.Hash() {
			t.Errorf("the same publication again: %v", err)
		}
		// The move needs both Hosts, the right generation and the right hash.
		for name, c := range map[string]struct {
			p       record.Publication
			signers []*record.Key
			code    record.Code
		}{
			"only the new Host":  {w.publication(2, one.Hash(), w.b), []*record.Key{w.b}, record.PublisherNotAuthorized},
			"only the old Host":  {w.publication(2, one.Hash(), w.b), []*record.Key{w.a}, record.PublisherNotAuthorized},
			"wrong generation":   {w.publication(3, one.Hash(), w.b), []*record.Key{w.a, w.b}, record.PublicationConflict},
			"wrong hash":         {w.publication(2, "x", w.b), []*record.Key{w.a, w.b}, record.PublicationConflict},
			"generation 1 again": {w.publication(1, "", w.b), []*record.Key{w.a, w.b}, record.PublicationConflict},
		} {
			if _, err := w.publish(c.p, c.signers...); record.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, alter := range map[string]func(*record.Publication){
			"directory": func(p *record.Publication) { p.Directory = "https://other" },
			"address":   func(p *record.Publication) { p.Address += "x" },
			"record":    func(p *record.Publication) { p.Record = record.NewID() },
			"host URL":  func(p *record.Publication) { p.Host.FHIRBase = "x" },
			"expired":   func(p *record.Publication) { p.Expires = w.now.Unix() },
			"future":    func(p *record.Publication) { p.IssuedAt = w.now.Add(time.Hour).Unix() },
			"long":      func(p *record.Publication) { p.Expires = w.now.Add(24 * time.Hour).Unix() },
			"reason":    func(p *record.Publication) { p.Reason = strings.Repeat("x", 201) },
		} {
			p := w.publication(2, one.Hash(), w.b)
			alter(&p)
			if _, err := w.publish(p, w.a, w.b); !errors.Is(err, record.InvalidMessage) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := w.client.Publish(context.Background(), w.address, strings.Repeat("x", maxPublication+1)); !errors.Is(err, record.InvalidMessage) {
			t.Errorf("a large body: %v", err)
		}
		two, err := w.publish(w.publication(2, one.Hash(), w.b), w.a, w.b)
		if err != nil || two.Prev != one.Hash() {
			t.Fatalf("%+v, %v", two, err)
		}
		log, err := w.client.Log(context.Background(), w.address, 0, 2)
		if err != nil || len(log) != 2 {
			t.Errorf("log %d, %v", len(log), err)
		}
	})
}

// Of many who publish the next generation at once, one succeeds.
func TestPublishRace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		w := newWorld(t, url)
		one := w.chain(1)[0]
		var wg sync.WaitGroup
		results := make(chan error, 16)
		for i := range 16 {
			wg.Go(func() {
				p := w.publication(2, one.Hash(), w.b)
				p.Reason = fmt.Sprint("racer ", i)
				signed, _ := record.SignPublication([]*record.Key{w.a, w.b}, p)
				_, err := w.client.Publish(context.Background(), w.address, signed)
				results <- err
			})
		}
		wg.Wait()
		close(results)
		won := 0
		for err := range results {
			if err == nil {
				won++
			} else if !errors.Is(err, record.PublicationConflict) && !errors.Is(err, record.PublisherNotAuthorized) {
				t.Errorf("a loser got %v", err)
			}
		}
		if won != 1 {
			t.Errorf("%d publications of one generation", won)
		}
	})
}

func TestOverrideAndHosts(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t))
	ctx := context.Background()
	one := w.chain(1)[0]
	signed, _ := record.SignPublication([]*record.Key{w.b}, w.publication(2, one.Hash(), w.b))
	if _, err := w.service.Override(ctx, signed); err != nil {
		t.Fatal(err)
	}
	if err := w.service.RemoveHost(ctx, w.b.ID()); err != nil {
		t.Fatal(err)
	}
	if err := w.service.RemoveHost(ctx, w.b.ID()); !errors.Is(err, record.NotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if err := w.service.AdmitHost(ctx, "x", ""); !errors.Is(err, record.InvalidMessage) {
		t.Errorf("a bad id: %v", err)
	}
	hosts, err := w.service.Hosts(ctx)
	if err != nil || len(hosts) != 1 || hosts[0].ID != w.a.ID() {
		t.Errorf("%v, %v", hosts, err)
	}
}

// A document is signed again before it expires, and says the same.
func TestSignedAgain(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t))
	one := w.chain(1)[0]
	w.now = w.now.Add(5 * 24 * time.Hour)
	document, err := w.client.Document(context.Background(), w.address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := record.VerifyLocation(document, w.service.Quorum())
	if err != nil || l.Hash() != one.Hash() || l.Expires != w.now.Add(7*24*time.Hour).Unix() {
		t.Errorf("%+v, %v", l, err)
	}
	if again, _ := w.client.Document(context.Background(), w.address); again != document {
		t.Error("signed at every request")
	}
}

func TestThreshold(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t), record.NewKey(), record.NewKey(), record.NewKey())
	w.chain(3)
	trust, err := OpenTrust(filepath.Join(t.TempDir(), "trust"), w.pin(), func() time.Time { return w.now })
	if err != nil {
		t.Fatal(err)
	}
	document, err := w.client.Document(context.Background(), w.address)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := trust.Accept(context.Background(), document, w.address, 1, w.client.Log); err != nil || l.Generation != 3 {
		t.Errorf("%+v, %v", l, err)
	}
	// One of the keys alone is not believed.
	l, err := record.VerifyLocation(document, w.service.Quorum())
	if err != nil {
		t.Fatal(err)
	}
	forged, _ := record.SignLocation(w.service.config.Keys[:1], l)
	if _, err := trust.Accept(context.Background(), forged, w.address, 1, w.client.Log); !errors.Is(err, record.InvalidDiscovery) {
		t.Errorf("one key of three: %v", err)
	}
}

func TestHandlerAnswers(t *testing.T) {
	w := newWorld(t, dbtest.SQLite(t))
	w.chain(1)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/keys": 200, "/records/" + w.record: 200, "/records/" + w.record + "/log": 200,
		"/records/" + w.record + "/log?after=-1": 400, "/records/x": 404, "/records/x/log": 404, "/x": 404} {
		answer, err := w.client.HTTP.Get(w.service.config.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
		if want >= 400 && path != "/x" && answer.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s", path, answer.Header.Get("Content-Type"))
		}
	}
	w.service.Close()
	answer, err := w.client.HTTP.Get(w.service.config.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("not ready: %d", answer.StatusCode)
	}
}

func TestOpenRefusals(t *testing.T) {
	for name, c := range map[string]Config{
		"no URL": {Keys: []*record.Key{record.NewKey()}}, "no keys": {URL: "https://d"}, "slash": {URL: "https://d/", Keys: []*record.Key{record.NewKey()}},
		"threshold": {URL: "https://d", Keys: []*record.Key{record.NewKey()}, Threshold: 2}, "lifetime": {URL: "https://d", Keys: []*record.Key{record.NewKey()}, Lifetime: time.Second},
	} {
		c.Database = dbtest.SQLite(t)
		if _, err := Open(context.Background(), c); err == nil {
			t.Errorf("%s passes", name)
		}
		if _, err := os.Stat(c.Database); err == nil {
			t.Errorf("%s: a database was made", name)
		}
	}
}

func TestFolderAndPin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	c, err := InDir(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := InDir(dir, 2)
	if err != nil || again.Keys[1].ID() != c.Keys[1].ID() {
		t.Fatalf("other keys: %v", err)
	}
	if _, err := InDir(dir, 0); err == nil {
		t.Error("no keys pass")
	}
	w := newWorld(t, dbtest.SQLite(t), c.Keys...)
	answer, err := w.client.HTTP.Get(w.service.config.URL + "/keys")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pin.json")
	os.WriteFile(path, data, 0o600)
	pin, err := LoadPin(path)
	if err != nil || pin.Directory != w.service.config.URL || pin.Threshold != 2 || !pin.Keys[0].Equal(w.service.Pin().Keys[0]) {
		t.Errorf("%+v, %v", pin, err)
	}
	os.WriteFile(path, []byte(`{"directory":"https://d"}`), 0o600)
	if _, err := LoadPin(path); err == nil {
		t.Error("a pin without keys passes")
	}
}
