package outbox

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// Change says why, and by whom, an entry is changed by hand.
type Change struct {
	// Reason is kept in the audit; it must not be empty, nor longer than 1000 bytes.
	Reason string
	// By names the person or program; it may be empty.
	By string
	// Unsure says that the change is wanted even though the Host may have done the
	// write already (see [Entry.Unsure]): another one in its place is then a second
	// write.
	Unsure bool
}

// maxReason bounds the reason and the name of a change.
const maxReason = 1000

func (ch Change) check() error {
	switch {
	case ch.Reason == "":
		return failf(record.InvalidMessage, "reason", "a change by hand needs a reason")
	case len(ch.Reason) > maxReason:
		return failf(record.InvalidMessage, "reason", "longer than %d bytes", maxReason)
	case len(ch.By) > maxReason:
		return failf(record.InvalidMessage, "by", "longer than %d bytes", maxReason)
	}
	return nil
}

// change runs fn on an entry and writes the audit, all in one transaction.
func (b *Outbox) change(ctx context.Context, action, operationID string, ch Change, fn func(c *sqlitefile.Conn, e Entry) (is Entry, next *Entry, err error)) error {
	if err := ch.check(); err != nil {
		return err
	}
	var patient string
	var changed []Entry
	err := b.file.Write(ctx, action, func(c *sqlitefile.Conn) error {
		e, found := Entry{}, false
		err := rows(c, selectEntry, func(s *sqlite3.Stmt) error { e, found = scanEntry(s), true; return nil }, operationID)
		if err != nil {
			return err
		}
		if !found {
			return unknownEntry(operationID)
		}
		patient = e.Patient
		is, next, err := fn(c, e)
		if err != nil {
			return err
		}
		if _, err := b.put(c, e, is); err != nil {
			return err
		}
		changed = append(changed[:0], is)
		replacedBy := ""
		if next != nil {
			changed, replacedBy = append(changed, *next), next.OperationID
		}
		l := AuditLine{Time: time.UnixMilli(b.millis()), OperationID: operationID, Action: action, Reason: ch.Reason, By: ch.By, State: e.State, Code: string(e.Code), ReplacedBy: replacedBy}
		_, err = run(c, insertAudit, l.Time.UnixMilli(), l.OperationID, l.Action, l.Reason, l.By, l.State, orNull(l.Code), orNull(l.ReplacedBy), b.seal.audit(&l))
		return err
	})
	if err == nil {
		b.events.tell(changed...)
		b.forgetDelay(b.laneOf(patient))
		b.wake()
	}
	return err
}

// Retry makes a conflicted or rejected entry pending again, as it is.
// Error: [QueueStateConflict] for an entry in another state.
func (b *Outbox) Retry(ctx context.Context, operationID string, ch Change) error {
	return b.change(ctx, "retry", operationID, ch, func(c *sqlitefile.Conn, e Entry) (Entry, *Entry, error) {
		if e.State != Conflicted && e.State != Rejected {
			return e, nil, failf(QueueStateConflict, "state", "the entry is %s; only a conflicted or rejected one can be tried again", e.State)
		}
		if !b.seal.check(&e) {
			return e, nil, failf(QueueEntryAltered, "mac", altered+"; replace or discard it")
		}
		is := e
		is.State, is.Code, is.Detail = Pending, "", ""
		return is, nil, nil
	})
}

// givesWay reports whether an entry may be given up or replaced.
func givesWay(e Entry, ch Change) error {
	switch {
	case e.State == Submitted:
		return failf(QueueWorkerBusy, "state", "the entry is being sent; try again after that")
	case !e.State.open():
		return failf(QueueStateConflict, "state", "the entry is %s already", e.State)
	case e.Unsure && !ch.Unsure:
		return failf(QueueOutcomeUnknown, "operation_id", "the Host may have done the write already; flush to learn it, or say that it is wanted all the same")
	}
	return nil
}

// Discard gives an entry up: it is never sent, and its lane goes on without it.
// Errors: [QueueOutcomeUnknown]; [QueueWorkerBusy] while it is being sent;
// [QueueStateConflict] if it is done.
func (b *Outbox) Discard(ctx context.Context, operationID string, ch Change) error {
	return b.change(ctx, "discard", operationID, ch, func(c *sqlitefile.Conn, e Entry) (Entry, *Entry, error) {
		if err := givesWay(e, ch); err != nil {
			return e, nil, err
		}
		is := e
		is.State = Discarded
		return is, nil, nil
	})
}

// Replace puts another write of the same patient in an entry's place in its lane,
// and returns its operation id, which must be a new one or "". The old entry is
// discarded. Errors: as for [Outbox.Discard] and [Outbox.Enqueue].
func (b *Outbox) Replace(ctx context.Context, operationID string, intent record.Intent, ch Change) (newID string, err error) {
	return b.replace(ctx, "replace", operationID, ch, func(Entry) (record.Intent, error) { return intent, nil })
}

// Rebase puts the same write, based on another version, in an entry's place: for an
// update or deletion that is conflicted, after somebody has looked at what it
// conflicts with. It has a new operation id, which is returned. Errors: as for
// [Outbox.Replace].
func (b *Outbox) Rebase(ctx context.Context, operationID string, baseVersion int64, ch Change) (newID string, err error) {
	return b.replace(ctx, "rebase", operationID, ch, func(e Entry) (record.Intent, error) {
		intent, err := e.Intent(b.o.Limits)
		if err == nil && (e.State == Quarantined || !b.seal.check(&e)) {
			err = failf(QueueEntryAltered, "mac", altered+"; replace or discard it")
		}
		intent.OperationID, intent.BaseVersion = "", baseVersion
		return intent, err
	})
}

func (b *Outbox) replace(ctx context.Context, action, operationID string, ch Change, with func(Entry) (record.Intent, error)) (newID string, err error) {
	fresh := record.NewID() // outside, since the transaction may run twice
	err = b.change(ctx, action, operationID, ch, func(c *sqlitefile.Conn, e Entry) (Entry, *Entry, error) {
		if err := givesWay(e, ch); err != nil {
			return e, nil, err
		}
		intent, err := with(e)
		if err != nil {
			return e, nil, err
		}
		if intent.OperationID == "" {
			intent.OperationID = fresh
		}
		if intent.Patient != e.Patient {
			return e, nil, failf(record.InvalidMessage, "patient", "the entry is about another patient; a replacement stays in its lane")
		}
		row, err := b.row(intent)
		if err != nil {
			return e, nil, err
		}
		row.Position, row.replaces, newID = e.Position, true, row.OperationID
		is := e
		is.State, is.ReplacedBy = Discarded, newID
		added, err := b.insert(c, &row, true)
		if err == nil && !added {
			err = failf(QueueOperationIDConflict, "operation_id", "a replacement needs a new operation id")
		}
		return is, &row, err
	})
	if err != nil {
		return "", err
	}
	return newID, nil
}
