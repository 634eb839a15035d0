package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
)

const (
	// A group ends when it holds this many writes or has run this long, so that nobody in it waits
	// much longer than for its own work, and other processes get their turn.
	maxGroup     = 1024
	maxGroupTime = 25 * time.Millisecond
	// The planner's statistics are looked after when the file opens and then after this many groups;
	// SQLite analyzes again only the tables whose size has changed a lot.
	optimizeEvery = 5000
)

const (
	waiting int32 = iota // in the queue
	running              // taken by the writer: its answer will come
	left                 // its caller has gone; never run
)

// request is one write that waits for the writer.
type request struct {
	ctx       context.Context
	op        string
	fn        func(*Conn) error
	savepoint bool // fn may fail after a change, which is then taken back alone
	joint     *Joint
	item      any  // for joint, in place of fn
	soon      bool // the commit need not be flushed
	since     time.Time
	state     atomic.Int32
	err       error
	done      chan struct{} // capacity 1, so that the writer never waits for a caller
}

// Write runs fn in a write transaction together with whatever else is waiting, and returns after
// the commit. All of fn's changes are kept, or none: if fn or the commit fails, only fn's caller is
// told. fn may run more than once (only one run is kept), so it must not change anything outside
// that a second run would not simply set again. op names the work in errors.
//
// When ctx ends before fn has begun, nothing was written. Once fn has begun, Write waits for the
// commit, so that its answer is true.
func (f *File) Write(ctx context.Context, op string, fn func(*Conn) error) error {
	r := f.request()
	r.fn, r.savepoint = fn, true
	return f.submit(ctx, op, r)
}

// WriteSure is Write for an fn that either fails before its first change or hardly ever; one single
// statement, which is atomic by itself, is such an fn. It saves the savepoint around fn, and with it the
// copies that SQLite would take of the pages that fn changes: a failure after a change takes back what
// came before it in the group, and each of those runs again, in a transaction of its own.
func (f *File) WriteSure(ctx context.Context, op string, fn func(*Conn) error) error {
	r := f.request()
	r.fn = fn
	return f.submit(ctx, op, r)
}

// WriteSoon is WriteSure without the disk flush, where nothing else of the group needs it: a power cut
// may take the commit back, as long as no later one has been flushed. A crash of the process takes
// back nothing.
func (f *File) WriteSoon(ctx context.Context, op string, fn func(*Conn) error) error {
	r := f.request()
	r.fn, r.soon = fn, true
	return f.submit(ctx, op, r)
}

// Joint is a write that one statement can do for several callers at once, for less than one at a
// time. Its address is its identity: those of one Joint that wait next to each other run together.
type Joint struct {
	// Run runs one statement, which is atomic by itself, for 1, 2, 4, 8 or 16 items. If it fails for
	// several, it is run again for each alone.
	Run func(c *Conn, items []any) error
}

const maxJoint = 16

// WriteJoint is WriteSure for an item of a Joint.
func (f *File) WriteJoint(ctx context.Context, op string, j *Joint, item any) error {
	r := f.request()
	r.joint, r.item = j, item
	return f.submit(ctx, op, r)
}

// request answers an empty request.
func (f *File) request() *request {
	if r, ok := f.requests.Get().(*request); ok {
		return r
	}
	return &request{done: make(chan struct{}, 1)}
}

// submit has r written, and answers when that is done. r is used up.
func (f *File) submit(ctx context.Context, op string, r *request) error {
	if f.o.ReadOnly && op != "read" {
		return fmt.Errorf("%w: %s was opened read-only; %s needs to write", ErrReadOnly, f.path, op)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.ctx, r.op = ctx, op
	r.since = time.Now()
	r.state.Store(waiting)
	if !f.queue.put(r) {
		return ErrClosed
	}
	if ctx.Done() == nil {
		<-r.done
	} else {
		select {
		case <-r.done:
		case <-ctx.Done():
			if r.state.CompareAndSwap(waiting, left) {
				return fmt.Errorf("sqlite: %s waited %v for its turn to write: %w", op, time.Since(r.since).Round(time.Millisecond), context.Cause(ctx))
			}
			<-r.done
		}
	}
	err := r.err
	r.ctx, r.fn, r.joint, r.item, r.err = nil, nil, nil, nil, nil
	r.savepoint, r.soon = false, false
	f.requests.Put(r)
	return err
}

// queue holds the requests that the writer has not taken yet.
type queue struct {
	mu     sync.Mutex
	list   []*request
	spare  []*request
	closed bool
	wake   chan struct{} // capacity 1: the list may have become non-empty, or closed
}

func (q *queue) init() { q.wake = make(chan struct{}, 1) }

func (q *queue) put(r *request) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.list = append(q.list, r)
	first := len(q.list) == 1
	q.mu.Unlock()
	if first {
		q.signal()
	}
	return true
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// take answers what is waiting, at most maxGroup, waiting for the first. ok is false when the queue
// is closed and empty.
func (q *queue) take() (group []*request, ok bool) {
	for {
		q.mu.Lock()
		if len(q.list) > 0 {
			group = q.list
			if len(group) > maxGroup {
				// The rest moves to a list of its own, since the group's is handed back by recycle.
				q.list = append(q.spare[:0], group[maxGroup:]...)
				group = group[:maxGroup]
			} else {
				q.list = q.spare[:0]
			}
			q.spare = nil
			q.mu.Unlock()
			return group, true
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return nil, false
		}
		<-q.wake
	}
}

func (q *queue) recycle(group []*request) {
	clear(group)
	q.mu.Lock()
	q.spare = group[:0]
	q.mu.Unlock()
}

// write is the writer's goroutine.
func (f *File) write() {
	defer close(f.done)
	room := newRoom(f)
	groups := 0
	for {
		group, ok := f.queue.take()
		if !ok {
			return
		}
		rest := group
		for len(rest) > 0 {
			room.leave()
			n := f.group(rest, room)
			rest = rest[n:]
			f.tend()
		}
		busy := len(group) > 1
		f.queue.recycle(group)
		if groups++; groups%optimizeEvery == 1 && !f.o.ReadOnly {
			f.optimize(groups == 1)
		}
		if busy {
			// Let the callers that were just answered come back before the next group is taken: a
			// yield, not a wait.
			runtime.Gosched()
		}
	}
}

// group runs the first requests of the list in one transaction and answers them. It tells how many.
func (f *File) group(list []*request, room *room) int {
	if err := f.flushNext(list); err != nil {
		f.refuse(list, err)
		return len(list)
	}
	if !f.begin(list, room) {
		return len(list)
	}
	alive := f.alive[:0]
	defer func() { clear(alive); f.alive = alive[:0] }()
	start := time.Now()
	n := 0
	for n < len(list) && (n == 0 || time.Since(start) <= maxGroupTime) {
		first := len(alive)
		for n < len(list) && joins(alive[first:], list[n]) {
			if r := list[n]; r != nil && r.state.CompareAndSwap(waiting, running) {
				alive = append(alive, r)
			}
			n++
		}
		if !f.runAll(alive[first:]) {
			// SQLite took the whole transaction back (a full disk, an I/O error). Those before did
			// nothing wrong, so each gets a transaction of its own.
			f.alone(alive, room)
			return n
		}
	}
	if err := f.writer.run(&commit); err != nil {
		f.rollback()
		if len(alive) == 1 {
			alive[0].err = cmpErr(alive[0].err, f.explain(alive[0].op, err))
		} else {
			f.alone(alive, room)
			return n
		}
	}
	room.used(time.Since(start))
	for _, r := range alive {
		r.done <- struct{}{}
	}
	return n
}

// flushNext says whether the commits of a group are flushed: unless nobody in it needs that. Not a
// prepared statement: SQLite obeys this pragma when it compiles it.
func (f *File) flushNext(list []*request) error {
	if f.o.Synchronous != Full || f.o.Temporary {
		return nil
	}
	soon := true
	for _, r := range list {
		soon = soon && (r == nil || r.soon)
	}
	if soon == f.soon {
		return nil
	}
	mode := "FULL"
	if soon {
		mode = "NORMAL"
	}
	err := f.writer.DB.Exec("PRAGMA synchronous = " + mode)
	if err == nil {
		f.soon = soon
	}
	return err
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// alone runs each request in its own transaction and answers it.
func (f *File) alone(list []*request, room *room) {
	for _, r := range list {
		r.state.Store(waiting)
		if !f.begin([]*request{r}, room) {
			continue
		}
		if !r.state.CompareAndSwap(waiting, running) {
			f.rollback() // its caller has gone meanwhile, and was told that nothing was written
			continue
		}
		start := time.Now()
		r.err = f.run(r)
		if !f.writer.DB.GetAutocommit() {
			if r.err != nil {
				f.rollback()
			} else if err := f.writer.run(&commit); err != nil {
				f.rollback()
				r.err = f.explain(r.op, err)
			}
		}
		room.used(time.Since(start))
		r.done <- struct{}{}
	}
}

func (f *File) rollback() {
	if !f.writer.DB.GetAutocommit() {
		_ = f.writer.DB.Exec("ROLLBACK") // fails only when SQLite has rolled back by itself
	}
}

// joins tells whether r can run together with those before it.
func joins(before []*request, r *request) bool {
	return len(before) == 0 || r == nil || len(before) < maxJoint && r.joint != nil && r.joint == before[0].joint
}

// runAll runs requests that join inside the open transaction. It is false if SQLite has ended that.
func (f *File) runAll(list []*request) bool {
	for len(list) > 0 {
		n := 1 << (bits.Len(uint(len(list))) - 1)
		together := list[:n]
		list = list[n:]
		if n > 1 {
			if f.runJoint(together) == nil {
				continue
			}
			if f.writer.DB.GetAutocommit() {
				return false
			}
		}
		for _, r := range together {
			if r.err = f.run(r); r.err != nil && f.writer.DB.GetAutocommit() {
				return false
			}
		}
	}
	return true
}

func (f *File) runJoint(list []*request) error {
	f.items = f.items[:0]
	for _, r := range list {
		f.items = append(f.items, r.item)
	}
	defer clear(f.items)
	return list[0].joint.Run(f.writer, f.items)
}

// run runs one request inside the open transaction.
func (f *File) run(r *request) error {
	if r.joint != nil {
		return f.explain(r.op, f.runJoint([]*request{r}))
	}
	if !r.savepoint {
		before := f.writer.DB.TotalChanges()
		err := r.fn(f.writer)
		if err != nil && f.writer.DB.TotalChanges() != before {
			f.rollback()
		}
		return f.explain(r.op, err)
	}
	if err := f.writer.run(&savepoint); err != nil {
		return f.explain(r.op, err)
	}
	err := r.fn(f.writer)
	if err != nil {
		if !f.writer.DB.GetAutocommit() {
			if undo := f.writer.DB.Exec("ROLLBACK TO one; RELEASE one"); undo != nil {
				f.rollback()
			}
		}
		return f.explain(r.op, err)
	}
	if err := f.writer.run(&release); err != nil {
		f.rollback()
		return f.explain(r.op, err)
	}
	return nil
}

// refuse answers all requests of a list with an error.
func (f *File) refuse(list []*request, err error) {
	for _, r := range list {
		if r != nil && r.state.CompareAndSwap(waiting, running) {
			r.err = f.explain(r.op, err)
			r.done <- struct{}{}
		}
	}
}

// begin takes the write lock. While another program holds it, requests whose time is up are
// answered and replaced by nil. It tells whether the lock was taken; if not, all are answered.
func (f *File) begin(list []*request, room *room) bool {
	pause := 200 * time.Microsecond
	for {
		err := f.writer.run(&beginImmediate)
		if err == nil {
			return true
		}
		if !isBusy(err) {
			f.refuse(list, err)
			return false
		}
		room.contended()
		left := 0
		var holder string
		for i, r := range list {
			if r == nil || r.state.Load() != waiting {
				continue
			}
			waited := time.Since(r.since)
			if waited < f.o.BusyBudget {
				left++
				continue
			}
			if r.state.CompareAndSwap(waiting, running) {
				if holder == "" {
					holder = f.holder()
				}
				r.err = &BusyError{Path: f.path, Op: r.op, Waited: waited, Budget: f.o.BusyBudget, Holder: holder}
				list[i] = nil // once answered, its caller may use it again
				r.done <- struct{}{}
			}
		}
		if left == 0 {
			return false
		}
		// Short and uneven pauses: whoever waits politely for long never meets the gap that a busy
		// neighbour leaves.
		time.Sleep(pause/2 + rand.N(pause))
		pause = min(pause*2, 4*time.Millisecond)
	}
}

// optimize keeps the planner's statistics current. A failure costs speed only, so it is no error.
func (f *File) optimize(first bool) {
	mask := "0xfffe"
	if first {
		mask = "0x10002" // look at every table, not only at those that this connection has read
	}
	if f.writer.DB.Exec("PRAGMA optimize("+mask+")") != nil && !f.writer.DB.GetAutocommit() {
		f.rollback()
	}
}

// Exec runs SQL that returns no rows and takes no parameters on the connection.
func (c *Conn) Exec(sql string) error { return c.DB.Exec(sql) }

// Changes is the number of rows that the last statement changed.
func (c *Conn) Changes() int64 { return c.DB.Changes() }

// IsConstraint tells whether err is a violated constraint (a duplicate key, a foreign key).
func IsConstraint(err error) bool { return errors.Is(err, sqlite3.CONSTRAINT) }
