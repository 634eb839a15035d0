package outbox

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// State is what has become of an entry.
type State string

// The states. A lane waits for its first entry that is neither committed nor
// discarded.
const (
	// Pending waits to be sent, for the first time or again.
	Pending State = "pending"
	// Submitted is being sent now.
	Submitted State = "submitted"
	// Committed was done by the Host, whose receipt is in the entry's result.
	Committed State = "committed"
	// Conflicted met another write: Rebase, Replace, Retry or Discard it.
	Conflicted State = "conflicted"
	// Rejected would fail again as it is: the same remedies.
	Rejected State = "rejected"
	// Discarded was given up or replaced by a person or program, with a reason.
	Discarded State = "discarded"
	// Quarantined is not what was enqueued: the file was altered. It is never
	// sent; Replace or Discard it.
	Quarantined State = "quarantined"
)

func (s State) open() bool { return s != Committed && s != Discarded }

var allStates = []State{Pending, Submitted, Committed, Conflicted, Rejected, Discarded, Quarantined}

// Entry is one write in the queue.
type Entry struct {
	// Sequence counts the entries of the file from 1; no number is used twice.
	Sequence    int64
	OperationID string
	Patient     string
	Operation   record.Operation
	// Position is the entry's place in its lane: its own sequence, or that of the
	// entry whose place it took.
	Position int64
	State    State
	// IntentJSON is the intent as it is stored; [Entry.Intent] reads it.
	IntentJSON []byte
	// Digest is the digest of the intent; see [record.Intent.Digest].
	Digest string
	// Result is what became of a committed entry; nil otherwise.
	Result *record.Result
	// Code and Detail say why the last attempt failed; "" where none did.
	Code   record.Code
	Detail string
	// Attempts is how often it was sent.
	Attempts int64
	// Unsure is true while the Host may have done the write without our knowing.
	Unsure bool
	// ReplacedBy is the operation id of the entry that took this one's place.
	ReplacedBy string
	// Created and Changed are times of this computer's clock.
	Created, Changed time.Time

	resultText string // as it stands in the file
	replaces   bool   // it takes another's place, and Position is that one's
	mac        []byte
}

// entryWidth is the number of columns that scanEntry reads.
const entryWidth = 17

func scanEntry(s *sqlite3.Stmt) Entry {
	e := Entry{
		Sequence: s.ColumnInt64(0), OperationID: s.ColumnText(1), Patient: s.ColumnText(2), Operation: record.Operation(s.ColumnText(3)),
		Position: s.ColumnInt64(4), IntentJSON: []byte(s.ColumnText(5)), Digest: s.ColumnText(6), State: State(s.ColumnText(7)),
		Code: record.Code(s.ColumnText(9)), Detail: s.ColumnText(10), Attempts: s.ColumnInt64(11), Unsure: s.ColumnBool(12),
		ReplacedBy: s.ColumnText(13), Created: time.UnixMilli(s.ColumnInt64(14)), Changed: time.UnixMilli(s.ColumnInt64(15)),
	}
	e.mac = s.ColumnBlob(16, nil)
	if e.resultText = s.ColumnText(8); e.resultText != "" {
		result := new(record.Result)
		if json.Unmarshal([]byte(e.resultText), result) == nil { // otherwise Verify reports it
			e.Result = result
		}
	}
	return e
}

// put writes an entry's new state, where it is still in the old one.
func (b *Outbox) put(c *sqlitefile.Conn, was, is Entry) (ok bool, err error) {
	is.Changed = time.UnixMilli(b.millis())
	q := updateEntry
	if !is.State.open() {
		q = closeEntry
	}
	n, err := run(c, q, is.Sequence, was.State, is.State, orNull(is.resultText), orNull(string(is.Code)), orNull(is.Detail), is.Attempts, is.Unsure,
		orNull(is.ReplacedBy), is.Changed.UnixMilli(), b.seal.entry(&is))
	return n == 1, err
}

// altered is the detail of an entry that is not what it was.
const altered = "the entry in the file is not what was enqueued"

// Intent reads the stored intent and checks that it is what was enqueued. The
// error is an *[record.Error] with [QueueEntryAltered].
func (e Entry) Intent(limits record.Limits) (record.Intent, error) {
	fail := func(what string) (record.Intent, error) {
		return record.Intent{}, failf(QueueEntryAltered, what, altered)
	}
	limits = stored(limits, len(e.IntentJSON))
	intent, err := record.ParseIntent(e.IntentJSON, limits)
	if err != nil {
		return fail("intent")
	}
	if intent.OperationID != e.OperationID || intent.Patient != e.Patient || intent.Operation != e.Operation {
		return fail("operation_id")
	}
	if digest, err := record.Digest(e.IntentJSON, limits); err != nil || digest != e.Digest {
		return fail("digest")
	}
	return intent, nil
}

// stored widens limits for what is in the file already: it was within the limits
// once, and is not altered because they are smaller now.
func stored(l record.Limits, size int) record.Limits {
	l = envelope(l)
	return record.Limits{Bytes: max(l.Bytes, size), Depth: max(l.Depth, 1024), Values: max(l.Values, size)}
}

// envelope widens limits of a resource to those of the intent around it.
func envelope(l record.Limits) record.Limits {
	if l.Bytes <= 0 {
		l.Bytes = 1 << 20
	}
	if l.Depth <= 0 {
		l.Depth = 64
	}
	if l.Values <= 0 {
		l.Values = 100_000
	}
	return record.Limits{Bytes: l.Bytes + 1024, Depth: l.Depth + 1, Values: l.Values + 16}
}

// encode writes an intent's JSON form with the resource byte for byte.
func encode(intent record.Intent) ([]byte, error) {
	resource := intent.Resource
	intent.Resource = nil
	raw, err := json.Marshal(intent)
	if err != nil {
		return nil, failf(record.InvalidMessage, "intent", "not text")
	}
	if resource == nil {
		return raw, nil
	}
	out := make([]byte, 0, len(raw)+len(resource)+len(`,"resource":`))
	out = append(out, raw[:len(raw)-1]...)
	out = append(out, `,"resource":`...)
	out = append(out, resource...)
	return append(out, '}'), nil
}
