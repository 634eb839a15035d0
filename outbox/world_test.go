package outbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/directory/service"
	"github.com/eda94727/holdfast/record/host"
)

var (
	_ Client = (*client.Client)(nil)
	_ Mover  = (*client.Client)(nil)
)

// TestMain runs the children of the crash tests, which are this binary with a
// variable set.
func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// world is a real Directory and two real Hosts over TLS, an application that may
// write to the records at Host a, and places where a test can interfere.
type world struct {
	t         testing.TB
	directory *service.Service
	dirServer *httptest.Server
	pin       directory.Pin
	a, b      *station
	appKey    *record.Key
	state     string
	path      string // of the queue
	last      *client.Client
}

// station is a Host behind a server.
type station struct {
	host    *host.Host
	server  *httptest.Server
	between atomic.Value // func(http.Handler) http.Handler
	writes  atomic.Int64 // requests with an operation id
	// validate runs while the Host works on a write, outside its transaction.
	validate atomic.Value // func()
}

// Validate makes the station its Host's external validator.
func (s *station) Validate(context.Context, host.Validation) error {
	s.validate.Load().(func())()
	return nil
}

// wrap puts something between the clients and the Host.
func (s *station) wrap(f func(next http.Handler) http.Handler) { s.between.Store(f) }

func (s *station) unwrap() { s.wrap(func(h http.Handler) http.Handler { return h }) }

// instead answers writes in the Host's place; serve may let the Host answer.
func (s *station) instead(serve func(w http.ResponseWriter, r *http.Request, host http.Handler)) {
	s.wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == "" {
				next.ServeHTTP(w, r)
				return
			}
			serve(w, r, next)
		})
	})
}

// code answers writes with a code of the protocol.
func (s *station) code(code record.Code, header ...string) {
	info, _ := code.Info()
	s.instead(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(info.Status)
		fmt.Fprintf(w, `{"code":%q}`, code)
	})
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ctx := context.Background()
	w := &world{t: t, appKey: record.NewKey(), state: t.TempDir(), path: filepath.Join(t.TempDir(), "queue.db")}
	var handler atomic.Value
	w.dirServer = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.Load().(http.Handler).ServeHTTP(rw, r) }))
	t.Cleanup(w.dirServer.Close)
	var err error
	w.directory, err = service.Open(ctx, service.Config{URL: w.dirServer.URL, Database: filepath.Join(t.TempDir(), "directory.db"), Keys: []*record.Key{record.NewKey()}})
	must(t, err)
	t.Cleanup(func() { w.directory.Close() })
	handler.Store(w.directory.Handler())
	w.pin = directory.Pin{Directory: w.dirServer.URL, Quorum: w.directory.Quorum()}
	w.a, w.b = w.station(), w.station()
	return w
}

func (w *world) station() *station {
	s := &station{}
	s.unwrap()
	s.validate.Store(func() {})
	var handler atomic.Value
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "" {
			s.writes.Add(1)
		}
		s.between.Load().(func(http.Handler) http.Handler)(handler.Load().(http.Handler)).ServeHTTP(rw, r)
	}))
	w.t.Cleanup(s.server.Close)
	var err error
	// All test servers have one certificate.
	s.host, err = host.Open(context.Background(), host.Config{URL: s.server.URL, Database: filepath.Join(w.t.TempDir(), "host.db"), Key: record.NewKey(), Rate: -1, Validator: s,
		Directory: &host.Directory{Pin: w.pin, TrustFile: filepath.Join(w.t.TempDir(), "trust"), HTTP: s.server.Client()}})
	must(w.t, err)
	w.t.Cleanup(func() { s.host.Close() })
	handler.Store(s.host.Handler())
	must(w.t, w.directory.AdmitHost(context.Background(), s.host.ID(), ""))
	return s
}

// patient makes a record at Host a that the application may write to.
func (w *world) patient() string {
	w.t.Helper()
	made, err := w.a.host.CreateRecord(context.Background(), host.NewRecord{})
	must(w.t, err)
	_, err = w.a.host.Grant(context.Background(), host.Grant{Record: made.ID, Client: w.appKey.ID(), Scope: "patient/*.cruds"})
	must(w.t, err)
	return made.ID
}

// client opens the application's client on its folder, as a new process would: the one before lets
// go of the folder.
func (w *world) client(change ...func(*client.Config)) *client.Client {
	w.t.Helper()
	if w.last != nil {
		w.last.Close()
	}
	h := *w.a.server.Client()
	transport := h.Transport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64 // as the client's own
	h.Transport = transport
	c := client.Config{Key: w.appKey, Pin: w.pin, StateDir: w.state, HTTP: &h, Timeout: 10 * time.Second}
	for _, f := range change {
		f(&c)
	}
	k, err := client.New(c)
	must(w.t, err)
	w.t.Cleanup(k.Close)
	w.last = k
	return k
}

// open opens the queue; it is closed at the end.
func (w *world) open(k Client, change ...func(*Options)) *Outbox {
	w.t.Helper()
	b, err := w.tryOpen(k, change...)
	must(w.t, err)
	w.t.Cleanup(func() { must(w.t, b.Close()) })
	return b
}

func (w *world) tryOpen(k Client, change ...func(*Options)) (*Outbox, error) {
	o := Options{}
	for _, f := range change {
		f(&o)
	}
	return Open(context.Background(), w.path, k, o)
}

// move moves a record from Host a to Host b.
func (w *world) move(patient string) {
	w.t.Helper()
	must(w.t, w.b.host.Expect(context.Background(), patient))
	must(w.t, w.a.host.Move(context.Background(), patient, w.b.host.Ref(), nil))
}

// document reads the Directory's document about a record.
func (w *world) document(k *client.Client, patient string) (document, address string) {
	w.t.Helper()
	document, address, err := k.Document(context.Background(), patient, "")
	must(w.t, err)
	return document, address
}

func observation(patient string) []byte {
	return []byte(`{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/` + patient + `"},"valueQuantity":{"value":1.10}}`)
}

func create(patient string) record.Intent {
	return record.Intent{Operation: record.CreateResource, Patient: patient, OperationID: record.NewID(), Resource: observation(patient)}
}

func rename(patient, name string, base int64) record.Intent {
	return record.Intent{Operation: record.UpdateDemographics, Patient: patient, OperationID: record.NewID(), BaseVersion: base, Resource: []byte(`{"name":"` + name + `"}`)}
}

func enqueue(t testing.TB, b *Outbox, intents ...record.Intent) (ids []string) {
	t.Helper()
	for _, i := range intents {
		id, err := b.Enqueue(context.Background(), i)
		must(t, err)
		ids = append(ids, id)
	}
	return ids
}

func flushed(t testing.TB, b *Outbox) Report {
	t.Helper()
	r, err := b.Flush(context.Background())
	must(t, err)
	return r
}

// expect checks an entry's state and code.
func expect(t testing.TB, b *Outbox, id string, state State, code record.Code) Entry {
	t.Helper()
	e, err := b.Entry(context.Background(), id)
	must(t, err)
	if e.State != state || e.Code != code {
		t.Errorf("the entry is %s %s (%s), want %s %s", e.State, e.Code, e.Detail, state, code)
	}
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code record.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("the error is %v, want %s", err, code)
	}
}

// execSQL runs SQL on a connection of another program.
func execSQL(t testing.TB, path, text string) {
	t.Helper()
	c, err := sqlite3.Open(path)
	must(t, err)
	defer c.Close()
	must(t, c.BusyTimeout(10*time.Second))
	must(t, c.Exec(text))
}

// setState is the part of an update that puts an entry into a state.
func setState(s State) string {
	if s.open() {
		return "waits = 1, state = '" + string(s) + "'"
	}
	return "waits = null, state = '" + string(s) + "'"
}

// number answers the only value of a query.
func number(t testing.TB, path, text string) (n int64) {
	t.Helper()
	c, err := sqlite3.Open(path)
	must(t, err)
	defer c.Close()
	s, _, err := c.Prepare(text)
	must(t, err)
	defer s.Close()
	for s.Step() {
		n = s.ColumnInt64(0)
	}
	must(t, s.Err())
	return n
}

// done returns the operations that a Host has done to a record, in order.
func (w *world) done(k *client.Client, patient string, ids ...string) (seqs []int64) {
	w.t.Helper()
	for _, id := range ids {
		r, err := k.Receipt(context.Background(), patient, id)
		if err != nil {
			w.t.Fatalf("the Host has no receipt of %s: %v", id, err)
		}
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

// fake is a client of a test, for what no Host can be made to do. The zero value
// writes nothing and fails.
type fake struct {
	subject string
	mu      sync.Mutex
	host    string
	write   func(ctx context.Context, i record.Intent) (record.Result, error)
	sent    []record.Intent
}

func (f *fake) Subject() string { return f.subject }

func (f *fake) Location(patient string) (record.Place, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return record.Place{Record: patient, Host: record.HostRef{ID: f.host}}, f.host != ""
}

func (f *fake) Write(ctx context.Context, i record.Intent) (record.Result, error) {
	f.mu.Lock()
	f.sent = append(f.sent, i)
	f.mu.Unlock()
	return f.write(ctx, i)
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	return string(data)
}
