package sqlitefile

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func (c *Conn) count() (n int64, err error) {
	s, err := c.Stmt(countQuery)
	if err != nil {
		return 0, err
	}
	return n, Rows(s, func() error { n = s.ColumnInt64(0); return nil })
}

var countQuery = &Query{Name: "count", SQL: "select count(*) from (select 1 from t limit 3000)"}

func TestReadersRunBesideEachOtherAndTheWriter(t *testing.T) {
	f := openTest(t, Options{Readers: 3})
	execSQL(t, f, "insert into t values (1, 'a')")
	entered, end := make(chan struct{}), make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := f.Write(t.Context(), "long", func(c *Conn) error {
			if err := insert(2)(c); err != nil {
				return err
			}
			close(entered)
			<-end
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-entered
	// All readers meet inside their reads, while the write is open.
	var inside, readers sync.WaitGroup
	inside.Add(3)
	for range 3 {
		readers.Go(func() {
			if err := f.Read(t.Context(), func(c *Conn) error {
				inside.Done()
				inside.Wait()
				if n, err := c.count(); err != nil || n != 1 {
					t.Errorf("%d rows (%v), want 1", n, err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	close(end)
	writing.Wait()
}

// A read whose context ends in the middle of its transaction must not leave the transaction behind:
// the next read on that connection would see the past.
func TestAReadThatWasCutOffLeavesNoSnapshot(t *testing.T) {
	f := openTest(t, Options{Readers: 1})
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		err := f.Read(ctx, func(c *Conn) error {
			if err := c.Exec("BEGIN"); err != nil {
				return err
			}
			if err := second(c.count()); err != nil {
				return err
			}
			cancel()
			return second(c.count())
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the read answers %v", err)
		}
		must(t, f.Write(t.Context(), "insert", insert(i)))
		must(t, f.Read(t.Context(), func(c *Conn) error {
			if n, err := c.count(); err != nil || n != int64(i+1) {
				t.Errorf("%d rows (%v), want %d", n, err, i+1)
			}
			return nil
		}))
	}
}

func TestReadersNeverTakeTheWriteLock(t *testing.T) {
	f := openTest(t, Options{})
	c := other(t, f.Path())
	must(t, c.Exec("BEGIN IMMEDIATE"))
	must(t, f.Read(t.Context(), func(c *Conn) error { return second(c.count()) }))
	err := f.Read(t.Context(), func(c *Conn) error { return c.Exec("insert into t values (1, 'a')") })
	if !errors.Is(err, ErrReadOnly) {
		t.Errorf("a write on a reading connection: %v", err)
	}
	must(t, c.Exec("insert into t values (2, 'b'); COMMIT"))
	must(t, f.Read(t.Context(), func(c *Conn) error {
		if n, err := c.count(); err != nil || n != 1 {
			t.Errorf("%d rows (%v), want 1", n, err)
		}
		return nil
	}))
}

func second[T any](_ T, err error) error { return err }

func TestReadThatWaitsForAConnectionEndsWithItsContext(t *testing.T) {
	f := openTest(t, Options{Readers: 1})
	entered, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.Read(context.Background(), func(*Conn) error { close(entered); <-end; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := f.Read(ctx, func(*Conn) error { return nil })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "reading connections") {
		t.Errorf("the error is %v, want what was waited for", err)
	}
	close(end)
	wg.Wait()
}

func TestReadIsInterruptedByItsContext(t *testing.T) {
	f := openTest(t, Options{})
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	begun := make(chan struct{})
	go func() { <-begun; cancel(why) }()
	err := f.Read(ctx, func(c *Conn) error {
		s, _, err := c.DB.Prepare("with recursive n(i) as (select 1 union all select i + 1 from n) select i from n")
		if err != nil {
			return err
		}
		defer s.Close()
		rows := 0
		return Rows(s, func() error {
			if rows++; rows == 1 {
				close(begun)
			}
			return nil
		})
	})
	if !errors.Is(err, why) {
		t.Errorf("the error is %v, want the context's cause", err)
	}
	// The connection is as good as new.
	must(t, f.Read(t.Context(), func(c *Conn) error { return second(c.count()) }))
}

func TestMemory(t *testing.T) {
	f, err := Open(t.Context(), Memory, Options{})
	must(t, err)
	execSQL(t, f, "create table t (k integer primary key, v text)")
	must(t, f.WriteSure(t.Context(), "insert", insert(1)))
	var n int64
	must(t, f.Read(t.Context(), func(c *Conn) (err error) { n, err = c.count(); return err }))
	if n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	changes, cancel := f.Changes()
	cancel()
	select {
	case <-changes:
		t.Error("nobody else can change a database in memory")
	default:
	}
	must(t, f.Close())
	if err := f.Read(t.Context(), func(*Conn) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
}

// Under writers and readers that never rest, checkpoints must still get through: the WAL stays near
// the size at which SQLite begins to copy it back (1000 pages, 4 MB).
func TestWALStaysBoundedUnderLoad(t *testing.T) {
	f := openTest(t, Options{Synchronous: Normal})
	const rows = 10_000
	var next, largest atomic.Int64
	var writers, readers sync.WaitGroup
	end := make(chan struct{})
	for range 8 {
		writers.Go(func() {
			for {
				k := next.Add(1)
				if k > rows {
					return
				}
				if err := f.WriteSure(t.Context(), "insert", func(c *Conn) error {
					s, err := c.Stmt(wideQuery)
					if err != nil {
						return err
					}
					if err := s.BindInt64(1, k); err != nil {
						return err
					}
					return Rows(s, func() error { return nil })
				}); err != nil {
					t.Error(err)
					return
				}
				if k%200 == 0 {
					largest.Store(max(largest.Load(), size(t, f.Path()+"-wal")))
				}
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if err := f.Read(t.Context(), func(c *Conn) error { return second(c.count()) }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(end)
	readers.Wait()
	t.Logf("the WAL grew to %.1f MB for %.1f MB of data", float64(largest.Load())/1e6, float64(size(t, f.Path()))/1e6)
	if most := int64(2 * gapAt * 4096); largest.Load() > most {
		t.Errorf("the WAL grew to %d bytes", largest.Load())
	}
}

var wideQuery = &Query{Name: "wide", SQL: "insert into t (k, v) values (?1, hex(randomblob(400))) returning k"}
