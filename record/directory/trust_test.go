package directory_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
	"github.com/eda94727/holdfast/record/internal/dirtest"
)

// attacker signs with the Directory's own keys: a Directory that lies.
type attacker struct {
	*dirtest.World
	t     *testing.T
	key   *record.Key
	chain []record.Location
	trust *directory.Trust
	path  string
}

// newAttack publishes five generations, of which the client has verified three.
func newAttack(t *testing.T) *attacker {
	key := record.NewKey()
	a := &attacker{t: t, World: dirtest.New(t, dbtest.SQLite(t), key), key: key, path: filepath.Join(t.TempDir(), "trust.json")}
	a.chain = a.World.Chain(5)
	a.reopen()
	if _, err := a.trust.Accept(context.Background(), a.sign(a.chain[2]), a.Address, 1, a.Client.Log); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *attacker) reopen() {
	trust, err := directory.OpenTrust(a.path, a.Pin(), func() time.Time { return a.Now })
	if err != nil {
		a.t.Fatal(err)
	}
	a.trust = trust
}

func (a *attacker) sign(l record.Location, keys ...*record.Key) string {
	if len(keys) == 0 {
		keys = []*record.Key{a.key}
	}
	document, err := record.SignLocation(keys, l)
	if err != nil {
		a.t.Fatal(err)
	}
	return document
}

// lie alters a copy of a generation.
func (a *attacker) lie(gen int, alter func(*record.Location)) record.Location {
	l := a.chain[gen-1]
	alter(&l)
	return l
}

func TestTrustAttacks(t *testing.T) {
	evil := record.NewKey()
	toEvil := func(l *record.Location) { l.Host = dirtest.HostRef(evil) }
	forgedLog := func(documents ...string) directory.LogSource {
		return func(context.Context, string, int64, int64) ([]string, error) { return documents, nil }
	}
	broken := errors.New("the log is away")
	for name, c := range map[string]struct {
		document func(a *attacker) string
		log      func(a *attacker) directory.LogSource
		least    int64
		address  string
		code     record.Code
	}{
		"lower generation":             {document: func(a *attacker) string { return a.sign(a.chain[1]) }, code: record.StaleDiscoveryGeneration},
		"below the caller's floor":     {document: func(a *attacker) string { return a.sign(a.chain[3]) }, least: 5, code: record.StaleDiscoveryGeneration},
		"same generation, other Host":  {document: func(a *attacker) string { return a.sign(a.lie(3, toEvil)) }, code: record.DirectoryEquivocation},
		"same generation, other words": {document: func(a *attacker) string { return a.sign(a.lie(3, func(l *record.Location) { l.Reason = "x" })) }, code: record.DirectoryEquivocation},
		"next generation of another story": {document: func(a *attacker) string {
			return a.sign(a.lie(4, func(l *record.Location) { l.Prev = a.lie(3, toEvil).Hash() }))
		}, code: record.DirectoryEquivocation},
		"expired": {document: func(a *attacker) string {
			return a.sign(a.lie(4, func(l *record.Location) { l.IssuedAt, l.Expires = l.IssuedAt-20000, l.IssuedAt-10000 }))
		}, code: record.DiscoveryExpired},
		"from the future": {document: func(a *attacker) string {
			return a.sign(a.lie(4, func(l *record.Location) { l.IssuedAt += 3600; l.Expires += 3600 }))
		}, code: record.DiscoveryExpired},
		"frozen: true, but long ago": {document: func(a *attacker) string {
			document := a.sign(a.chain[2])
			a.Now = a.Now.Add(8 * 24 * time.Hour)
			return document
		}, code: record.DiscoveryExpired},
		"gap without a log":      {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(*attacker) directory.LogSource { return nil }, code: record.InvalidDiscovery},
		"gap with an empty log":  {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(*attacker) directory.LogSource { return forgedLog() }, code: record.InvalidDiscovery},
		"gap with a wrong link":  {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(a *attacker) directory.LogSource { return forgedLog(a.sign(a.chain[2])) }, code: record.InvalidDiscovery},
		"gap with a broken link": {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(a *attacker) directory.LogSource { return forgedLog(a.sign(a.lie(4, toEvil))) }, code: record.DirectoryEquivocation},
		"gap with a link of another key": {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(a *attacker) directory.LogSource { return forgedLog(a.sign(a.chain[3], evil)) },
			code: record.InvalidDiscovery},
		"gap with garbage": {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(a *attacker) directory.LogSource { return forgedLog("x") }, code: record.InvalidDiscovery},
		"log of another record": {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(a *attacker) directory.LogSource {
			return forgedLog(a.sign(a.lie(4, func(l *record.Location) { l.Record = record.NewID() })))
		}, code: record.WrongDiscoveryPatient},
		"wrong signature": {document: func(a *attacker) string { return a.sign(a.chain[3], evil) }, code: record.InvalidDiscovery},
		"cut off":         {document: func(a *attacker) string { d := a.sign(a.chain[3]); return d[:len(d)-5] }, code: record.InvalidDiscovery},
		"empty":           {document: func(a *attacker) string { return "" }, code: record.InvalidDiscovery},
		"another Directory": {document: func(a *attacker) string {
			return a.sign(a.lie(4, func(l *record.Location) { l.Directory, l.Address = "https://x", "https://x/records/1" }))
		}, code: record.InvalidDiscovery},
		"another address": {document: func(a *attacker) string { return a.sign(a.lie(4, func(l *record.Location) { l.Address += "0" })) }, code: record.WrongDiscoveryPatient},
		"another record": {document: func(a *attacker) string {
			return a.sign(a.lie(4, func(l *record.Location) { l.Record = record.NewID() }))
		}, code: record.WrongDiscoveryPatient},
		"a publication": {document: func(a *attacker) string {
			signed, _ := record.SignPublication([]*record.Key{a.key}, a.Publication(4, a.chain[2].Hash(), a.B))
			return signed
		}, code: record.InvalidDiscovery},
		"the log is away": {document: func(a *attacker) string { return a.sign(a.chain[4]) }, log: func(*attacker) directory.LogSource {
			return func(context.Context, string, int64, int64) ([]string, error) { return nil, broken }
		}, code: ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAttack(t)
			log := directory.LogSource(a.Client.Log)
			if c.log != nil {
				log = c.log(a)
			}
			document := c.document(a)
			before, _ := a.trust.Floor(a.Address)
			onDisk, err := os.ReadFile(a.path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.trust.Verify(context.Background(), document, a.Address, max(1, c.least), log); record.CodeOf(err) != c.code || err == nil {
				t.Errorf("Verify: %v; want %s", err, c.code)
			}
			if _, err := a.trust.Accept(context.Background(), document, a.Address, max(1, c.least), log); record.CodeOf(err) != c.code || err == nil {
				t.Errorf("Accept: %v; want %s", err, c.code)
			}
			if after, _ := a.trust.Floor(a.Address); !reflect.DeepEqual(after, before) || before.Generation != 3 {
				t.Errorf("the floor moved from %+v to %+v", before, after)
			}
			if now, _ := os.ReadFile(a.path); string(now) != string(onDisk) {
				t.Error("the file changed")
			}
		})
	}
}

func TestTrustFollowsAndRemembers(t *testing.T) {
	a := newAttack(t)
	ctx := context.Background()
	// Verify alone raises nothing.
	if l, err := a.trust.Verify(ctx, a.sign(a.chain[4]), a.Address, 4, a.Client.Log); err != nil || l.Generation != 5 {
		t.Fatalf("%v", err)
	}
	if floor, _ := a.trust.Floor(a.Address); floor.Generation != 3 {
		t.Error("Verify raised the floor")
	}
	// The same generation, signed again, is fine; and the gap is filled from the real log.
	a.Now = a.Now.Add(4 * 24 * time.Hour)
	document, err := a.Client.Document(ctx, a.Address)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if l, err := a.trust.Accept(ctx, document, a.Address, 1, a.Client.Log); err != nil || l.Generation != 5 {
			t.Fatal(err)
		}
		a.reopen()
		if floor, ok := a.trust.Floor(a.Address); !ok || floor.Hash != a.chain[4].Hash() || floor.Generation != 5 || !floor.HasHost(a.A.ID()) || !floor.HasHost(a.B.ID()) || len(floor.Past) != 2 {
			t.Fatalf("after reopening: %+v", floor)
		}
	}
}

func TestTrustFirstContactChecksTheWholeChain(t *testing.T) {
	a := newAttack(t)
	a.path = filepath.Join(t.TempDir(), "new.json")
	a.reopen()
	asked := int64(-1)
	log := func(ctx context.Context, address string, after, last int64) ([]string, error) {
		asked = after
		return a.Client.Log(ctx, address, after, last)
	}
	if _, err := a.trust.Accept(context.Background(), a.sign(a.chain[4]), a.Address, 1, log); err != nil || asked != 0 {
		t.Errorf("asked from %d: %v", asked, err)
	}
}

// A floor that cannot be saved is not raised.
func TestTrustSaveFails(t *testing.T) {
	a := newAttack(t)
	os.Remove(a.path)
	if err := os.Mkdir(a.path, 0o700); err != nil { // a rename onto a folder fails, for root as well
		t.Fatal(err)
	}
	if _, err := a.trust.Accept(context.Background(), a.sign(a.chain[3]), a.Address, 1, a.Client.Log); err == nil {
		t.Fatal("no error")
	}
	if floor, _ := a.trust.Floor(a.Address); floor.Generation != 3 {
		t.Errorf("the floor is %d in memory and 3 on disk", floor.Generation)
	}
}

func TestOpenTrustRefusals(t *testing.T) {
	a := newAttack(t)
	good, _ := os.ReadFile(a.path)
	for name, content := range map[string]string{"empty": "", "cut off": string(good[:len(good)/2]), "another Directory": strings.ReplaceAll(string(good), "/dir", "/other"), "format": strings.Replace(string(good), `"format": 1`, `"format": 2`, 1)} {
		os.WriteFile(a.path, []byte(content), 0o600)
		if _, err := directory.OpenTrust(a.path, a.Pin(), nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, pin := range map[string]directory.Pin{"empty": {}, "no keys": {Directory: "https://d"}} {
		if _, err := directory.OpenTrust(filepath.Join(t.TempDir(), "x"), pin, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
