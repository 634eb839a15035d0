package host

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

func TestTokenThreats(t *testing.T) {
	a := newRig(t, dbtest.SQLite(t)).app("patient/*.cruds")
	b := a.rig.app("patient/*.cruds")
	path := "/fhir/Patient/" + a.record
	if got := a.get(path); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	check := func(name string, header headers, status int, code record.Code) {
		t.Helper()
		got := a.do("GET", path, "", header)
		a.expect(name, got, status, code)
		if status == 401 && !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "DPoP ") {
			t.Errorf("%s: WWW-Authenticate %q", name, got.header.Get("WWW-Authenticate"))
		}
	}
	check("as Bearer", headers{"Authorization": "Bearer " + a.token}, 401, record.WrongTokenHolder)
	check("no token", headers{"Authorization": ""}, 401, record.InvalidToken)
	check("no proof", headers{"DPoP": ""}, 401, record.InvalidToken)
	check("another scheme", headers{"Authorization": "Basic " + a.token}, 401, record.InvalidToken)
	check("garbage", headers{"Authorization": "DPoP x.y.z"}, 401, record.InvalidToken)
	check("stolen, own proof", headers{"Authorization": "DPoP " + a.token, "DPoP": b.proof("GET", path, a.token)}, 401, record.WrongTokenHolder)
	check("proof of another request", headers{"DPoP": a.proof("GET", "/fhir/Observation", a.token)}, 401, record.InvalidToken)
	check("proof of another method", headers{"DPoP": a.proof("PUT", path, a.token)}, 401, record.InvalidToken)
	check("proof of another token", headers{"DPoP": a.proof("GET", path, b.token)}, 401, record.InvalidToken)
	proof := a.proof("GET", path, a.token)
	check("first use", headers{"DPoP": proof}, 200, "")
	check("replayed", headers{"DPoP": proof}, 401, record.InvalidToken)
	// A self-made token, signed by the application instead of the Host.
	claims, err := record.VerifyToken(a.token, a.host.ID(), a.host.config.URL, a.host.fhirBase(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	forged, _ := record.NewToken(a.key, claims, a.host.fhirBase())
	check("self-made", headers{"Authorization": "DPoP " + forged, "DPoP": a.proof("GET", path, forged)}, 401, record.InvalidToken)
	// Two of a header.
	r := a.request("GET", path, "", nil)
	r.Header.Add("DPoP", a.proof("GET", path, a.token))
	a.expect("two proofs", a.send(r), 401, record.InvalidToken)
	// A proof without a nonce gets one.
	plain, _ := record.NewProof(a.key, record.ProofParams{Method: "GET", URL: a.server.URL + path, AccessToken: a.token})
	got := a.send(a.request("GET", path, "", headers{"DPoP": plain}))
	a.expect("no nonce", got, 401, record.UseDPoPNonce)
	if got.header.Get("DPoP-Nonce") == "" || !strings.Contains(got.header.Get("WWW-Authenticate"), "use_dpop_nonce") {
		t.Errorf("%v", got.header)
	}
	// The token's time is over.
	a.offset.Store(int64(record.TokenLifetime + time.Second))
	a.expect("expired", a.get(path), 401, record.AuthorizationExpired)
}

func TestScopes(t *testing.T) {
	g := newRig(t, dbtest.SQLite(t))
	a := g.app("patient/Observation.rs patient/Condition.cud")
	for _, c := range []struct {
		method, path string
		code         record.Code
	}{
		{"GET", "/fhir/Observation", ""}, {"GET", "/fhir/Observation/x", record.NotFound}, {"POST", "/fhir/Observation", record.InsufficientScope},
		{"GET", "/fhir/Condition", record.InsufficientScope}, {"GET", "/fhir/Condition/x", record.InsufficientScope}, {"PUT", "/fhir/Condition/x", record.InvalidMessage},
		{"GET", "/fhir/Patient/" + g.record, record.InsufficientScope}, {"GET", "/fhir/Patient/" + g.record + "/$everything", record.InsufficientScope},
		{"GET", "/fhir/Encounter", record.InsufficientScope},
	} {
		if got := a.do(c.method, c.path, a.obs(""), nil); got.code() != c.code {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.status, got.code())
		}
	}
	// A token can be narrower than the grant, not wider.
	a.token = a.getToken("patient/Observation.r patient/Condition.r patient/Patient.r")
	a.expect("narrower", a.get("/fhir/Observation"), 403, record.InsufficientScope)
	a.expect("within", a.get("/fhir/Observation/x"), 404, record.NotFound)
	a.expect("wider", a.get("/fhir/Patient/"+g.record), 403, record.InsufficientScope)
	a.expect("nothing in common", a.tokenReply("patient/Patient.d"), 400, record.InsufficientScope)
	a.expect("malformed", a.tokenReply("user/*.read"), 400, record.InvalidMessage)
	all := g.app("patient/*.r")
	if got := all.get("/fhir/Encounter/1"); got.code() != record.UnsupportedResourceType || got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestParseScopes(t *testing.T) {
	for text, ok := range map[string]bool{"patient/*.cruds": true, "patient/Patient.r  patient/Observation.rs": true, "": false, " ": false, "patient/*.": false, "patient/*.sr": false,
		"patient/*.rr": false, "patient/*.x": false, "patient/X.r": false, "system/*.r": false, "patient/*": false, "patient/*.read": false, "openid": false, strings.Repeat("patient/*.r ", 500): false} {
		if _, err := parseScopes(text); (err == nil) != ok {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	for _, c := range [][3]string{{"patient/*.cruds", "patient/Observation.rs", "patient/Observation.rs"}, {"patient/Observation.cr", "patient/*.rs", "patient/Observation.r"},
		{"patient/Observation.c", "patient/Condition.c", ""}, {"patient/*.r", "patient/*.s", ""}, {"patient/*.r patient/*.r", "patient/*.r", "patient/*.r"}} {
		if got := intersect(mustScopes(c[0]), mustScopes(c[1])); got != c[2] {
			t.Errorf("%s and %s: %q", c[0], c[1], got)
		}
	}
}

func TestGrantsAndRevocation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database string) {
		g := newRig(t, database)
		ctx := context.Background()
		path := "/fhir/Patient/" + g.record
		a := g.app("patient/*.cruds")
		if err := g.host.Revoke(ctx, a.grant); err != nil {
			t.Fatal(err)
		}
		a.expect("grant revoked", a.get(path), 401, record.AuthorizationExpiredOrRevoked)
		a.expect("grant revoked, write", a.do("POST", "/fhir/Observation", a.obs(""), nil), 401, record.AuthorizationExpiredOrRevoked)
		a.expect("no new token", a.tokenReply(""), 401, record.AuthorizationExpiredOrRevoked)
		if err := g.host.Revoke(ctx, a.grant); record.CodeOf(err) != record.NotFound {
			t.Errorf("revoked twice: %v", err)
		}
		// A representative, whose grant ends by itself.
		rep := g.app("patient/*.rs", func(x *Grant) { x.Representative, x.Until = "parent-1", time.Now().Add(time.Hour) })
		if got := rep.get(path); got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
		other := *rep
		other.actor = "parent-2"
		other.expect("another representative", other.tokenReply(""), 403, record.RepresentativeNotAuthorized)
		other.actor = ""
		other.expect("without the representative", other.tokenReply(""), 401, record.AuthorizationExpiredOrRevoked)
		if err := g.host.Revoke(ctx, rep.grant); err != nil {
			t.Fatal(err)
		}
		rep.expect("the representative's grant ended", rep.get(path), 403, record.RepresentativeNotAuthorized)
		// Expiry in the middle of a token's life.
		soon := g.app("patient/*.rs", func(x *Grant) { x.Until = time.Now().Add(time.Minute) })
		g.offset.Store(int64(61 * time.Second))
		soon.expect("ended by itself", soon.get(path), 401, record.AuthorizationExpired)
		g.offset.Store(0)
		// One token is revoked by its holder; another application cannot.
		c, d := g.app("patient/*.cruds"), g.app("patient/*.cruds")
		if got := d.form("/oauth/revoke", url.Values{"token": {c.token}}); got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
		active := func(who *app, token string) bool {
			var v struct{ Active bool }
			got := who.form("/oauth/introspect", url.Values{"token": {token}})
			if err := json.Unmarshal([]byte(got.body), &v); err != nil {
				t.Errorf("%d %s", got.status, got.body)
			}
			return v.Active
		}
		if !active(c, c.token) || active(d, c.token) || active(c, "x") {
			t.Error("introspection is wrong")
		}
		if got := c.form("/oauth/revoke", url.Values{"token": {c.token}}); got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
		c.expect("token revoked", c.get(path), 401, record.AuthorizationExpiredOrRevoked)
		issued, err := g.host.Tokens(ctx, "", 100)
		if err != nil || len(issued) < 4 {
			t.Fatalf("%+v, %v", issued, err)
		}
		for _, i := range issued {
			if i.Revoked != (i.Client == c.key.ID()) || i.Record != g.record || i.Scope == "" || i.Expires.Sub(i.Issued) > record.TokenLifetime ||
				(i.Actor == "parent-1") != (i.Client == rep.key.ID()) || i.Grant == "" {
				t.Errorf("%+v", i)
			}
		}
		if page, err := g.host.Tokens(ctx, issued[1].ID, 2); err != nil || len(page) != 2 || page[0] != issued[2] {
			t.Errorf("%+v, %v", page, err)
		}
		// Its operator ends a token by what the list says.
		last := issued[len(issued)-1]
		if err := g.host.RevokeToken(ctx, last.ID); err != nil || last.Client != d.key.ID() {
			t.Errorf("%+v, %v", last, err)
		}
		d.expect("revoked by the operator", d.get(path), 401, record.AuthorizationExpiredOrRevoked)
		d.token = d.getToken("")
		// Tokens whose time is over are forgotten.
		g.offset.Store(int64(16 * time.Minute))
		if left, err := g.host.Tokens(ctx, "", 100); err != nil || len(left) != 0 {
			t.Errorf("%+v, %v", left, err)
		}
		g.offset.Store(0)
		if active(c, c.token) {
			t.Error("a revoked token is active")
		}
		// A disabled application.
		if err := g.host.DisableClient(ctx, d.key.ID()); err != nil {
			t.Fatal(err)
		}
		d.expect("disabled", d.get(path), 401, record.AuthorizationExpiredOrRevoked)
		d.expect("disabled, new token", d.tokenReply(""), 401, record.InvalidToken)
		if _, err := g.host.Grant(ctx, Grant{Record: g.record, Client: d.key.ID(), Scope: "patient/*.r"}); record.CodeOf(err) != record.InvalidMessage {
			t.Errorf("a grant to a disabled application: %v", err)
		}
		list, err := g.host.Grants(ctx, g.record)
		if err != nil || len(list) != 5 || list[0].Active(time.Now()) || !list[4].Active(time.Now()) {
			t.Errorf("%+v, %v", list, err)
		}
		if clients, err := g.host.Clients(ctx); err != nil || len(clients) != 5 {
			t.Errorf("%d clients, %v", len(clients), err)
		}
	})
}

// A token for one record opens no other; records are not probed.
func TestOtherRecords(t *testing.T) {
	g := newRig(t, dbtest.SQLite(t))
	other, err := g.host.CreateRecord(context.Background(), NewRecord{})
	if err != nil {
		t.Fatal(err)
	}
	a := g.app("patient/*.cruds")
	a.expect("read", a.get("/fhir/Patient/"+other.ID), 404, record.NotFound)
	a.expect("everything", a.get("/fhir/Patient/"+other.ID+"/$everything"), 404, record.NotFound)
	if got := a.get("/fhir/Observation?patient=" + other.ID); got.status != 200 || strings.Contains(got.body, "entry") {
		t.Errorf("%d %s", got.status, got.body)
	}
	probe := *a
	probe.record = other.ID
	exists := probe.tokenReply("")
	probe.record = record.NewID()
	missing := probe.tokenReply("")
	if exists.status != missing.status || exists.body != missing.body {
		t.Errorf("a record's existence shows: %s, %s", exists.body, missing.body)
	}
}

func TestTokenEndpointRefusals(t *testing.T) {
	g := newRig(t, dbtest.SQLite(t))
	a := g.app("patient/*.r")
	base := func() url.Values { return url.Values{"grant_type": {"client_credentials"}, "patient": {g.record}} }
	with := func(key, value string) url.Values { v := base(); v.Set(key, value); return v }
	a.expect("grant type", a.form("/oauth/token", with("grant_type", "password")), 400, record.InvalidMessage)
	a.expect("no record", a.form("/oauth/token", with("patient", "x")), 400, record.InvalidMessage)
	a.expect("another client_id", a.form("/oauth/token", with("client_id", record.NewKey().ID())), 401, record.InvalidToken)
	v := base()
	v["patient"] = []string{g.record, g.record}
	a.expect("twice", a.form("/oauth/token", v), 400, record.InvalidMessage)
	// An assertion that somebody else saw does not work with another key's proof,
	// nor twice.
	thief := *a
	thief.key = record.NewKey()
	assertion, _ := record.NewAssertion(a.key, a.server.URL+"/oauth/token", time.Now())
	post := func(who *app) reply {
		v := base()
		v.Set("client_assertion_type", record.AssertionType)
		v.Set("client_assertion", assertion)
		r, _ := http.NewRequest("POST", a.server.URL+"/oauth/token", strings.NewReader(v.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("DPoP", who.proof("POST", "/oauth/token", ""))
		return a.send(r)
	}
	a.expect("stolen assertion", post(&thief), 400, record.WrongTokenHolder)
	a.expect("used again", post(a), 401, record.InvalidToken)
	stranger := *a
	stranger.key = record.NewKey()
	stranger.expect("unknown application", stranger.tokenReply(""), 401, record.InvalidToken)
}

func TestAuditOfEverything(t *testing.T) {
	g := newRig(t, dbtest.SQLite(t))
	a := g.app("patient/*.cruds", func(x *Grant) { x.Representative = "parent" })
	id := a.create(a.obs(""))
	a.get("/fhir/Observation/" + id)
	a.get("/fhir/Observation")
	a.get("/fhir/Observation/" + id + "/_history")
	a.get("/fhir/Patient/" + g.record + "/$everything")
	op := record.NewID()
	a.do("PUT", "/fhir/Observation/"+id, a.withID(a.obs(""), id), headers{"If-Match": `"9"`, "Idempotency-Key": `"` + op + `"`})
	list, err := g.host.Audit(context.Background(), g.record, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		if e.Client != g.host.ID() && (e.Client != a.key.ID() || e.Actor != "parent") {
			t.Errorf("%+v", e)
		}
		got = append(got, e.Action+" "+strings.Replace(e.Target, id, "ID", 1)+" "+e.Outcome)
	}
	want := []string{"create Patient/" + g.record + " ok", "token  ok", "create Observation/ID ok", "read Observation/ID ok", "search Observation ok", "history Observation/ID ok",
		"everything Patient/" + g.record + " ok", "update Observation/ID version_conflict"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if last := list[len(list)-1]; last.Operation != op {
		t.Errorf("%+v", last)
	}
}

func TestFloods(t *testing.T) {
	a := newRig(t, dbtest.SQLite(t), func(c *Config) { c.Rate, c.Burst = 0.01, 5 }).app("patient/*.r")
	limited := 0
	for range 10 {
		if got := a.get("/fhir/Observation/x"); got.status == 429 {
			limited++
			if got.header.Get("Retry-After") == "" || got.code() != record.RateLimited {
				t.Errorf("%s %v", got.body, got.header)
			}
		}
	}
	if limited < 4 {
		t.Errorf("%d of 10 were limited", limited)
	}
}

func TestMaxConcurrent(t *testing.T) {
	v := &slowValidator{make(chan error), make(chan error)}
	a := newRig(t, dbtest.SQLite(t), func(c *Config) { c.Validator, c.MaxConcurrent = v, 1 }).app("patient/*.cruds")
	first := make(chan reply)
	go func() { first <- a.do("POST", "/fhir/Observation", a.obs(""), nil) }()
	<-v.asked
	a.expect("while one is worked on", a.get("/fhir/Observation"), 503, record.HostUnavailable)
	if got := a.get("/healthz"); got.status != 200 {
		t.Errorf("healthz: %d", got.status)
	}
	v.answer <- nil
	<-first
	if got := a.get("/readyz"); got.status != 200 {
		t.Errorf("readyz: %d", got.status)
	}
}

func TestRequestDeadline(t *testing.T) {
	v := &slowValidator{make(chan error, 1), make(chan error)}
	a := newRig(t, dbtest.SQLite(t), func(c *Config) { c.Validator, c.Timeout = v, 1500*time.Millisecond }).app("patient/*.cruds")
	got := a.do("POST", "/fhir/Observation", a.obs(""), nil)
	a.expect("a validator without a deadline", got, 503, record.HostUnavailable)
}

func TestSeenSet(t *testing.T) {
	s := newSeenSet(time.Minute)
	now := time.Now()
	step := func(text string, at time.Duration, want bool) {
		t.Helper()
		if fresh, full := s.add(text, now.Add(at)); fresh != want || full {
			t.Errorf("%s at %v: %v", text, at, fresh)
		}
	}
	step("a", 0, true)
	step("a", time.Minute, false)
	step("a", 61*time.Second, false) // in the older half
	step("b", 62*time.Second, true)
	step("b", 121*time.Second, false)
	step("a", 125*time.Second, true) // long after the window
}

// Bytes that are no text, wherever a request can have them: a refusal, never a
// failure of the database.
func TestBytesThatAreNoText(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database string) {
		a := newRig(t, database).app("patient/*.cruds")
		a.get("/fhir/Patient/" + a.record)
		for _, bad := range []string{"%00", "%ff", "a%00b", "%C3%28"} {
			for path, status := range map[string]int{"/fhir/" + bad: 404, "/fhir/Observation/" + bad: 404, "/fhir/Observation/" + bad + "/_history": 404, "/fhir/Observation/x/_history/" + bad: 404,
				"/fhir/Patient/" + bad + "/$everything": 404, "/fhir/Observation?code=" + bad: 400, "/fhir/Observation?" + bad + "=1": 400, "/receipts/" + bad: 400} {
				if got := a.get(path); got.status != status {
					t.Errorf("%s: %d %s", path, got.status, got.body)
				}
			}
			if got := a.do("POST", "/fhir/"+bad, "{}", nil); got.status != 404 {
				t.Errorf("POST %s: %d %s", bad, got.status, got.body)
			}
			text, _ := url.PathUnescape(bad)
			if got := a.form("/oauth/token", url.Values{"grant_type": {"client_credentials"}, "patient": {a.record}, "actor": {text}}); got.status != 400 {
				t.Errorf("actor %s: %d %s", bad, got.status, got.body)
			}
		}
		// In content it is text like any other.
		if got := a.do("POST", "/fhir/Observation", a.obs(`,"valueString":"a\u0000b","identifier":[{"value":"a\u0000b"}]`), nil); got.status != 201 {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

func TestErrorsAreOutcomes(t *testing.T) {
	a := newRig(t, dbtest.SQLite(t)).app("patient/*.cruds")
	got := a.do("POST", "/fhir/Observation", a.obs(`,"valueString":"x","dataAbsentReason":{"text":"y"}`), nil)
	var v struct {
		ResourceType string
		Issue        []struct {
			Severity, Code, Diagnostics string
			Expression                  []string
		}
	}
	if err := json.Unmarshal([]byte(got.body), &v); err != nil || v.ResourceType != "OperationOutcome" || len(v.Issue) != 1 || v.Issue[0].Severity != "error" ||
		v.Issue[0].Code != "invariant" || !strings.HasPrefix(v.Issue[0].Diagnostics, "obs-6: ") || v.Issue[0].Expression[0] != "Observation" || got.header.Get("Content-Type") != "application/fhir+json" {
		t.Errorf("%s", got.body)
	}
	if got := a.get("/receipts/x"); got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%v", got.header)
	}
	a.expect("no such interaction", a.get("/fhir/Observation/x/y/z"), 404, record.NotFound)
}

// A failing database is host_unavailable, and says nothing of its insides.
func TestBrokenDatabase(t *testing.T) {
	a := newRig(t, dbtest.SQLite(t)).app("patient/*.cruds")
	a.get("/fhir/Observation")
	a.host.db.Write(context.Background(), "break", func(tx db.Tx) error { return tx.Adhoc("drop table receipts", nil, nil) })
	got := a.do("POST", "/fhir/Observation", a.obs(""), nil)
	a.expect("no table", got, 503, record.HostUnavailable)
	if strings.Contains(got.body, "receipts") || got.header.Get("Retry-After") == "" {
		t.Errorf("%s", got.body)
	}
}
