package sqlitefile

import (
	"time"
)

// SQLite has no queue for its write lock: whoever waits asks again after a pause, up to 100 ms long
// in the standard busy handler. A writer that takes the lock again at once after each commit starves
// such a waiter completely. So the writer that has been busy for a turn leaves the lock free for as
// long as a waiter may sleep, when there is anybody else on the file.
const (
	// turnAlone is the turn while nobody else has written lately.
	turnAlone = 800 * time.Millisecond
	// turnShared is the turn while somebody else writes too.
	turnShared = 200 * time.Millisecond
	// sharedFor is how long another's commit counts as lately.
	sharedFor = 2 * time.Second
	// gap is a little longer than the longest pause of SQLite's standard busy handler.
	gap = 105 * time.Millisecond
)

var dataVersion = &Query{Name: "data_version", SQL: "PRAGMA data_version"}

func (c *Conn) dataVersion() (v int64) {
	s, err := c.Stmt(dataVersion)
	if err != nil {
		return 0
	}
	_ = Rows(s, func() error { v = s.ColumnInt64(0); return nil }) // unreadable counts as unchanged
	return v
}

// room keeps the account of the writer's turns. It belongs to the writer's goroutine.
type room struct {
	f       *File
	start   time.Time     // of this turn
	held    time.Duration // the lock was held in this turn
	last    time.Time     // the lock was released
	version int64
	shared  time.Time // when another's commit, or a lock held by another, was seen last
}

func newRoom(f *File) *room {
	now := time.Now()
	return &room{f: f, start: now, last: now, version: f.writer.dataVersion()}
}

// used counts a transaction that held the lock for d and has ended.
func (r *room) used(d time.Duration) {
	r.held += d
	r.last = time.Now()
}

// contended notes that somebody else held the lock.
func (r *room) contended() { r.shared = time.Now() }

// leave is called before each transaction. When the turn is over it gives the lock to whoever waits
// for it, or to nobody for the length of a gap.
func (r *room) leave() {
	now := time.Now()
	if now.Sub(r.last) >= gap {
		r.start, r.held = now, 0 // there was room enough
		return
	}
	turn := turnAlone
	if now.Sub(r.shared) < sharedFor {
		turn = turnShared
	}
	elapsed := now.Sub(r.start)
	if elapsed < turn {
		return
	}
	if r.held*2 < elapsed || r.f.memory || !r.f.neighbours() {
		r.start, r.held = now, 0
		return
	}
	r.version = r.f.writer.dataVersion()
	for end := now.Add(gap); time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		if v := r.f.writer.dataVersion(); v != r.version {
			r.version, r.shared = v, time.Now()
			break // somebody had a turn
		}
	}
	r.start, r.held = time.Now(), 0
}
