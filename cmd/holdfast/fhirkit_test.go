//go:build fhirkit && unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/internal/pgtest"
)

// TestFHIRKitClient lets an ordinary FHIR client from npm use a running "holdfast host". It needs
// node and, once, npm ci in testdata/fhirkit:
//
//	(cd cmd/holdfast/testdata/fhirkit && npm ci) && go test -tags fhirkit -run FHIRKit ./cmd/holdfast
func TestFHIRKitClient(t *testing.T) {
	for _, c := range []struct {
		name     string
		database func(t *testing.T) []string
	}{
		{"sqlite", func(*testing.T) []string { return nil }},
		{"postgres", func(t *testing.T) []string { return []string{"--db", pgtest.DSN(t)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			folder, app, database := filepath.Join(t.TempDir(), "host"), filepath.Join(t.TempDir(), "app"), c.database(t)
			h := serveProcess(t, hostKind, folder, append(database, "--listen", "127.0.0.1:0")...)
			admin := func(args ...string) string {
				return strings.TrimSpace(ok(t, append(append([]string{"host", "--data", folder}, args...), database...)...))
			}
			rec := admin("create")
			client := strings.TrimSpace(ok(t, "record", "init", "--data", app, "--host", h.URL, "--host-id", h.ID, "--ca", h.Cert))
			admin("grant", rec, client, "--scope", "patient/*.cruds")
			node := exec.Command("node", "check.mjs")
			node.Dir = filepath.Join("testdata", "fhirkit")
			node.Env = append(os.Environ(), "HOST="+h.URL, "RECORD="+rec, "KEY="+readFile(t, filepath.Join(app, "app.key")), "NODE_EXTRA_CA_CERTS="+h.Cert)
			if out, err := node.CombinedOutput(); err != nil || string(out) != "ok\n" {
				t.Errorf("%v\n%s", err, out)
			}
			h.stop(t)
		})
	}
}
