package host

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

func TestWriteAndReadBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		a := newRig(t, url).app("patient/*.cruds")
		// Exact content: digits, extensions, order and escapes.
		exact := `"valueQuantity":{"value":1.10,"unit":"g"},"component":[{"code":{"text":"a"},"valueQuantity":{"value":0.700}},{"code":{"text":"b"},"valueQuantity":{"value":1.2E+2}},{"code":{"text":"\u0063"},"valueQuantity":{"value":9007199254740993}}],"_status":{"extension":[{"url":"http://x","valueString":"y"}]}`
		answer := a.do("POST", "/fhir/Observation", a.obs(","+exact+`,"meta":{"versionId":"99","tag":[{"code":"t"}]}`), headers{"Prefer": "return=representation"})
		if answer.status != 201 || answer.header.Get("ETag") != `W/"1"` || !strings.Contains(answer.body, exact) {
			t.Fatalf("%d %s", answer.status, answer.body)
		}
		location := strings.TrimPrefix(answer.header.Get("Location"), a.server.URL)
		id := strings.Split(location, "/")[3]
		read := a.get("/fhir/Observation/" + id)
		if read.status != 200 || read.body != answer.body || read.header.Get("ETag") != `W/"1"` || !strings.Contains(read.body, `"versionId":"1"`) || !strings.Contains(read.body, `"tag":[{"code":"t"}]`) || strings.Contains(read.body, "99\"") {
			t.Errorf("%d %s", read.status, read.body)
		}
		if got := a.do("GET", "/fhir/Observation/"+id, "", headers{"If-None-Match": `W/"1"`}); got.status != 304 {
			t.Errorf("not modified: %d", got.status)
		}
		// Update, strong and weak.
		body := a.withID(a.obs(`,"valueString":"two"`), id)
		if got := a.do("PUT", "/fhir/Observation/"+id, body, headers{"If-Match": `"1"`}); got.status != 200 || got.header.Get("ETag") != `W/"2"` {
			t.Errorf("update: %d %s", got.status, got.body)
		}
		a.expect("stale", a.do("PUT", "/fhir/Observation/"+id, body, headers{"If-Match": `W/"1"`}), 412, record.VersionConflict)
		// Delete, and revive on the deletion's version.
		if got := a.do("DELETE", "/fhir/Observation/"+id, "", headers{"If-Match": `W/"2"`}); got.status != 204 || got.header.Get("ETag") != `W/"3"` {
			t.Errorf("delete: %d %s", got.status, got.body)
		}
		a.expect("read deleted", a.get("/fhir/Observation/"+id), 410, record.ResourceDeleted)
		a.expect("delete again", a.do("DELETE", "/fhir/Observation/"+id, "", headers{"If-Match": `W/"3"`}), 410, record.ResourceDeleted)
		a.expect("update on an older version", a.do("PUT", "/fhir/Observation/"+id, body, headers{"If-Match": `W/"2"`}), 410, record.ResourceDeleted)
		if got := a.do("PUT", "/fhir/Observation/"+id, body, headers{"If-Match": `W/"3"`}); got.status != 201 || got.header.Get("ETag") != `W/"4"` {
			t.Errorf("revive: %d %s", got.status, got.body)
		}
		// The past.
		if got := a.get(location); got.status != 200 || !strings.Contains(got.body, "1.2E+2") {
			t.Errorf("vread: %d %s", got.status, got.body)
		}
		a.expect("vread of the deletion", a.get("/fhir/Observation/"+id+"/_history/3"), 410, record.ResourceDeleted)
		a.expect("vread of the future", a.get("/fhir/Observation/"+id+"/_history/5"), 404, record.NotFound)
		a.expect("vread of nonsense", a.get("/fhir/Observation/"+id+"/_history/x"), 404, record.NotFound)
		history := a.get("/fhir/Observation/" + id + "/_history?_count=3")
		if strings.Count(history.body, `"fullUrl"`) != 3 || !strings.Contains(history.body, `"relation":"next"`) || !strings.Contains(history.body, `"method":"DELETE"`) {
			t.Errorf("history: %s", history.body)
		}
		rest := a.get("/fhir/Observation/" + id + "/_history?_count=3&_after=2")
		if strings.Count(rest.body, `"fullUrl"`) != 1 || !strings.Contains(rest.body, `"method":"POST"`) || strings.Contains(rest.body, "next") {
			t.Errorf("history's rest: %s", rest.body)
		}
		a.expect("history of nothing", a.get("/fhir/Observation/x/_history"), 404, record.NotFound)
	})
}

func TestPatchOfTheName(t *testing.T) {
	a := newRig(t, dbtest.SQLite(t)).app("patient/*.cruds")
	path := "/fhir/Patient/" + a.record
	patch := `[{"op":"add","path":"/name","value":[{"text":"Ada"}]}]`
	if got := a.do("PATCH", path, patch, headers{"If-Match": `W/"1"`}); got.status != 200 || got.header.Get("ETag") != `W/"2"` {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := a.get(path); !strings.Contains(got.body, `"name":[{"text":"Ada"}]`) {
		t.Errorf("%s", got.body)
	}
	for patch, code := range map[string]record.Code{
		`[{"op":"replace","path":"/birthDate","value":"2000"}]`:           record.UnsupportedResourceContent,
		`[{"op":"add","path":"/name/0/text","value":"x"}]`:                record.UnsupportedResourceContent,
		`[{"op":"test","path":"/name","value":[{"text":"Eve"}]}]`:         record.VersionConflict,
		`[{"op":"move","path":"/name","from":"/x"}]`:                      record.InvalidMessage,
		`[{"op":"copy","path":"/name","value":1}]`:                        record.InvalidMessage,
		`[{"op":"add","path":"/name"}]`:                                   record.InvalidMessage,
		`[]`:                                                              record.InvalidMessage,
		`{}`:                                                              record.InvalidMessage,
		`[{"op":"add","path":"/name","value":[{"txt":"x"}]}]`:             record.InvalidResource,
		`[{"op":"add","path":"/name","value":"x"}]`:                       record.InvalidResource,
		`[{"op":"add","op":"add","path":"/name","value":[{"text":"x"}]}]`: record.InvalidMessage,
	} {
		if got := a.do("PATCH", path, patch, headers{"If-Match": `W/"2"`}); got.code() != code {
			t.Errorf("%s: %d %s", patch, got.status, got.body)
		}
	}
	a.expect("stale", a.do("PATCH", path, patch, headers{"If-Match": `W/"1"`}), 412, record.VersionConflict)
	a.expect("another Patient", a.do("PATCH", "/fhir/Patient/"+record.NewID(), patch, headers{"If-Match": `W/"1"`}), 404, record.NotFound)
	a.expect("not a Patient", a.do("PATCH", "/fhir/Observation/x", patch, headers{"If-Match": `W/"1"`}), 422, record.UnsupportedResourceContent)
	if got := a.do("PATCH", path, `[{"op":"test","path":"/name","value":[{"text":"Ada"}]},{"op":"remove","path":"/name"}]`, headers{"If-Match": `W/"2"`}); got.status != 200 {
		t.Errorf("remove: %d %s", got.status, got.body)
	}
}

func TestReceiptsChainAndReplay(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		a := newRig(t, url).app("patient/*.cruds")
		op := record.NewID()
		body := a.obs("")
		first := a.do("POST", "/fhir/Observation", body, headers{"Idempotency-Key": `"` + op + `"`})
		receipt, err := record.VerifyReceipt(first.header.Get("Operation-Receipt"), a.host.ID())
		if err != nil {
			t.Fatal(err)
		}
		if err := receipt.Covers(a.record, a.key.ID(), op, record.Fingerprint("POST", "/Observation", "", []byte(body))); err != nil {
			t.Error(err)
		}
		// The same again, from now on: the same answer, and no second version.
		for range 2 {
			again := a.do("POST", "/fhir/Observation", body, headers{"Idempotency-Key": `"` + op + `"`})
			if again.status != 201 || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Operation-Receipt") != first.header.Get("Operation-Receipt") ||
				again.header.Get("ETag") != first.header.Get("ETag") || again.header.Get("Location") != first.header.Get("Location") || again.header.Get("Last-Modified") != first.header.Get("Last-Modified") {
				t.Errorf("%d %v", again.status, again.header)
			}
		}
		a.expect("another body", a.do("POST", "/fhir/Observation", a.obs(`,"valueString":"x"`), headers{"Idempotency-Key": `"` + op + `"`}), 422, record.OperationIDConflict)
		if got := a.get("/receipts/" + op); got.status != 200 || got.body != first.header.Get("Operation-Receipt") {
			t.Errorf("look-up: %d %s", got.status, got.body)
		}
		// Another client neither sees nor meets the operation.
		b := a.rig.app("patient/*.cruds")
		b.expect("probing", b.get("/receipts/"+op), 404, record.NotFound)
		if got := b.do("POST", "/fhir/Observation", body, headers{"Idempotency-Key": `"` + op + `"`}); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("another client's operation of the same id: %d %s", got.status, got.body)
		}
		a.expect("no such operation", a.get("/receipts/"+record.NewID()), 404, record.NotFound)
		a.expect("no operation id", a.get("/receipts/x"), 400, record.InvalidMessage)
		// A repeated update does not conflict with itself, and a failed one leaves no trace.
		path := "/fhir/Observation/" + receipt.ID
		update, op2 := a.withID(body, receipt.ID), record.NewID()
		a.expect("failure", a.do("PUT", path, update, headers{"If-Match": `"7"`, "Idempotency-Key": `"` + op2 + `"`}), 412, record.VersionConflict)
		for i := range 2 {
			got := a.do("PUT", path, update, headers{"If-Match": `"1"`, "Idempotency-Key": `"` + op2 + `"`})
			if got.status != 200 || (got.header.Get("Idempotent-Replayed") == "true") != (i == 1) {
				t.Errorf("try %d: %d %s", i, got.status, got.body)
			}
		}
		// The chain has no gap and every link holds.
		prev, seq := "", int64(0)
		err = a.host.db.Read(context.Background(), func(tx db.Tx) error {
			prev, seq = "", 0
			return tx.Adhoc("select receipt from receipts order by rk, seq", db.Args{}, func(row db.Row) error {
				var text string
				if err := row.Scan(&text); err != nil {
					return err
				}
				r, err := record.VerifyReceipt(text, a.host.ID())
				if seq++; r.Seq != seq || r.Prev != prev {
					t.Errorf("link %d: %+v", seq, r)
				}
				prev = record.ReceiptHash(text)
				return err
			})
		})
		if err != nil || seq != 4 {
			t.Errorf("%d receipts, %v", seq, err)
		}
	})
}

func TestMalformedWrites(t *testing.T) {
	a := newRig(t, dbtest.SQLite(t), func(c *Config) { c.MaxBody = 4096 }).app("patient/*.cruds")
	id := a.create(a.obs(""))
	path := "/fhir/Observation/" + id
	good := a.withID(a.obs(""), id)
	for name, c := range map[string]struct {
		method, path, body string
		header             headers
	}{
		"no operation id":        {"POST", "/fhir/Observation", a.obs(""), headers{"Idempotency-Key": ""}},
		"operation id, unquoted": {"POST", "/fhir/Observation", a.obs(""), headers{"Idempotency-Key": record.NewID()}},
		"operation id, other":    {"POST", "/fhir/Observation", a.obs(""), headers{"Idempotency-Key": `"1"`}},
		"no digest":              {"POST", "/fhir/Observation", a.obs(""), headers{"Content-Digest": ""}},
		"altered body":           {"POST", "/fhir/Observation", a.obs(""), headers{"Content-Digest": record.ContentDigest([]byte("x"))}},
		"no If-Match":            {"PUT", path, good, headers{"If-Match": ""}},
		"If-Match *":             {"PUT", path, good, headers{"If-Match": "*"}},
		"If-Match list":          {"PUT", path, good, headers{"If-Match": `"1", "2"`}},
		"If-Match unquoted":      {"PUT", path, good, headers{"If-Match": "1"}},
		"If-Match zero":          {"PUT", path, good, headers{"If-Match": `"0"`}},
		"If-Match negative":      {"PUT", path, good, headers{"If-Match": `"-1"`}},
		"If-Match huge":          {"PUT", path, good, headers{"If-Match": `"99999999999999999999"`}},
		"If-Match of a creation": {"POST", "/fhir/Observation", a.obs(""), headers{"If-Match": `"1"`}},
		"media type":             {"POST", "/fhir/Observation", a.obs(""), headers{"Content-Type": "text/plain"}},
		"body of a deletion":     {"DELETE", path, "{}", headers{"If-Match": `"1"`}},
		"too large":              {"POST", "/fhir/Observation", a.obs(`,"valueString":"` + strings.Repeat("x", 5000) + `"`), nil},
		"lab of another type":    {"POST", "/fhir/Condition", "{}", headers{record.LabHeader: "create_lab"}},
		"unknown operation":      {"POST", "/fhir/Observation", a.obs(""), headers{record.LabHeader: "x"}},
	} {
		a.expect(name, a.do(c.method, c.path, c.body, c.header), 400, record.InvalidMessage)
	}
	// Twice the same header.
	r := a.request("POST", "/fhir/Observation", a.obs(""), nil)
	r.Header.Add("Idempotency-Key", `"`+record.NewID()+`"`)
	a.expect("two operation ids", a.send(r), 400, record.InvalidMessage)
	// The profile's refusals, with their statuses.
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code               record.Code
	}{
		"type":        {"POST", "/fhir/Encounter", `{}`, 404, record.UnsupportedResourceType},
		"shape":       {"POST", "/fhir/Observation", `{`, 400, record.InvalidResource},
		"duplicate":   {"POST", "/fhir/Observation", a.obs(`,"status":"final"`), 400, record.InvalidResource},
		"case":        {"POST", "/fhir/Observation", a.obs(`,"Status":"final"`), 400, record.InvalidResource},
		"deep":        {"POST", "/fhir/Observation", strings.Repeat("[", 200), 400, record.InvalidResource},
		"id":          {"POST", "/fhir/Observation", a.withID(a.obs(""), "x"), 422, record.InvalidResourceID},
		"code":        {"POST", "/fhir/Observation", strings.Replace(a.obs(""), `"code":"718-7"`, `"display":"x"`, 1), 422, record.InvalidResourceCode},
		"status":      {"POST", "/fhir/Observation", strings.Replace(a.obs(""), "final", "done", 1), 422, record.InvalidResourceStatus},
		"patient":     {"POST", "/fhir/Observation", strings.Replace(a.obs(""), a.record, record.NewID(), 1), 422, record.WrongResourcePatient},
		"reference":   {"POST", "/fhir/Observation", a.obs(`,"hasMember":[{"reference":"Observation/nowhere"}]`), 422, record.WrongResourcePatient},
		"content":     {"POST", "/fhir/Observation", a.obs(`,"implicitRules":"http://x"`), 422, record.UnsupportedResourceContent},
		"invariant":   {"POST", "/fhir/Observation", a.obs(`,"valueString":"x","dataAbsentReason":{"text":"y"}`), 422, record.InvalidResource},
		"new Patient": {"POST", "/fhir/Patient", `{"resourceType":"Patient"}`, 422, record.InvalidResourceID},
		"no Patient":  {"DELETE", "/fhir/Patient/" + a.record, "", 422, record.UnsupportedResourceContent},
		"not there":   {"PUT", "/fhir/Observation/nowhere", a.withID(a.obs(""), "nowhere"), 404, record.NotFound},
		"taken id":    {"POST", "/fhir/Observation", a.withID(a.obs(""), id), 422, record.InvalidResourceID},
	} {
		header := headers{}
		if c.method != "POST" {
			header["If-Match"] = `"1"`
		}
		a.expect(name, a.do(c.method, c.path, c.body, header), c.status, c.code)
	}
	lab := a.do("POST", "/fhir/Observation", a.obs(""), headers{record.LabHeader: "create_lab"})
	a.expect("lab", lab, 422, record.InvalidLabCategory)
	if got := a.do("POST", "/fhir/Observation", a.obs(`,"hasMember":[{"reference":"Observation/`+id+`"}]`), nil); got.status != 201 {
		t.Errorf("a reference within the record: %d %s", got.status, got.body)
	}
}

// 50 requests with one operation id: one write, and everybody who gets a
// success gets the same one.
func TestRaceOfOneOperation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		a := newRig(t, url).app("patient/*.cruds")
		a.get("/fhir/Patient/" + a.record) // a nonce
		op := record.NewID()
		var wg sync.WaitGroup
		var mu sync.Mutex
		receipts, busy := map[string]int{}, 0
		for range 50 {
			wg.Go(func() {
				got := a.do("POST", "/fhir/Observation", a.obs(""), headers{"Idempotency-Key": `"` + op + `"`})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case got.status == 201:
					receipts[got.header.Get("Operation-Receipt")]++
				case got.code() == record.OperationInProgress && got.header.Get("Retry-After") != "":
					busy++
				default:
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		wg.Wait()
		if len(receipts) != 1 {
			t.Errorf("%d different receipts, %d busy", len(receipts), busy)
		}
		if got := a.get("/fhir/Observation"); strings.Count(got.body, "fullUrl") != 1 {
			t.Errorf("%s", got.body)
		}
	})
}

// 20 updates based on one version: one succeeds.
func TestRaceOfUpdates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		a := newRig(t, url).app("patient/*.cruds")
		id := a.create(a.obs(""))
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 20 {
			wg.Go(func() {
				got := a.do("PUT", "/fhir/Observation/"+id, a.withID(a.obs(fmt.Sprintf(`,"valueInteger":%d`, i)), id), headers{"If-Match": `"1"`})
				mu.Lock()
				defer mu.Unlock()
				if got.status == 200 {
					won++
				} else if got.code() != record.VersionConflict {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d updates won", won)
		}
	})
}

// Different writes at once: all succeed, and the chain is whole.
func TestManyWrites(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		g := newRig(t, url)
		var wg sync.WaitGroup
		for range 8 {
			a := g.app("patient/*.cruds")
			wg.Go(func() {
				for range 5 {
					if got := a.do("POST", "/fhir/Observation", a.obs(""), nil); got.status != 201 {
						t.Errorf("%d %s", got.status, got.body)
					}
				}
			})
		}
		wg.Wait()
		r, err := g.host.Record(context.Background(), g.record)
		if err != nil || r.Writes != 41 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// slowValidator holds a write until it is let go.
type slowValidator struct {
	asked, answer chan error
}

func (v *slowValidator) Validate(ctx context.Context, question Validation) error {
	v.asked <- nil
	select {
	case err := <-v.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestOperationInProgress(t *testing.T) {
	v := &slowValidator{make(chan error), make(chan error)}
	a := newRig(t, dbtest.SQLite(t), func(c *Config) { c.Validator = v }).app("patient/*.cruds")
	op := headers{"Idempotency-Key": `"` + record.NewID() + `"`}
	first := make(chan reply)
	go func() { first <- a.do("POST", "/fhir/Observation", a.obs(""), op) }()
	<-v.asked
	second := a.do("POST", "/fhir/Observation", a.obs(""), op)
	a.expect("the second", second, 409, record.OperationInProgress)
	if second.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	v.answer <- nil
	if got := <-first; got.status != 201 {
		t.Errorf("the first: %d %s", got.status, got.body)
	}
	// A replay does not ask again.
	if got := a.do("POST", "/fhir/Observation", a.obs(""), op); got.status != 201 || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the third: %d %s", got.status, got.body)
	}
}

func TestHTTPValidator(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		code   record.Code
		text   string
	}{
		"accepts": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }, 201, "", ""},
		"refuses": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(422)
			w.Write([]byte(`{"detail":"no units"}`))
		}, 422, record.ExternalValidationRejected, "no units"},
		"fails":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, 503, record.HostUnavailable, ""},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) }, 503, record.HostUnavailable, ""},
		"hangs":    {func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() }, 503, record.HostUnavailable, ""},
		"closes":   {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, 503, record.HostUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			// A hook of its own: one that hangs answers nobody, so nothing tells
			// when it is over with.
			hook := newHook(t, c.answer)
			a := newRig(t, dbtest.SQLite(t), func(c *Config) { c.Validator = HTTPValidator{URL: hook, Timeout: time.Second} }).app("patient/*.cruds")
			got := a.do("POST", "/fhir/Observation", a.obs(""), nil)
			a.expect(name, got, c.status, c.code)
			if !strings.Contains(got.body, c.text) || c.status == 503 && got.header.Get("Retry-After") == "" {
				t.Errorf("%s %v", got.body, got.header)
			}
			writes := int64(1) // the Patient
			if c.status == 201 {
				writes++
			}
			r, err := a.host.Record(context.Background(), a.record)
			if err != nil || r.Writes != writes {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func newHook(t *testing.T, handler http.HandlerFunc) string {
	server := newPlainServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestConditionalCreate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		a := newRig(t, url).app("patient/*.cruds")
		search := headers{"If-None-Exist": "identifier=http://x|7"}
		body := a.obs(`,"identifier":[{"system":"http://x","value":"7"}]`)
		if got := a.do("POST", "/fhir/Observation", body, search); got.status != 201 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		got := a.do("POST", "/fhir/Observation", body, search)
		if got.status != 200 || got.header.Get("ETag") != `W/"1"` || got.header.Get("Operation-Receipt") != "" {
			t.Errorf("%d %v", got.status, got.header)
		}
		a.create(body)
		a.expect("several", a.do("POST", "/fhir/Observation", body, search), 412, record.VersionConflict)
		a.expect("nothing", a.do("POST", "/fhir/Observation", body, headers{"If-None-Exist": "_count=1"}), 400, record.InvalidMessage)
		a.expect("unknown", a.do("POST", "/fhir/Observation", body, headers{"If-None-Exist": "x=1"}), 400, record.InvalidMessage)
	})
}

// Two processes of one Host on one Postgres database: an operation that both get
// at once is done once, and the chain of receipts is whole.
func TestTwoProcesses(t *testing.T) {
	database := dbtest.Postgres(t)
	key := record.NewKey()
	g := newRig(t, database, func(c *Config) { c.Key = key })
	second, err := Open(context.Background(), Config{URL: g.host.config.URL, Database: database, Key: key, Rate: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	a := g.app("patient/*.cruds")
	a.get("/fhir/Patient/" + a.record)
	claims, err := record.VerifyToken(a.token, g.host.ID(), g.host.config.URL, g.host.fhirBase(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{claims, mustScopes(claims.Scope)}
	for range 10 {
		op := record.NewID()
		var wg sync.WaitGroup
		var mu sync.Mutex
		receipts := map[string]bool{}
		for _, h := range []*Host{g.host, second, g.host, second} {
			wg.Go(func() {
				r := a.request("POST", "/fhir/Observation", a.obs(""), headers{"Idempotency-Key": `"` + op + `"`})
				r.SetPathValue("type", "Observation")
				q, err := h.readWrite(r, c, []byte(a.obs("")))
				if err != nil {
					t.Error(err)
					return
				}
				done, err := h.doWrite(context.Background(), q)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					receipts[done.receipt] = true
				} else if record.CodeOf(err) != record.OperationInProgress {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(receipts) != 1 {
			t.Errorf("%d receipts of one operation", len(receipts))
		}
	}
	r, err := second.Record(context.Background(), a.record)
	if err != nil || r.Writes != 11 {
		t.Errorf("%+v, %v", r, err)
	}
}

func FuzzIfMatch(f *testing.F) {
	for _, seed := range []string{`"1"`, `W/"12"`, `*`, `""`, `w/"1"`, `"01"`, `"9223372036854775808"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseIfMatch(text)
		if err == nil && (n < 1 || text != `"`+strconv.FormatInt(n, 10)+`"` && text != `W/"`+strconv.FormatInt(n, 10)+`"`) {
			t.Fatalf("%q is %d", text, n)
		}
	})
}
