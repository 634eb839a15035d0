//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/serve"
)

// lines splits the output of --json.
func jsonLines(t testing.TB, out string) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		list = append(list, task(t, line))
	}
	return list
}

// The whole story: a Directory, two Hosts, an application; write, read, move, read at the new Host.
func TestARecordIsWrittenReadAndMoved(t *testing.T) {
	t.Parallel()
	recordStory(t, newRecordWorld(t, nil))
}

func TestARecordIsWrittenReadAndMovedOnPostgres(t *testing.T) {
	t.Parallel()
	dsn := map[string]string{"directory": pgtest.DSN(t), "a": pgtest.DSN(t), "b": pgtest.DSN(t)}
	recordStory(t, newRecordWorld(t, func(name string) []string { return []string{"--db", dsn[name]} }))
}

func recordStory(t *testing.T, w *recordWorld) {
	for _, s := range []*served{w.dir, w.a, w.b} {
		if s.get(t, "/healthz") != 200 || s.get(t, "/readyz") != 200 {
			t.Error("a service is not ready")
		}
	}
	rec := w.host(w.a, "create")
	w.fails(exitFailed, `"holdfast host grant"`, w.record("read", rec, "Patient/"+rec)...)
	grant := w.host(w.a, "grant", rec, w.client, "--scope", "patient/*.cruds")
	if got := task(t, w.ok(w.record("where", rec, "--json")...)); got["generation"] != 1.0 || got["host"].(map[string]any)["id"] != w.a.ID {
		t.Errorf("the record lives at %v", got)
	}

	// Writes: each is there as it was written, once for its operation id.
	id, operation := record.NewID(), record.NewID()
	first := task(t, w.ok(w.record("create", rec, w.observation(rec, id, ""), "--operation", operation, "--json")...))
	if first["id"] != id || first["version"] != 1.0 || first["operation_id"] != operation || first["receipt"] == "" || first["replayed"] != nil {
		t.Errorf("the write is %v", first)
	}
	if out := w.ok(w.record("create", rec, w.observation(rec, id, ""), "--operation", operation)...); out != "Observation/"+id+" version 1, done before\n" {
		t.Errorf("again: %s", out)
	}
	w.fails(exitState, "leave --operation out", w.record("create", rec, w.observation(rec, "", `, "note": [{"text": "x"}]`), "--operation", operation)...)
	lab := w.observation(rec, "", `, "category": [{"coding": [{"system": "http://terminology.hl7.org/CodeSystem/observation-category", "code": "laboratory"}]}]`)
	w.ok(w.record("create", rec, lab, "--lab")...)
	w.fails(exitFailed, "invalid_lab_category", w.record("create", rec, w.observation(rec, "", ""), "--lab")...)
	w.fails(exitFailed, "Observation", w.record("create", rec, w.observation(rec, "", `, "effectiveDateTime": "yesterday"`))...)
	if out := w.ok(w.record("read", rec, "Observation/"+id)...); !strings.Contains(out, `"code":{"text": "a < b & c"}`) || !strings.Contains(out, `"valueQuantity":{"value": 1.10}}`) {
		t.Errorf("it was not kept as it was: %s", out)
	}
	if out := w.ok(w.record("read", rec, "Observation/"+id, "--json")...); strings.Count(out, "\n") != 1 || !strings.Contains(out, `{"text":"a < b & c"}`) || !strings.Contains(out, `"value":1.10`) {
		t.Errorf("as JSON: %s", out)
	}
	w.ok(w.record("update", rec, w.observation(rec, id, `, "note": [{"text": "second"}]`), "--version", "1")...)
	w.fails(exitState, "--version of what you read", w.record("update", rec, w.observation(rec, id, ""), "--version", "1")...)
	if out := w.ok(w.record("rename", rec, "Ada Lovelace", "--version", "1")...); out != "Patient/"+rec+" version 2\n" {
		t.Errorf("rename: %s", out)
	}
	if out := w.ok(w.record("read", rec, "Observation/"+id, "--version", "1")...); strings.Contains(out, "second") {
		t.Errorf("the first version is %s", out)
	}
	w.ok(w.record("delete", rec, "Observation/"+id, "--version", "2")...)
	w.fails(exitNotFound, "resource_deleted", w.record("read", rec, "Observation/"+id)...)
	w.fails(exitNotFound, "not_found", w.record("read", rec, "Observation/"+record.NewID())...)

	history := func() {
		t.Helper()
		list := jsonLines(t, w.ok(w.record("history", rec, "Observation/"+id, "--json")...))
		if len(list) != 3 || list[0]["deleted"] != true || list[0]["resource"] != nil || list[1]["version"] != 2.0 || list[2]["resource"] == nil {
			t.Errorf("the history is %v", list)
		}
		if out := w.ok(w.record("history", rec, "Observation/"+id)...); !strings.Contains(out, "deleted") || strings.Count(out, "\n") != 4 {
			t.Errorf("for people:\n%s", out)
		}
	}
	history()
	search := func(want int, args ...string) {
		t.Helper()
		if list := jsonLines(t, w.ok(w.record(append([]string{"search", rec, "--json"}, args...)...)...)); len(list) != want {
			t.Errorf("search %v finds %d, not %d", args, len(list), want)
		}
	}
	search(1, "Observation", "category=laboratory")
	search(0, "Observation", "category=vital-signs")
	search(2, "everything")
	if r := w.call(w.record("search", rec, "everything", "--limit", "1")...); r.code != 0 || !strings.Contains(r.out, "Patient/"+rec) || !strings.Contains(r.err, "there are more") {
		t.Errorf("a search with a limit: %+v", r)
	}
	if got := task(t, w.ok(w.record("receipt", rec, operation, "--json")...)); got["id"] != id || got["iss"] != w.a.ID || got["version"] != 1.0 {
		t.Errorf("the receipt is %v", got)
	}
	w.fails(exitNotFound, "not_found", w.record("receipt", rec, record.NewID())...)

	// Grants end at once.
	w.host(w.a, "revoke", grant)
	w.fails(exitFailed, "grant", w.record("read", rec, "Patient/"+rec)...)
	w.host(w.a, "grant", rec, w.client, "--scope", "patient/*.cruds")
	w.host(w.a, "clients", "disable", w.client)
	w.fails(exitFailed, "", w.record("read", rec, "Patient/"+rec)...)
	w.host(w.a, "clients", "add", w.client, "--name", "the application")
	w.ok(w.record("read", rec, "Patient/"+rec)...)
	if out := w.host(w.a, "clients"); !strings.Contains(out, "the application") || !strings.Contains(out, "enabled") {
		t.Errorf("the clients are\n%s", out)
	}
	grants := jsonLines(t, w.host(w.a, "grants", rec, "--json"))
	if len(grants) != 2 || grants[0]["active"] == grants[1]["active"] {
		t.Errorf("the grants are %v", grants)
	}
	tokens := jsonLines(t, w.host(w.a, "tokens", "--json"))
	if len(tokens) < 2 {
		t.Fatalf("the tokens are %v", tokens)
	}
	last := tokens[len(tokens)-1]
	if last["record"] != rec || last["client"] != w.client || last["scope"] != "patient/*.cruds" || last["revoked"] != false {
		t.Errorf("the last token is %v", last)
	}
	w.host(w.a, "tokens", "revoke", last["jti"].(string))
	if out := w.host(w.a, "tokens"); strings.Count(out, "revoked") != 1 || strings.Count(out, "\n") != len(tokens) { // and one of the head, which is trimmed
		t.Errorf("the tokens are\n%s", out)
	}

	// The move.
	before := task(t, w.host(w.a, "records", "--json"))
	w.host(w.b, "expect", rec)
	out := w.ok(w.moveArgs(w.a, w.b, rec)...)
	for _, part := range []string{"succeeded", rec + " lives at " + w.b.URL + " now, generation 2\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("the move does not say %q:\n%s", part, out)
		}
	}
	search(2, "everything")
	history()
	if got := task(t, w.ok(w.record("where", rec, "--json")...)); got["generation"] != 2.0 || got["host"].(map[string]any)["id"] != w.b.ID {
		t.Errorf("the record lives at %v", got)
	}
	after := task(t, w.host(w.b, "records", "--json"))
	if before["writes"] != after["writes"] || after["state"] != "active" || task(t, w.host(w.a, "records", "--json"))["state"] != "moved" {
		t.Errorf("the record was %v, and is %v", before, after)
	}
	// What was done at the old Host is known at the new one, with the old one's receipt.
	if out := w.ok(w.record("create", rec, w.observation(rec, id, ""), "--operation", operation)...); out != "Observation/"+id+" version 1, done before\n" {
		t.Errorf("again at the new Host: %s", out)
	}
	if got := task(t, w.ok(w.record("receipt", rec, operation, "--json")...)); got["iss"] != w.a.ID {
		t.Errorf("the receipt is %v", got)
	}
	w.ok(w.record("update", rec, w.observation(rec, id, ""), "--version", "3")...)
	log := jsonLines(t, w.directory("log", rec, "--json"))
	if len(log) != 2 || log[0]["reason"] != "created" || log[1]["host"].(map[string]any)["id"] != w.b.ID {
		t.Errorf("the log is %v", log)
	}
	for _, h := range []*served{w.a, w.b} {
		list := jsonLines(t, w.host(h, "audit", rec, "--json", "--limit", "10000"))
		actions := map[string]bool{}
		for _, e := range list {
			actions[e["action"].(string)] = true
		}
		if !actions["update"] || !actions["everything"] || !actions["history"] {
			t.Errorf("the audit has only %v", actions)
		}
	}
	// What is left of it at the old Host can go; the Host still says where it is.
	if out := w.host(w.a, "purge", rec); out != fmt.Sprintf("%.0f versions deleted", before["writes"]) {
		t.Errorf("purge: %s", out)
	}
	if out := w.host(w.a, "purge", rec); out != "0 versions deleted" {
		t.Errorf("purge again: %s", out)
	}
	w.fails(exitState, "whose move has ended", append([]string{"host", "purge", rec, "--data", w.b.folder}, dbOf(w.b)...)...)
	// Once more is no second move; elsewhere is refused with where it is.
	w.ok(w.moveArgs(w.a, w.b, rec)...)
	elsewhere := *w.b
	elsewhere.URL = "https://elsewhere.example"
	if r := w.call(w.moveArgs(w.a, &elsewhere, rec)...); r.code != exitState || !strings.Contains(r.err, "lives at "+w.b.URL) {
		t.Errorf("to another place: %+v", r)
	}
	// And back again: the same key stands under an ended move.
	w.b.stop(t)
	w.b = serveProcess(t, hostKind, w.b.folder, append([]string{"--ca", w.a.Cert}, dbOf(w.b)...)...)
	w.host(w.a, "expect", rec)
	w.ok(w.moveArgs(w.b, w.a, rec)...)
	search(3, "everything")
	for _, s := range []*served{w.a, w.b, w.dir} {
		s.stop(t)
	}
	w.fails(exitDatabase, "check that it runs", w.record("read", rec, "Patient/"+rec)...)
}

// One application's folder, many commands at once: they take turns, and what was verified stays.
func TestCommandsOfOneApplicationTakeTurns(t *testing.T) {
	t.Parallel()
	w := newRecordWorld(t, nil)
	records := make([]string, 6)
	for i := range records {
		records[i], _ = w.newRecord()
	}
	var all sync.WaitGroup
	for _, rec := range records {
		all.Go(func() {
			if r := call(t, "", w.record("read", rec, "Patient/"+rec)...); r.code != 0 {
				t.Errorf("read: %+v", r)
			}
		})
	}
	all.Wait()
	trust := readFile(t, filepath.Join(w.app, "trust.json"))
	for _, rec := range records {
		if !strings.Contains(trust, "/records/"+rec) {
			t.Errorf("what was verified of %s is forgotten", rec)
		}
	}
}

// A write whose outcome is open says how to send it again.
func TestAnOpenWriteNamesItsOperation(t *testing.T) {
	t.Parallel()
	w := newRecordWorld(t, nil)
	rec, _ := w.newRecord()
	w.ok(w.record("read", rec, "Patient/"+rec)...)
	w.a.stop(t)
	r := w.call(w.record("create", rec, w.observation(rec, "", ""))...)
	_, hint, found := strings.Cut(r.err, "--operation ")
	if r.code != exitDatabase || !found {
		t.Fatalf("the write: %+v", r)
	}
	operation, _, _ := strings.Cut(hint, " ")
	w.a = serveProcess(t, hostKind, w.a.folder)
	for _, want := range []string{" version 1\n", " version 1, done before\n"} {
		if out := w.ok(w.record("create", rec, w.observation(rec, "", ""), "--operation", operation)...); !strings.HasSuffix(out, want) {
			t.Errorf("sent again: %s, not %s", out, want)
		}
	}
}

// Without a Directory: one Host that has all records, and a representative.
func TestARecordWithoutADirectory(t *testing.T) {
	t.Parallel()
	folder, app := filepath.Join(t.TempDir(), "host"), filepath.Join(t.TempDir(), "app")
	h := serveProcess(t, hostKind, folder, "--listen", "127.0.0.1:0")
	id := record.NewID()
	patient := filepath.Join(t.TempDir(), "patient.json")
	if err := os.WriteFile(patient, []byte(`{"resourceType": "Patient", "id": "`+id+`", "name": [{"text": "Ada"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := ok(t, "host", "create", "--data", folder, "--id", id, "--patient", patient); out != id+"\n" {
		t.Errorf("create prints %s", out)
	}
	client := strings.TrimSpace(ok(t, "record", "init", "--data", app, "--host", h.URL, "--host-id", h.ID, "--ca", h.Cert, "--actor", "mother"))
	ok(t, "host", "grant", "--data", folder, id, client, "--scope", "patient/Patient.rs", "--representative", "mother", "--until", "2100-01-01")
	if out := ok(t, "record", "read", "--data", app, id, "Patient/"+id); !strings.Contains(out, `"name":[{"text": "Ada"}]`) {
		t.Errorf("read prints %s", out)
	}
	if r := call(t, "", "record", "rename", "--data", app, id, "Eve", "--version", "1"); r.code != exitFailed || !strings.Contains(r.err, "insufficient_scope") {
		t.Errorf("a write beyond the scope: %+v", r)
	}
	if e := jsonLines(t, ok(t, "host", "audit", "--data", folder, id, "--json")); e[len(e)-1]["actor"] != "mother" || e[len(e)-1]["outcome"] != "insufficient_scope" {
		t.Errorf("the audit ends with %v", e[len(e)-1])
	}
	if out := ok(t, "host", "grants", "--data", folder, id); !strings.Contains(out, "mother") || !strings.Contains(out, "ends in") {
		t.Errorf("the grants are\n%s", out)
	}
	if r := call(t, "", "record", "move", "--data", folder, id, "--to", "https://b.example", "--to-id", h.ID); r.code != exitState || !strings.Contains(r.err, "--directory") {
		t.Errorf("a move without a Directory: %+v", r)
	}
	// Its identity stays when the folder's application is set up again.
	if again := strings.TrimSpace(ok(t, "record", "init", "--data", app)); again != client {
		t.Errorf("init gives %s and %s", client, again)
	}
}

// What an application's commands refuse before they ask anybody.
func TestRecordCommandsRefuseBadInput(t *testing.T) {
	root := t.TempDir()
	app, none := filepath.Join(root, "app"), filepath.Join(root, "none")
	ok(t, "record", "init", "--data", app, "--host", "https://127.0.0.1:1", "--host-id", record.NewKey().ID())
	bad := filepath.Join(root, "bad.json")
	if err := os.WriteFile(bad, []byte(`{"resourceType": "Observation", "resourceType": "Patient"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	rec, host := record.NewID(), record.NewKey().ID()
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "say what to do", []string{"--data", app}},
		{exitUsage, "--data is missing", []string{"read", rec, "Patient/" + rec}},
		{exitNotFound, "holdfast record init", []string{"read", "--data", none, rec, "Patient/" + rec}},
		{exitUsage, "--directory FILE, or --host", []string{"init", "--data", filepath.Join(root, "new")}},
		{exitUsage, "belong together", []string{"init", "--data", none, "--host", "https://h.example"}},
		{exitUsage, "not both", []string{"init", "--data", none, "--host", "https://h.example", "--host-id", host, "--directory", "x"}},
		{exitUsage, "thumbprint", []string{"init", "--data", none, "--host", "https://h.example", "--host-id", "x"}},
		{exitUsage, "fhir_base", []string{"init", "--data", none, "--host", "h.example", "--host-id", host}},
		{exitUsage, "--ca", []string{"init", "--data", app, "--ca", filepath.Join(root, "x.pem")}},
		{exitUsage, "no certificate", []string{"init", "--data", app, "--ca", bad}},
		{exitUsage, "something else", []string{"init", "--data", app, "--ca", filepath.Join(root, "tls", "tls.key")}},
		{exitUsage, "UUIDv7", []string{"read", "--data", app, "x", "Patient/x"}},
		{exitUsage, "Type/id", []string{"read", "--data", app, rec, "Patient"}},
		{exitUsage, "Type/id", []string{"history", "--data", app, rec, "Patient/a/b"}},
		{exitUsage, "--version is -1", []string{"read", "--data", app, rec, "Patient/x", "--version", "-1"}},
		{exitUsage, "NAME=VALUE", []string{"search", "--data", app, rec, "Observation", "status"}},
		{exitUsage, "takes no parameters", []string{"search", "--data", app, rec, "everything", "status=final"}},
		{exitUsage, "--limit", []string{"search", "--data", app, rec, "Observation", "--limit", "-1"}},
		{exitUsage, "--limit", []string{"history", "--data", app, rec, "Patient/x", "--limit", "-1"}},
		{exitUsage, "no such file", []string{"create", "--data", app, rec, filepath.Join(root, "x.json")}},
		{exitUsage, "stands twice", []string{"create", "--data", app, rec, bad}},
		{exitUsage, "operation_id", []string{"delete", "--data", app, rec, "Observation/x", "--version", "1", "--operation", "x"}},
		{exitUsage, "version", []string{"delete", "--data", app, rec, "Observation/x"}},
		{exitUsage, "base_version", []string{"rename", "--data", app, rec, "Ada", "--version", "0"}},
		{exitUsage, "name", []string{"rename", "--data", app, rec, "", "--version", "1"}},
		{exitUsage, "UUIDv7", []string{"receipt", "--data", app, rec, "x"}},
		{exitUsage, "say where to", []string{"move", "--data", app, rec}},
		{exitUsage, "stands alone", []string{"move", "--data", app, rec, "--cancel", "--no-wait"}},
		{exitUsage, "thumbprint", []string{"move", "--data", app, rec, "--to", "https://h.example", "--to-id", "x"}},
		{exitDatabase, "check that it runs", []string{"read", "--data", app, rec, "Patient/" + rec}},
	} {
		if strings.HasSuffix(c.says, "something else") {
			if err := os.MkdirAll(filepath.Join(root, "tls"), 0o700); err != nil {
				t.Fatal(err)
			}
			if _, err := serve.Certificate(filepath.Join(root, "tls"), []string{"localhost"}); err != nil {
				t.Fatal(err)
			}
		}
		if r := call(t, "", append([]string{"record"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("holdfast record %v: exit code %d, not %d with %q: %s%s", c.args, r.code, c.code, c.says, r.err, r.out)
		}
	}
	if _, err := os.Stat(filepath.Join(none, "application.json")); err == nil {
		t.Error("a refused init has left an application")
	}
}
