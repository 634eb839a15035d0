package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/directory/service"
	"github.com/eda94727/holdfast/record/host"
)

// world is a real Directory and a real Host over TLS, with one record, and a
// place between client and Host where a test can interfere.
type world struct {
	t         *testing.T
	directory *service.Service
	host      *host.Host
	hostKey   *record.Key
	server    *httptest.Server
	pin       directory.Pin
	record    string
	grant     string
	key       *record.Key
	state     string
	between   atomic.Value // func(http.Handler) http.Handler
	requests  atomic.Int64
	last      *Client // that was opened, to make room for the next
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := context.Background()
	w := &world{t: t, key: record.NewKey(), hostKey: record.NewKey(), state: t.TempDir()}
	var dirHandler, hostHandler atomic.Value
	dirServer := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { dirHandler.Load().(http.Handler).ServeHTTP(rw, r) }))
	t.Cleanup(dirServer.Close)
	w.through(func(h http.Handler) http.Handler { return h })
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.requests.Add(1)
		w.between.Load().(func(http.Handler) http.Handler)(hostHandler.Load().(http.Handler)).ServeHTTP(rw, r)
	}))
	t.Cleanup(w.server.Close)
	var err error
	if w.directory, err = service.Open(ctx, service.Config{URL: dirServer.URL, Database: filepath.Join(t.TempDir(), "d.db"), Keys: []*record.Key{record.NewKey()}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.directory.Close() })
	dirHandler.Store(w.directory.Handler())
	w.pin = directory.Pin{Directory: dirServer.URL, Quorum: w.directory.Quorum()}
	if w.host, err = host.Open(ctx, host.Config{URL: w.server.URL, Database: filepath.Join(t.TempDir(), "h.db"), Key: w.hostKey,
		Directory: &host.Directory{Pin: w.pin, TrustFile: filepath.Join(t.TempDir(), "trust"), HTTP: w.server.Client()}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.host.Close() })
	hostHandler.Store(w.host.Handler())
	if err := w.directory.AdmitHost(ctx, w.host.ID(), ""); err != nil {
		t.Fatal(err)
	}
	made, err := w.host.CreateRecord(ctx, host.NewRecord{})
	if err != nil {
		t.Fatal(err)
	}
	w.record = made.ID
	if w.grant, err = w.host.Grant(ctx, host.Grant{Record: w.record, Client: w.key.ID(), Scope: "patient/*.cruds"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// through puts something between client and Host.
func (w *world) through(f func(http.Handler) http.Handler) { w.between.Store(f) }

// client opens the application's client on its folder, as a new process would.
func (w *world) client(change ...func(*Config)) *Client {
	w.t.Helper()
	if w.last != nil {
		w.last.Close()
	}
	c := Config{Key: w.key, Pin: w.pin, StateDir: w.state, HTTP: w.server.Client(), Timeout: 5 * time.Second}
	for _, f := range change {
		f(&c)
	}
	k, err := New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(k.Close)
	w.last = k
	return k
}

func (w *world) create() record.Intent {
	return record.Intent{Operation: record.CreateResource, Patient: w.record, OperationID: record.NewID(),
		Resource: []byte(`{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/` + w.record + `"},"valueQuantity":{"value":1.10}}`)}
}

func TestWriteReadSearch(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	ctx := context.Background()
	if _, known := k.Location(w.record); known || k.HostFor(w.record) != "" {
		t.Error("a new client knows the record")
	}
	intent := w.create()
	first, err := k.Write(ctx, intent)
	if err != nil || first.Version != 1 || first.Status != 201 || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := k.Write(ctx, intent)
	if err != nil || !again.Replayed || again.Receipt != first.Receipt || again.ID != first.ID {
		t.Errorf("%+v, %v", again, err)
	}
	receipt, err := k.Receipt(ctx, w.record, intent.OperationID)
	if err != nil || receipt.ID != first.ID {
		t.Errorf("%+v, %v", receipt, err)
	}
	if _, err := k.Receipt(ctx, w.record, record.NewID()); !errors.Is(err, record.NotFound) {
		t.Errorf("%v", err)
	}
	r, err := k.Read(ctx, w.record, "Observation", first.ID)
	if err != nil || r.Version != 1 || !strings.Contains(string(r.Content), `"value":1.10`) {
		t.Errorf("%+v, %v", r, err)
	}
	for range 4 {
		if _, err := k.Write(ctx, w.create()); err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	for r, err := range k.Search(ctx, w.record, "Observation", url.Values{"_count": {"2"}}) {
		if err != nil || r.Type != "Observation" {
			t.Fatalf("%+v, %v", r, err)
		}
		count++
	}
	if count != 5 {
		t.Errorf("found %d", count)
	}
	for _, err := range k.Search(ctx, w.record, "Observation", url.Values{"x": {"y"}}) {
		if !errors.Is(err, record.InvalidMessage) {
			t.Errorf("%v", err)
		}
	}
	all := 0
	for _, err := range k.Everything(ctx, w.record) {
		if err != nil {
			t.Fatal(err)
		}
		if all++; all == 3 {
			break // the rest is not asked for
		}
	}
	// The five kinds of write.
	for _, i := range []record.Intent{
		{Operation: record.UpdateResource, BaseVersion: 1, Resource: []byte(strings.Replace(string(intent.Resource), "{", `{"id":"`+first.ID+`",`, 1))},
		{Operation: record.DeleteResource, BaseVersion: 2, ResourceType: "Observation", ResourceID: first.ID},
		{Operation: record.UpdateDemographics, BaseVersion: 1, Resource: []byte(`{"name":"Ada"}`)},
	} {
		i.Patient, i.OperationID = w.record, record.NewID()
		if r, err := k.Write(ctx, i); err != nil || r.Version != i.BaseVersion+1 {
			t.Errorf("%s: %+v, %v", i.Operation, r, err)
		}
	}
	lab := w.create()
	lab.Operation = record.CreateLab
	if _, err := k.Write(ctx, lab); !errors.Is(err, record.InvalidLabCategory) {
		t.Errorf("%v", err)
	}
	if _, err := k.Write(ctx, record.Intent{}); !errors.Is(err, record.InvalidMessage) {
		t.Errorf("%v", err)
	}
	// Another client of the same folder knows the record without asking.
	if l, known := w.client().Location(w.record); !known || l.Host.ID != w.host.ID() || l.Generation != 1 {
		t.Errorf("%+v", l)
	}
}

// A clock that is a day off costs one extra round trip.
func TestWrongClock(t *testing.T) {
	for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		w := newWorld(t)
		k := w.client(func(c *Config) { c.Now = func() time.Time { return time.Now().Add(off) } })
		if off < 0 {
			// A location document from the future is refused, whoever is wrong: this
			// client was told where the record lives before.
			if _, err := w.client().Locate(context.Background(), w.record); err != nil {
				t.Fatal(err)
			}
			k = w.client(func(c *Config) { c.Now = func() time.Time { return time.Now().Add(off) } })
		}
		if _, err := k.Write(context.Background(), w.create()); err != nil {
			t.Errorf("off by %v: %v", off, err)
		}
		if n := w.requests.Load(); n != 3 { // nonce and time, token, write
			t.Errorf("off by %v: %d requests", off, n)
		}
	}
}

// Tokens are kept, renewed when they end, and one request renews for all.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	ctx := context.Background()
	tokens := atomic.Int64{}
	w.through(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/oauth/token" {
				tokens.Add(1)
			}
			h.ServeHTTP(rw, r)
		})
	})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := k.Write(ctx, w.create()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := tokens.Load(); n != 2 { // the first brings the nonce
		t.Errorf("%d token requests", n)
	}
	// The token is revoked, the grant stands: renewed once, silently.
	slot := k.slot(Location{Record: w.record, Host: w.host.Ref()})
	claims, err := record.VerifyToken(slot.token, w.host.ID(), w.server.URL, w.server.URL+"/fhir", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.host.RevokeToken(ctx, claims.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(ctx, w.create()); err != nil || tokens.Load() != 3 {
		t.Errorf("%d, %v", tokens.Load(), err)
	}
	// The grant is revoked: the Host's word comes through.
	if err := w.host.Revoke(ctx, w.grant); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(ctx, w.create()); !errors.Is(err, record.AuthorizationExpiredOrRevoked) {
		t.Errorf("%v", err)
	}
}

// What may come back instead of the truth. Each is an error of the right class,
// and the same write succeeds afterwards.
func TestHostileAnswers(t *testing.T) {
	evil := record.NewKey()
	// alter lets the Host do its work and changes its answer.
	alter := func(change func(rec *httptest.ResponseRecorder, r *http.Request)) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				if strings.HasPrefix(r.URL.Path, "/fhir/") && rec.Header().Get("Operation-Receipt") != "" {
					change(rec, r)
				}
				for name, values := range rec.Header() {
					rw.Header()[name] = values
				}
				rw.WriteHeader(rec.Code)
				rw.Write(rec.Body.Bytes())
			})
		}
	}
	instead := func(answer http.HandlerFunc) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/fhir/") {
					answer(rw, r)
					return
				}
				h.ServeHTTP(rw, r)
			})
		}
	}
	resign := func(key *record.Key, change func(*record.Receipt)) func(http.Handler) http.Handler {
		return alter(func(rec *httptest.ResponseRecorder, _ *http.Request) {
			receipt, _ := record.ReadReceipt(rec.Header().Get("Operation-Receipt"))
			change(&receipt)
			signed, _ := record.SignReceipt(key, receipt)
			rec.Header().Set("Operation-Receipt", signed)
		})
	}
	w := newWorld(t)
	k := w.client(func(c *Config) { c.Timeout = 3 * time.Second })
	ctx := context.Background()
	if _, err := k.Write(ctx, w.create()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		between func(http.Handler) http.Handler
		code    record.Code
	}{
		"no receipt": {alter(func(rec *httptest.ResponseRecorder, _ *http.Request) { rec.Header().Del("Operation-Receipt") }), record.InvalidReceipt},
		"a receipt that was altered": {alter(func(rec *httptest.ResponseRecorder, _ *http.Request) {
			rec.Header().Set("Operation-Receipt", rec.Header().Get("Operation-Receipt")+"A")
		}), record.InvalidReceipt},
		"another Host's receipt": {resign(evil, func(*record.Receipt) {}), record.InvalidReceipt},
		"another operation's":    {resign(w.hostKey, func(r *record.Receipt) { r.Operation = record.NewID() }), record.InvalidReceipt},
		"another client's":       {resign(w.hostKey, func(r *record.Receipt) { r.Client = evil.ID() }), record.InvalidReceipt},
		"another record's":       {resign(w.hostKey, func(r *record.Receipt) { r.Record = record.NewID() }), record.InvalidReceipt},
		"of an altered body":     {resign(w.hostKey, func(r *record.Receipt) { r.Fingerprint = "x" }), record.InvalidReceipt},
		"of another version":     {resign(w.hostKey, func(r *record.Receipt) { r.Version = 7 }), record.InvalidReceipt},
		"of another type":        {resign(w.hostKey, func(r *record.Receipt) { r.Type = "Condition" }), record.InvalidReceipt},
		"of another status":      {resign(w.hostKey, func(r *record.Receipt) { r.Status = 200 }), record.InvalidReceipt},
		"of another method":      {resign(w.hostKey, func(r *record.Receipt) { r.Method = "PUT" }), record.InvalidReceipt},
		"200 with an error body": {instead(func(rw http.ResponseWriter, r *http.Request) {
			rw.Write([]byte(`{"resourceType":"OperationOutcome","issue":[{"details":{"coding":[{"code":"not_found"}]}}]}`))
		}), record.InvalidReceipt},
		"204":                {instead(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(204) }), record.InvalidReceipt},
		"409 without a code": {instead(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(409) }), record.TransportUnavailable},
		"412 without a code": {instead(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(412) }), record.TransportUnavailable},
		"412 with the code": {instead(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(412)
			rw.Write([]byte(`{"code":"version_conflict"}`))
		}), record.VersionConflict},
		"a client's own code": {instead(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(400)
			rw.Write([]byte(`{"code":"invalid_receipt"}`))
		}), record.TransportUnavailable},
		"an unknown code": {instead(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(400); rw.Write([]byte(`{"code":"x"}`)) }), record.TransportUnavailable},
		"a proxy's page": {instead(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(502)
			rw.Write([]byte(`<html>not_found</html>`))
		}), record.TransportUnavailable},
		"hangs": {instead(func(rw http.ResponseWriter, r *http.Request) {
			http.NewResponseController(rw).SetReadDeadline(time.Now().Add(10 * time.Second))
			r.Body.Read(make([]byte, 1<<20))
			<-r.Context().Done()
		}), record.TransportUnavailable},
		"closes in the middle": {instead(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", "10")
			rw.Write([]byte("x"))
			panic(http.ErrAbortHandler)
		}), record.TransportUnavailable},
		"garbage":            {instead(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(400); rw.Write([]byte{0xff, 0}) }), record.TransportUnavailable},
		"too large":          {instead(func(rw http.ResponseWriter, r *http.Request) { rw.Write(make([]byte, maxAnswer+1)) }), record.TransportUnavailable},
		"the answer is lost": {alter(func(*httptest.ResponseRecorder, *http.Request) { panic(http.ErrAbortHandler) }), record.TransportUnavailable},
		"endless nonces": {instead(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("DPoP-Nonce", "x")
			rw.WriteHeader(401)
			rw.Write([]byte(`{"code":"use_dpop_nonce"}`))
		}), record.UseDPoPNonce},
		"401 for ever": {instead(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(401)
			rw.Write([]byte(`{"code":"authorization_expired"}`))
		}), record.AuthorizationExpired},
	} {
		t.Run(name, func(t *testing.T) {
			w.through(c.between)
			intent := w.create()
			if _, err := k.Write(ctx, intent); record.CodeOf(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
			w.through(func(h http.Handler) http.Handler { return h })
			if _, err := k.Write(ctx, intent); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// No redirect is followed: neither token nor content goes elsewhere.
func TestNoRedirects(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	visited := atomic.Bool{}
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited.Store(true) }))
	defer thief.Close()
	if _, err := k.Write(context.Background(), w.create()); err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		w.through(func(http.Handler) http.Handler { return http.RedirectHandler(thief.URL, status) })
		if _, err := k.Write(context.Background(), w.create()); !errors.Is(err, record.TransportUnavailable) {
			t.Errorf("%d: %v", status, err)
		}
	}
	w.through(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Write([]byte(`{"resourceType":"Bundle","link":[{"relation":"next","url":"` + thief.URL + `/x"}]}`))
		})
	})
	for _, err := range k.Search(context.Background(), w.record, "Observation", nil) {
		if !errors.Is(err, record.TransportUnavailable) {
			t.Errorf("a next link that leads elsewhere: %v", err)
		}
	}
	if visited.Load() {
		t.Error("the other server was asked")
	}
}

// A connection that ended while it was idle costs no error, and the proof of the
// second try is a new one.
func TestStaleConnection(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	ctx := context.Background()
	first, err := k.Write(ctx, w.create())
	if err != nil {
		t.Fatal(err)
	}
	lost := atomic.Bool{}
	w.through(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if lost.CompareAndSwap(false, true) {
				h.ServeHTTP(httptest.NewRecorder(), r) // done, but the answer is lost
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(rw, r)
		})
	})
	for _, i := range []record.Intent{w.create(), {Operation: record.DeleteResource, Patient: w.record, OperationID: record.NewID(), ResourceType: first.Type, ResourceID: first.ID, BaseVersion: 1}} {
		lost.Store(false)
		if r, err := k.Write(ctx, i); err != nil || !r.Replayed {
			t.Errorf("%s: %+v, %v", i.Operation, r, err)
		}
	}
	lost.Store(false)
	if _, err := k.Read(ctx, w.record, "Patient", w.record); err != nil {
		t.Error(err)
	}
}

func TestRetryAfter(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	date := time.Now().UTC()
	for text, want := range map[string]time.Duration{"7": 7 * time.Second, "-1": 0, "x": 0, "999999": 24 * time.Hour, date.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second, date.Add(-time.Hour).Format(http.TimeFormat): 0} {
		w.through(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Date", date.Format(http.TimeFormat))
				rw.Header().Set("Retry-After", text)
				rw.WriteHeader(503)
				rw.Write([]byte(`{"code":"host_unavailable"}`))
			})
		})
		_, err := k.Write(context.Background(), w.create())
		var e *record.Error
		if !errors.As(err, &e) || e.Code != record.HostUnavailable || e.RetryAfter != want {
			t.Errorf("%s: %v, %v", text, err, e.RetryAfter)
		}
	}
}

func TestStateAndConfig(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	for name, change := range map[string]func(*Config){"no key": func(c *Config) { c.Key = nil }, "no folder": func(c *Config) { c.StateDir = "" }, "no pin": func(c *Config) { c.Pin = directory.Pin{} },
		"a bad Host": func(c *Config) { c.Host = &record.HostRef{} }} {
		c := Config{Key: w.key, Pin: w.pin, StateDir: t.TempDir()}
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	// A client of one Host, without a Directory.
	ref := w.host.Ref()
	fixed := w.client(func(c *Config) { c.Host = &ref; c.StateDir = "" })
	if _, err := fixed.Write(ctx, w.create()); err != nil {
		t.Error(err)
	}
	if _, err := fixed.Verify(ctx, w.record, "x", "y", 1); !errors.Is(err, record.InvalidDiscovery) {
		t.Errorf("%v", err)
	}
	k := w.client()
	if _, err := k.Locate(ctx, w.record); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Locate(ctx, record.NewID()); !errors.Is(err, record.NotFound) {
		t.Errorf("%v", err)
	}
	if _, err := k.Locate(ctx, "x"); !errors.Is(err, record.InvalidMessage) {
		t.Errorf("%v", err)
	}
	dir := filepath.Join(t.TempDir(), "app")
	a, err := InDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := InDir(dir); err != nil || b.Key.ID() != a.Key.ID() || b.StateDir != dir {
		t.Errorf("%+v, %v", b, err)
	}
	// The document of one record is no word about another.
	document, err := directory.Client{HTTP: w.server.Client()}.Document(ctx, w.directory.Address(w.record))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.FollowMigration(ctx, record.NewID(), document, w.directory.Address(w.record), 1); !errors.Is(err, record.WrongDiscoveryPatient) {
		t.Errorf("%v", err)
	}
	if _, err := k.FollowMigration(ctx, w.record, document, w.directory.Address(w.record), 2); !errors.Is(err, record.StaleDiscoveryGeneration) {
		t.Errorf("%v", err)
	}
	if l, err := k.FollowMigration(ctx, w.record, document, w.directory.Address(w.record), 1); err != nil || l.Generation != 1 {
		t.Errorf("%v", err)
	}
	// An address of its own kind is remembered; a damaged file is no new beginning.
	if err := k.remember(w.record, w.directory.Address(w.record)+"x"); err != nil {
		t.Fatal(err)
	}
	if again := w.client(); again.addressOf(w.record) != w.directory.Address(w.record)+"x" {
		t.Error("the address was forgotten")
	}
	// A second client of one folder is refused, until the first lets go.
	own := Config{Key: w.key, Pin: w.pin, StateDir: t.TempDir()}
	one, err := New(own)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(own); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), own.StateDir) {
		t.Errorf("a second client: %v", err)
	}
	one.Close()
	if one, err = New(own); err != nil {
		t.Fatal(err)
	}
	one.Close()
	w.last.Close()
	os.WriteFile(k.statePath(), []byte("{"), 0o600)
	if _, err := New(Config{Key: w.key, Pin: w.pin, StateDir: w.state}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
	// No token, proof or private key is in the folder.
	entries, _ := os.ReadDir(w.state)
	for _, e := range entries {
		data, _ := os.ReadFile(filepath.Join(w.state, e.Name()))
		for _, secret := range []string{"eyJ", `"d"`, "DPoP"} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s has %s", e.Name(), secret)
			}
		}
	}
}
