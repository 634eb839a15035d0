package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// gather starts writes while the writer is busy, so that they become one group.
func gather(t *testing.T, f *File, ctx context.Context, n int, write func(i int) error) (release func(), errs []error, wait func()) {
	t.Helper()
	release = hold(t, f)
	errs = make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = write(i) })
		until(t, "the write waits", func() bool { return f.queued() == i+1 }) // one after the other, for their order
	}
	return release, errs, wg.Wait
}

// countCommits opens a file that counts its commits.
func countCommits(t *testing.T, o Options) (*File, *atomic.Int64) {
	commits := new(atomic.Int64)
	before := o.OnConnect
	o.OnConnect = func(c *sqlite3.Conn) error {
		c.CommitHook(func() bool { commits.Add(1); return true })
		if before != nil {
			return before(c)
		}
		return nil
	}
	return openTest(t, o), commits
}

func TestWaitingWritesShareOneCommit(t *testing.T) {
	f, commits := countCommits(t, Options{})
	const n = 30
	release, errs, wait := gather(t, f, t.Context(), n, func(i int) error {
		if i%2 == 0 {
			return f.WriteSure(t.Context(), "one", insert(i))
		}
		return f.Write(t.Context(), "several", func(c *Conn) error { return errors.Join(insert(i)(c), insert(100+i)(c)) })
	})
	before := commits.Load()
	release()
	wait()
	must(t, errors.Join(errs...))
	if got := commits.Load() - before; got != 2 {
		t.Errorf("%d commits, want 2: of the write that kept the writer busy, and of the group", got)
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != n+n/2 {
		t.Errorf("%d rows, want %d", got, n+n/2)
	}
}

func TestWriteThatFailsAloneFailsOnlyItsCaller(t *testing.T) {
	f, _ := countCommits(t, Options{})
	execSQL(t, f, "insert into t values (1000, 'there already')")
	own := errors.New("the caller's own error")
	const n = 12
	release, errs, wait := gather(t, f, t.Context(), n, func(i int) error {
		switch i {
		case 2: // one statement that fails
			return f.WriteSure(t.Context(), "duplicate", insert(1000))
		case 4: // the second of several: the first must go as well
			return f.Write(t.Context(), "half", func(c *Conn) error {
				if err := insert(500)(c); err != nil {
					return err
				}
				return insert(1000)(c)
			})
		case 6: // an error that is not SQLite's
			return f.Write(t.Context(), "own", func(c *Conn) error { _ = insert(600)(c); return own })
		case 8:
			return f.WriteSure(t.Context(), "syntax", func(c *Conn) error { return c.Exec("insert or nothing") })
		}
		return f.WriteSure(t.Context(), "good", insert(i))
	})
	release()
	wait()
	for i, err := range errs {
		switch i {
		case 2, 4:
			if !IsConstraint(err) || !strings.Contains(err.Error(), f.Path()) {
				t.Errorf("write %d: the error is %v, want the violated constraint and the path", i, err)
			}
		case 6:
			if !errors.Is(err, own) {
				t.Errorf("write %d: the error is %v, want the caller's own", i, err)
			}
		case 8:
			if err == nil || IsConstraint(err) {
				t.Errorf("write %d: the error is %v, want a syntax error", i, err)
			}
		default:
			if err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		}
	}
	c := other(t, f.Path())
	if got := number(t, c, "select count(*) from t where k < 12"); got != n-4 {
		t.Errorf("%d good rows, want %d", got, n-4)
	}
	if got := number(t, c, "select count(*) from t where k in (500, 600)"); got != 0 {
		t.Errorf("%d rows of writes that failed", got)
	}
}

// What takes back the whole transaction, such as a full disk, must not take the others with it.
func TestFailureOfTheWholeTransactionFailsOnlyItsCaller(t *testing.T) {
	f := openTest(t, Options{})
	const n = 7
	release, errs, wait := gather(t, f, t.Context(), n, func(i int) error {
		if i == 3 {
			return f.WriteSure(t.Context(), "whole", func(c *Conn) error {
				must(t, c.Exec("ROLLBACK")) // as SQLite does by itself
				return c.Exec("insert into nowhere values (1)")
			})
		}
		return f.WriteSure(t.Context(), "good", insert(i))
	})
	release()
	wait()
	for i, err := range errs {
		if (err != nil) != (i == 3) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != n-1 {
		t.Errorf("%d rows, want %d", got, n-1)
	}
}

func TestAnswersComeAfterTheCommit(t *testing.T) {
	f := openTest(t, Options{})
	c := other(t, f.Path())
	inSecond, goOn := make(chan struct{}), make(chan struct{})
	var answered atomic.Bool
	release, errs, wait := gather(t, f, t.Context(), 2, func(i int) error {
		if i == 0 {
			err := f.WriteSure(t.Context(), "first", insert(1))
			answered.Store(true)
			if got := number(t, c, "select count(*) from t"); got != 2 {
				err = errors.Join(err, fmt.Errorf("the answer came when others saw %d rows of 2", got))
			}
			return err
		}
		return f.Write(t.Context(), "second", func(c *Conn) error {
			close(inSecond)
			<-goOn
			return insert(2)(c)
		})
	})
	release()
	<-inSecond
	if answered.Load() {
		t.Error("the first write was answered before the commit")
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != 0 {
		t.Errorf("others see %d rows before the commit", got)
	}
	close(goOn)
	wait()
	must(t, errors.Join(errs...))
}

func TestContextThatEndsWhileWaiting(t *testing.T) {
	f := openTest(t, Options{})
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	release, errs, wait := gather(t, f, ctx, 2, func(i int) error {
		if i == 0 {
			return f.WriteSure(ctx, "leaves", insert(1))
		}
		return f.WriteSure(t.Context(), "stays", insert(2))
	})
	cancel(why)
	until(t, "the caller has left", func() bool { return f.leftInQueue() == 1 })
	release()
	wait()
	if !errors.Is(errs[0], why) || !strings.Contains(errs[0].Error(), "leaves waited") {
		t.Errorf("the error is %v, want the cause and what waited", errs[0])
	}
	must(t, errs[1])
	if got := number(t, other(t, f.Path()), "select sum(k) from t"); got != 2 {
		t.Errorf("the sum of the keys is %d, want 2: the write of the caller who left was run", got)
	}
	if err := f.Write(ctx, "late", insert(3)); !errors.Is(err, why) {
		t.Errorf("a write that comes with an ended context: %v", err)
	}
}

func (f *File) leftInQueue() (n int) {
	f.queue.mu.Lock()
	defer f.queue.mu.Unlock()
	for _, r := range f.queue.list {
		if r.state.Load() == left {
			n++
		}
	}
	return n
}

func TestContextThatEndsOnceTheWriteHasBegunChangesNothing(t *testing.T) {
	f := openTest(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	must(t, f.Write(ctx, "begun", func(c *Conn) error {
		cancel()
		return insert(1)(c)
	}))
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != 1 {
		t.Errorf("%d rows, want 1", got)
	}
}

// A group that is taken back runs again write by write; a caller who leaves meanwhile was told that
// nothing was written, so nothing must be.
func TestContextThatEndsBeforeTheSecondRun(t *testing.T) {
	f := openTest(t, Options{})
	c := other(t, f.Path())
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan struct{})
	var once sync.Once
	left := make(chan error, 1)
	release, errs, wait := gather(t, f, t.Context(), 2, func(i int) error {
		if i == 0 {
			err := f.WriteSure(ctx, "leaves", insert(1))
			left <- err
			return err
		}
		return f.WriteSure(t.Context(), "whole", func(conn *Conn) error {
			var err error
			once.Do(func() {
				must(t, conn.Exec("ROLLBACK"))
				must(t, c.Exec("BEGIN IMMEDIATE")) // another program takes its turn
				close(blocked)
				err = errors.New("taken back")
			})
			return err
		})
	})
	f.queue.mu.Lock()
	leaving := f.queue.list[0]
	f.queue.mu.Unlock()
	release()
	<-blocked
	until(t, "the first write is about to run again", func() bool { return leaving.state.Load() == waiting })
	cancel()
	select {
	case err := <-left:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want that the context ended", err)
		}
	case <-time.After(4 * time.Second): // before the budget is over
		t.Error("the caller could not leave")
	}
	must(t, c.Exec("ROLLBACK"))
	wait()
	must(t, errs[1])
	if got := number(t, c, "select count(*) from t"); got != 0 {
		t.Errorf("%d rows were written by a caller who was told that nothing was", got)
	}
}

func TestBusyBeyondTheBudget(t *testing.T) {
	const budget = 300 * time.Millisecond
	f := openTest(t, Options{BusyBudget: budget})
	c := other(t, f.Path())
	must(t, c.Exec("BEGIN IMMEDIATE"))
	start := time.Now()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			err := f.WriteSure(t.Context(), "submit", insert(1))
			var busy *BusyError
			if !errors.Is(err, ErrBusy) || !errors.As(err, &busy) {
				t.Errorf("the error is %v, want a BusyError", err)
				return
			}
			if busy.Op != "submit" || busy.Path != f.Path() || busy.Budget != budget || busy.Waited < budget || busy.Waited > time.Since(start) || busy.Holder == "" {
				t.Errorf("the error says %+v", busy)
			}
			for _, part := range []string{"submit", "300ms", f.Path(), busy.Holder} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
	wg.Wait()
	if waited := time.Since(start); waited < budget {
		t.Errorf("gave up after %v", waited)
	}
	must(t, c.Exec("ROLLBACK"))
	must(t, f.WriteSure(t.Context(), "after", insert(1)))
}

func TestBusyWithinTheBudgetIsWaitedFor(t *testing.T) {
	f := openTest(t, Options{})
	c := other(t, f.Path())
	must(t, c.Exec("BEGIN IMMEDIATE; insert into t values (7, 'theirs')"))
	done := make(chan error, 1)
	go func() { done <- f.WriteSure(t.Context(), "submit", insert(8)) }()
	until(t, "the writer has met the lock", func() bool { return f.queued() == 0 })
	select {
	case err := <-done:
		t.Fatalf("the write ended while another program held the lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	must(t, c.Exec("COMMIT"))
	must(t, <-done)
	if got := number(t, c, "select count(*) from t"); got != 2 {
		t.Errorf("%d rows, want 2", got)
	}
}

func TestCloseKeepsWhatWasAccepted(t *testing.T) {
	f := openTest(t, Options{})
	const n = 20
	release, errs, wait := gather(t, f, t.Context(), n, func(i int) error { return f.WriteSure(t.Context(), "accepted", insert(i)) })
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	until(t, "the queue is closed", func() bool {
		f.queue.mu.Lock()
		defer f.queue.mu.Unlock()
		return f.queue.closed
	})
	if err := f.WriteSure(t.Context(), "late", insert(n)); !errors.Is(err, ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	release()
	wait()
	must(t, errors.Join(errs...))
	must(t, <-closed)
	if err := f.Read(t.Context(), func(*Conn) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
	must(t, f.Close())
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != n {
		t.Errorf("%d rows, want %d", got, n)
	}
}

// Groups are bounded, and a queue longer than one group is served in order.
func TestQueueLongerThanAGroup(t *testing.T) {
	f := openTest(t, Options{})
	release := hold(t, f)
	const n = 2*maxGroup + 100
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range n {
		wg.Go(func() {
			if f.WriteSure(t.Context(), "many", insert(i)) != nil {
				failed.Add(1)
			}
		})
	}
	until(t, "all wait", func() bool { return f.queued() == n })
	release()
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d writes failed", failed.Load())
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != n {
		t.Errorf("%d rows, want %d", got, n)
	}
}

// The planner's statistics are looked after: a file that has none gets them with the first write.
func TestStatisticsAreKept(t *testing.T) {
	f := openTest(t, Options{})
	execSQL(t, f, `create index by_v on t (v);
		insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) select i, i % 7 from n`)
	must(t, f.Close())
	f = openPath(t, f.Path(), Options{})
	must(t, f.WriteSure(t.Context(), "insert", insert(10_000)))
	c := other(t, f.Path())
	until(t, "the statistics are there", func() bool {
		return number(t, c, "select count(*) from sqlite_schema where name = 'sqlite_stat1'") == 1 &&
			number(t, c, "select count(*) from sqlite_stat1 where idx = 'by_v'") == 1
	})
}

// A sure write that fails before its first change costs the others nothing; one that fails
// afterwards takes back those before it in the group, and each of them is written alone.
func TestSureWriteThatFails(t *testing.T) {
	for _, late := range []bool{false, true} {
		f, commits := countCommits(t, Options{})
		execSQL(t, f, "insert into t values (1000, 'there already')")
		own := errors.New("the caller's own error")
		const n = 6
		release, errs, wait := gather(t, f, t.Context(), n, func(i int) error {
			switch i {
			case 1:
				return f.Write(t.Context(), "several", func(c *Conn) error { return errors.Join(insert(i)(c), insert(100+i)(c)) })
			case 2:
				return f.WriteSure(t.Context(), "duplicate", insert(1000))
			case 3:
				return f.WriteSure(t.Context(), "fails", func(c *Conn) error {
					if late {
						must(t, insert(500)(c))
					}
					return own
				})
			}
			return f.WriteSure(t.Context(), "sure", func(c *Conn) error { return errors.Join(insert(i)(c), insert(100+i)(c)) })
		})
		before := commits.Load()
		release()
		wait()
		for i, err := range errs {
			if (err != nil) != (i == 2 || i == 3) {
				t.Errorf("late %v: write %d: %v", late, i, err)
			}
		}
		if !errors.Is(errs[3], own) || !IsConstraint(errs[2]) {
			t.Errorf("late %v: the errors are others: %v, %v", late, errs[2], errs[3])
		}
		// Of the write that kept the writer busy; of the group, or of 0, of 1, and of 4 with 5.
		want := map[bool]int64{false: 2, true: 4}[late]
		if got := commits.Load() - before; got != want {
			t.Errorf("late %v: %d commits, want %d", late, got, want)
		}
		if got := number(t, other(t, f.Path()), "select count(*) from t"); got != 1+2*(n-2) {
			t.Errorf("late %v: %d rows, want %d", late, got, 1+2*(n-2))
		}
	}
}
