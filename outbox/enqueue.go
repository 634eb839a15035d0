package outbox

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// Enqueue puts a write into the queue and returns its operation id, which is made
// here where the intent has none (E7). When it returns, the write is on disk.
//
// The same operation id with the same write returns at once, whatever has become
// of it (E4). Errors, after which nothing is enqueued: [record.InvalidMessage] for
// an intent that is incomplete, too large or not JSON (E1, E9);
// [QueueOperationIDConflict] where the id stands for another write (E5);
// [QueueRouteUpdateRequired] where the patient's route is not the client's Host
// (E3).
func (b *Outbox) Enqueue(ctx context.Context, intent record.Intent) (operationID string, err error) {
	row, err := b.row(intent)
	if err != nil {
		return "", err
	}
	var added bool
	fn := func(pin bool) func(c *sqlitefile.Conn) error {
		return func(c *sqlitefile.Conn) (err error) {
			added, err = b.insert(c, &row, pin)
			b.step("inserted")
			return err
		}
	}
	// All but the first entry of a patient are one single statement.
	if err = b.file.WriteSure(ctx, "enqueue", fn(false)); errors.Is(err, errNoRoute) {
		err = b.file.Write(ctx, "enqueue", fn(true))
	}
	if err != nil {
		return "", err
	}
	if added {
		b.step("enqueued")
		b.events.tell(row)
		b.wake()
	}
	return row.OperationID, nil
}

// row checks an intent and makes what is stored of it.
func (b *Outbox) row(intent record.Intent) (Entry, error) {
	if intent.OperationID == "" {
		intent.OperationID = record.NewID()
	}
	// White space around the resource is no part of it.
	intent.Resource = bytes.Trim(intent.Resource, " \t\r\n")
	if len(intent.Resource) == 0 {
		intent.Resource = nil
	}
	if err := intent.Check(b.o.Limits); err != nil {
		return Entry{}, err
	}
	raw, err := encode(intent)
	if err != nil {
		return Entry{}, err
	}
	digest, err := record.Digest(raw, envelope(b.o.Limits))
	if err != nil {
		return Entry{}, err
	}
	return Entry{OperationID: intent.OperationID, Patient: intent.Patient, Operation: intent.Operation, IntentJSON: raw, Digest: digest}, nil
}

var errNoRoute = errors.New("outbox: the patient has no route yet")

// insert adds a row unless its operation is known already. The first entry of a
// patient pins its route, or is errNoRoute.
func (b *Outbox) insert(c *sqlitefile.Conn, e *Entry, pin bool) (added bool, err error) {
	known, routed := false, false
	digest, r := "", route{patient: e.Patient}
	look := func() error {
		return rows(c, selectBefore, func(s *sqlite3.Stmt) error {
			known, digest = s.ColumnType(0) != sqlite3.NULL, s.ColumnText(0)
			routed, r.host = s.ColumnType(1) != sqlite3.NULL, s.ColumnText(1)
			e.Sequence = s.ColumnInt64(2)
			return nil
		}, e.OperationID, e.Patient)
	}
	if err := look(); err != nil {
		return false, err
	}
	if !routed {
		if !pin {
			return false, errNoRoute
		}
		if err := b.pin(c, e.Patient); err != nil {
			return false, err
		}
		if err := look(); err != nil {
			return false, err
		}
	}
	if err := b.checkRoute(r); err != nil {
		return false, err
	}
	if known {
		return false, sameDigest(e, digest)
	}
	b.place(e)
	_, err = run(c, insertEntry, e.Sequence, e.OperationID, e.Patient, string(e.Operation), e.Position, string(e.IntentJSON), e.Digest, e.Created.UnixMilli(), e.mac)
	return err == nil, err
}

// place completes a new entry whose sequence is known.
func (b *Outbox) place(e *Entry) {
	if !e.replaces {
		e.Position = e.Sequence
	}
	e.State, e.Created = Pending, time.UnixMilli(b.millis())
	e.Changed = e.Created
	e.mac = b.seal.entry(e)
}

// route is where a patient's entries go.
type route struct {
	patient string
	host    string // "" while it is not known where the record lives
	// generation is 0 where the route has none.
	generation int64
	address    string
}

func getRoute(c *sqlitefile.Conn, patient string) (r route, found bool, err error) {
	err = rows(c, selectRoute, func(s *sqlite3.Stmt) error {
		r, found = route{patient, s.ColumnText(0), s.ColumnInt64(1), s.ColumnText(2)}, true
		return nil
	}, patient)
	return r, found, err
}

// pin gives a patient a route unless there is one: where the client believes that
// the record lives. A client that does not know it yet leaves the route open, and
// the first flush closes it.
func (b *Outbox) pin(c *sqlitefile.Conn, patient string) error {
	var place record.Place
	if b.client != nil {
		place, _ = b.client.Location(patient)
	}
	_, err := run(c, insertRoute, patient, place.Host.ID, generation(place.Generation), orNull(place.Address))
	return err
}

func generation(g int64) any {
	if g == 0 {
		return nil
	}
	return g
}

// checkRoute refuses a route that is not the client's Host for the patient (E3,
// F4).
func (b *Outbox) checkRoute(r route) error {
	if r.host == "" || b.client == nil {
		return nil
	}
	if place, _ := b.client.Location(r.patient); place.Host.ID != r.host {
		return failf(QueueRouteUpdateRequired, "patient", "the queue sends this record's writes to the Host %s, and the client knows %q; follow the migration", r.host, place.Host.ID)
	}
	return nil
}
