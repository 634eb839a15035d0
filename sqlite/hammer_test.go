package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
	"github.com/eda94727/holdfast/storetest"
)

// rhythm records how often something happens and the longest time in which it did not.
type rhythm struct {
	mu      sync.Mutex
	n       int
	last    time.Time
	longest time.Duration
}

func (r *rhythm) start() { r.last = time.Now() }

func (r *rhythm) beat() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.n++
	r.longest = max(r.longest, now.Sub(r.last))
	r.last = now
}

// hammer submits from 16 goroutines as fast as it can. All of them make progress: the rhythm is that
// of the slowest.
func hammer(ctx context.Context, path string, length time.Duration) (n int, longest time.Duration, err error) {
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var (
		wg     sync.WaitGroup
		failed atomic.Value
		beats  [16]rhythm
	)
	for i := range beats {
		beats[i].start()
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := store.Submit(context.WithoutCancel(ctx), &holdfast.Submission{Name: "go"}); err != nil {
					failed.Store(err)
					return
				}
				beats[i].beat()
			}
		})
	}
	wg.Wait()
	for i := range beats {
		n += beats[i].n
		longest = max(longest, beats[i].longest)
	}
	err, _ = failed.Load().(error)
	return n, longest, err
}

// childHammers is hammer in a process of its own. It answers what it has measured.
func childHammers(ctx context.Context, path string) error {
	path, seconds, _ := strings.Cut(path, "|")
	length, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	n, longest, err := hammer(ctx, path, time.Duration(length*float64(time.Second)))
	if err != nil {
		return err
	}
	fmt.Println(n, longest.Seconds())
	return nil
}

// pythonHammers does the same with Python's module as it comes: its standard busy handler, which
// gives up after five seconds.
const pythonHammers = `
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma foreign_keys = on")
print("ready", flush=True)
n, longest, last = 0, 0.0, time.monotonic()
end = last + float(sys.argv[2])
while last < end:
    ms = int(time.time() * 1000)
    id = "task_0PYTHON%016d" % n
    db.execute("begin immediate")
    db.execute("insert into cairnq_tasks (id, name, queue, status, payload, run_at_ms, root_id, created_at_ms, updated_at_ms) values (?, 'python', 'default', 'queued', '{}', ?, ?, ?, ?)", (id, ms, id, ms, ms))
    db.execute("commit")
    n += 1
    now = time.monotonic()
    longest = max(longest, now - last)
    last = now
print(n, longest)
`

// Two processes write one file as fast as they can. Neither waits for a second, and neither is ever
// told that the file is busy.
func TestNeighboursShareTheFile(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds float64
		command func(path string, seconds float64) *exec.Cmd
	}{
		{"Python", 10, func(path string, seconds float64) *exec.Cmd {
			cmd := python(t, pythonHammers, path, fmt.Sprint(seconds))
			cmd.Stderr = os.Stderr
			return cmd
		}},
		{"Go", 4, func(path string, seconds float64) *exec.Cmd {
			return child(t, "hammer", fmt.Sprint(path, "|", seconds))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() {
				c.seconds = 2
			}
			// A machine that is busy with something else may be late, but not each time.
			for range 3 {
				waited := share(t, c.command, c.seconds)
				if waited <= time.Second {
					return
				}
				c.seconds = min(c.seconds, 4)
			}
			t.Error("somebody made no progress for more than a second, each time")
		})
	}
}

// share lets a neighbour and this process write one new file for some seconds, and answers the longest
// time that a caller of either made no progress.
func share(t *testing.T, command func(path string, seconds float64) *exec.Cmd, seconds float64) time.Duration {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.db")
	openAt(t, path).Close()
	cmd := command(path, seconds)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the neighbour said %q", lines.Text())
	}
	n, longest, err := hammer(t.Context(), path, time.Duration(seconds*float64(time.Second)))
	if err != nil {
		t.Errorf("we were told: %v", err)
	}
	lines.Scan()
	said := lines.Text()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the neighbour failed: %v", err)
	}
	var theirs int
	var theirLongest float64
	if _, err := fmt.Sscan(said, &theirs, &theirLongest); err != nil {
		t.Fatalf("the neighbour said %q", said)
	}
	t.Logf("in %v s we wrote %d tasks and waited at most %v; the neighbour wrote %d and waited at most %.3f s", seconds, n, longest.Round(time.Millisecond), theirs, theirLongest)
	db := openSQL(t, path)
	if got := strings1(t, db, "select count(*) from cairnq_tasks"); got[0] != fmt.Sprint(n+theirs) {
		t.Errorf("the file holds %s tasks, acknowledged were %d", got[0], n+theirs)
	}
	storetest.CheckInvariants(t, db)
	return max(longest, time.Duration(theirLongest*float64(time.Second)))
}
