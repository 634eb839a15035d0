package host

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
)

// rig is a Host over real HTTP and TLS with one record.
type rig struct {
	t      *testing.T
	host   *Host
	server *httptest.Server
	offset atomic.Int64 // of the Host's clock, in nanoseconds
	record string
	nonce  atomic.Value
}

func newRig(t *testing.T, database string, change ...func(*Config)) *rig {
	t.Helper()
	g := &rig{t: t}
	var handler atomic.Value
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().(http.Handler).ServeHTTP(w, r) }))
	g.server.EnableHTTP2 = false
	g.server.StartTLS()
	t.Cleanup(g.server.Close)
	config := Config{URL: g.server.URL, Database: database, Key: record.NewKey(), Rate: -1, Now: func() time.Time { return time.Now().Add(time.Duration(g.offset.Load())) }}
	for _, c := range change {
		c(&config)
	}
	host, err := Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	g.host = host
	handler.Store(host.Handler())
	made, err := host.CreateRecord(context.Background(), NewRecord{})
	if err != nil {
		t.Fatal(err)
	}
	g.record = made.ID
	return g
}

// app is an application with a grant, written from the protocol's page alone.
type app struct {
	*rig
	key    *record.Key
	grant  string
	record string
	actor  string
	token  string
}

func (g *rig) app(scope string, change ...func(*Grant)) *app {
	g.t.Helper()
	a := &app{rig: g, key: record.NewKey(), record: g.record}
	grant := Grant{Record: g.record, Client: a.key.ID(), Scope: scope}
	for _, c := range change {
		c(&grant)
	}
	var err error
	if a.grant, err = g.host.Grant(context.Background(), grant); err != nil {
		g.t.Fatal(err)
	}
	a.record, a.actor = grant.Record, grant.Representative
	a.token = a.getToken("")
	return a
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// code finds the protocol's code in an OperationOutcome, problem or OAuth error.
func (r reply) code() record.Code {
	var v struct {
		Code  record.Code
		Issue []struct {
			Details struct {
				Coding []struct{ System, Code string }
			}
		}
	}
	json.Unmarshal([]byte(r.body), &v)
	if v.Code == "" && len(v.Issue) == 1 && len(v.Issue[0].Details.Coding) == 1 && v.Issue[0].Details.Coding[0].System == CodeSystem {
		return record.Code(v.Issue[0].Details.Coding[0].Code)
	}
	return v.Code
}

func (g *rig) lastNonce() string {
	n, _ := g.nonce.Load().(string)
	return n
}

func (g *rig) send(r *http.Request) reply {
	g.t.Helper()
	answer, err := g.server.Client().Do(r)
	if err != nil {
		g.t.Error(err)
		return reply{}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		g.t.Error(err)
	}
	g.nonce.Store(answer.Header.Get("DPoP-Nonce"))
	return reply{answer.StatusCode, answer.Header, string(body)}
}

func (a *app) proof(method, path, token string) string {
	proof, err := record.NewProof(a.key, record.ProofParams{Method: method, URL: a.server.URL + path, AccessToken: token, Nonce: a.lastNonce()})
	if err != nil {
		a.t.Error(err)
	}
	return proof
}

// form posts to an OAuth endpoint, with the server's nonce at the second try.
func (a *app) form(path string, values url.Values) reply {
	a.t.Helper()
	for try := 0; ; try++ {
		assertion, err := record.NewAssertion(a.key, a.server.URL+"/oauth/token", a.host.now())
		if err != nil {
			a.t.Fatal(err)
		}
		values.Set("client_assertion_type", record.AssertionType)
		values.Set("client_assertion", assertion)
		r, _ := http.NewRequest("POST", a.server.URL+path, strings.NewReader(values.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("DPoP", a.proof("POST", path, ""))
		answer := a.send(r)
		if answer.code() != record.UseDPoPNonce || try == 1 {
			return answer
		}
	}
}

func (a *app) tokenReply(scope string) reply {
	values := url.Values{"grant_type": {"client_credentials"}, "patient": {a.record}}
	if scope != "" {
		values.Set("scope", scope)
	}
	if a.actor != "" {
		values.Set("actor", a.actor)
	}
	return a.form("/oauth/token", values)
}

func (a *app) getToken(scope string) string {
	a.t.Helper()
	answer := a.tokenReply(scope)
	var v struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
	}
	if json.Unmarshal([]byte(answer.body), &v); answer.status != 200 || v.TokenType != "DPoP" {
		a.t.Fatalf("token: %d %s", answer.status, answer.body)
	}
	return v.AccessToken
}

// request makes a signed request; header changes it last, "" removes.
func (a *app) request(method, path, body string, header map[string]string) *http.Request {
	r, err := http.NewRequest(method, a.server.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		a.t.Fatal(err)
	}
	plain, _, _ := strings.Cut(path, "?")
	r.Header.Set("Authorization", "DPoP "+a.token)
	r.Header.Set("DPoP", a.proof(method, plain, a.token))
	if method != "GET" && !strings.HasSuffix(plain, "_search") {
		r.Header.Set("Idempotency-Key", `"`+record.NewID()+`"`)
		r.Header.Set("Content-Digest", record.ContentDigest([]byte(body)))
	}
	switch method {
	case "POST", "PUT":
		r.Header.Set("Content-Type", "application/fhir+json")
	case "PATCH":
		r.Header.Set("Content-Type", "application/json-patch+json")
	}
	for name, value := range header {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

type headers = map[string]string

func (a *app) do(method, path, body string, header headers) reply {
	a.t.Helper()
	answer := a.send(a.request(method, path, body, header))
	if answer.code() == record.UseDPoPNonce && header["DPoP"] == "" {
		answer = a.send(a.request(method, path, body, header))
	}
	return answer
}

func (a *app) get(path string) reply { a.t.Helper(); return a.do("GET", path, "", nil) }

// obs is a valid Observation with more members.
func (a *app) obs(more string) string {
	return `{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]},"subject":{"reference":"Patient/` + a.record + `"}` + more + `}`
}

// create makes a resource and returns its id.
func (a *app) create(body string) string {
	a.t.Helper()
	var v struct{ ResourceType string }
	json.Unmarshal([]byte(body), &v)
	answer := a.do("POST", "/fhir/"+v.ResourceType, body, nil)
	if answer.status != 201 {
		a.t.Fatalf("create: %d %s", answer.status, answer.body)
	}
	return strings.Split(strings.TrimPrefix(answer.header.Get("Location"), a.server.URL+"/fhir/"), "/")[1]
}

func (a *app) withID(body, id string) string { return strings.Replace(body, "{", `{"id":"`+id+`",`, 1) }

// expect checks status and code.
func (a *app) expect(what string, got reply, status int, code record.Code) {
	a.t.Helper()
	if got.status != status || got.code() != code {
		a.t.Errorf("%s: got %d %s, want %d %s\n%s", what, got.status, got.code(), status, code, got.body)
	}
}

func newPlainServer(handler http.HandlerFunc) *httptest.Server { return httptest.NewServer(handler) }
