package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// asBinary turns the test binary into holdfast itself, for the tests and for commands of ours that
// start this program again.
const asBinary = "HOLDFAST_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	if os.Getenv(asBinary) != "" {
		main()
		return
	}
	os.Setenv(asBinary, "1")
	for _, v := range []string{envDatabase, envSchema, hostKind.env, directoryKind.env, envOutbox, "NO_COLOR"} {
		os.Unsetenv(v)
	}
	os.Exit(m.Run())
}

// result is how one call ended.
type result struct {
	code     int
	out, err string
}

// call runs a command inside the test.
func call(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &out, &errs)
	if ctx.Err() != nil {
		t.Fatalf("holdfast %.200s did not end within 30 s: %s", strings.Join(args, " "), &errs)
	}
	return result{code, out.String(), errs.String()}
}

// ok runs a command that must succeed, and answers its output.
func ok(t testing.TB, args ...string) string {
	t.Helper()
	r := call(t, "", args...)
	if r.code != 0 {
		t.Fatalf("holdfast %.200s: exit code %d, %s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// newDB names a database of the test's own, as a flag.
func newDB(t testing.TB) string {
	t.Helper()
	return "--db=" + filepath.Join(t.TempDir(), "tasks.db")
}

// open opens the database of a flag by the library.
func open(t testing.TB, db string) *holdfast.Client {
	t.Helper()
	store, err := sqlite.Open(t.Context(), strings.TrimPrefix(db, "--db="))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return holdfast.NewClient(store)
}

// task decodes one line of --json.
func task(t testing.TB, line string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return m
}

func getTask(t testing.TB, db, id string) map[string]any {
	t.Helper()
	return task(t, ok(t, db, "get", id, "--json"))
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// process is a running holdfast.
type process struct {
	cmd      *exec.Cmd
	out, err *buffer
	ended    chan struct{}
}

// buffer can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts holdfast as a process, and ends it with the test.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, self, nil, args...)
}

func startProgram(t testing.TB, program string, env []string, args ...string) *process {
	t.Helper()
	return startProgramOn(t, nil, program, env, args...)
}

// startProgramOn starts it with a standard input.
func startProgramOn(t testing.TB, stdin io.Reader, program string, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, args...), out: &buffer{}, err: &buffer{}, ended: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, p.out, p.err
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // ProcessState tells the rest
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("holdfast %s wrote:\n%s%s", strings.Join(args, " "), p.out, p.err)
		}
	})
	return p
}

// wait answers the exit code; -1 for a death by signal.
func (p *process) wait(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		t.Fatalf("the process has not ended within %v", limit)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that another process is going to do.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// untilStatus waits until the task is in that status, and answers it.
func untilStatus(t testing.TB, c *holdfast.Client, id string, status holdfast.Status) *holdfast.Task {
	t.Helper()
	var last *holdfast.Task
	eventually(t, fmt.Sprintf("%s is %s", id, status), func() bool {
		var err error
		if last, err = c.Get(context.Background(), id); err != nil {
			t.Fatal(err)
		}
		return last.Status == status
	})
	return last
}
