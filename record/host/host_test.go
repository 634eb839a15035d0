package host

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

// A database has one Host; another key is refused and changes nothing.
func TestOpenRefusals(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database string) {
		ctx := context.Background()
		good := Config{URL: "https://h.example", Database: database, Key: record.NewKey()}
		for name, change := range map[string]func(*Config){"no URL": func(c *Config) { c.URL = "" }, "a slash": func(c *Config) { c.URL += "/" }, "no key": func(c *Config) { c.Key = nil },
			"no trust file": func(c *Config) { c.Directory = &Directory{} }} {
			c := good
			change(&c)
			if _, err := Open(ctx, c); err == nil {
				t.Errorf("%s passes", name)
			}
		}
		h, err := Open(ctx, good)
		if err != nil {
			t.Fatal(err)
		}
		h.Close()
		other := good
		other.Key = record.NewKey()
		if _, err := Open(ctx, other); err == nil || !strings.Contains(err.Error(), h.ID()) {
			t.Errorf("another key: %v", err)
		}
		if h, err = Open(ctx, good); err != nil {
			t.Fatal(err)
		}
		h.Close()
	})
}

func TestInDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "host")
	a, err := InDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := InDir(dir)
	if err != nil || a.Key.ID() != b.Key.ID() || b.Database != filepath.Join(dir, "host.db") || filepath.Dir(TrustIn(dir)) != dir {
		t.Errorf("%+v, %v", b, err)
	}
}

// A record's Patient can be given, and is checked; making it twice is once.
func TestCreateRecord(t *testing.T) {
	g := newRig(t, dbtest.SQLite(t))
	ctx := context.Background()
	id := record.NewID()
	for i := range 2 {
		r, err := g.host.CreateRecord(ctx, NewRecord{ID: id, Patient: []byte(`{"resourceType":"Patient","id":"` + id + `","birthDate":"1990"}`)})
		if err != nil || r.Writes != 1 || r.State != stateActive {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
	}
	for name, n := range map[string]NewRecord{"id": {ID: "x"}, "another id": {ID: record.NewID(), Patient: []byte(`{"resourceType":"Patient","id":"` + id + `"}`)}, "content": {ID: id, Patient: []byte(`{}`)}} {
		if _, err := g.host.CreateRecord(ctx, n); record.CodeOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := g.host.Records(ctx, "", 10); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	for name, grant := range map[string]Grant{"client": {Record: id, Client: "x", Scope: "patient/*.r"}, "scope": {Record: id, Client: record.NewKey().ID(), Scope: "x"},
		"record": {Record: record.NewID(), Client: record.NewKey().ID(), Scope: "patient/*.r"}, "representative": {Record: id, Client: record.NewKey().ID(), Scope: "patient/*.r", Representative: "a\nb"}} {
		if _, err := g.host.Grant(ctx, grant); record.CodeOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every statement is used, and every statement that is used exists.
func TestStatements(t *testing.T) {
	var code strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`"([a-z]+_[a-z_]+|authorize|everything)"`).FindAllStringSubmatch(code.String(), -1) {
		used[m[1]] = true
	}
	err = fs.WalkDir(statementSQL, "sql", func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(d.Name(), ".sql"); ok && !used[name] {
			t.Errorf("%s is used nowhere", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
