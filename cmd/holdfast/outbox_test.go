//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/record"
)

// queueWorld is a Host, an application and its queue.
type queueWorld struct {
	t      *testing.T
	host   *served
	app    string // its folder
	client string
	file   string
	record string
}

func newQueueWorld(t *testing.T) *queueWorld {
	t.Helper()
	root := t.TempDir()
	w := &queueWorld{t: t, app: filepath.Join(root, "app"), file: filepath.Join(root, "queue.db")}
	w.host = serveProcess(t, hostKind, filepath.Join(root, "host"), "--listen", "127.0.0.1:0", "--rate=-1")
	w.client = strings.TrimSpace(ok(t, "record", "init", "--data", w.app, "--host", w.host.URL, "--host-id", w.host.ID, "--ca", w.host.Cert))
	w.record = w.newRecord()
	return w
}

func (w *queueWorld) newRecord() string {
	w.t.Helper()
	record := strings.TrimSpace(ok(w.t, "host", "create", "--data", w.host.folder))
	ok(w.t, "host", "grant", "--data", w.host.folder, record, w.client, "--scope", "patient/*.cruds")
	return record
}

// args are those of an outbox command on the world's queue.
func (w *queueWorld) args(args ...string) []string {
	return append(append([]string{"outbox"}, args...), "--file", w.file)
}

func (w *queueWorld) ok(args ...string) string {
	w.t.Helper()
	return strings.TrimSpace(ok(w.t, w.args(args...)...))
}

// fails runs a command that must fail with this code, and say that.
func (w *queueWorld) fails(code int, says string, args ...string) {
	w.t.Helper()
	r := call(w.t, "", w.args(args...)...)
	if r.code != code || !strings.Contains(r.err, says) {
		w.t.Errorf("holdfast outbox %s: exit code %d, not %d with %q: %s%s", strings.Join(args, " "), r.code, code, says, r.err, r.out)
	}
}

// run starts an owner, and waits until it owns.
func (w *queueWorld) run(more ...string) *process {
	w.t.Helper()
	p := start(w.t, w.args(append([]string{"run", "--data", w.app, "--json", "--pause-max", "200ms"}, more...)...)...)
	eventually(w.t, "the owner is at it", func() bool {
		select {
		case <-p.ended:
			w.t.Fatalf("the owner has ended: %s", p.err)
		default:
		}
		return strings.HasSuffix(p.out.String(), "}\n")
	})
	return p
}

// secretText stands in every write, and must be seen only where content is asked for.
const secretText = "Ada-Lovelace"

// resource writes an Observation into a file.
func (w *queueWorld) resource(record, more string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "observation.json")
	text := `{"resourceType": "Observation", "status": "final", "code": {"text": "` + secretText + `"}, "subject": {"reference": "Patient/` + record + `"}, "valueQuantity": {"value": 1.10}` + more + `}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// entry is an entry by --json.
func (w *queueWorld) entry(operation string, more ...string) (e entryJSON) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.ok(append([]string{"show", operation, "--json"}, more...)...)), &e); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *queueWorld) until(operation, state string) {
	w.t.Helper()
	eventually(w.t, operation+" is "+state, func() bool { return string(w.entry(operation).State) == state })
}

// writes counts what the Host has done to the record since it was made.
func (w *queueWorld) writes(id string) int64 {
	w.t.Helper()
	for _, line := range strings.Split(ok(w.t, "host", "records", "--data", w.host.folder, "--json"), "\n") {
		var r recordJSON
		if line != "" {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				w.t.Fatal(err)
			}
		}
		if r.ID == id {
			return r.Writes - 1
		}
	}
	w.t.Fatalf("the Host has no record %s", id)
	return 0
}

// Every command does the same on the file and through its owner.
func TestOutboxCommands(t *testing.T) {
	t.Parallel()
	for name, owned := range map[string]bool{"on the file": false, "through its owner": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outboxCommands(t, newQueueWorld(t), owned)
		})
	}
}

func outboxCommands(t *testing.T, w *queueWorld, owned bool) {
	shown := ""
	see := func(args ...string) string {
		t.Helper()
		out := w.ok(args...)
		shown += out
		return out
	}
	why := []string{"--reason", "a test", "--by", "tester"}
	change := func(args ...string) string { t.Helper(); return see(append(args, why...)...) }
	flush := func() { shown += fmt.Sprint(call(t, "", w.args("run", "--data", w.app, "--once")...)) }

	first := see("enqueue", "--data", w.app, w.record, w.resource(w.record, ""))
	if owned {
		owner := w.run()
		defer func() { shown += owner.out.String() + owner.err.String() }()
		flush = func() {}
	}
	flush()
	w.until(first, "committed")
	if e := w.entry(first); e.Result == nil || e.Result.Type != "Observation" || e.Result.Version != 1 || e.Attempts != 1 || e.Patient != w.record || e.Kind != record.CreateResource || e.Intent != nil {
		t.Errorf("the entry is %+v", e)
	}
	renamed := see("enqueue", w.record, "--rename", secretText, "--version", "1")
	flush()
	w.until(renamed, "committed")

	// A conflict, and what stands behind it.
	stale := see("enqueue", w.record, "--rename", secretText, "--version", "1")
	behind := see("enqueue", w.record, w.resource(w.record, ""))
	flush()
	w.until(stale, "conflicted")
	if list := see("list"); !strings.Contains(list, stale) || !strings.Contains(list, behind) || strings.Contains(list, first) || !strings.Contains(list, "version_conflict") {
		t.Errorf("the list is\n%s", list)
	}
	if list := see("list", "--all", "--limit", "3", "--json"); strings.Count(list, "\n") != 2 || !strings.Contains(list, first) || strings.Contains(list, behind) {
		t.Errorf("the list is\n%s", list)
	}
	if list := see("list", "--after", "3", "--record", w.record); strings.Contains(list, stale) || !strings.Contains(list, behind) {
		t.Errorf("the list is\n%s", list)
	}
	if list := see("list", "--heads"); !strings.Contains(list, stale) || strings.Contains(list, behind) {
		t.Errorf("the heads are\n%s", list)
	}
	if sum := see("summary", "--json"); !strings.Contains(sum, `"waiting":1,"blocked":1`) {
		t.Errorf("the summary is %s", sum)
	}
	if sum := see("summary"); !strings.Contains(sum, "conflicted        1") {
		t.Errorf("the summary is\n%s", sum)
	}
	if text := see("show", stale); !strings.Contains(text, "version_conflict: The resource has a newer version") || !strings.Contains(text, "content    not shown; --content shows it") {
		t.Errorf("the entry is shown as\n%s", text)
	}
	for _, args := range [][]string{{"show", behind, "--content"}, {"show", behind, "--content", "--json"}, {"list", "--content", "--json"}} {
		if text := w.ok(args...); !strings.Contains(text, secretText) || args[1] == behind && !strings.Contains(text, "1.10") {
			t.Errorf("%v: %s", args, text)
		}
	}
	change("retry", stale)
	flush()
	w.until(stale, "conflicted")
	if e := w.entry(stale); e.Attempts != 2 {
		t.Errorf("after a retry it has %d attempts", e.Attempts)
	}
	based := change("rebase", stale, "--version", "2")
	flush()
	w.until(behind, "committed")
	if e := w.entry(stale); e.State != "discarded" || e.ReplacedBy != based {
		t.Errorf("the rebased entry is %+v", e)
	}
	if e := w.entry(based); e.State != "committed" || e.Result.Version != 3 || e.Position != 3 {
		t.Errorf("the entry in its place is %+v", e)
	}

	// A write that is refused.
	refused := see("enqueue", w.record, w.resource(w.record, `, "note": [{"text": 7}]`))
	flush()
	w.until(refused, "rejected")
	shown += fmt.Sprint(w.entry(refused))
	if text := see("retry", "--all", "--code", "no_such_code", "--reason", "x"); text != "0 entries are pending again" {
		t.Errorf("%q", text)
	}
	if text := change("retry", "--all"); text != "1 entries are pending again" {
		t.Errorf("%q", text)
	}
	flush()
	w.until(refused, "rejected")
	placed := change("replace", refused, w.resource(w.record, ""))
	flush()
	w.until(placed, "committed")
	other := w.newRecord()
	wrong := see("enqueue", other, w.resource(other, `, "note": [{"text": 7}]`))
	flush()
	w.until(wrong, "rejected")
	w.fails(exitNotFound, "unknown_queue_entry", "discard", record.NewID(), wrong, "--reason", "a test")
	w.until(wrong, "discarded")
	w.fails(exitState, "queue_state_conflict", "discard", wrong, "--reason", "a test")

	actions := ""
	for _, line := range strings.Split(see("audit", "--json"), "\n") {
		var l auditJSON
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.By != "tester" && l.Operation != wrong || l.Reason != "a test" {
			t.Errorf("a line of the audit is %s", line)
		}
		actions += l.Action + " "
	}
	if actions != "retry rebase retry replace discard " {
		t.Errorf("the audit has %s", actions)
	}
	if text := see("audit", wrong); !strings.Contains(text, "rejected") || strings.Count(text, "\n") != 1 {
		t.Errorf("the audit of one entry is\n%s", text)
	}
	if text := see("show", stale); !strings.Contains(text, "rebase by tester") {
		t.Errorf("the entry is shown as\n%s", text)
	}
	if text := see("verify", "--json"); !strings.Contains(text, `"checked":13,"authenticated":false,"problems":[]`) {
		t.Errorf("the verification is %s", text)
	}

	if text := see("prune", "--older-than", "1d"); text != "0 entries deleted" {
		t.Errorf("%q", text)
	}
	if text := see("prune", "--older-than", "0s", "--json"); text != `{"deleted":8}` {
		t.Errorf("%q", text)
	}
	if list := see("list", "--all"); list != "" {
		t.Errorf("after the prune there are\n%s", list)
	}
	w.fails(exitState, "queue_operation_id_conflict", "enqueue", w.record, "--rename", "x", "--version", "9", "--operation", first)
	if n := w.writes(w.record); n != 5 {
		t.Errorf("the Host has done %d writes, not 5", n)
	}
	if strings.Contains(shown, secretText) {
		t.Errorf("content was shown:\n%s", shown)
	}
}

// The owner dies by SIGKILL while the Host is down: its socket stays, and is in nobody's way.
func TestAKilledOwnerIsInNobodysWay(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	w.host.stop(t)
	owner := w.run()
	id := w.ok("enqueue", w.record, w.resource(w.record, ""))
	eventually(t, "it was tried", func() bool { return w.entry(id).Code == record.TransportUnavailable })
	owner.signal(t, syscall.SIGKILL)
	owner.wait(t, 20*time.Second)
	if _, err := os.Lstat(w.file + "-control"); err != nil {
		t.Fatalf("the dead owner's socket: %v", err)
	}
	if e := w.entry(id); e.State != "pending" {
		t.Errorf("after the kill the entry is %+v", e)
	}
	next := w.run()
	w.fails(exitState, "another process owns", "run", "--data", w.app)
	w.host = serveProcess(t, hostKind, w.host.folder)
	w.until(id, "committed")
	next.signal(t, syscall.SIGTERM)
	if code := next.wait(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if _, err := os.Lstat(w.file + "-control"); err == nil {
		t.Error("an owner that has stopped leaves its socket")
	}
	if n := w.writes(w.record); n != 1 {
		t.Errorf("the Host has done %d writes", n)
	}
}

func TestOutboxRunOnceTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	once := func(code int, says string) {
		t.Helper()
		r := call(t, "", w.args("run", "--data", w.app, "--once", "--json")...)
		if r.code != code || !strings.Contains(r.out, says) {
			t.Errorf("exit code %d, %s%s", r.code, r.out, r.err)
		}
	}
	once(0, `{"sent":0,"committed":0,"stops":[]}`)
	w.ok("enqueue", w.record, "--rename", "x", "--version", "1")
	once(0, `"committed":1`)
	w.ok("enqueue", w.record, "--rename", "x", "--version", "1")
	once(exitState, `"code":"version_conflict"`)
	w.host.stop(t)
	w.ok("enqueue", record.NewID(), "--rename", "x", "--version", "1")
	once(exitState, `"code":"transport_unavailable"`)
	for _, line := range strings.Split(w.ok("list", "--state", "conflicted", "--json"), "\n") {
		var e entryJSON
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		w.ok("discard", e.Operation, "--reason", "a test")
	}
	once(exitTimeout, `"code":"transport_unavailable"`)
}

// Commands that have the file to themselves for a moment wait for each other.
func TestOutboxCommandsTakeTurns(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	w.ok("enqueue", "--data", w.app, w.record, "--rename", "x", "--version", "1")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { w.ok("enqueue", w.record, w.resource(w.record, "")) })
		all.Go(func() { w.ok("list") })
	}
	all.Wait()
	if list := w.ok("list", "--json"); strings.Count(list, "\n") != 6 {
		t.Errorf("the list is\n%s", list)
	}
}

// An owner that serves no socket is told apart from nobody.
func TestAnOwnerWithoutASocket(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	id := w.ok("enqueue", "--data", w.app, w.record, "--rename", "x", "--version", "1")
	b, err := outbox.Open(t.Context(), w.file, nil, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	w.fails(exitState, "does not answer", "show", id)
}

func TestAnEncryptedQueue(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	dir := t.TempDir()
	key := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right, wrong := key("right", strings.Repeat("1f", 32)+"\n"), key("wrong", strings.Repeat("k", 32))
	id := w.ok("enqueue", "--data", w.app, w.record, w.resource(w.record, ""), "--key-file", right)
	if strings.Contains(readFile(t, w.file), secretText) {
		t.Error("the file can be read")
	}
	if text := w.ok("show", id, "--content", "--key-file", right); !strings.Contains(text, secretText) {
		t.Errorf("with the key one sees %s", text)
	}
	if text := w.ok("verify", "--key-file", right); !strings.Contains(text, "with the key") {
		t.Errorf("the verification is %s", text)
	}
	w.fails(exitDatabase, "queue_key_mismatch", "list")
	w.fails(exitDatabase, "queue_key_mismatch", "list", "--key-file", wrong)
	w.fails(exitUsage, "holds no key", "list", "--key-file", key("short", "1f1f"))
	w.fails(exitUsage, "--key-file", "list", "--key-file", filepath.Join(dir, "none"))
	w.run("--key-file", right)
	w.until(id, "committed") // the owner has the key: commands over the socket need none
}

// An entry that somebody edits in the file is found, is never sent, and can be replaced.
func TestAnEditedEntry(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	id := w.ok("enqueue", "--data", w.app, w.record, w.resource(w.record, ""))
	edit(t, w.file, `update queue set intent = replace(intent, 'final', 'amended')`)
	w.fails(exitFailed, "not as it was written", "verify")
	if r := call(t, "", w.args("run", "--data", w.app, "--once")...); r.code != exitState {
		t.Errorf("%+v", r)
	}
	if e := w.entry(id); e.State != "quarantined" || e.Code != "queue_entry_altered" {
		t.Errorf("the entry is %+v", e)
	}
	w.ok("replace", id, w.resource(w.record, ""), "--reason", "a test")
	w.ok("run", "--data", w.app, "--once")
	if n := w.writes(w.record); n != 1 {
		t.Errorf("the Host has done %d writes", n)
	}
}

func edit(t *testing.T, path, sql string) {
	t.Helper()
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec(sql); err != nil {
		t.Fatal(err)
	}
}

func TestOutboxRefusesBadInput(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t)
	id := w.ok("enqueue", "--data", w.app, w.record, "--rename", "x", "--version", "1")
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	word := filepath.Join(dir, "word")
	if err := os.WriteFile(word, []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "run, enqueue, list", nil},
		{exitUsage, "bogus", []string{"bogus"}},
		{exitUsage, "--state", []string{"list", "--state", "done"}},
		{exitUsage, "--state", []string{"list", "--all", "--state", "pending"}},
		{exitUsage, "--limit", []string{"list", "--limit", "0"}},
		{exitUsage, "--after", []string{"list", "--after", "-1"}},
		{exitUsage, "--heads", []string{"list", "--heads", "--all"}},
		{exitUsage, "--after-record", []string{"list", "--after-record", w.record}},
		{exitUsage, "--json", []string{"list", "--content"}},
		{exitUsage, "record", []string{"list", "--record", "x"}},
		{exitUsage, "operation", []string{"show", "x"}},
		{exitNotFound, "unknown_queue_entry", []string{"show", record.NewID()}},
		{exitUsage, "arg", []string{"show"}},
		{exitUsage, "patient", []string{"enqueue", "x", "--rename", "x", "--version", "1"}},
		{exitUsage, "say what is written", []string{"enqueue", w.record}},
		{exitUsage, "say what is written", []string{"enqueue", w.record, "-", "--rename", "x"}},
		{exitUsage, "--version", []string{"enqueue", w.record, "--rename", "x"}},
		{exitUsage, "--version", []string{"enqueue", w.record, "--delete", "Observation/x"}},
		{exitUsage, "--lab", []string{"enqueue", w.record, "-", "--lab", "--version", "1"}},
		{exitUsage, "none.json", []string{"enqueue", w.record, "none.json"}},
		{exitUsage, "text.db", []string{"enqueue", w.record, text}},
		{exitUsage, "operation_id", []string{"enqueue", w.record, "--rename", "x", "--version", "1", "--operation", "x"}},
		{exitUsage, "--reason", []string{"retry", id}},
		{exitUsage, "--reason", []string{"retry", id, "--reason", " "}},
		{exitUsage, "--all", []string{"retry", "--reason", "x"}},
		{exitUsage, "--all", []string{"retry", id, "--all", "--reason", "x"}},
		{exitUsage, "--all", []string{"retry", id, "--code", "x", "--reason", "x"}},
		{exitUsage, "committed", []string{"retry", "--all", "--state", "committed", "--reason", "x"}},
		{exitState, "queue_state_conflict", []string{"retry", id, "--reason", "x"}},
		{exitUsage, "reason", []string{"discard", id, "--reason", strings.Repeat("x", 2000)}},
		{exitUsage, "--reason", []string{"discard", id}},
		{exitUsage, "arg", []string{"discard", "--reason", "x"}},
		{exitUsage, "--version", []string{"rebase", id, "--reason", "x"}},
		{exitUsage, "--reason", []string{"rebase", id, "--version", "2"}},
		{exitUsage, "say what is written", []string{"replace", id, "--reason", "x"}},
		{exitUsage, "--data", []string{"follow", w.record}},
		{exitUsage, "record", []string{"follow", "x"}},
		{exitUsage, "older-than", []string{"prune"}},
		{exitUsage, "soon", []string{"prune", "--older-than", "soon"}},
		{exitUsage, "--limit", []string{"audit", "--limit", "1001"}},
		{exitUsage, "--data", []string{"run"}},
		{exitUsage, "exclude", []string{"run", "--data", w.app, "--fhir", "https://fhir.example"}},
		{exitUsage, "--fhir", []string{"run", "--fhir", "fhir.example"}},
		{exitUsage, "--fhir", []string{"run", "--data", w.app, "--token-file", text}},
		{exitUsage, "https", []string{"run", "--fhir", "http://fhir.example", "--token-file", word}},
		{exitUsage, "no bearer token", []string{"run", "--fhir", "https://fhir.example", "--token-file", text}},
		{exitUsage, "--parallel", []string{"run", "--data", w.app, "--parallel", "0"}},
		{exitUsage, "--grace", []string{"run", "--data", w.app, "--grace", "0s"}},
		{exitUsage, "xml", []string{"run", "--data", w.app, "--log-format", "xml"}},
		{exitNotFound, "record init", []string{"run", "--data", dir}},
	} {
		w.fails(c.code, c.says, c.args...)
	}
	for _, c := range []struct {
		code int
		says string
		file string
	}{
		{exitUsage, "--file", ""},
		{exitNotFound, "unknown_queue", filepath.Join(dir, "none.db")},
		{exitNotFound, "no file", filepath.Join(dir, "none", "queue.db")},
		{exitDatabase, "not a database", text},
		{exitDatabase, "", dir},
	} {
		r := call(t, "", "outbox", "list", "--file", c.file)
		if r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("%s: exit code %d, %s", c.file, r.code, r.err)
		}
	}
	// A queue of another application.
	other := filepath.Join(dir, "other")
	ok(t, "record", "init", "--data", other, "--host", w.host.URL, "--host-id", w.host.ID, "--ca", w.host.Cert)
	w.fails(exitState, "wrong_queue_owner", "run", "--data", other)
	if left := w.ok("list", "--all", "--json"); strings.Count(left, "\n") != 0 || w.entry(id).State != "pending" {
		t.Errorf("something was left behind: %s", left)
	}
}

// A record that moves is followed by itself, or by hand where the owner was told so.
func TestOutboxFollowsARecord(t *testing.T) {
	t.Parallel()
	w := newRecordWorld(t, nil)
	queue := &queueWorld{t: t, app: w.app, file: filepath.Join(w.app, queueFile)}
	auto, _ := w.newRecord()
	byHand, _ := w.newRecord()
	move := func(record string) {
		w.host(w.b, "expect", record)
		w.ok(w.moveArgs(w.a, w.b, record)...)
	}
	enqueue := func(record string) string {
		return w.line("outbox", "enqueue", "--data", w.app, record, w.observation(record, "", ""))
	}
	at := func(operation string) string {
		var r struct{ Result record.Result }
		if err := json.Unmarshal([]byte(queue.ok("show", operation, "--json")), &r); err != nil {
			t.Fatal(err)
		}
		receipt, err := record.ReadReceipt(r.Result.Receipt)
		if err != nil {
			t.Fatal(err)
		}
		return receipt.Host
	}

	owner := queue.run()
	id := enqueue(auto)
	queue.until(id, "committed")
	if at(id) != w.a.ID {
		t.Error("the first write is elsewhere than at A")
	}
	move(auto)
	id = enqueue(auto)
	queue.until(id, "committed")
	if at(id) != w.b.ID {
		t.Error("the owner has not followed the record")
	}
	owner.signal(t, syscall.SIGTERM)
	owner.wait(t, 20*time.Second)

	queue.run("--manual-moves")
	queue.until(enqueue(byHand), "committed")
	move(byHand)
	id = enqueue(byHand)
	eventually(t, "the old Host has said that the record has moved", func() bool { return queue.entry(id).Code == record.RecordMoved })
	queue.ok("follow", byHand)
	queue.until(id, "committed")
	if at(id) != w.b.ID {
		t.Error("it did not go to B")
	}
	queue.fails(exitNotFound, "unknown_queue_route", "follow", record.NewID())
	// Commands of "holdfast record" use the folder beside the owner.
	if l := w.ok(w.record("where", byHand)...); !strings.Contains(l, w.b.ID) {
		t.Errorf("the record is at %s", l)
	}
}

// An ordinary FHIR server gets the writes too. This one is as small as one can be.
func TestOutboxToAnOrdinaryServer(t *testing.T) {
	t.Parallel()
	const token = "the-token-of-the-test"
	seen := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != "Bearer "+token {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		seen <- r.Method + " " + r.URL.Path + " " + string(body)
		rw.Header().Set("Location", "http://"+r.Host+"/r4/Observation/7/_history/1")
		rw.Header().Set("ETag", `W/"1"`)
		rw.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	w := &queueWorld{t: t, file: filepath.Join(t.TempDir(), "queue.db")}
	tokens := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, w.args("run", "--fhir", server.URL+"/r4", "--token-file", tokens)...)
	eventually(t, "the owner is at it", func() bool { return strings.HasPrefix(p.out.String(), "queue ") })
	patient := record.NewID()
	id := w.ok("enqueue", patient, w.resource(patient, ""))
	w.until(id, "committed")
	if e := w.entry(id); e.Result.ID != "7" || e.Result.Version != 1 || e.Result.Receipt != "" {
		t.Errorf("the result is %+v", e.Result)
	}
	if got := <-seen; !strings.HasPrefix(got, "POST /r4/Observation ") || !strings.Contains(got, id) || !strings.Contains(got, "1.10") {
		t.Errorf("the server got %s", got)
	}
	p.signal(t, syscall.SIGTERM)
	p.wait(t, 20*time.Second)
	if strings.Contains(p.out.String()+p.err.String()+readFile(t, w.file), token) {
		t.Error("the token was shown or kept")
	}
}
