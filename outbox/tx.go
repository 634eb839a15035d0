package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/eda94727/holdfast/record"
)

// EnqueueTx is [Outbox.Enqueue] inside a transaction of the application's own, on the
// same file: what the application keeps and the write that follows from it are there
// together, or not at all. It works with any database/sql driver for SQLite (an
// encrypted file needs one that can open it: see [Outbox.URI]).
//
// The write is on disk once the transaction has committed, if the application's
// connection uses synchronous=FULL. [Outbox.Run] finds it then by itself, and so does
// the next [Outbox.Flush]. Begin the transaction with the write lock
// (_txlock=immediate or the like), keep it short, since all other writers wait, and
// roll it back after an error.
//
// Errors: as for Enqueue; [record.InvalidMessage] with the field tx where the
// transaction is not on the queue's file; and those of the driver.
func (b *Outbox) EnqueueTx(ctx context.Context, tx *sql.Tx, intent record.Intent) (operationID string, err error) {
	select {
	case <-b.closed:
		return "", ErrClosed
	default:
	}
	e, err := b.row(intent)
	if err != nil {
		return "", err
	}
	// The first statement is a write, for the lock: what is read after it stays true.
	done, err := tx.ExecContext(ctx, `update queue_format set version = version where id = 1 and instance = ?`, b.instance)
	if err != nil {
		return "", fmt.Errorf("outbox: enqueue in a transaction (is it on the queue's file?): %w", err)
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return "", failf(record.InvalidMessage, "tx", "the transaction is on another queue's file")
	}
	if err := b.insertTx(ctx, tx, &e); err != nil {
		return "", err
	}
	b.shareOnce.Do(func() { close(b.shared) })
	return e.OperationID, nil
}

// insertTx is insert over database/sql, with parameters that every driver knows.
func (b *Outbox) insertTx(ctx context.Context, tx *sql.Tx, e *Entry) error {
	fail := func(err error) error { return fmt.Errorf("outbox: enqueue in a transaction: %w", err) }
	var digest string
	err := tx.QueryRowContext(ctx, `select digest from queue where operation_id = ? union all select digest from queue_past where operation_id = ? limit 1`, e.OperationID, e.OperationID).Scan(&digest)
	known := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fail(err)
	}
	var place record.Place
	if b.client != nil {
		place, _ = b.client.Location(e.Patient)
	}
	if _, err := tx.ExecContext(ctx, `insert into queue_routes (patient, host, generation, address) values (?, ?, ?, ?) on conflict (patient) do nothing`,
		e.Patient, place.Host.ID, generation(place.Generation), orNull(place.Address)); err != nil {
		return fail(err)
	}
	r := route{patient: e.Patient}
	if err := tx.QueryRowContext(ctx, `select host from queue_routes where patient = ?`, e.Patient).Scan(&r.host); err != nil {
		return fail(err)
	}
	if err := b.checkRoute(r); err != nil {
		return err
	}
	if known {
		return sameDigest(e, digest)
	}
	if err := tx.QueryRowContext(ctx, `select 1 + coalesce((select seq from sqlite_sequence where name = 'queue'), 0)`).Scan(&e.Sequence); err != nil {
		return fail(err)
	}
	b.place(e)
	var mac any // not a nil []byte, which some drivers store as an empty blob
	if e.mac != nil {
		mac = e.mac
	}
	if _, err := tx.ExecContext(ctx, `insert into queue (sequence, operation_id, patient, operation, position, intent, digest, state, created, changed, mac)
		values (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?)`, e.Sequence, e.OperationID, e.Patient, string(e.Operation), e.Position, string(e.IntentJSON), e.Digest,
		e.Created.UnixMilli(), e.Created.UnixMilli(), mac); err != nil {
		return fail(err)
	}
	return nil
}

// sameDigest refuses another write with an operation id that is known (E5).
func sameDigest(e *Entry, digest string) error {
	if digest != e.Digest {
		return failf(QueueOperationIDConflict, "operation_id", "%s stands for another write in this queue; use a new id", e.OperationID)
	}
	return nil
}

// URI returns the name under which the application's own connections open the file
// with the ncruces/go-sqlite3 driver, with parameters of that driver (name=value, joined
// by &) or "". For an encrypted file it contains the file's key: keep it out of logs.
func (b *Outbox) URI(parameters string) string {
	switch {
	case parameters == "":
		return b.uri
	case strings.Contains(b.uri, "?"):
		return b.uri + "&" + parameters
	}
	return b.uri + "?" + parameters
}
