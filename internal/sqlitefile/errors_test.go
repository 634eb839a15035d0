package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
	"go.uber.org/goleak"
)

// TestMain runs the child processes of these tests, which are this binary with a variable set.
func TestMain(m *testing.M) {
	switch what, path, _ := strings.Cut(os.Getenv("SQLITEFILE_CHILD"), "|"); what {
	case "":
		goleak.VerifyTestMain(m) // and nothing is left running
	case "nobody":
		childAsNobody(path)
	case "commit":
		childCommits(path)
	}
}

func child(t testing.TB, what, path string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "SQLITEFILE_CHILD="+what+"|"+path)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	must(t, os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600))
	short := filepath.Join(dir, "short.db")
	must(t, os.WriteFile(short, []byte("no"), 0o600))
	damaged := filepath.Join(dir, "damaged.db")
	func() {
		f := openPath(t, damaged, Options{})
		execSQL(t, f, "create index i on t (v)")
		must(t, f.Close())
		raw, err := os.ReadFile(damaged)
		must(t, err)
		copy(raw[110:], make([]byte, 3000)) // the page of the schema
		must(t, os.WriteFile(damaged, raw, 0o600))
	}()
	for _, c := range []struct {
		name, path string
		want       error
		says       string
	}{
		{"no path", "", ErrCannotOpen, "empty"},
		{"a directory", dir, ErrCannotOpen, "is a directory"},
		{"a missing folder", filepath.Join(dir, "none", "test.db"), ErrCannotOpen, "does not exist; create it"},
		{"a file in place of a folder", filepath.Join(text, "test.db"), ErrCannotOpen, text},
		{"another kind of file", text, ErrNotDatabase, "another kind of file"},
		{"a short file of another kind", short, ErrNotDatabase, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before []byte
			if c.want == ErrNotDatabase {
				before = firstOf(os.ReadFile(c.path))
			}
			f, err := Open(t.Context(), c.path, Options{})
			if err == nil {
				err = f.Read(t.Context(), func(c *Conn) error { return second(c.count()) })
				f.Close()
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("the error is %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("the error %q does not say %q and the path", err, c.says)
			}
			if after := firstOf(os.ReadFile(c.path)); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
	t.Run("a damaged file", func(t *testing.T) {
		f, err := Open(t.Context(), damaged, Options{})
		if err == nil {
			err = f.Read(t.Context(), func(c *Conn) error { return second(c.count()) })
			f.Close()
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "backup") {
			t.Errorf("the error is %v, want that the file is damaged", err)
		}
	})
	t.Run("a mode of synchronous that is unknown", func(t *testing.T) {
		if _, err := Open(t.Context(), filepath.Join(dir, "x.db"), Options{Synchronous: "off"}); err == nil || !strings.Contains(err.Error(), "use FULL or NORMAL") {
			t.Errorf("the error is %v", err)
		}
	})
}

func execSQL(t testing.TB, f *File, sql string) {
	t.Helper()
	must(t, f.Write(context.Background(), "test", func(c *Conn) error { return c.Exec(sql) }))
}

func firstOf[T any](v T, _ error) T { return v }

func TestPathsAreTakenAsTheyAre(t *testing.T) {
	for _, name := range []string{"a b.db", "what?.db", "50%.db", "a#b.db", "ü%20.db", "a&b=c.db"} {
		path := filepath.Join(t.TempDir(), name)
		f := openPath(t, path, Options{})
		execSQL(t, f, "insert into t values (1, 'a')")
		must(t, f.Read(t.Context(), func(c *Conn) error { return second(c.count()) }))
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	if _, err := Open(t.Context(), path, Options{ReadOnly: true}); !errors.Is(err, ErrCannotOpen) {
		t.Errorf("a file that is not there: %v", err)
	}
	f := openPath(t, path, Options{})
	execSQL(t, f, "insert into t values (1, 'a')")
	r := openPath(t, path, Options{ReadOnly: true})
	must(t, r.Read(t.Context(), func(c *Conn) error {
		if n, err := c.count(); n != 1 || err != nil {
			t.Errorf("%d rows (%v), want 1", n, err)
		}
		return nil
	}))
	err := r.Write(t.Context(), "submit", insert(2))
	if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "submit needs to write") {
		t.Errorf("the error is %v, want that the file was opened read-only", err)
	}
}

func TestFullDisk(t *testing.T) {
	var writer *sqlite3.Conn // the first connection is the writer's
	f := openTest(t, Options{OnConnect: func(c *sqlite3.Conn) error {
		if writer == nil {
			writer = c
		}
		return nil
	}})
	limit := func(pages int) {
		t.Helper()
		execSQL(t, f, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	}
	limit(30)
	big := func(k int) func(*Conn) error {
		return func(c *Conn) error {
			return c.Exec(fmt.Sprintf("insert into t values (%d, hex(zeroblob(10000)))", k))
		}
	}
	k := 0
	var err error
	for ; err == nil && k < 1000; k++ {
		err = f.WriteSure(t.Context(), "submit", big(k))
	}
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "free some space") || !strings.Contains(err.Error(), f.Path()) {
		t.Fatalf("the error is %v, want that the disk is full, the path and the remedy", err)
	}
	kept := number(t, other(t, f.Path()), "select count(*) from t")
	if kept != int64(k-1) {
		t.Errorf("%d rows, but %d were acknowledged", kept, k-1)
	}
	// In a group, only the write that is too big fails.
	release, errs, wait := gather(t, f, t.Context(), 5, func(i int) error {
		if i == 2 {
			return f.Write(t.Context(), "submit", func(c *Conn) error { return errors.Join(insert(2002)(c), big(3000)(c)) })
		}
		return f.WriteSure(t.Context(), "submit", insert(2000+10*i))
	})
	release()
	wait()
	for i, err := range errs {
		if i == 2 && !errors.Is(err, ErrFull) || i != 2 && err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t where k >= 2000"); got != 4 {
		t.Errorf("%d small rows, want 4", got)
	}
	// And when there is room again, all is well.
	limit(100_000)
	must(t, f.WriteSure(t.Context(), "submit", big(4000)))
}

func TestHolderIsNamed(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed; with it, this test shows that a BusyError names the process that holds the lock")
	}
	f := openTest(t, Options{BusyBudget: 200 * time.Millisecond})
	cmd := exec.Command(python, "-c", `
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
`, f.Path())
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { in.Close(); cmd.Wait() }()
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	err = f.WriteSure(t.Context(), "submit", insert(1))
	var busy *BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("the error is %v, want a BusyError", err)
	}
	if want := fmt.Sprintf("process %d (python3", cmd.Process.Pid); !strings.HasPrefix(busy.Holder, want) {
		t.Errorf("the holder is %q, want %q", busy.Holder, want)
	}
}
