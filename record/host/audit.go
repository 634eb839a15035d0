package host

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// AuditEntry is one line of the audit: who did what to which record.
type AuditEntry struct {
	// ID counts the lines of the whole Host; it rises.
	ID int64
	At time.Time
	// Record is the record concerned, "" where none was named.
	Record string
	// Client is the application, Actor the representative that it acted for.
	Client, Actor string
	// Action is create, update, patch, delete, read, vread, history, search,
	// everything, receipt or token.
	Action string
	// Target is what was touched: Observation/1, or a type.
	Target string
	// Operation is a write's operation id.
	Operation string
	// Outcome is ok, replayed, or a code of the protocol.
	Outcome string
}

func (e AuditEntry) args() db.Args {
	return db.Args{"at": e.At.UnixMilli(), "record": e.Record, "client": e.Client, "actor": e.Actor, "action": e.Action, "target": e.Target, "op": e.Operation, "outcome": e.Outcome}
}

// auditor writes the audit of reads and refusals. A request waits until its
// line is on disk, but lines of requests at the same time are written together.
type auditor struct {
	db    *db.DB
	log   *slog.Logger
	mu    sync.Mutex
	lines []auditRequest
	ended bool          // no more lines are taken
	wake  chan struct{} // capacity 1: there is a line, or the last of those expected, or the end
	done  chan struct{} // closed when run has ended
	// expected counts the requests whose lines come as soon as they have read
	// what they want, and longest is how long others wait for them.
	expected atomic.Int64
	longest  time.Duration
}

type auditRequest struct {
	entry AuditEntry
	done  chan error
}

const (
	// maxAuditBatch bounds one transaction of audit lines.
	maxAuditBatch = 256
	// auditWait is how long a line waits for those that are expected: about as
	// long as a commit takes.
	auditWait = time.Millisecond
)

func newAuditor(database *db.DB, log *slog.Logger, longest time.Duration) *auditor {
	a := &auditor{db: database, log: log, longest: longest, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go a.run()
	return a
}

// before runs what a line is about to be added after: those that come meanwhile
// wait a moment for it, and share its commit.
func (a *auditor) before(fn func() error) error {
	a.expected.Add(1)
	defer a.expected.Add(-1)
	return fn()
}

// add writes a line and returns when it is on disk.
func (a *auditor) add(ctx context.Context, e AuditEntry) error {
	request := auditRequest{e, make(chan error, 1)}
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return &record.Error{Code: record.HostUnavailable, Detail: "the Host is stopping"}
	}
	a.lines = append(a.lines, request)
	first := len(a.lines) == 1
	a.mu.Unlock()
	if first || a.expected.Load() <= 0 {
		a.signal()
	}
	select {
	case err := <-request.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *auditor) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *auditor) run() {
	defer close(a.done)
	late := time.NewTimer(0)
	for ended := false; !ended; {
		<-a.wake
		if a.expected.Load() > 0 {
			late.Reset(a.longest)
			select {
			case <-a.wake:
			case <-late.C:
			}
		}
		a.mu.Lock()
		lines := a.lines
		a.lines, ended = nil, a.ended
		a.mu.Unlock()
		for batch := range slices.Chunk(lines, maxAuditBatch) {
			a.write(batch)
		}
	}
}

func (a *auditor) write(batch []auditRequest) {
	err := a.db.WriteSure(context.Background(), "audit", func(tx db.Tx) error {
		for _, request := range batch {
			if _, err := tx.Exec("audit_insert", request.entry.args()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		a.log.Error("the audit could not be written", "lines", len(batch), "error", err)
	}
	for _, request := range batch {
		request.done <- err
	}
}

// close waits for the lines that were given.
func (a *auditor) close() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.signal()
	<-a.done
}

// note makes the audit line of a request.
func (h *Host) note(c *caller, action, target, operation string, err error) AuditEntry {
	// A path or parameter may hold any bytes; the audit takes what is text.
	target = strings.ReplaceAll(strings.ToValidUTF8(target, "?"), "\x00", "?")
	e := AuditEntry{At: h.now(), Action: action, Target: target, Operation: operation, Outcome: "ok"}
	if c != nil {
		e.Record, e.Client, e.Actor = c.token.Record, c.token.Client, c.actor()
	}
	if err != nil {
		if e.Outcome = string(record.CodeOf(err)); e.Outcome == "" {
			e.Outcome = string(record.HostUnavailable)
		}
	}
	return e
}

// Audit returns the audit of a record after the line with the given id, oldest
// first, at most limit lines.
func (h *Host) Audit(ctx context.Context, recordID string, after int64, limit int) (list []AuditEntry, err error) {
	err = h.db.Read(ctx, func(tx db.Tx) error {
		list = nil
		return tx.Query("audit_list", db.Args{"record": recordID, "after": after, "limit": limit}, func(row db.Row) error {
			var e AuditEntry
			var at int64
			if err := row.Scan(&e.ID, &at, &e.Record, &e.Client, &e.Actor, &e.Action, &e.Target, &e.Operation, &e.Outcome); err != nil {
				return err
			}
			e.At = time.UnixMilli(at).UTC()
			list = append(list, e)
			return nil
		})
	})
	return list, err
}
