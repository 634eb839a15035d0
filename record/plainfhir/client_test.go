package plainfhir

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/host"
)

// clinic is an ordinary FHIR server: a real Host behind a door that lets anybody
// in and makes every request a new operation, so that nothing is known of
// repetitions.
type clinic struct {
	*httptest.Server
	record string
	lose   atomic.Int32 // how many more answers to writes get lost
	bare   atomic.Bool  // answers without Location and body
}

func newClinic(t *testing.T) *clinic {
	t.Helper()
	ctx := context.Background()
	c := &clinic{}
	var handler atomic.Value
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().(http.Handler).ServeHTTP(w, r) }))
	t.Cleanup(inner.Close)
	h, err := host.Open(ctx, host.Config{URL: inner.URL, Database: filepath.Join(t.TempDir(), "h.db"), Key: record.NewKey()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	handler.Store(h.Handler())
	made, err := h.CreateRecord(ctx, host.NewRecord{})
	if err != nil {
		t.Fatal(err)
	}
	c.record = made.ID
	key, ref := record.NewKey(), h.Ref()
	if _, err := h.Grant(ctx, host.Grant{Record: c.record, Client: key.ID(), Scope: "patient/*.cruds"}); err != nil {
		t.Fatal(err)
	}
	token := tokenFor(t, key, ref, c.record)
	var nonce atomic.Value
	nonce.Store(token.nonce)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		out, _ := http.NewRequest(r.Method, inner.URL+r.URL.RequestURI(), bytes.NewReader(body))
		out.Header = r.Header.Clone()
		proof, _ := record.NewProof(key, record.ProofParams{Method: r.Method, URL: inner.URL + r.URL.Path, AccessToken: token.token, Nonce: nonce.Load().(string)})
		out.Header.Set("Authorization", "DPoP "+token.token)
		out.Header.Set("DPoP", proof)
		out.Header.Set("Idempotency-Key", `"`+record.NewID()+`"`)
		out.Header.Set("Content-Digest", record.ContentDigest(body))
		answer, err := http.DefaultClient.Do(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		nonce.Store(answer.Header.Get("DPoP-Nonce"))
		if r.Method != http.MethodGet && c.lose.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header {
			if name != "Operation-Receipt" && !(name == "Location" && c.bare.Load()) {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(answer.StatusCode)
		io.Copy(w, answer.Body)
	}))
	t.Cleanup(c.Close)
	return c
}

type issued struct{ token, nonce string }

// tokenFor gets a token by the record's client, whose own requests it uses.
func tokenFor(t *testing.T, key *record.Key, ref record.HostRef, recordID string) issued {
	t.Helper()
	var got issued
	watch := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if header := r.Header.Get("Authorization"); header != "" {
			got.token = strings.TrimPrefix(header, "DPoP ")
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			got.nonce = answer.Header.Get("DPoP-Nonce")
		}
		return answer, err
	})}
	k, err := client.New(client.Config{Key: key, Host: &ref, HTTP: watch})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Read(context.Background(), recordID, "Patient", recordID); err != nil {
		t.Fatal(err)
	}
	return got
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *clinic) client(t *testing.T) *Client {
	t.Helper()
	k, err := New(Config{Base: c.URL + "/fhir", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (c *clinic) intent(op record.Operation, base int64, resource string) record.Intent {
	return record.Intent{Operation: op, Patient: c.record, OperationID: record.NewID(), BaseVersion: base, Resource: []byte(resource)}
}

func (c *clinic) obs(more string) string {
	return `{"resourceType":"Observation","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/` + c.record + `"}` + more + `}`
}

// Each kind of write, with its answer lost once: sent again, it is done once.
func TestLostAnswers(t *testing.T) {
	c := newClinic(t)
	k := c.client(t)
	ctx := context.Background()
	twice := func(i record.Intent) record.Result {
		t.Helper()
		c.lose.Store(1)
		if _, err := k.Write(ctx, i); !errors.Is(err, record.TransportUnavailable) {
			t.Fatalf("%s: the answer is lost: %v", i.Operation, err)
		}
		r, err := k.Write(ctx, i)
		if err != nil || !r.Replayed || r.Version != i.BaseVersion+1 {
			t.Fatalf("%s again: %+v, %v", i.Operation, r, err)
		}
		return r
	}
	made := twice(c.intent(record.CreateResource, 0, c.obs(`,"valueQuantity":{"value":1.10},"identifier":[{"system":"http://x","value":"7"}]`)))
	withID := func(s string) string { return strings.Replace(s, "{", `{"id":"`+made.ID+`",`, 1) }
	twice(c.intent(record.UpdateResource, 1, withID(c.obs(`,"valueQuantity":{"value":1.20}`))))
	twice(c.intent(record.UpdateDemographics, 1, `{"name":"Ada"}`))
	gone := record.Intent{Operation: record.DeleteResource, Patient: c.record, OperationID: record.NewID(), BaseVersion: 2, ResourceType: "Observation", ResourceID: made.ID}
	c.lose.Store(1)
	k.Write(ctx, gone)
	if r, err := k.Write(ctx, gone); err != nil || !r.Replayed {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWritesAndConflicts(t *testing.T) {
	c := newClinic(t)
	k := c.client(t)
	ctx := context.Background()
	lab := c.intent(record.CreateLab, 0, c.obs(""))
	made, err := k.Write(ctx, lab)
	if err != nil || made.Status != 201 || made.Replayed || made.Receipt != "" {
		t.Fatalf("%+v, %v", made, err)
	}
	withID := func(s string) string { return strings.Replace(s, "{", `{"id":"`+made.ID+`",`, 1) }
	if r, err := k.Write(ctx, c.intent(record.UpdateResource, 1, withID(c.obs(`,"valueString":"a"`)))); err != nil || r.Version != 2 || r.Replayed {
		t.Errorf("%+v, %v", r, err)
	}
	// Somebody else's write is a conflict, whatever was lost.
	if _, err := k.Write(ctx, c.intent(record.UpdateResource, 1, withID(c.obs(`,"valueString":"b"`)))); !errors.Is(err, record.VersionConflict) {
		t.Errorf("%v", err)
	}
	if _, err := k.Write(ctx, c.intent(record.UpdateResource, 1, withID(c.obs(`,"valueQuantity":{"value":1.1}`)))); !errors.Is(err, record.VersionConflict) {
		t.Errorf("%v", err)
	}
	if _, err := k.Write(ctx, c.intent(record.UpdateDemographics, 7, `{"name":"Eve"}`)); !errors.Is(err, record.VersionConflict) {
		t.Errorf("%v", err)
	}
	if _, err := k.Write(ctx, record.Intent{Operation: record.DeleteResource, Patient: c.record, OperationID: record.NewID(), BaseVersion: 1, ResourceType: "Observation", ResourceID: made.ID}); !errors.Is(err, record.VersionConflict) {
		t.Errorf("%v", err)
	}
	for want, i := range map[record.Code]record.Intent{record.InvalidResource: c.intent(record.CreateResource, 0, `{"resourceType":"Observation"}`), record.NotFound: c.intent(record.UpdateResource, 1, strings.Replace(c.obs(""), "{", `{"id":"nowhere",`, 1)), record.InvalidMessage: {}} {
		if _, err := k.Write(ctx, i); !errors.Is(err, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// A server that does not say where it has put the resource is asked.
	c.bare.Store(true)
	if r, err := k.Write(ctx, c.intent(record.CreateResource, 0, c.obs(""))); err != nil || !record.IsResourceID(r.ID) || r.Version != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if k.HostFor("x") != c.URL+"/fhir" || k.Subject() != c.URL+"/fhir" {
		t.Error("the server's name is wrong")
	}
}

// Statuses without a word of explanation, and worse.
func TestAnswers(t *testing.T) {
	c := newClinic(t)
	for status, want := range map[int]record.Code{400: record.InvalidResource, 401: record.InvalidToken, 403: record.InsufficientScope, 404: record.NotFound, 410: record.ResourceDeleted, 409: record.VersionConflict,
		412: record.VersionConflict, 422: record.InvalidResource, 429: record.RateLimited, 500: record.HostUnavailable, 503: record.HostUnavailable, 302: record.TransportUnavailable, 502: record.TransportUnavailable, 418: record.TransportUnavailable, 200: record.TransportUnavailable} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(status)
		}))
		k, err := New(Config{Base: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.Write(context.Background(), c.intent(record.CreateResource, 0, c.obs("")))
		var e *record.Error
		if !errors.As(err, &e) || e.Code != want || status >= 300 && e.RetryAfter != 3*time.Second {
			t.Errorf("%d: %v", status, err)
		}
		server.Close()
		if _, err = k.Write(context.Background(), c.intent(record.CreateResource, 0, c.obs(""))); !errors.Is(err, record.TransportUnavailable) {
			t.Errorf("nobody there: %v", err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no base passes")
	}
	k, err := New(Config{Base: c.URL, Authorize: func(context.Context, http.Header) error { return errors.New("no token") }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(context.Background(), c.intent(record.CreateResource, 0, c.obs(""))); !errors.Is(err, record.TransportUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestWithIdentifier(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1.10}`:                       `{"a":1.10,"identifier":[{"system":"urn:holdfast:operation-id","value":"op"}]}`,
		`{"identifier":[ {"value":"7"} ]}`: `{"identifier":[{"value":"7"},{"system":"urn:holdfast:operation-id","value":"op"}]}`,
		`{"identifier":[]}`:                `{"identifier":[{"system":"urn:holdfast:operation-id","value":"op"}]}`,
	} {
		if got, err := withIdentifier([]byte(in), "op"); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	if _, err := withIdentifier([]byte(`{"identifier":{}}`), "op"); !errors.Is(err, record.InvalidResource) {
		t.Errorf("%v", err)
	}
}
