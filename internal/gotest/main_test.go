package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module of one package with these tests and returns its folder.
func module(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26.0\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\n" + tests,
		"none/n.go": "package none\n",
		"m.go":      "package m\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRun(t *testing.T) {
	const passing = `func TestGood(t *testing.T) { t.Log("chatter"); t.Run("part", func(t *testing.T) {}) }
`
	for _, c := range []struct {
		name, tests string
		args        []string
		wantErr     string
		want        []string
		wantNot     string
	}{
		{
			name: "all pass", tests: passing, args: []string{"./..."},
			want:    []string{"--- PASS: TestGood", "    --- PASS: TestGood/part", "ok  \texample.com/m\t", "2 tests passed, 0 failed, 0 skipped"},
			wantNot: "chatter",
		},
		{
			name: "a skip", tests: passing + `func TestIdle(t *testing.T) { t.Skip("no server: install one") }`, args: []string{"./..."},
			wantErr: "1 tests were skipped",
			want:    []string{"--- SKIP: TestIdle", "skipped: example.com/m TestIdle: m_test.go:6: no server: install one\n"},
		},
		{
			name:  "a skip that -short explains",
			tests: passing + `func TestLong(t *testing.T) { if testing.Short() { t.Skip("long: not with -short") } }`, args: []string{"-short", "./..."},
			want: []string{"2 tests passed, 0 failed, 1 skipped", "TestLong: m_test.go:6: long: not with -short (in order: -short)"},
		},
		{
			name:  "a skip that -short does not explain",
			tests: passing + `func TestIdle(t *testing.T) { t.Skip("no server") }`, args: []string{"-short", "./..."},
			wantErr: "1 tests were skipped",
		},
		{
			name: "a failure", tests: passing + `func TestBad(t *testing.T) { t.Error("this is why") }`, args: []string{"./..."},
			wantErr: "exit status 1",
			want:    []string{"this is why", "--- FAIL: TestBad", "FAIL\texample.com/m\t", "--- PASS: TestGood"},
		},
		{
			name: "a panic", tests: `func TestBad(t *testing.T) { println("last words"); panic("oh") }`, args: []string{"./..."},
			wantErr: "exit status 1", want: []string{"last words", "panic: oh"},
		},
		{
			name: "does not compile", tests: passing + "var x int = \"text\"", args: []string{"./..."},
			wantErr: "exit status 1", want: []string{"cannot use \"text\"", "[build failed]"},
		},
		{name: "nothing to run", tests: passing, args: []string{"./none"}, wantErr: "no test ran"},
		{name: "no such package", tests: passing, args: []string{"./nowhere"}, wantErr: "exit status 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOFLAGS", "-mod=mod")
			var out strings.Builder
			err := run(c.args, module(t, c.tests), &out, &out)
			if c.wantErr == "" && err != nil || c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("error %v, want %q", err, c.wantErr)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not say %q", want)
				}
			}
			if c.wantNot != "" && strings.Contains(out.String(), c.wantNot) {
				t.Errorf("says %q", c.wantNot)
			}
			if t.Failed() {
				t.Logf("output:\n%s", out.String())
			}
		})
	}
}
