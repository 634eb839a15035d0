//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The small world of docs/cli.md is made by the commands that stand there, as they stand there. Two
// things are added: a service that is started in the background is waited for, and takes a free port.
func TestTheCommandsOfTheDocs(t *testing.T) {
	docs := readFile(t, filepath.Join("..", "..", "docs", "cli.md"))
	_, rest, found := strings.Cut(docs, "A small world on one machine")
	start, end := strings.Index(rest, "\n    "), strings.Index(rest, "\n### ")
	if !found || start < 0 || end < start {
		t.Fatal("docs/cli.md has no small world")
	}
	dir, bin := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := "#!/bin/sh\ncase \"$1 $2\" in 'directory --data'|'host --data') exec '" + self + "' \"$@\" --listen 127.0.0.1:0 ;; esac\nexec '" + self + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "holdfast"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\numask 077\ntrap 'kill $(jobs -p); wait' EXIT\n")
	background := regexp.MustCompile(`^holdfast (directory|host) --data (\w+) .*&( |$)`)
	services := 0
	for line := range strings.Lines(rest[start+1 : end]) {
		line = strings.TrimPrefix(line, "    ")
		script.WriteString(line)
		if m := background.FindStringSubmatch(line); m != nil {
			services++
			script.WriteString("until [ -e " + m[2] + "/" + m[1] + ".json ]; do kill -0 $! || exit 1; sleep 0.02; done\n")
		}
	}
	if services != 2 {
		t.Fatalf("%d services are started:\n%s", services, &script)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Observation/") || !strings.Contains(string(out), "version 1") {
		t.Errorf("%v\n%s\n%s", err, script.String(), out)
	}
}
