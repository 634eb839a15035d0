package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/record"
)

// sender is the application of a queue. It gets the answers that a test gives it.
type sender struct {
	subject string
	write   func(record.Intent) (record.Result, error)
}

func (s *sender) Subject() string { return s.subject }

func (s *sender) Location(patient string) (record.Place, bool) {
	return record.Place{Record: patient, Host: record.HostRef{ID: "the-host"}}, true
}

func (s *sender) Write(_ context.Context, i record.Intent) (record.Result, error) { return s.write(i) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a queue and serves it.
func open(t testing.TB, path string, write func(record.Intent) (record.Result, error)) (*outbox.Outbox, *Server) {
	t.Helper()
	b, err := outbox.Open(t.Context(), path, &sender{"app", write}, outbox.Options{NoReceipts: true})
	must(t, err)
	s, err := Start(b, path, Options{})
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("close the queue: %v", err)
		}
	})
	return b, s
}

func connect(t testing.TB, path string) *Client {
	t.Helper()
	k, err := Dial(t.Context(), path)
	must(t, err)
	t.Cleanup(k.Close)
	return k
}

const secret = "Ada Lovelace"

// update is a write with a number and white space that a careless program would change.
func update(patient string) record.Intent {
	return record.Intent{Operation: record.UpdateResource, Patient: patient, OperationID: record.NewID(), BaseVersion: 1,
		Resource: []byte(`{"resourceType": "Observation",  "id": "x", "note": "` + secret + ` <&>é", "value": 1.10}`)}
}

// Everything that can be asked for comes over the socket as the queue gives it.
func TestACallIsTheQueuesOwn(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "app.db")
	conflict := func(record.Intent) (record.Result, error) {
		return record.Result{}, &record.Error{Code: record.VersionConflict, Field: "If-Match", Detail: "not about " + secret}
	}
	b, _ := open(t, path, conflict)
	k := connect(t, path)
	k.Content = true

	p, q := record.NewID(), record.NewID()
	one, two := update(p), update(q)
	for _, i := range []record.Intent{one, two} {
		id, err := k.Enqueue(ctx, i)
		if err != nil || id != i.OperationID {
			t.Fatalf("%s, %v", id, err)
		}
	}
	_, err := b.Flush(ctx)
	must(t, err)
	same := func(what string, a, b any, errs ...error) {
		t.Helper()
		for _, err := range errs {
			must(t, err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the client has\n%+v, the queue\n%+v", what, a, b)
		}
	}
	for _, f := range []outbox.Filter{{}, {Limit: 1}, {After: 1}, {Patient: q}, {States: []outbox.State{outbox.Pending}}, {States: []outbox.State{outbox.Conflicted, outbox.Pending}}} {
		x, err := k.Entries(ctx, f)
		y, also := b.Entries(ctx, f)
		same(fmt.Sprintf("%+v", f), x, y, err, also)
	}
	x, err := k.Entry(ctx, one.OperationID)
	y, also := b.Entry(ctx, one.OperationID)
	same("entry", x, y, err, also)
	if !bytes.Contains(x.IntentJSON, one.Resource) || !strings.Contains(x.Detail, secret) {
		t.Errorf("the content is %s, the detail %q", x.IntentJSON, x.Detail)
	}
	sumX, err := k.Summary(ctx)
	sumY, also := b.Summary(ctx)
	same("summary", sumX, sumY, err, also)

	why := outbox.Change{Reason: "a test", By: "tester"}
	must(t, k.Retry(ctx, one.OperationID, why))
	_, err = b.Flush(ctx)
	must(t, err)
	based, err := k.Rebase(ctx, one.OperationID, 7, why)
	must(t, err)
	e, err := b.Entry(ctx, based)
	must(t, err)
	if i, err := e.Intent(record.Limits{}); err != nil || i.BaseVersion != 7 || string(i.Resource) != string(one.Resource) {
		t.Errorf("rebased it is %+v, %v", i, err)
	}
	instead := update(q)
	placed, err := k.Replace(ctx, two.OperationID, instead, why)
	must(t, err)
	if e, err := b.Entry(ctx, placed); err != nil || !bytes.Contains(e.IntentJSON, instead.Resource) || placed != instead.OperationID {
		t.Errorf("replaced it is %+v, %v", e, err)
	}
	must(t, k.Discard(ctx, placed, why))
	linesX, err := k.Audit(ctx, "", 0, 0)
	linesY, also := b.Audit(ctx, "", 0, 0)
	must(t, errors.Join(err, also))
	if len(linesX) != 4 || len(linesY) != 4 || linesX[3].Action != "discard" || linesX[3].By != "tester" || !linesX[1].Time.Equal(linesY[1].Time) {
		t.Errorf("the audit is %+v", linesX)
	}
	vX, err := k.Verify(ctx)
	vY, also := b.Verify(ctx)
	if must(t, errors.Join(err, also)); vX.Checked != 8 || vX.Checked != vY.Checked || len(vX.Problems) != 0 {
		t.Errorf("the verification is %+v, the queue's %+v", vX, vY)
	}
	n, err := k.Prune(ctx, time.Now().Add(time.Hour))
	if err != nil || n != 3 {
		t.Errorf("%d were removed, %v", n, err)
	}
}

func TestContentStaysWhereItIsUnlessAskedFor(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "app.db")
	b, _ := open(t, path, func(record.Intent) (record.Result, error) {
		return record.Result{}, &record.Error{Code: record.InvalidResource, Field: "note", Detail: "not " + secret}
	})
	i := update(record.NewID())
	_, err := b.Enqueue(ctx, i)
	must(t, err)
	_, err = b.Flush(ctx)
	must(t, err)
	k := connect(t, path)
	one, err := k.Entry(ctx, i.OperationID)
	must(t, err)
	list, err := k.Entries(ctx, outbox.Filter{})
	must(t, err)
	k.Content = true
	heads, err := k.Heads(ctx, "", 0)
	must(t, err)
	for _, e := range append(append(list, heads...), one) {
		if text := fmt.Sprintf("%+v %s", e, e.IntentJSON); strings.Contains(text, "Ada") || e.Digest != "" || e.Detail != Redacted || e.Code != record.InvalidResource || e.Patient != i.Patient {
			t.Errorf("without asking one gets %s", text)
		}
	}
	if len(list) != 1 || len(heads) != 1 {
		t.Errorf("%d entries, %d heads", len(list), len(heads))
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "app.db")
	b, _ := open(t, path, nil)
	k := connect(t, path)
	i := update(record.NewID())
	_, err := k.Enqueue(ctx, i)
	must(t, err)
	other := i
	other.BaseVersion = 2
	for what, c := range map[string]struct {
		err   error
		code  record.Code
		field string
	}{
		"no entry":      {second(k.Entry(ctx, "nothing")), outbox.UnknownQueueEntry, "operation_id"},
		"no reason":     {k.Discard(ctx, i.OperationID, outbox.Change{}), record.InvalidMessage, "reason"},
		"wrong state":   {k.Retry(ctx, i.OperationID, outbox.Change{Reason: "x"}), outbox.QueueStateConflict, "state"},
		"a taken id":    {second(k.Enqueue(ctx, other)), outbox.QueueOperationIDConflict, "operation_id"},
		"no such route": {k.Follow(ctx, record.NewID()), outbox.UnknownQueueRoute, "patient"},
		"no write":      {second(k.Enqueue(ctx, record.Intent{})), record.InvalidMessage, "patient"},
		"a large write": {second(k.Enqueue(ctx, record.Intent{Patient: i.Patient, Resource: bytes.Repeat([]byte(" "), maxRequest)})), record.InvalidMessage, "intent"},
	} {
		var e *record.Error
		if !errors.As(c.err, &e) || e.Code != c.code || e.Field != c.field {
			t.Errorf("%s: %v", what, c.err)
		}
	}
	if list, err := b.Entries(ctx, outbox.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("the queue has %d entries, %v", len(list), err)
	}
}

func second[T any](_ T, err error) error { return err }

// A page of large entries comes in parts, and comes whole.
func TestLargePages(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "app.db")
	b, _ := open(t, path, nil)
	const n = 12
	patient := record.NewID()
	for range n {
		i := update(patient)
		i.Resource = []byte(`{"resourceType":"Observation","id":"x","note":"` + strings.Repeat("n", 900_000) + `"}`)
		_, err := b.Enqueue(ctx, i)
		must(t, err)
	}
	k := connect(t, path)
	k.Content = true
	a, err := k.call(ctx, "entries", request{Content: true})
	if err != nil || !a.More || len(a.Entries) == 0 || len(a.Entries) > 5 {
		t.Errorf("one answer has %d entries, more: %v, %v", len(a.Entries), a.More, err)
	}
	list, err := k.Entries(ctx, outbox.Filter{Limit: n - 1})
	if err != nil || len(list) != n-1 || list[n-2].Sequence != n-1 || len(list[n-2].IntentJSON) < 900_000 {
		t.Errorf("%d entries, %v", len(list), err)
	}
}

// Whoever opens the socket and says something else is answered or cut off, and the next is served.
func TestTheServerSurvivesStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	_, s := open(t, path, nil)
	say := func(text string) string {
		c, err := net.Dial("unix", s.socket)
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = c.Write([]byte(text))
		must(t, err)
		b := make([]byte, 4096)
		n, _ := c.Read(b) // the end is an answer too
		return string(b[:n])
	}
	post := func(call, body string) string {
		return say(fmt.Sprintf("POST /v1/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", call, len(body), body))
	}
	for what, c := range map[string]struct{ got, want string }{
		"no HTTP":       {say("hello\r\n\r\n"), "400"},
		"another call":  {post("shutdown", "{}"), "404"},
		"a read by GET": {say("GET /v1/summary HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "405"},
		"no JSON":       {post("summary", "{"), string(record.InvalidMessage)},
		"deep JSON":     {post("summary", strings.Repeat("[", 1000)), string(record.InvalidMessage)},
		"twice":         {post("entry", `{"operation_id":"a","operation_id":"b"}`), string(record.InvalidMessage)},
		"no intent":     {post("enqueue", `{}`), string(record.InvalidMessage)},
		"a large one":   {say(fmt.Sprintf("POST /v1/summary HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", maxRequest*10)), "limit"},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %q", what, c.got)
		}
	}
	if _, err := connect(t, path).Summary(t.Context()); err != nil {
		t.Error(err)
	}
	k := connect(t, path)
	if got, err := k.call(t.Context(), "nonsense", request{}); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("an unknown call: %+v, %v", got, err)
	}
}

func TestWhereTheSocketIs(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat("d", 120), strings.Repeat("e", 120))
	must(t, os.MkdirAll(deep, 0o700))
	must(t, os.WriteFile(filepath.Join(deep, "far.db"), nil, 0o600))
	link := filepath.Join(dir, "link.db")
	must(t, os.Symlink(filepath.Join(deep, "far.db"), link))
	for _, c := range []struct{ file, name string }{
		{filepath.Join(dir, "app.db"), "app.db-control"},
		{filepath.Join(deep, "app.db"), "app.db-control"},
		{filepath.Join(deep, strings.Repeat("f", 200)+".db"), ""},
		{link, "far.db-control"},
	} {
		_, s := open(t, c.file, nil)
		if c.name != "" && filepath.Base(s.socket) != c.name {
			t.Errorf("%s: the socket is %s", c.file, s.socket)
		}
		info, err := os.Stat(s.socket)
		must(t, err)
		if info.Mode()&os.ModeSocket == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("the socket's mode is %v", info.Mode())
		}
		if _, err := os.Stat(s.socket + ".new"); err == nil {
			t.Error("the folder in which it was made is there still")
		}
		if _, err := connect(t, c.file).Summary(t.Context()); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
	}
	// By the file and by its link it is the same socket.
	if _, err := connect(t, filepath.Join(deep, "far.db")).Summary(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "hf-*")); err != nil || len(left) > 0 {
		t.Errorf("links stay behind: %v, %v", left, err)
	}
}

func TestNobody(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "app.db")
	if _, err := Dial(ctx, path); !errors.Is(err, ErrNobody) {
		t.Errorf("no file: %v", err)
	}
	b, err := outbox.Open(ctx, path, &sender{"app", nil}, outbox.Options{})
	must(t, err)
	defer b.Close()
	if _, err := Dial(ctx, path); !errors.Is(err, ErrNobody) {
		t.Errorf("no socket: %v", err)
	}
	first, err := Start(b, path, Options{})
	must(t, err)
	// As after a kill: the listener is gone, the socket stays.
	must(t, first.http.Close())
	<-first.done
	if _, err := os.Lstat(first.socket); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(ctx, path); !errors.Is(err, ErrNobody) {
		t.Errorf("a socket without a server: %v", err)
	}
	second, err := Start(b, path, Options{})
	must(t, err)
	must(t, first.Close()) // late, and leaves the second's socket alone
	k := connect(t, path)
	if _, err := k.Summary(ctx); err != nil {
		t.Error(err)
	}
	must(t, second.Close())
	if _, err := os.Lstat(second.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a closed server: %v", err)
	}
	if _, err := k.Summary(ctx); err == nil {
		t.Error("a closed server answers")
	}
}

// A server that closes lets running requests end, and waits for none that hangs.
func TestCloseWaitsALittle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	b, err := outbox.Open(t.Context(), path, &sender{"app", nil}, outbox.Options{})
	must(t, err)
	defer b.Close()
	s, err := Start(b, path, Options{})
	must(t, err)
	began, release := make(chan struct{}), make(chan struct{})
	s.http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(began); <-release })
	defer close(release)
	k := connect(t, path)
	failed := make(chan error, 1)
	go func() { failed <- second(k.Summary(context.Background())) }()
	<-began
	start := time.Now()
	must(t, s.Close())
	if d := time.Since(start); d < closeGrace || d > closeGrace+10*time.Second {
		t.Errorf("it took %v", d)
	}
	if err := <-failed; err == nil {
		t.Error("the request that was cut off has an answer")
	}
}
