//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record/serve"
)

// served is a Host or Directory that runs as a process of its own.
type served struct {
	*process
	folder  string
	command []string
	ID      string
	URL     string
	Listen  string
	Cert    string `json:"certificate"`
}

// serveProcess starts one, and waits until it listens.
func serveProcess(t testing.TB, kind serviceKind, folder string, args ...string) *served {
	t.Helper()
	name := strings.TrimPrefix(kind.command, "holdfast ")
	s := &served{folder: folder, command: append([]string{name, "--data", folder, "--json"}, args...)}
	s.process = start(t, s.command...)
	eventually(t, kind.noun+" listens", func() bool {
		select {
		case <-s.ended:
			t.Fatalf("%s has ended: %s", kind.noun, s.err)
		default:
		}
		return strings.HasSuffix(s.out.String(), "}\n")
	})
	if err := json.Unmarshal([]byte(s.out.String()), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// stop ends it as an operator does.
func (s *served) stop(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t, 30*time.Second); code != 0 {
		t.Fatalf("%v: exit code %d after SIGTERM: %s", s.command, code, s.err)
	}
}

// world is a Directory, two Hosts and an application, each a process or folder of its own.
type recordWorld struct {
	t         testing.TB
	dir, a, b *served
	pin       string
	app       string // the application's folder
	client    string // and its id
	shown     strings.Builder
}

// newRecordWorld starts one. Database names the flag of a service, "" for its folder.
func newRecordWorld(t testing.TB, database func(name string) []string) *recordWorld {
	t.Helper()
	w := &recordWorld{t: t}
	root := t.TempDir()
	flags := func(name string, args ...string) []string {
		args = append(args, "--listen", "127.0.0.1:0")
		if database != nil {
			args = append(args, database(name)...)
		}
		return args
	}
	at := func(name string) string { return filepath.Join(root, name) }
	w.dir = serveProcess(t, directoryKind, at("directory"), flags("directory")...)
	w.pin = at("pin.json")
	keys := append([]string{"directory", "keys", "--data", at("directory")}, dbOf(w.dir)...)
	if err := os.WriteFile(w.pin, []byte(w.ok(keys...)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.b = serveProcess(t, hostKind, at("b"), flags("b", "--directory", w.pin, "--ca", w.dir.Cert)...)
	w.a = serveProcess(t, hostKind, at("a"), flags("a", "--directory", w.pin, "--ca", w.dir.Cert, "--ca", w.b.Cert)...)
	for name, h := range map[string]*served{"A": w.a, "B": w.b} {
		w.directory("admit", h.ID, "--name", name)
	}
	w.app = at("app")
	w.client = w.line("record", "init", "--data", w.app, "--directory", w.pin, "--ca", w.dir.Cert, "--ca", w.a.Cert, "--ca", w.b.Cert)
	t.Cleanup(func() { w.nothingSecret() })
	return w
}

// dbOf are the flags by which a service's database was named.
func dbOf(s *served) []string {
	for i, arg := range s.command {
		if arg == "--db" {
			return s.command[i : i+2]
		}
	}
	return nil
}

// call runs a command and remembers what it showed.
func (w *recordWorld) call(args ...string) result {
	w.t.Helper()
	r := call(w.t, "", args...)
	w.shown.WriteString(r.out + r.err)
	return r
}

func (w *recordWorld) ok(args ...string) string {
	w.t.Helper()
	r := w.call(args...)
	if r.code != 0 {
		w.t.Fatalf("holdfast %s: exit code %d, %s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

func (w *recordWorld) line(args ...string) string {
	w.t.Helper()
	return strings.TrimSpace(w.ok(args...))
}

// fails runs a command that must fail with this code, and say that.
func (w *recordWorld) fails(code int, says string, args ...string) {
	w.t.Helper()
	if r := w.call(args...); r.code != code || !strings.Contains(r.err, says) || r.out != "" {
		w.t.Errorf("holdfast %s: exit code %d, not %d with %q: %s%s", strings.Join(args, " "), r.code, code, says, r.err, r.out)
	}
}

// host administers one of the Hosts.
func (w *recordWorld) host(h *served, args ...string) string {
	w.t.Helper()
	return w.line(append(append([]string{"host"}, args...), append(dbOf(h), "--data", h.folder)...)...)
}

func (w *recordWorld) directory(args ...string) string {
	w.t.Helper()
	return w.line(append(append([]string{"directory"}, args...), append(dbOf(w.dir), "--data", w.dir.folder)...)...)
}

// record runs a command of the application.
func (w *recordWorld) record(args ...string) []string {
	return append(append([]string{"record"}, args...), "--data", w.app)
}

// moveArgs moves a record from a Host to another.
func (w *recordWorld) moveArgs(from, to *served, record string, more ...string) []string {
	args := []string{"record", "move", record, "--data", from.folder}
	if to != nil {
		args = append(args, "--to", to.URL, "--to-id", to.ID)
	}
	return append(append(args, dbOf(from)...), more...)
}

// newRecord makes a record at A with a grant for the application.
func (w *recordWorld) newRecord() (record, grant string) {
	w.t.Helper()
	record = w.host(w.a, "create")
	return record, w.host(w.a, "grant", record, w.client, "--scope", "patient/*.cruds")
}

// observation writes one into a file. Its numbers and its white space are of kinds that a careless
// program would change.
func (w *recordWorld) observation(record, id, more string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "observation.json")
	if id != "" {
		id = `"id": "` + id + `", `
	}
	text := `{"resourceType": "Observation", ` + id + `"status": "final", "code": {"text": "a < b & c"}, "subject": {"reference": "Patient/` + record + `"},` + "\n" +
		`  "valueQuantity": {"value": 1.10}` + more + `}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// nothingSecret looks for every private key, and for what stands for a Postgres password, in all that was shown.
func (w *recordWorld) nothingSecret() {
	shown := w.shown.String()
	for _, s := range []*served{w.dir, w.a, w.b} {
		shown += s.out.String() + s.err.String()
	}
	keys := 0
	for _, pattern := range []string{"*/*.key"} {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(w.app), pattern))
		if err != nil {
			w.t.Error(err)
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				w.t.Errorf("%s is not its owner's alone: %v, %v", file, info, err)
			}
			var key struct{ D string }
			if err := json.Unmarshal([]byte(readFile(w.t, file)), &key); err != nil || key.D == "" {
				continue // a TLS key
			}
			keys++
			if strings.Contains(shown, key.D) {
				w.t.Errorf("the key of %s was shown", file)
			}
		}
	}
	if keys != 4 {
		w.t.Errorf("%d keys were looked for, not 4", keys)
	}
	for _, s := range []*served{w.dir, w.a, w.b} {
		for _, secret := range secrets(strings.Join(dbOf(s)[min(1, len(dbOf(s))):], "")) {
			if len(secret) > 3 && strings.Contains(shown, secret) {
				w.t.Error("a database's password was shown")
			}
		}
	}
}

// get asks a service over TLS.
func (s *served) get(t testing.TB, path string) (status int) {
	t.Helper()
	client, err := serve.TrustingClient(s.Cert)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	answer, err := client.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
