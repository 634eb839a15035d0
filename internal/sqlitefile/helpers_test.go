package sqlitefile

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// openTest opens a file with the table that the tests write to.
func openTest(t testing.TB, o Options) *File {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "test.db"), o)
}

func openPath(t testing.TB, path string, o Options) *File {
	t.Helper()
	f, err := Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if o.ReadOnly {
		return f
	}
	execSQL(t, f, "create table if not exists t (k integer primary key, v text)")
	return f
}

// other is a connection of another program.
func other(t testing.TB, path string) *sqlite3.Conn {
	t.Helper()
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.BusyTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// number answers the only value of a query.
func number(t testing.TB, c *sqlite3.Conn, sql string) (n int64) {
	t.Helper()
	s, _, err := c.Prepare(sql)
	must(t, err)
	defer s.Close()
	must(t, Rows(s, func() error { n = s.ColumnInt64(0); return nil }))
	return n
}

// insert is a write of one row.
func insert(k int) func(*Conn) error {
	return func(c *Conn) error {
		s, err := c.Stmt(insertQuery)
		if err != nil {
			return err
		}
		if err := s.BindInt64(1, int64(k)); err != nil {
			return err
		}
		return Rows(s, func() error { return nil })
	}
}

var insertQuery = &Query{Name: "insert", SQL: "insert into t (k, v) values (?1, 'value')"}

// hold keeps the writer busy inside a write until release is called.
func hold(t testing.TB, f *File) (release func()) {
	t.Helper()
	entered, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	first := true
	go func() {
		done <- f.Write(context.Background(), "hold", func(*Conn) error {
			if first {
				first = false
				close(entered)
			}
			<-end
			return nil
		})
	}()
	<-entered
	released := false
	release = func() {
		if !released {
			released = true
			close(end)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(release)
	return release
}

// until waits for a condition that other goroutines bring about.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("20 s passed and not: %s", what)
		}
	}
}

func (f *File) queued() int {
	f.queue.mu.Lock()
	defer f.queue.mu.Unlock()
	return len(f.queue.list)
}

func size(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}
