//go:build fhirkit

package host

import (
	"context"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

// TestFHIRKitClient lets an ordinary FHIR client from npm use the Host. It needs
// node and, once, npm ci in testdata/fhirkit:
//
//	(cd record/host/testdata/fhirkit && npm ci) && go test -tags fhirkit -run FHIRKit ./record/host
func TestFHIRKitClient(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database string) {
		g := newRig(t, database)
		keyFile := filepath.Join(t.TempDir(), "app.key")
		key, err := record.LoadOrCreateKey(keyFile)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.host.Grant(context.Background(), Grant{Record: g.record, Client: key.ID(), Scope: "patient/*.cruds"}); err != nil {
			t.Fatal(err)
		}
		jwk, err := os.ReadFile(keyFile)
		if err != nil {
			t.Fatal(err)
		}
		roots := filepath.Join(t.TempDir(), "roots.pem")
		os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw}), 0o600)
		node := exec.Command("node", "check.mjs")
		node.Dir = filepath.Join("testdata", "fhirkit")
		node.Env = append(os.Environ(), "HOST="+g.server.URL, "RECORD="+g.record, "KEY="+string(jwk), "NODE_EXTRA_CA_CERTS="+roots)
		if out, err := node.CombinedOutput(); err != nil || string(out) != "ok\n" {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
