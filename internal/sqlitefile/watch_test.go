package sqlitefile

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childCommits inserts the row of each number that it reads, and answers when the commit was done.
func childCommits(path string) {
	f, err := Open(context.Background(), path, Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		k, err := strconv.Atoi(in.Text())
		if err == nil {
			err = f.WriteSure(context.Background(), "insert", insert(k))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(time.Now().UnixNano())
	}
	f.Close()
}

// neighbour is another process that commits when it is told.
func neighbour(t testing.TB, path string) (commit func(k int) time.Time) {
	t.Helper()
	cmd := child(t, "commit", path)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the neighbour: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatal("the neighbour did not start")
	}
	return func(k int) time.Time {
		fmt.Fprintln(in, k)
		if !lines.Scan() {
			t.Fatal("the neighbour has gone")
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		must(t, err)
		return time.Unix(0, ns)
	}
}

// sees waits until the row is there, looking only when a change is told.
func sees(t testing.TB, f *File, changes <-chan struct{}, k int) time.Time {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case <-changes:
		case <-timeout:
			t.Fatalf("row %d was committed and no change was told", k)
		}
		var n int64
		must(t, f.Read(context.Background(), func(c *Conn) (err error) {
			s, err := c.Stmt(hasQuery)
			if err != nil {
				return err
			}
			if err := s.BindInt64(1, int64(k)); err != nil {
				return err
			}
			return Rows(s, func() error { n = s.ColumnInt64(0); return nil })
		}))
		if n == 1 {
			return time.Now()
		}
	}
}

var hasQuery = &Query{Name: "has", SQL: "select count(*) from t where k = ?1"}

func TestChangesTellOfAnotherProcess(t *testing.T) {
	f := openTest(t, Options{})
	commit := neighbour(t, f.Path())
	changes, cancel := f.Changes()
	for k := range 20 {
		commit(k)
		sees(t, f, changes, k)
	}
	cancel()
	// Nobody listens: what happens now is told to whoever comes next.
	commit(100)
	changes, cancel = f.Changes()
	defer cancel()
	sees(t, f, changes, 100)
	commit(101)
	sees(t, f, changes, 101)
}

func TestChangesTellEveryListener(t *testing.T) {
	f := openTest(t, Options{})
	commit := neighbour(t, f.Path())
	one, cancelOne := f.Changes()
	two, cancelTwo := f.Changes()
	defer cancelTwo()
	commit(1)
	sees(t, f, one, 1)
	sees(t, f, two, 1)
	cancelOne()
	commit(2)
	sees(t, f, two, 2)
}

func TestChangesTellOfThisProcess(t *testing.T) {
	f := openTest(t, Options{})
	changes, cancel := f.Changes()
	defer cancel()
	for k := range 5 {
		must(t, f.WriteSure(t.Context(), "insert", insert(k)))
		sees(t, f, changes, k)
	}
}

func TestCloseEndsTheWatch(t *testing.T) {
	before := goleak.IgnoreCurrent()
	f := openTest(t, Options{})
	_, cancel := f.Changes()
	must(t, f.WriteSure(t.Context(), "insert", insert(1)))
	must(t, f.Close())
	goleak.VerifyNone(t, before)
	cancel()
	_, cancel = f.Changes() // after the end: silence
	cancel()
}

// BenchmarkChanges measures from another process's commit to seeing its row here.
func BenchmarkChanges(b *testing.B) {
	f := openTest(b, Options{})
	commit := neighbour(b, f.Path())
	changes, cancel := f.Changes()
	defer cancel()
	var sum, worst time.Duration
	for k := range b.N {
		at := commit(k)
		took := max(sees(b, f, changes, k).Sub(at), 0)
		sum += took
		worst = max(worst, took)
		time.Sleep(5 * time.Millisecond) // apart from each other, as in an idle worker's day
	}
	b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs/pickup")
	b.ReportMetric(float64(worst.Microseconds()), "µs/worst")
}
