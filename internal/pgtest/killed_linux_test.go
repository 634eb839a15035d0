package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// envChild set to 1 makes this program such a child; see TestMain.
const envChild = "HOLDFAST_PGTEST_CHILD"

// TestMain is the whole life of a child of TestNothingOutlivesItsProcess: it starts servers, says so, and waits to be killed
// or, at the end of its input, ends.
func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "1" {
		os.Exit(m.Run())
	}
	if _, _, err := Create(context.Background()); err != nil {
		panic(err)
	}
	if _, err := New(Options{}); err != nil {
		panic(err)
	}
	os.Stdout.WriteString("ready\n")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// TestNothingOutlivesItsProcess starts servers from another process and ends that one in several ways, at several moments.
func TestNothingOutlivesItsProcess(t *testing.T) {
	needBinaries(t)
	for _, c := range []struct {
		name string
		kill bool
		when func(t *testing.T, folder string, output *bufio.Reader) // returns when it is time to end
	}{
		{"ends by itself", false, ready},
		{"killed while servers run", true, ready},
		{"killed while initdb runs", true, thereIs("holdfast-pg-*/data/PG_VERSION")},
		{"killed while a server starts", true, thereIs("holdfast-pg-*/data/postmaster.pid")},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := openFolder(t)
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), envChild+"=1", "TMPDIR="+folder, envDSN+"=")
			var complaint bytes.Buffer
			child.Stderr = &complaint
			output, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			input, err := child.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { child.Process.Kill() })
			c.when(t, folder, bufio.NewReader(output))
			if c.kill {
				child.Process.Kill()
			} else {
				input.Close()
			}
			if err := child.Wait(); (err != nil) != c.kill {
				t.Fatalf("child: %v\n%s", err, complaint.String())
			}
			var left []string
			waitUntil(t, func() bool {
				left = append(processesOf(t, folder), matches(t, filepath.Join(folder, "*"))...)
				return len(left) == 0
			}, func() string { return "left behind:\n" + strings.Join(left, "\n") })
		})
	}
}

func ready(t *testing.T, folder string, output *bufio.Reader) {
	if line, err := output.ReadString('\n'); line != "ready\n" {
		t.Fatalf("child said %q (%v)", line, err)
	}
	// The proof below must be able to fail: now there is something to be seen.
	if servers := processesOf(t, folder); len(servers) < 2 {
		t.Fatalf("only these processes are seen: %q", servers)
	}
}

func thereIs(pattern string) func(*testing.T, string, *bufio.Reader) {
	return func(t *testing.T, folder string, _ *bufio.Reader) {
		waitUntil(t, func() bool { return len(matches(t, filepath.Join(folder, pattern))) > 0 },
			func() string { return "never saw " + pattern })
	}
}

// openFolder returns a folder of its own in which every user can make more, unlike t.TempDir.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "holdfast-killed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	return folder
}

// processesOf returns the command lines of all living processes that work in folder or have it in their command line.
func processesOf(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	for _, dir := range matches(t, "/proc/[0-9]*") {
		text, _ := os.ReadFile(dir + "/cmdline") // gone meanwhile; empty for a zombie
		cwd, _ := os.Readlink(dir + "/cwd")
		line := strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", " ")
		if line != "" && (strings.Contains(line, folder) || strings.HasPrefix(cwd, folder)) {
			found = append(found, filepath.Base(dir)+" "+line)
		}
	}
	return found
}

func matches(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func waitUntil(t *testing.T, done func() bool, otherwise func() string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise())
		}
	}
}
