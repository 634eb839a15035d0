package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/eda94727/holdfast"

// rule says what a package may import. docs/architecture.md draws the same picture.
type rule struct {
	ours    []string // packages of ours that it imports itself
	modules []string // modules of others that a program with this package contains; nil: no rule
	never   []string // packages, with those below them, that such a program does not contain on this package's account
}

var (
	web = []string{"net/http", "html/template"}
	cli = []string{"github.com/spf13"}

	// What the tasks themselves need: JSON with exact digits, ids, and cron expressions.
	core = []string{"github.com/go-json-experiment/json", "github.com/oklog/ulid/v2", "github.com/robfig/cron/v3"}
)

// rules by path below the module; one that ends in /… is for everything below that has none of its own. A package without a
// rule fails the test: whoever adds a package says here where it stands.
var rules = map[string]rule{
	".":        {modules: core, never: slices.Concat(web, cli)},
	"sqlite":   {ours: []string{".", "internal/claiming", "internal/sqlitefile", "internal/sqltext"}, modules: slices.Concat(core, sqliteDriver), never: slices.Concat(web, cli)},
	"postgres": {ours: []string{".", "internal/claiming", "internal/sqltext"}, modules: slices.Concat(core, postgresDriver), never: slices.Concat(web, cli)},
	// rapid draws its counterexamples with html/template.
	"storetest":    {ours: []string{"."}, never: slices.Concat([]string{"net/http"}, cli, drivers)},
	"holdfasttest": {ours: []string{".", "sqlite"}, never: cli},
	"telemetry":    {ours: []string{"."}, never: slices.Concat(cli, drivers)},
	"dashboard":    {ours: []string{".", "outbox"}, never: cli},

	// What both ends say, and the client's end, stand on no database; those that keep records take either.
	"record":                    {never: slices.Concat(cli, drivers)},
	"record/profile":            {ours: []string{"record"}, never: slices.Concat(cli, drivers)},
	"record/internal/splice":    {ours: []string{}, never: slices.Concat(web, cli, drivers)},
	"record/internal/transport": {ours: []string{}, never: slices.Concat(cli, drivers)},
	"record/internal/db":        {ours: []string{"internal/sqlitefile", "internal/sqltext"}, never: cli},
	"record/directory":          {ours: []string{"record"}, never: slices.Concat(cli, drivers)},
	"record/client":             {ours: []string{"record", "record/directory", "record/internal/transport"}, never: slices.Concat(cli, drivers)},
	"record/plainfhir":          {ours: []string{"record", "record/internal/splice"}, never: slices.Concat(cli, drivers)},
	"record/serve":              {ours: []string{"record", "record/internal/transport"}, never: slices.Concat(cli, drivers)},

	"record/directory/service": {ours: []string{"record", "record/directory", "record/internal/db"}, never: cli},
	// A move is a task.
	"record/host": {ours: []string{".", "record", "record/directory", "record/internal/db", "record/internal/splice", "record/profile"}, never: cli},
	// For tests and for making the profile.
	"record/internal/db/dbtest": {ours: []string{"internal/pgtest"}},
	"record/internal/dirtest":   {ours: []string{"record", "record/directory", "record/directory/service"}},
	"record/profile/gen":        {ours: []string{}},

	"outbox":         {ours: []string{"record", "internal/sqlitefile"}, never: slices.Concat(cli, postgresDriver)},
	"outbox/control": {ours: []string{"outbox", "record"}, never: slices.Concat(cli, postgresDriver)},

	"cmd/holdfast": {ours: []string{".", "sqlite", "postgres", "record", "record/…", "outbox", "outbox/…", "dashboard", "telemetry"}},
	"examples/…":   {ours: []string{".", "sqlite", "postgres", "record", "record/…", "outbox", "outbox/…", "dashboard", "telemetry"}, never: cli},

	"internal/claiming":   {ours: []string{"."}, modules: core, never: slices.Concat(web, cli)},
	"internal/sqlitefile": {modules: sqliteDriver, never: slices.Concat(web, cli)},
	"internal/sqltext":    {modules: []string{}, never: web},

	// For tests and the gate; nothing imports them.
	"internal/pgtest":      {},
	"internal/gotest":      {modules: []string{}},
	"internal/archtest":    {modules: []string{}},
	"internal/processtest": {},
}

var (
	// The driver and what it stands on, file notifications, and file locks.
	sqliteDriver   = []string{"github.com/ncruces/go-sqlite3", "github.com/ncruces/go-sqlite3-wasm/v6", "github.com/ncruces/julianday", "github.com/fsnotify/fsnotify", "github.com/gofrs/flock", "golang.org/x/sys"}
	postgresDriver = []string{"github.com/jackc/pgx/v5", "github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "github.com/jackc/puddle/v2", "golang.org/x/sync", "golang.org/x/text"}
	drivers        = []string{"github.com/ncruces/go-sqlite3", "github.com/jackc/pgx/v5"}
)

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath    string
	Standard      bool
	Imports, Deps []string
	CgoFiles      []string
	Module        *struct{ Path string }
}

// list returns the packages of the module and all that they stand on, as they are built for one system.
func list(t *testing.T, system string) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps,CgoFiles,Module", module+"/...")
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=1")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, complaint.String())
	}
	all := map[string]goPackage{}
	for decoder := json.NewDecoder(&out); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// readSources reads all folders of the module, so that go test knows that this test depends on them: it sees what a test reads,
// but not what go list reads, and would repeat an old result.
func readSources(t *testing.T) {
	err := filepath.WalkDir(filepath.Join("..", ".."), func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestArrows(t *testing.T) {
	readSources(t)
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			all := list(t, system)
			if _, found := all[module]; !found {
				t.Fatalf("go list does not know %s", module)
			}
			for _, p := range all {
				if len(p.CgoFiles) > 0 && !p.Standard {
					t.Errorf("%s uses cgo", p.ImportPath)
				}
				if name, ours := local(p.ImportPath); ours {
					for _, fault := range faults(name, p, all) {
						t.Errorf("%s %s", name, fault)
					}
				}
			}
		})
	}
}

// faults returns what is wrong with the imports of package p of ours, by the name name.
func faults(name string, p goPackage, all map[string]goPackage) []string {
	r, found := ruleOf(name)
	if !found {
		return []string{"has no rule: add one, and the package to docs/architecture.md"}
	}
	var wrong []string
	for _, imported := range p.Imports {
		if other, ours := local(imported); ours && !allowed(r.ours, other) {
			wrong = append(wrong, "imports "+other)
		}
	}
	for _, dep := range p.Deps {
		if slices.ContainsFunc(r.never, func(root string) bool { return under(dep, root) }) {
			wrong = append(wrong, "must do without "+dep)
		}
		if m := all[dep].Module; r.modules != nil && m != nil && m.Path != module && !slices.Contains(r.modules, m.Path) {
			wrong = append(wrong, "must do without module "+m.Path+" ("+dep+")")
		}
	}
	return wrong
}

// local returns the path of a package below the module, "." for the module's own.
func local(importPath string) (name string, ours bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func ruleOf(name string) (rule, bool) {
	if r, found := rules[name]; found {
		return r, true
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if r, found := rules[dir+"/…"]; found {
			return r, true
		}
	}
	return rule{}, false
}

// allowed reports whether name is in the list, in which dir/… stands for everything below dir.
func allowed(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		dir, all := strings.CutSuffix(entry, "/…")
		return entry == name || all && strings.HasPrefix(name, dir+"/")
	})
}

// under reports whether importPath is root or below it.
func under(importPath, root string) bool {
	return importPath == root || strings.HasPrefix(importPath, root+"/")
}

// TestFaults makes sure that the rules can be broken.
func TestFaults(t *testing.T) {
	all := map[string]goPackage{
		"example.com/heavy/part": {Module: &struct{ Path string }{"example.com/heavy"}},
	}
	for _, c := range []struct {
		name, fault string
		p           goPackage
	}{
		{".", "imports sqlite", goPackage{Imports: []string{module + "/sqlite"}}},
		{".", "must do without net/http/httptest", goPackage{Deps: []string{"net/http/httptest"}}},
		{"sqlite", "must do without module example.com/heavy (example.com/heavy/part)", goPackage{Deps: []string{"example.com/heavy/part"}}},
		{"storetest", "must do without github.com/jackc/pgx/v5/pgconn", goPackage{Deps: []string{"github.com/jackc/pgx/v5/pgconn"}}},
		{"outbox", "imports record/client", goPackage{Imports: []string{module + "/record/client"}}},
		{"record/host", "imports record/client", goPackage{Imports: []string{module + "/record/client"}}},
		{"cmd/holdfast", "imports internal/pgtest", goPackage{Imports: []string{module + "/internal/pgtest"}}},
		{"novel", "has no rule: add one, and the package to docs/architecture.md", goPackage{}},
		{"cmd/holdfast", "", goPackage{Imports: []string{module + "/record/host", "net/http"}, Deps: []string{"net/http"}}},
		{"sqlite", "", goPackage{Imports: []string{module, "net/url"}, Deps: []string{"net/url"}}},
	} {
		got := strings.Join(faults(c.name, c.p, all), "; ")
		if got != c.fault {
			t.Errorf("%s: %q, want %q", c.name, got, c.fault)
		}
	}
}
