package outbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// Report is what a flush did.
type Report struct {
	// Sent counts the attempts, Committed those that ended well.
	Sent, Committed int
	// Stops has the lanes that still hold entries, and why (F7).
	Stops []Stop
}

// Stop says what stopped a lane.
type Stop struct {
	// Patient and OperationID are those of the entry that the lane waits for.
	Patient     string
	OperationID string
	// State and Code are the entry's: a pending one is worth another flush later,
	// the others wait for somebody.
	State  State
	Code   record.Code
	Detail string
	// RetryAfter is how long the Host asks to wait; 0 if it does not say.
	RetryAfter time.Duration
}

// Flush sends what waits: each lane in order until it is empty or its next entry
// cannot be done, with several lanes side by side. What is enqueued meanwhile is
// sent too (E8). It returns without an error whatever the Hosts answer; the report
// says what stopped which lane (F7).
//
// Errors: [QueueWorkerBusy] (F1); those of the file, after which the next flush
// takes up again what was being sent (F9); and the context's, at whose end the
// requests that are running are cut off and their entries stay pending.
func (b *Outbox) Flush(ctx context.Context) (Report, error) {
	return b.flush(ctx, ctx, false)
}

// flush is Flush, or one round of Run. It begins nothing new when stop ends; requests
// run under work.
func (b *Outbox) flush(stop, work context.Context, runner bool) (Report, error) {
	if b.client == nil {
		return Report{}, failf(QueueHasNoClient, "client", "the queue was opened without a client, and cannot send")
	}
	release, err := b.hold()
	if err != nil {
		return Report{}, err
	}
	defer release()
	if b.stale.Load() {
		// Nothing is being sent now, so what says submitted was left behind (F9).
		err := b.file.Write(stop, "recover", b.recover)
		if err != nil {
			return Report{}, err
		}
		b.stale.Store(false)
	}
	f := &flush{b: b, stop: stop, work: work, runner: runner, lanes: map[string]laneState{}, done: make(chan laneEnd)}
	return f.run()
}

type laneState int

const (
	active  laneState = iota + 1 // a goroutine sends it
	missed                       // and somebody asked for it meanwhile
	stopped                      // it cannot go on in this flush (for Run: see delay)
)

type laneEnd struct {
	lane, host      string
	sent, committed int
	more            bool  // it has given way to other lanes
	doubtful        bool  // it went to a Host that did not answer last
	stop            *Stop // nil where the lane is empty
	err             error
}

// flush is one flush. Its fields belong to the goroutine of run; lanes have their
// own and report over done.
type flush struct {
	b          *Outbox
	stop, work context.Context
	// runner is true for Run, which takes the lanes that are due, a failed one again
	// when it is due again, and reports nothing.
	runner   bool
	crowded  atomic.Bool // a lane waits for its turn
	wide     atomic.Bool // several lanes are being sent
	lanes    map[string]laneState
	running  int
	again    bool      // a lane that has ended was asked for meanwhile
	doubtful int       // how many of the running go to Hosts that did not answer last
	passed   bool      // some were passed by because of these
	begun    time.Time // the last look at all lanes
	done     chan laneEnd
	report   Report
	err      error
}

// run starts lanes, as many at once as may be, until no lane has anything left. Hosts
// that did not answer last get half of the places at most, so that many patients of one
// that hangs leave room for the others.
func (f *flush) run() (Report, error) {
	for {
		started := f.scan()
		if f.running == 0 {
			if started && f.goesOn() {
				continue // what was started has ended, and may have left something
			}
			break
		}
		f.wait()
	}
	if f.err == nil {
		f.err = context.Cause(f.stop)
	}
	return f.report, f.err
}

func (f *flush) goesOn() bool { return f.err == nil && f.stop.Err() == nil }

// overlaps tells whether an entry is put on disk as submitted while the one before it
// is under way, which spares a lane the wait for the disk. With many lanes side by side
// the disk is busy with the others meanwhile, and one transaction for both costs
// less. Servers without receipts cannot replay an outcome that a power cut took back;
// see settle.
func (f *flush) overlaps() bool { return !f.wide.Load() && !f.b.o.NoReceipts }

// wait returns when there may be something to scan for: a wake-up, or no lane is
// running any more.
func (f *flush) wait() {
	for f.running > 0 && !f.again {
		wake := f.b.flushed
		timer, due := (*time.Timer)(nil), (<-chan time.Time)(nil)
		if !f.goesOn() {
			wake = nil
		} else if f.runner {
			if wait, any := f.b.nextDue(f.begun); any {
				timer = time.NewTimer(max(wait, 0))
				due = timer.C
			}
		}
		look := false
		select {
		case end := <-f.done:
			f.again = f.end(end)
		case <-wake:
			look = true
		case <-due:
			look = true
		}
		if timer != nil {
			timer.Stop()
		}
		if look {
			return
		}
	}
}

// end takes a lane's report. It tells whether the lane was asked for meanwhile.
func (f *flush) end(e laneEnd) (again bool) {
	f.running--
	f.wide.Store(f.running > 2)
	again = f.lanes[e.lane] == missed && (e.stop == nil || f.runner) || e.more
	if e.doubtful {
		f.doubtful--
		again = again || f.passed
		f.passed = false
	}
	delete(f.lanes, e.lane)
	f.report.Sent += e.sent
	f.report.Committed += e.committed
	if e.stop != nil && !f.runner {
		f.lanes[e.lane] = stopped
		f.report.Stops = append(f.report.Stops, *e.stop)
	}
	if f.err == nil {
		f.err = e.err
	}
	f.b.laneEnded(e)
	return again
}

// scan starts the lanes that hold something and are not at it. It tells whether it
// started any.
func (f *flush) scan() (started bool) {
	f.b.step("scan")
	after := ""
	f.begun, f.again, f.passed = time.Now(), false, false
	f.crowded.Store(false)
	for f.goesOn() {
		list, err := f.b.laneList(f.stop, after, 256)
		if err != nil {
			f.err = err
			return started
		}
		if len(list) == 0 {
			if f.runner {
				f.b.forgetEmpty(f.begun, f.lanes)
			}
			return started
		}
		for _, l := range list {
			lane := l.patient
			after = lane
			switch f.lanes[lane] {
			case active:
				f.lanes[lane] = missed
				continue
			case missed, stopped:
				continue
			}
			if f.runner && !f.b.due(lane) {
				continue
			}
			doubtful := f.b.doubts(l.host)
			if doubtful && f.doubtful >= max(1, f.b.o.Parallel/2) {
				f.passed = true
				f.crowded.Store(true)
				continue
			}
			for f.running >= f.b.o.Parallel {
				f.crowded.Store(true)
				f.again = f.end(<-f.done) || f.again
			}
			f.crowded.Store(f.passed)
			if !f.goesOn() {
				return started
			}
			started = true
			f.lanes[lane] = active
			f.running++
			f.wide.Store(f.running > 2)
			if doubtful {
				f.doubtful++
			}
			f.b.laneStarts(lane)
			go func() {
				r := laneRun{f: f, lane: lane}
				r.run()
				f.done <- laneEnd{lane, l.host, r.sent, r.committed, r.more, doubtful, r.stop, r.err}
			}()
		}
	}
	return started
}

// strictLane is the only lane of a queue in strict mode.
const strictLane = "*"

func (b *Outbox) laneOf(patient string) string {
	if b.o.Strict {
		return strictLane
	}
	return patient
}

// laneHead is a lane and where its patient's record lives.
type laneHead struct{ patient, host string }

// laneList returns the lanes with something in them, in order of their names.
func (b *Outbox) laneList(ctx context.Context, after string, limit int) (lanes []laneHead, err error) {
	if b.o.Strict {
		if after != "" {
			return nil, nil
		}
		list, err := b.batch(ctx, strictLane)
		if err == nil && len(list) > 0 {
			lanes = []laneHead{{strictLane, ""}}
		}
		return lanes, err
	}
	err = b.file.Read(ctx, func(c *sqlitefile.Conn) error {
		lanes = lanes[:0]
		return rows(c, selectLanes, func(s *sqlite3.Stmt) error {
			lanes = append(lanes, laneHead{s.ColumnText(0), s.ColumnText(1)})
			return nil
		}, after, limit)
	})
	return lanes, err
}

// A lane is read in batches, bounded in number and bytes.
const (
	batchEntries = 32
	batchBytes   = 4 << 20
)

// queued is an entry with its patient's route.
type queued struct {
	Entry
	route route

	read   bool // intent and err are there; see intact
	intent record.Intent
	err    error
}

var errEnough = errors.New("enough")

// batch reads the next entries of a lane.
func (b *Outbox) batch(ctx context.Context, lane string) (list []queued, err error) {
	q, args := selectLane, []any{lane, batchEntries}
	if b.o.Strict {
		q, args = selectLine, []any{batchEntries}
	}
	err = b.file.Read(ctx, func(c *sqlitefile.Conn) error {
		list = list[:0]
		size := 0
		err := rows(c, q, func(s *sqlite3.Stmt) error {
			e := scanEntry(s)
			if size += len(e.IntentJSON); size > batchBytes && len(list) > 0 {
				return errEnough
			}
			list = append(list, queued{Entry: e, route: route{e.Patient, s.ColumnText(entryWidth), s.ColumnInt64(entryWidth + 1), s.ColumnText(entryWidth + 2)}})
			return nil
		}, args...)
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
	return list, err
}
