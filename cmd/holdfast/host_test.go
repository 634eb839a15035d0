//go:build unix

package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/serve"
)

// A folder's Host comes back as it was, with --data alone; nobody else gets in.
func TestAHostsFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	folder := filepath.Join(root, "host")
	h := serveProcess(t, hostKind, folder, "--listen", "127.0.0.1:0")
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info, err)
	}
	if r := call(t, "", "host", "--data", folder); r.code != exitState || !strings.Contains(r.err, "runs on "+folder+" already") {
		t.Errorf("a second one: %+v", r)
	}
	if got := task(t, ok(t, "host", "info", "--data", folder, "--json")); got["id"] != h.ID || got["issuer"] != h.URL || got["fhir_base"] != h.URL+"/fhir" {
		t.Errorf("info says %v", got)
	}
	if out := ok(t, "host", "info", "--data", folder); !strings.Contains(out, h.ID) {
		t.Errorf("info says %s", out)
	}
	h.stop(t)
	again := serveProcess(t, hostKind, folder)
	if again.ID != h.ID || again.URL != h.URL || again.get(t, "/fhir/metadata") != 200 {
		t.Errorf("it came back as %s at %s", again.ID, again.URL)
	}
	again.stop(t)

	refused := func(code int, says string, args ...string) {
		t.Helper()
		if r := call(t, "", append([]string{"host", "--data", folder}, args...)...); r.code != code || !strings.Contains(r.err, says) || r.out != "" {
			t.Errorf("host %v: exit code %d, not %d with %q: %s%s", args, r.code, code, says, r.err, r.out)
		}
	}
	refused(exitUsage, "not in Postgres", "--db", "postgres://u:s3cr3t@127.0.0.1:1/d")
	refused(exitUsage, "postgres:// URL", "--db", "tasks.db")
	refused(exitUsage, "--schema", "--schema", "x")
	refused(exitUsage, "belong together", "--tls-cert", "x")
	refused(exitUsage, "--url", "--url", "https://h.example/")
	refused(exitUsage, "--listen", "--listen", "8443")
	refused(exitUsage, "--max-requests", "--max-requests", "0")
	refused(exitUsage, "--log-format", "--log-format", "xml")
	refused(exitUsage, "--validator", "--validator", "nowhere")
	refused(exitUsage, "no certificate", "--ca", filepath.Join(folder, "host.json"))
	refused(exitFailed, "remove a self-signed one", "--url", "https://other.example")
	refused(exitDatabase, "no such file", "--directory", filepath.Join(root, "none"))

	// A given certificate, and another URL: possible as long as the Host has no record.
	other := filepath.Join(root, "tls")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := serve.Certificate(other, []string{"localhost"}); err != nil {
		t.Fatal(err)
	}
	given := []string{"--tls-cert", filepath.Join(other, "tls.crt"), "--tls-key", filepath.Join(other, "tls.key")}
	url := strings.Replace(h.URL, "127.0.0.1", "localhost", 1)
	renamed := serveProcess(t, hostKind, folder, append(given, "--url", url)...)
	if renamed.URL != url || renamed.Cert != given[1] || renamed.get(t, "/readyz") != 200 {
		t.Errorf("it is %s with %s", renamed.URL, renamed.Cert)
	}
	id := strings.TrimSpace(ok(t, "host", "create", "--data", folder))
	renamed.stop(t)
	refused(exitUsage, "--tls-cert exclude", append(given, "--no-tls")...)
	refused(exitUsage, "has records", "--no-tls", "--url", "http://127.0.0.1:1")
	if got := task(t, ok(t, "host", "records", "--data", folder, "--json")); got["id"] != id || got["state"] != "active" || got["writes"] != 1.0 {
		t.Errorf("the record is %v", got)
	}
}

// A folder that everybody can look into is refused before anything is in it.
func TestAnOpenFolderIsRefused(t *testing.T) {
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"host"}, {"directory"}, {"record", "init", "--host", "https://h.example", "--host-id", record.NewKey().ID()}} {
		if r := call(t, "", append(args, "--data", folder)...); r.code != exitUsage || !strings.Contains(r.err, "chmod 700 "+folder) {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("something is in it: %v, %v", left, err)
	}
}

// What was given at one start holds at the next: a Host must not forget its validator.
func TestAHostKeepsItsFlags(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	validator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusUnprocessableEntity)
		io.WriteString(w, `{"detail": "not our kind of weight"}`)
	}))
	defer validator.Close()
	folder, app := filepath.Join(t.TempDir(), "host"), filepath.Join(t.TempDir(), "app")
	h := serveProcess(t, hostKind, folder, "--listen", "127.0.0.1:0", "--validator", validator.URL, "--max-body", "4KiB", "--timeout", "7s", "--rate", "100")
	rec := strings.TrimSpace(ok(t, "host", "create", "--data", folder))
	client := strings.TrimSpace(ok(t, "record", "init", "--data", app, "--host", h.URL, "--host-id", h.ID, "--ca", h.Cert))
	ok(t, "host", "grant", "--data", folder, rec, client, "--scope", "patient/*.cruds")
	create := func(more string) result {
		t.Helper()
		return call(t, `{"resourceType": "Observation", "status": "final", "code": {"text": "`+more+`"}, "subject": {"reference": "Patient/`+rec+`"}}`,
			"record", "create", "--data", app, rec, "-")
	}
	for range 2 {
		if r := create("x"); r.code != exitFailed || !strings.Contains(r.err, "not our kind of weight") {
			t.Errorf("the validator is not asked: %+v", r)
		}
		if r := create(strings.Repeat("x", 5000)); r.code == 0 || strings.Contains(r.err, "weight") {
			t.Errorf("a body beyond the limit: %+v", r)
		}
		h.stop(t)
		h = serveProcess(t, hostKind, folder)
	}
	h.stop(t)
	serveProcess(t, hostKind, folder, "--validator", "")
	if r := create("x"); r.code != 0 || asked.Load() != 2 {
		t.Errorf("without a validator: %+v, it was asked %d times", r, asked.Load())
	}
	for _, part := range []string{`"max-body": "4KiB"`, `"timeout": "7s"`, `"rate": "100"`} {
		if kept := readFile(t, filepath.Join(folder, "host.json")); !strings.Contains(kept, part) || strings.Contains(kept, "validator") {
			t.Errorf("%s is missing, or the validator is there: %s", part, kept)
		}
	}
}

// A database that cannot be reached, and its password.
func TestAServicesDatabaseIsUnreachable(t *testing.T) {
	for _, kind := range []serviceKind{hostKind, directoryKind} {
		for _, dsn := range []string{"postgres://u:s3cr3t@127.0.0.1:1/d?connect_timeout=1", "postgres://u:s3cr3t@[bad/d", "postgresql://127.0.0.1:1/d?password=s3cr3t"} {
			name := strings.TrimPrefix(kind.command, "holdfast ")
			t.Setenv(kind.env, dsn)
			r := call(t, "", name, "--data", filepath.Join(t.TempDir(), "x"), "--listen", "127.0.0.1:0")
			if r.code != exitDatabase || !strings.Contains(r.err, kind.env) || strings.Contains(r.out+r.err, "s3cr3t") {
				t.Errorf("%s: %+v", name, r)
			}
			t.Setenv(kind.env, "")
		}
	}
}

// What a Host or Directory needs to know before it starts.
func TestServicesSayWhatTheyNeed(t *testing.T) {
	for _, c := range []struct {
		says string
		code int
		args []string
	}{
		{"--data is missing", exitUsage, []string{"host"}},
		{"--data is missing", exitUsage, []string{"directory"}},
		{"--data is missing", exitUsage, []string{"host", "records"}},
		{"--data is missing", exitUsage, []string{"directory", "hosts"}},
		{"--no-tls needs --url", exitUsage, []string{"host", "--no-tls"}},
		{"every address", exitUsage, []string{"directory", "--listen", "0.0.0.0:1"}},
		{"every address", exitUsage, []string{"host", "--listen", ":1"}},
		{"--keys is 17", exitUsage, []string{"directory", "--keys", "17"}},
		{"--threshold is 3 of 2", exitUsage, []string{"directory", "--keys", "2", "--threshold", "3"}},
		{"--lifetime", exitUsage, []string{"directory", "--lifetime", "1s"}},
		{`"holdfast host --data`, exitNotFound, []string{"host", "records"}},
		{`"holdfast directory --data`, exitNotFound, []string{"directory", "hosts"}},
		{`"holdfast host --data`, exitNotFound, []string{"record", "move", record.NewID(), "--to", "https://b.example", "--to-id", record.NewKey().ID()}},
		{`"holdfast host --data`, exitNotFound, []string{"host", "tokens"}},
		{`"holdfast host --data`, exitNotFound, []string{"host", "purge", record.NewID()}},
	} {
		folder := filepath.Join(t.TempDir(), "x")
		args := c.args
		if !strings.Contains(c.says, "--data is") {
			args = append(append([]string{}, args...), "--data", folder)
		}
		if r := call(t, "", args...); r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("holdfast %v: exit code %d, not %d with %q: %s%s", args, r.code, c.code, c.says, r.err, r.out)
		}
		if _, err := os.Stat(folder); err == nil {
			t.Errorf("holdfast %v has made a folder", args)
		}
	}
}

// A port that is kept must be free at the next start too: none that systems lend to whoever connects somewhere.
func TestAPortThatIsKept(t *testing.T) {
	first, err := listenFree("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if port := first.Addr().(*net.TCPAddr).Port; port < keptPortsFrom || port >= keptPortsTo {
		t.Errorf("it is %d", port)
	}
	if l, err := listenFree("192.0.2.1"); err == nil { // nobody's address (RFC 5737)
		l.Close()
		t.Error("it listens on an address that is not this machine's")
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, kind := range []string{"host", "directory"} {
		if r := call(t, "", kind, "--data", filepath.Join(t.TempDir(), "x"), "--listen", l.Addr().String()); r.code != exitFailed || !strings.Contains(r.err, "another port by --listen") {
			t.Errorf("%s: %+v", kind, r)
		}
	}
}

// Administration refuses what is no id, no scope, no time, and what is not there.
func TestHostAdministrationRefusesBadInput(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "host")
	serveProcess(t, hostKind, folder, "--listen", "127.0.0.1:0")
	rec := strings.TrimSpace(ok(t, "host", "create", "--data", folder))
	client := record.NewKey().ID()
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "UUIDv7", []string{"create", "--id", "x"}},
		{exitUsage, "--patient needs --id", []string{"create", "--patient", "-"}},
		{exitFailed, "Patient", []string{"create", "--id", record.NewID(), "--patient", filepath.Join(folder, "host.json")}},
		{exitUsage, "UUIDv7", []string{"grant", "x", client, "--scope", "patient/*.r"}},
		{exitUsage, "thumbprint", []string{"grant", rec, "x", "--scope", "patient/*.r"}},
		{exitUsage, "--scope is missing", []string{"grant", rec, client}},
		{exitUsage, "scope", []string{"grant", rec, client, "--scope", "everything"}},
		{exitUsage, "until", []string{"grant", rec, client, "--scope", "patient/*.r", "--until", "2001-01-01"}},
		{exitNotFound, "not_found", []string{"grant", record.NewID(), client, "--scope", "patient/*.r"}},
		{exitNotFound, "no such grant", []string{"revoke", record.NewID()}},
		{exitNotFound, "not_found", []string{"grants", record.NewID()}},
		{exitNotFound, "not_found", []string{"audit", record.NewID()}},
		{exitUsage, "--limit", []string{"audit", rec, "--limit", "0"}},
		{exitUsage, "--limit", []string{"tokens", "--limit", "0"}},
		{exitNotFound, "not_found", []string{"purge", record.NewID()}},
		{exitState, "whose move has ended", []string{"purge", rec}},
		{exitUsage, "--limit", []string{"records", "--limit", "10001"}},
		{exitNotFound, "no such application", []string{"clients", "disable", client}},
		{exitUsage, "thumbprint", []string{"clients", "add", "x"}},
		{exitFailed, "without a Directory", []string{"expect", record.NewID()}},
	} {
		args := append([]string{"host", "--data", folder}, c.args...)
		if r := call(t, "", args...); r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("holdfast %v: exit code %d, not %d with %q: %s%s", args, r.code, c.code, c.says, r.err, r.out)
		}
	}
}

// A write that is being worked on when the Host shall stop gets its answer; a second signal does not wait for it.
func TestAHostStopsGracefully(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan bool, 4), make(chan bool)
	validator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		arrived <- true
		select {
		case <-release:
		case <-r.Context().Done(): // the Host is gone
		}
	}))
	defer validator.Close()
	folder, app := filepath.Join(t.TempDir(), "host"), filepath.Join(t.TempDir(), "app")
	h := serveProcess(t, hostKind, folder, "--listen", "127.0.0.1:0", "--validator", validator.URL)
	rec := strings.TrimSpace(ok(t, "host", "create", "--data", folder))
	client := strings.TrimSpace(ok(t, "record", "init", "--data", app, "--host", h.URL, "--host-id", h.ID, "--ca", h.Cert))
	ok(t, "host", "grant", "--data", folder, rec, client, "--scope", "patient/*.cruds")
	create := func() chan result {
		done := make(chan result, 1)
		go func() {
			done <- call(t, `{"resourceType": "Observation", "status": "final", "code": {"text": "x"}, "subject": {"reference": "Patient/`+rec+`"}}`,
				"record", "create", "--data", app, rec, "-")
		}()
		<-arrived
		return done
	}
	// refuses tells that the Host has heard the signal: it takes no connection any more.
	refuses := func() bool {
		c, err := net.Dial("tcp", h.Listen)
		if err == nil {
			c.Close()
		}
		return err != nil
	}
	write := create()
	h.signal(t, syscall.SIGTERM)
	eventually(t, "the Host takes no connection any more", refuses)
	release <- true
	if r := <-write; r.code != 0 || !strings.Contains(r.out, "version 1") {
		t.Errorf("the write that ran: %+v", r)
	}
	if code := h.wait(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d, %s", code, h.err)
	}

	h = serveProcess(t, hostKind, folder)
	write = create()
	h.signal(t, syscall.SIGTERM)
	eventually(t, "the Host takes no connection any more", refuses)
	h.signal(t, syscall.SIGTERM)
	// The validator has three seconds left of its five: less than that is at once.
	if code := h.wait(t, 3*time.Second); code == 0 || !strings.Contains(h.err.String(), "second signal") {
		t.Errorf("exit code %d, %s", code, h.err)
	}
	if r := <-write; r.code != exitDatabase || !strings.Contains(r.err, "--operation ") {
		t.Errorf("the write that was cut off: %+v", r)
	}
}
