package outbox

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
)

// Filter says which entries [Outbox.Entries] returns. The zero value means all, from
// the first on.
type Filter struct {
	// States are the wanted states; none means all.
	States []State
	// Patient is the wanted patient; "" means all.
	Patient string
	// After is the sequence behind which the page begins.
	After int64
	// Limit bounds the page; 0 means 100, and more than 1000 is 1000.
	Limit int
}

// Entries returns a page of entries in the order of their sequences; for the next
// one, set After to the last sequence. What waits is found without reading what is
// done.
func (b *Outbox) Entries(ctx context.Context, f Filter) ([]Entry, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, 1000)
	states := f.States
	if len(states) == 0 {
		states = allStates
	}
	onlyOpen, onlyGone := true, true
	wanted := ","
	for _, s := range states {
		wanted += string(s) + ","
		onlyOpen = onlyOpen && s.open()
		onlyGone = onlyGone && s == Discarded
	}
	q, args := listAll, []any{f.After, f.Limit, wanted}
	switch {
	case f.Patient != "" && onlyOpen:
		q, args = listLane, append(args, f.Patient)
	case f.Patient != "":
		q, args = listPatient, append(args, f.Patient)
	case onlyOpen:
		q = listOpen
	case onlyGone:
		q = listGone
	}
	return b.entries(ctx, q, args...)
}

func (b *Outbox) entries(ctx context.Context, q *sqlitefile.Query, args ...any) (list []Entry, err error) {
	err = b.file.Read(ctx, func(c *sqlitefile.Conn) error {
		list = list[:0]
		return rows(c, q, func(s *sqlite3.Stmt) error {
			list = append(list, scanEntry(s))
			return nil
		}, args...)
	})
	return list, err
}

// Entry returns the entry with an operation id: [UnknownQueueEntry] if there is
// none, or none any more.
func (b *Outbox) Entry(ctx context.Context, operationID string) (Entry, error) {
	list, err := b.entries(ctx, selectEntry, operationID)
	if err == nil && len(list) == 0 {
		err = unknownEntry(operationID)
	}
	if err != nil {
		return Entry{}, err
	}
	return list[0], nil
}

func unknownEntry(operationID string) error {
	return failf(UnknownQueueEntry, "operation_id", "there is no entry %.64q in this queue", operationID)
}

// Depth is how many entries are in a state, and how old the oldest is.
type Depth struct {
	Count  int64
	Oldest time.Time
}

// Summary is the queue in numbers, for health checks.
type Summary struct {
	// Open has the states of what is not done yet; states without entries are left
	// out.
	Open map[State]Depth
}

// Waiting is how many entries wait to be sent or are being sent.
func (s Summary) Waiting() int64 { return s.Open[Pending].Count + s.Open[Submitted].Count }

// Blocked is how many entries wait for somebody.
func (s Summary) Blocked() int64 {
	return s.Open[Conflicted].Count + s.Open[Rejected].Count + s.Open[Quarantined].Count
}

// Summary counts what is not done yet. It reads nothing that is done.
func (b *Outbox) Summary(ctx context.Context) (Summary, error) {
	var sum Summary
	err := b.file.Read(ctx, func(c *sqlitefile.Conn) error {
		sum.Open = map[State]Depth{}
		return rows(c, selectDepth, func(s *sqlite3.Stmt) error {
			sum.Open[State(s.ColumnText(0))] = Depth{s.ColumnInt64(1), time.UnixMilli(s.ColumnInt64(2))}
			return nil
		})
	})
	return sum, err
}

// Heads returns the entry that each lane waits for, a page of at most limit (0
// means 100) in the order of patients, behind the patient after. Its age is the
// lane's.
func (b *Outbox) Heads(ctx context.Context, after string, limit int) ([]Entry, error) {
	if limit <= 0 {
		limit = 100
	}
	return b.entries(ctx, selectHeads, after, min(limit, 1000))
}

// AuditLine says who changed an entry by hand, and why.
type AuditLine struct {
	ID          int64
	Time        time.Time
	OperationID string
	// Action is retry, rebase, replace or discard.
	Action string
	Reason string
	By     string
	// State and Code are those before.
	State State
	Code  string
	// ReplacedBy is the operation id of the entry that took the place.
	ReplacedBy string

	mac []byte
}

// Audit returns the lines of changes by hand behind the line with the id after, at
// most limit (0 means 100); operationID "" means those of all entries.
func (b *Outbox) Audit(ctx context.Context, operationID string, after int64, limit int) (list []AuditLine, err error) {
	if limit <= 0 {
		limit = 100
	}
	q, args := selectAudit, []any{after, min(limit, 1000)}
	if operationID != "" {
		q, args = selectHistory, append(args, operationID)
	}
	err = b.file.Read(ctx, func(c *sqlitefile.Conn) error {
		list = list[:0]
		return rows(c, q, func(s *sqlite3.Stmt) error {
			list = append(list, scanAudit(s))
			return nil
		}, args...)
	})
	return list, err
}

func scanAudit(s *sqlite3.Stmt) AuditLine {
	return AuditLine{s.ColumnInt64(0), time.UnixMilli(s.ColumnInt64(1)), s.ColumnText(2), s.ColumnText(3), s.ColumnText(4),
		s.ColumnText(5), State(s.ColumnText(6)), s.ColumnText(7), s.ColumnText(8), s.ColumnBlob(9, nil)}
}

// pruneBatch is how many rows one transaction of a prune looks at.
const pruneBatch = 500

// Prune removes entries that are committed or discarded and have not changed since
// before. Their operation ids and digests stay known for ever, so that none is done
// twice. It returns how many were removed; after an error, what was removed stays
// so.
func (b *Outbox) Prune(ctx context.Context, before time.Time) (removed int64, err error) {
	type row struct {
		sequence          int64
		operation, digest string
	}
	after := int64(0)
	for {
		var n int64
		seen := 0
		last := after
		err := b.file.Write(ctx, "prune", func(c *sqlitefile.Conn) error {
			var old []row
			n, seen, last = 0, 0, after
			err := rows(c, selectOld, func(s *sqlite3.Stmt) error {
				seen++
				last = s.ColumnInt64(0)
				if !State(s.ColumnText(3)).open() && s.ColumnInt64(4) < before.UnixMilli() {
					old = append(old, row{last, s.ColumnText(1), s.ColumnText(2)})
				}
				return nil
			}, after, pruneBatch)
			for _, r := range old {
				if err == nil {
					_, err = run(c, insertPast, r.operation, r.digest)
				}
				if err == nil {
					_, err = run(c, deleteEntry, r.sequence)
				}
				n++
			}
			return err
		})
		if err != nil {
			return removed, err
		}
		removed, after = removed+n, last
		if seen < pruneBatch {
			return removed, nil
		}
	}
}
