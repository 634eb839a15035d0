package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"github.com/eda94727/holdfast"
)

// Error is a failure of the database, with its cause among holdfast's errors.
type Error struct {
	// Op is the statement or step that failed.
	Op   string
	Hint string // what to do, or ""
	kind error
	err  error
}

func (e *Error) Error() string {
	text := "postgres: " + e.Op + ": "
	if e.kind != nil {
		text += e.kind.Error() + ": "
	}
	text += e.err.Error()
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() []error {
	if e.kind == nil {
		return []error{e.err}
	}
	return []error{e.kind, e.err}
}

// translate names the cause of a driver's error. Errors of ours pass as they are.
func translate(op string, err error) error {
	var own *Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		hint, kind := kindOf(server)
		return &Error{Op: op, Hint: hint, kind: kind, err: err}
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.Is(err, puddle.ErrClosedPool):
		return &Error{Op: op, kind: holdfast.ErrClosed, err: err}
	case errors.As(err, &connect):
		// The driver's text names host, user and database, never the password.
		return &Error{Op: op, kind: holdfast.ErrUnavailable, err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Op: op, err: err}
	case errors.As(err, &network), pgconn.Timeout(err), pgconn.SafeToRetry(err), strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "unexpected EOF"), errors.Is(err, pgx.ErrTxClosed):
		return &Error{Op: op, kind: holdfast.ErrUnavailable, err: err}
	}
	return err
}

// kindOf sorts the server's error codes (SQLSTATE, appendix A of the Postgres manual).
func kindOf(e *pgconn.PgError) (hint string, kind error) {
	switch {
	case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "57P"), e.Code == "53300":
		return "", holdfast.ErrUnavailable // connection failures, shutdown, too many connections
	case strings.HasPrefix(e.Code, "28"):
		return "check the user and the password of the DSN", holdfast.ErrUnavailable
	case e.Code == "3D000":
		return "create the database first", holdfast.ErrUnavailable
	case e.Code == "53100":
		return "", holdfast.ErrFull
	case e.Code == "25006":
		return "connect to the primary server", holdfast.ErrReadOnly
	case e.Code == "42501":
		return "grant the user the right", holdfast.ErrReadOnly
	case e.Code == "55P03", e.Code == "57014":
		return "", holdfast.ErrBusy
	}
	return "", nil
}

// isTransient tells whether the same transaction may succeed when it is run again: a serialization
// failure or a deadlock.
func isTransient(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && (server.Code == "40001" || server.Code == "40P01")
}

// pause waits a little before a transaction is tried again, unless ctx ends.
func pause(ctx context.Context, try int) {
	select {
	case <-time.After(time.Duration(try+1)*5*time.Millisecond + rand.N(5*time.Millisecond)):
	case <-ctx.Done():
	}
}

// lost tells whether the error ended the connection rather than one statement.
func lost(e *pgconn.PgError) bool {
	_, kind := kindOf(e)
	return errors.Is(kind, holdfast.ErrUnavailable) || e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
}

// unserved is the error of a call whose time was over before it got a connection.
func (d *dialect) unserved(op string, err error) error {
	e := &Error{Op: op, err: err}
	if s := d.pool.Stat(); s.AcquiredConns() >= s.MaxConns() {
		e.Hint = fmt.Sprintf("pool full: all %d connections are in use; give them back, or allow more", s.MaxConns())
	}
	return e
}

// acquire takes a connection of the pool.
func (d *dialect) acquire(ctx context.Context, op string) (*pgxpool.Conn, error) {
	conn, err := d.pool.Acquire(ctx)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, d.unserved(op, err)
	}
	return nil, translate(op, err)
}

// unreadable is the error for a DSN that pgx cannot parse. pgx hides the password in its text.
func unreadable(err error) error {
	return &Error{Op: "read the DSN", kind: holdfast.ErrUnavailable, err: err, Hint: "write it as postgres://user:password@host:5432/database"}
}

// checkSchema refuses names that Postgres would refuse, cut off, or keep for itself.
func checkSchema(name string) error {
	problem := ""
	switch {
	case name == "":
		return nil
	case len(name) > 63:
		problem = fmt.Sprintf("has %d bytes; Postgres allows 63", len(name))
	case !utf8.ValidString(name), strings.ContainsRune(name, 0):
		problem = "is no text that Postgres can keep; use valid UTF-8 without NUL"
	case strings.HasPrefix(name, "pg_"), name == "information_schema":
		problem = "is reserved for Postgres; choose another name"
	default:
		return nil
	}
	return &holdfast.InvalidError{Field: "schema", Value: name, Problem: problem}
}
