package outbox

import (
	"context"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// Verification is what [Outbox.Verify] found.
type Verification struct {
	// Checked counts the entries and the lines of the audit that were looked at.
	Checked int64
	// Authenticated is true where the file has a key, so that every change by
	// somebody without it is found. Without a key only what contradicts itself is.
	Authenticated bool
	// Problems are the first thousand of what is wrong.
	Problems []Problem
	// More is true where there are more.
	More bool
}

// Problem is something in the file that is not as it was written.
type Problem struct {
	// Sequence, OperationID, Patient and State are those of the entry, as they
	// stand in the file; zero where the problem is not an entry's.
	Sequence    int64
	OperationID string
	Patient     string
	State       State
	// What says what is wrong.
	What string
}

const maxProblems = 1000

// Verify reads the whole file and reports what is not as it was written: entries
// and lines of the audit that were edited, moved or swapped (with a key), intents
// that do not match their digests, results whose receipts are of something else,
// entries that are quarantined already, and damage of the file itself. It changes
// nothing; a flush sets aside what it meets.
//
// What it cannot see is a file as a whole that was put back to an earlier state, or
// a last row that was taken out with the key at hand. Neither makes a write happen
// twice: see docs/outbox.md.
func (b *Outbox) Verify(ctx context.Context) (Verification, error) {
	v := Verification{Authenticated: b.seal != nil}
	report := func(p Problem) {
		if len(v.Problems) == maxProblems {
			v.More = true
			return
		}
		v.Problems = append(v.Problems, p)
	}
	owner := ""
	err := b.file.Read(ctx, func(c *sqlitefile.Conn) error {
		if err := rows(c, quickCheck, func(s *sqlite3.Stmt) error {
			if text := s.ColumnText(0); text != "ok" {
				report(Problem{What: "the file is damaged: " + text})
			}
			return nil
		}); err != nil {
			return err
		}
		return rows(c, selectOwner, func(s *sqlite3.Stmt) error { owner = s.ColumnText(0); return nil })
	})
	every := ","
	for _, s := range allStates {
		every += string(s) + ","
	}
	// Pages, because a reader that stays keeps the WAL growing.
	const page = 500
	for after, more := int64(0), true; more && err == nil; {
		err = b.file.Read(ctx, func(c *sqlitefile.Conn) error {
			more = false
			return rows(c, listAll, func(s *sqlite3.Stmt) error {
				e := scanEntry(s)
				after, more = e.Sequence, true
				v.Checked++
				if what := b.wrong(&e, owner); what != "" {
					report(Problem{e.Sequence, e.OperationID, e.Patient, e.State, what})
				}
				return nil
			}, after, page, every)
		})
	}
	for after, more := int64(0), true; more && err == nil; {
		err = b.file.Read(ctx, func(c *sqlitefile.Conn) error {
			more = false
			return rows(c, selectAudit, func(s *sqlite3.Stmt) error {
				l := scanAudit(s)
				after, more = l.ID, true
				v.Checked++
				if !b.seal.checkAudit(&l) {
					report(Problem{OperationID: l.OperationID, What: fmt.Sprintf("line %d of the audit is not what was written", l.ID)})
				}
				return nil
			}, after, page)
		})
	}
	return v, err
}

// wrong says what is wrong with an entry, "" if nothing is.
func (b *Outbox) wrong(e *Entry, owner string) string {
	if e.State == Quarantined {
		return "set aside: " + e.Detail
	}
	if !b.seal.check(e) {
		return "the entry is not what was written: it was edited, moved or put back"
	}
	intent, err := e.Intent(b.o.Limits)
	switch {
	case err != nil:
		return err.Error()
	case e.State != Committed:
		return ""
	case e.Result == nil:
		return "committed, and its result cannot be read"
	}
	if err := b.checkReceipt(*e.Result, intent, owner); err != nil {
		return "committed, and its receipt is of something else: " + string(record.CodeOf(err))
	}
	return ""
}
