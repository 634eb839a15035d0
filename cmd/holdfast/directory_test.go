//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
)

// A Directory with several keys comes back as it was; what its clients have pinned cannot change.
func TestADirectorysFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	folder := filepath.Join(root, "directory")
	d := serveProcess(t, directoryKind, folder, "--listen", "127.0.0.1:0", "--keys", "3", "--threshold", "2", "--lifetime", "1h")
	pinned := filepath.Join(root, "pin.json")
	if err := os.WriteFile(pinned, []byte(ok(t, "directory", "keys", "--data", folder)), 0o600); err != nil {
		t.Fatal(err)
	}
	pin, err := directory.LoadPin(pinned)
	if err != nil || pin.Directory != d.URL || len(pin.Keys) != 3 || pin.Threshold != 2 {
		t.Fatalf("the pin is %+v, %v", pin, err)
	}
	host := record.NewKey().ID()
	ok(t, "directory", "admit", "--data", folder, host, "--name", "Clinic North")
	if got := task(t, ok(t, "directory", "hosts", "--data", folder, "--json")); got["id"] != host || got["name"] != "Clinic North" {
		t.Errorf("the hosts are %v", got)
	}
	ok(t, "directory", "remove", "--data", folder, host)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitNotFound, "no such Host", []string{"remove", host}},
		{exitUsage, "thumbprint", []string{"admit", "x"}},
		{exitUsage, "UUIDv7", []string{"log", "x"}},
		{exitNotFound, "nobody has published", []string{"log", record.NewID()}},
	} {
		args := append([]string{"directory", "--data", folder}, c.args...)
		if r := call(t, "", args...); r.code != c.code || !strings.Contains(r.err, c.says) || r.out != "" {
			t.Errorf("holdfast %v: exit code %d, not %d with %q: %s%s", args, r.code, c.code, c.says, r.err, r.out)
		}
	}
	if r := call(t, "", "directory", "--data", folder); r.code != exitState || !strings.Contains(r.err, "already") {
		t.Errorf("a second one: %+v", r)
	}
	d.stop(t)
	for says, args := range map[string][]string{
		"for ever":      {"--url", "https://other.example"},
		"have pinned":   {"--keys", "2"},
		"--threshold":   {"--threshold", "4"},
		"not in Postgr": {"--db", "postgres://127.0.0.1:1/d"},
	} {
		if r := call(t, "", append([]string{"directory", "--data", folder}, args...)...); r.code != exitUsage || !strings.Contains(strings.ReplaceAll(r.err, "which its clients", "they"), says) {
			t.Errorf("%v: %+v", args, r)
		}
	}
	again := serveProcess(t, directoryKind, folder)
	if again.URL != d.URL || again.get(t, "/keys") != 200 || ok(t, "directory", "keys", "--data", folder) != readFile(t, pinned) {
		t.Errorf("it came back as %s", again.URL)
	}
}

// Every command below host, directory and record says what it does and shows an example, and
// docs/cli.md knows its flags.
func TestEverySubcommandOfRecordsHasHelp(t *testing.T) {
	docs := readFile(t, "../../docs/cli.md")
	a := &app{}
	a.stdout, a.stderr = newOutput(nil), newOutput(nil)
	for _, top := range a.root().Commands() {
		if top.GroupID != groupRecords {
			continue
		}
		for _, cmd := range top.Commands() {
			if cmd.Short == "" || cmd.Long == "" || !strings.Contains(cmd.Example, cmd.CommandPath()) {
				t.Errorf("%s: short %q, long %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Long, cmd.Example)
			}
			if !strings.Contains(docs, cmd.Name()) {
				t.Errorf("docs/cli.md does not mention %s", cmd.CommandPath())
			}
			for _, flag := range flagNames(cmd) {
				if !strings.Contains(docs, "--"+flag) {
					t.Errorf("docs/cli.md does not mention --%s of %s", flag, cmd.CommandPath())
				}
			}
		}
	}
}
