package sqlite_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// children are the functions that run in processes of their own, by name.
var children = map[string]func(ctx context.Context, path string) error{"open": childOpens, "hammer": childHammers}

// TestMain runs the child processes of these tests, which are this binary with a variable set.
func TestMain(m *testing.M) {
	what, path, _ := strings.Cut(os.Getenv("HOLDFAST_SQLITE_CHILD"), "|")
	if what == "" {
		goleak.VerifyTestMain(m) // and nothing is left running
	}
	run, ok := children[what]
	if !ok {
		fmt.Fprintf(os.Stderr, "no child is called %q\n", what)
		os.Exit(2)
	}
	if err := run(context.Background(), path); err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", what, err)
		os.Exit(1)
	}
}

// child makes a command that runs one of the functions above in a process of its own.
func child(t testing.TB, what, path string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "HOLDFAST_SQLITE_CHILD="+what+"|"+path)
	cmd.Stderr = os.Stderr
	return cmd
}

// childOpens waits for the end of its input, opens the file and submits a task.
func childOpens(ctx context.Context, path string) error {
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	if _, err := store.Submit(ctx, &holdfast.Submission{Name: "job"}); err != nil {
		return err
	}
	return store.Close()
}
