package sqlite

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/eda94727/holdfast"
)

// declared lists the statements that the package in the folder declares: constants of the type
// holdfast.Statement.
func declared(t *testing.T, dir string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s (%v)", dir, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || v.Type == nil || len(v.Values) != 1 {
				return true
			}
			kind := ""
			switch x := v.Type.(type) {
			case *ast.Ident:
				kind = x.Name
			case *ast.SelectorExpr:
				kind = x.Sel.Name
			}
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && kind == "Statement" {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out[s] = true
			}
			return true
		})
	}
	return out
}

func TestEveryStatementHasAFileAndEveryFileAStatement(t *testing.T) {
	want := map[string]bool{}
	for _, dir := range []string{"..", ".", "../internal/claiming"} {
		for s := range declared(t, dir) {
			want[s] = true
		}
	}
	if len(want) < 20 {
		t.Fatalf("only %d statements are declared", len(want))
	}
	delete(want, string(holdfast.StmtDependPrepare)) // made of these:
	for _, s := range dependTriggers {
		want[string(s)] = true
	}
	delete(want, string(holdfast.StmtLockKey)) // the write lock of the file is the key's lock too
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range names {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		if !want[name] {
			t.Errorf("%s: no statement of that name is declared", file)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("statement %q has no file", name)
	}
	embedded, err := fs.Glob(files, "*/*")
	if err != nil {
		t.Fatal(err)
	}
	onDisk, err := fs.Glob(os.DirFS("."), "s*/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(embedded, onDisk) {
		t.Errorf("embedded are %v, the folders hold %v", embedded, onDisk)
	}
}

// Every parameter and column is a field of holdfast.Row, and both styles of parameters bind the same.
func TestStatementsBindFieldsOfRow(t *testing.T) {
	all := portable()
	for name, v := range statements() {
		for mask := uint(0); mask < 1<<len(v.optional); mask++ {
			_, numbered := v.text.Render(v.style, mask)
			_, questions := all[name].text.Render(all[name].style, mask)
			seen := map[string]bool{}
			for _, p := range questions {
				if _, ok := holdfast.ColumnOf(p); !ok {
					t.Errorf("%s: parameter %q is no field of holdfast.Row", name, p)
				}
				seen[p] = true
			}
			if len(seen) != len(numbered) {
				t.Errorf("%s: %v with numbers, %v with question marks", name, numbered, questions)
			}
		}
	}
}
