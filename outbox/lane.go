package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// laneRun sends one lane, strictly one entry after the other.
type laneRun struct {
	f    *flush
	lane string

	followed        bool // the Directory was asked once in this flush
	sent, committed int
	more            bool
	stop            *Stop
	err             error
}

// run sends until the lane is empty or stops, or others want their turn.
func (l *laneRun) run() {
	for n := 0; l.f.stop.Err() == nil; n++ {
		if n > 0 && l.f.crowded.Load() {
			l.more = true
			return
		}
		list, err := l.f.b.batch(l.f.stop, l.lane)
		if err != nil {
			l.err = err
			return
		}
		if len(list) == 0 || !l.batch(list) {
			return
		}
	}
}

// batch sends a batch. It tells whether the lane goes on, with a new batch.
func (l *laneRun) batch(list []queued) bool {
	submitted := false // the entry is on disk as submitted already
	for i := range list {
		q := &list[i]
		if q.State != Pending {
			l.stop = q.stopped()
			return false
		}
		if l.f.stop.Err() != nil && !submitted {
			return false
		}
		intent, ok := l.ready(q, submitted)
		if !ok {
			return l.stop == nil && l.err == nil
		}
		if !submitted {
			ok, err := l.f.b.submit(l.f.stop, q.Entry)
			if err != nil || !ok { // not pending any more: somebody changed it
				l.err = err
				return err == nil
			}
		}
		var next *queued
		if i+1 < len(list) && list[i+1].State == Pending {
			next = &list[i+1]
		}
		answer := l.f.b.send(l.f.work, q, intent)
		ahead := false // the next one is on disk as submitted already
		if next != nil && l.f.overlaps() {
			ahead, l.err = l.f.b.submit(l.f.stop, next.Entry)
			l.f.b.intact(next) // its turn will find it read
		}
		o := answer()
		l.sent++
		l.f.b.step("answered")
		then := nothing
		switch goesOn := o.state == Committed && l.f.stop.Err() == nil && l.err == nil; {
		case next == nil:
		case ahead && goesOn:
			then = keepNext
		case ahead:
			then = returnNext
		case goesOn && !l.f.overlaps():
			then = submitNext
		}
		var err error
		submitted, err = l.f.b.settle(q, o, next, then)
		if err = cmp.Or(l.err, err); err != nil {
			l.err = err
			return false
		}
		switch {
		case o.state == Committed:
			l.committed++
			if next != nil && !submitted {
				return true // it is to be read again: somebody changed it
			}
		case o.code == record.RecordMoved && l.follow(q):
			return true
		default:
			q.State, q.Code, q.Detail = o.state, o.code, o.detail
			l.stop = q.stopped()
			l.stop.RetryAfter = o.retryAfter
			return false
		}
	}
	return true
}

func (q *queued) stopped() *Stop {
	return &Stop{Patient: q.Patient, OperationID: q.OperationID, State: q.State, Code: q.Code, Detail: q.Detail}
}

// intact reads a queued entry's intent, once, and checks that it is what was enqueued.
func (b *Outbox) intact(q *queued) (record.Intent, error) {
	if !q.read {
		q.read = true
		q.intent, q.err = q.Intent(b.o.Limits)
		if q.err == nil && !b.seal.check(&q.Entry) {
			q.err = failf(QueueEntryAltered, "mac", altered)
		}
	}
	return q.intent, q.err
}

// ready checks all that must hold before an entry is sent: it is what was
// enqueued, and its route is the client's Host. Where it is not ready, the reason
// is written down and the lane stops, or the lane is to be read again.
func (l *laneRun) ready(q *queued, submitted bool) (record.Intent, bool) {
	b := l.f.b
	note := func(o outcome) {
		var err error
		if submitted {
			o.unsent = true
			_, err = b.settle(q, o, nil, nothing)
		} else {
			err = b.note(q.Entry, o)
		}
		if err != nil {
			l.err = err
			return
		}
		q.State, q.Code, q.Detail = o.state, o.code, o.detail
		l.stop = q.stopped()
		l.stop.RetryAfter = o.retryAfter
	}
	intent, err := b.intact(q)
	if err != nil {
		o := failed(err)
		o.state, o.unsure = Quarantined, q.Unsure
		note(o)
		return intent, false
	}
	again := func() { // the route has changed, and the batch has the old one
		if submitted {
			_, l.err = b.settle(q, outcome{state: Pending, unsure: q.Unsure, unsent: true}, nil, nothing)
		}
	}
	if q.route.host == "" {
		if err := b.settleRoute(l.f.work, q.route); err != nil {
			o := failed(err)
			o.state, o.unsure = Pending, q.Unsure
			note(o)
		} else {
			again()
		}
		return intent, false
	}
	if err := b.checkRoute(q.route); err != nil {
		if l.follow(q) {
			again()
		} else {
			o := failed(err)
			o.unsure = q.Unsure
			note(o)
		}
		return intent, false
	}
	return intent, true
}

// follow asks the Directory, once in a flush, where the record of an entry went.
// It tells whether the entry has a place to go to now.
func (l *laneRun) follow(q *queued) bool {
	if l.followed || l.f.b.o.ManualMoves {
		return false
	}
	if _, ok := l.f.b.client.(Mover); !ok {
		return false
	}
	l.followed = true
	if err := l.f.b.followDirectory(l.f.work, q.route); err != nil {
		l.f.b.o.Log.WarnContext(l.f.work, "queue cannot follow a record", "patient", q.Patient, "code", string(record.CodeOf(err)))
		return false
	}
	return true
}

// outcome is what an attempt came to.
type outcome struct {
	state      State
	result     *record.Result
	code       record.Code
	detail     string
	retryAfter time.Duration
	unsure     bool
	unsent     bool // it was not sent after all
}

// send begins one attempt; what it returns waits for the outcome, and returns within
// the deadline whatever the client does.
func (b *Outbox) send(ctx context.Context, q *queued, intent record.Intent) (wait func() outcome) {
	ctx, cancel := context.WithTimeout(ctx, b.o.RequestTimeout)
	type answer struct {
		result record.Result
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		defer cancel()
		result, err := b.client.Write(ctx, intent)
		answered <- answer{result, err}
	}()
	return func() outcome {
		var a answer
		select {
		case a = <-answered:
		case <-ctx.Done():
			select {
			case a = <-answered:
			case <-time.After(time.Second):
				// A client that does not heed its context is left to itself: whatever comes
				// of it, the same operation again will tell.
				a.err = failf(record.TransportUnavailable, "", "no answer within %s", b.o.RequestTimeout)
			}
		}
		if a.err == nil && !(b.verified && a.result.Receipt != "") {
			a.err = b.checkReceipt(a.result, intent, b.client.Subject())
		}
		if a.err != nil {
			o := failed(a.err)
			o.unsure = b.unsureAfter(o.code, q.Unsure)
			return o
		}
		return outcome{state: Committed, result: &a.result}
	}
}

// checkReceipt believes a success only with a receipt of this very operation
// (F10), for clients that have not checked it themselves.
func (b *Outbox) checkReceipt(result record.Result, intent record.Intent, subject string) error {
	if result.Receipt == "" && b.o.NoReceipts {
		return nil
	}
	if result.Receipt == "" {
		return failf(record.InvalidReceipt, "Operation-Receipt", "there is no receipt")
	}
	r, err := intent.Request(stored(b.o.Limits, len(intent.Resource)))
	if err != nil {
		return err
	}
	receipt, err := record.ReadReceipt(result.Receipt)
	if err != nil {
		return err
	}
	return receipt.Covers(intent.Patient, subject, intent.OperationID, record.Fingerprint(r.Method, r.Path, r.IfMatch, r.Body))
}

// failed is the outcome of an error, by the table of codes (F7, F8).
func failed(err error) outcome {
	o := outcome{state: Pending, code: record.CodeOf(err)}
	var e *record.Error
	if errors.As(err, &e) {
		o.detail, o.retryAfter = detailOf(e), e.RetryAfter
	}
	switch {
	case o.code == "":
		o.code = record.TransportUnavailable
	case o.code == record.PublisherNotAuthorized:
		// A Directory's word to Hosts; about a write it means nothing.
	case o.code.Class() == record.Conflicted:
		o.state = Conflicted
	case o.code.Class() == record.Rejected:
		o.state = Rejected
	}
	return o
}

// detailOf is what is kept of an error for a person: never its cause, which may
// come from anywhere.
func detailOf(e *record.Error) string {
	text := e.Detail
	if e.Rule != "" {
		text = "[" + e.Rule + "] " + text
	}
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if len(text) > 500 {
		text = text[:500] + "…"
	}
	return text
}

// unsureAfter tells whether the Host may have done the write after all, once an
// attempt came to a code. A Host looks for the operation's receipt before it judges
// the write, so its judgement says that it was not done before either; what it says
// earlier (about the token, say) is about this attempt alone. A server that knows
// no receipts cannot tell.
func (b *Outbox) unsureAfter(code record.Code, before bool) bool {
	if b.o.NoReceipts && code.Class() != record.Pending {
		return before
	}
	switch code {
	case record.VersionConflict, record.OperationIDConflict, record.InvalidResource, record.InvalidResourceID, record.InvalidResourceCode,
		record.InvalidResourceStatus, record.InvalidLabCategory, record.WrongResourcePatient, record.UnsupportedResourceContent,
		record.ExternalValidationRejected, record.ResourceDeleted:
		return false
	}
	if code.Class() != record.Pending || code == record.UseDPoPNonce || code == record.RecordMoved || code == record.RecordFrozen || code == record.RateLimited {
		return before
	}
	return true
}

// submit puts submitted on disk before anything is sent (F3). It tells whether the
// entry was pending still.
func (b *Outbox) submit(ctx context.Context, e Entry) (ok bool, err error) {
	err = b.file.WriteSure(ctx, "submit", func(c *sqlitefile.Conn) (err error) {
		ok, err = b.put(c, e, e.submitted())
		return err
	})
	if err != nil {
		b.stale.Store(true) // whether the commit came through is not certain
	} else if ok {
		b.events.tell(e.submitted())
		b.step("submitted")
	}
	return ok, err
}

// submitted is the entry as it is being sent.
func (e Entry) submitted() Entry {
	e.State, e.Attempts, e.Unsure, e.Code, e.Detail = Submitted, e.Attempts+1, true, "", ""
	return e
}

// What is done about the next entry together with the outcome of one.
const (
	nothing    = iota
	submitNext // it is pending, and being sent from now on
	keepNext   // it is submitted, and being sent from now on
	returnNext // it is submitted, and pending again: it was not sent
)

// settle writes down what an attempt came to, and what becomes of the next entry, in
// one transaction. It tells whether that one is submitted. The caller's context does
// not count: an outcome is always written.
func (b *Outbox) settle(q *queued, o outcome, next *queued, then int) (submitted bool, err error) {
	was := q.Entry.submitted()
	is := was
	if o.unsent {
		is = q.Entry
	}
	is.State, is.Result, is.Code, is.Detail, is.Unsure = o.state, o.result, o.code, o.detail, o.unsure
	if o.result != nil {
		raw, err := json.Marshal(o.result)
		if err != nil {
			return false, fmt.Errorf("outbox: write down a result: %w", err)
		}
		is.resultText = string(raw)
	}
	write := b.file.WriteSure
	if then == keepNext {
		// A power cut may take this back, and the entry is then as if the answer had been
		// lost: it is sent again, and the receipt says that it is done. That the next one
		// is being sent is on disk, and the commit that says so of the one after it, or the
		// lane's last, puts this on disk too.
		write = b.file.WriteSoon
	}
	err = write(context.Background(), "settle", func(c *sqlitefile.Conn) (err error) {
		if _, err := b.put(c, was, is); err != nil {
			return err
		}
		switch then {
		case submitNext:
			submitted, err = b.put(c, next.Entry, next.Entry.submitted())
		case keepNext:
			submitted = true
		case returnNext:
			_, err = b.put(c, next.Entry.submitted(), next.Entry)
		}
		return err
	})
	if err != nil {
		b.stale.Store(true)
		b.step("unsettled")
		return false, err
	}
	b.events.tell(is)
	b.step("settled")
	if o.state == Committed {
		b.step("committed")
	}
	switch {
	case then == submitNext && submitted:
		b.events.tell(next.Entry.submitted())
		b.step("submitted")
	case then == returnNext:
		b.events.tell(next.Entry)
	}
	return submitted, nil
}

// note writes down why an entry was not even sent.
func (b *Outbox) note(e Entry, o outcome) error {
	is := e
	is.State, is.Code, is.Detail = o.state, o.code, o.detail
	if is.State == e.State && is.Code == e.Code && is.Detail == e.Detail {
		return nil
	}
	err := b.file.WriteSure(context.Background(), "note", func(c *sqlitefile.Conn) error { _, err := b.put(c, e, is); return err })
	if err == nil {
		b.events.tell(is)
	}
	return err
}
