// Package sqlite keeps tasks in one SQLite file: no server, one host, any number of processes, and
// programs in other languages beside this one.
//
//	store, err := sqlite.Open(ctx, "tasks.db")
//
// Concurrent writes of a process share a transaction, and with it the disk's flush. Reads run beside
// the writer. See internal/sqlitefile for how the file is shared with others.
package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
	"github.com/eda94727/holdfast/internal/sqlitefile"
)

// Memory is a path for Open: a database in memory, for one store only, gone when it is closed.
const Memory = sqlitefile.Memory

// Synchronous says when a commit is safe on disk.
type Synchronous = sqlitefile.Synchronous

const (
	// Full flushes the disk at each commit: whatever was answered survives a power cut. The default.
	Full = sqlitefile.Full
	// Normal flushes at checkpoints only. After a power cut, or a crash of the operating system, the
	// newest commits may be missing. A crash of the program loses nothing.
	Normal = sqlitefile.Normal
)

type config struct {
	file  sqlitefile.Options
	store []holdfast.StoreOption
}

// Option changes how Open works.
type Option func(*config)

// WithSynchronous sets when a commit is on disk; Full unless said.
func WithSynchronous(s Synchronous) Option { return func(c *config) { c.file.Synchronous = s } }

// WithBusyBudget sets how long a write may wait for another program on the file before it fails with
// holdfast.ErrBusy; 5 s unless said. A negative one is refused by Open.
func WithBusyBudget(d time.Duration) Option { return func(c *config) { c.file.BusyBudget = d } }

// WithReaders sets how many reads run at once, each on a connection of its own; 4 unless said. A negative
// number is refused by Open.
func WithReaders(n int) Option { return func(c *config) { c.file.Readers = n } }

// WithClock sets the clock, for tests.
func WithClock(now func() time.Time) Option {
	return func(c *config) { c.store = append(c.store, holdfast.WithClock(now)) }
}

// Open opens or creates the task database at path, and brings an older one up to date. path is a
// file name, with or without "sqlite:" before it, or Memory.
//
// Errors: holdfast.ErrUnavailable (no such folder, a directory, no permission), ErrNotDatabase,
// ErrReadOnly, ErrBusy, ErrFull, ErrProtocol, ErrInvalid (an option).
func Open(ctx context.Context, path string, options ...Option) (*holdfast.Store, error) {
	var c config
	for _, o := range options {
		o(&c)
	}
	switch {
	case c.file.BusyBudget < 0:
		return nil, &holdfast.InvalidError{Field: "busy_budget", Value: c.file.BusyBudget.String(), Problem: "is negative; use a small one to fail at once, such as 1ms"}
	case c.file.Readers < 0:
		return nil, &holdfast.InvalidError{Field: "readers", Value: strconv.Itoa(c.file.Readers), Problem: "is negative; use 0 for 4"}
	}
	path = strings.TrimPrefix(strings.TrimPrefix(path, "sqlite:"), "//")
	file, err := sqlitefile.Open(ctx, path, c.file)
	if err != nil {
		return nil, translate(err)
	}
	d := &dialect{file: file, turns: &claiming.Turns{}, inserts: sqlitefile.Joint{Run: insertItems}}
	d.hub = holdfast.NewHub(d.listen)
	if err := migrate(ctx, file, time.Now); err != nil {
		file.Close()
		return nil, translate(err)
	}
	return holdfast.NewStore(d, c.store...), nil
}

// dialect implements holdfast.Dialect on a file.
type dialect struct {
	file  *sqlitefile.File
	hub   *holdfast.Hub
	turns *claiming.Turns
	// Tasks that several goroutines submit at once share statements.
	inserts sqlitefile.Joint
	stop    func() // ends the watch for other processes; used under the hub's lock
}

func (d *dialect) Name() string                           { return "sqlite" }
func (d *dialect) Hub() *holdfast.Hub                     { return d.hub }
func (d *dialect) Now(context.Context) (time.Time, error) { return time.Now(), nil }
func (d *dialect) CheckJSON(raw json.RawMessage) error    { return checkDepth(raw) }
func (d *dialect) Close() error                           { return translate(d.file.Close()) }

// listen watches the file for other processes' commits while somebody waits. A commit does not tell
// whom it concerns, so everybody who waits has a look, for some microseconds each.
func (d *dialect) listen(queues, tasks bool) {
	switch on := queues || tasks; {
	case on == (d.stop != nil):
		return
	case !on:
		d.stop()
		d.stop = nil
		return
	}
	changes, cancel := d.file.Changes()
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-changes:
				d.hub.WakeAll()
			case <-end:
				return
			}
		}
	}()
	d.stop = func() { cancel(); close(end) }
}

// Query implements holdfast.Session.
func (d *dialect) Query(ctx context.Context, stmt holdfast.Statement, each func(int, *holdfast.Row) error, rows ...*holdfast.Row) error {
	if stmt == holdfast.StmtLockKey || len(rows) == 0 {
		return nil // the write lock of the whole file is the key's lock too
	}
	if !stmt.Writes() {
		return translate(d.file.Read(ctx, func(c *sqlitefile.Conn) error {
			return native{c}.Query(ctx, stmt, each, rows...)
		}))
	}
	if stmt == holdfast.StmtInsert && len(rows) == 1 && small(rows[0]) {
		return translate(d.file.WriteJoint(ctx, string(stmt), &d.inserts, rows[0]))
	}
	// The group's transaction may run again and commits later, so answers are kept until then.
	type answer struct {
		i   int
		row *holdfast.Row
	}
	var answers []answer
	run := func(c *sqlitefile.Conn) error {
		answers = answers[:0]
		return native{c}.Query(ctx, stmt, func(i int, a *holdfast.Row) error {
			answers = append(answers, answer{i, a})
			return nil
		}, rows...)
	}
	write := d.file.Write
	if len(rows) == 1 {
		write = d.file.WriteSure
	}
	if err := write(ctx, string(stmt), run); err != nil {
		return translate(err)
	}
	if each != nil {
		for _, a := range answers {
			if err := each(a.i, a.row); err != nil {
				return err
			}
		}
	}
	return nil
}

// Atomic implements holdfast.Dialect.
func (d *dialect) Atomic(ctx context.Context, op string, fn func(holdfast.Session) error) error {
	return translate(d.file.Write(ctx, op, func(c *sqlitefile.Conn) error { return fn(native{c}) }))
}

// Claim implements holdfast.Session.
func (d *dialect) Claim(ctx context.Context, c *holdfast.Claim) (found *holdfast.Claimed, err error) {
	err = d.file.Write(ctx, "claim", func(conn *sqlitefile.Conn) (err error) {
		found, err = claiming.Claim(ctx, claimer{native{conn}}, c, d.turns)
		return err
	})
	return found, translate(err)
}

// Claimable implements holdfast.Dialect.
func (d *dialect) Claimable(ctx context.Context, c *holdfast.Claim) (now bool, next time.Duration, err error) {
	err = d.file.Read(ctx, func(conn *sqlitefile.Conn) (err error) {
		now, next, err = claiming.Claimable(ctx, claimer{native{conn}}, c)
		return err
	})
	return now, next, translate(err)
}

// translate gives the file's errors the names that every database shares.
func translate(err error) error {
	for _, t := range []struct{ from, to error }{
		{sqlitefile.ErrBusy, holdfast.ErrBusy},
		{sqlitefile.ErrReadOnly, holdfast.ErrReadOnly},
		{sqlitefile.ErrFull, holdfast.ErrFull},
		{sqlitefile.ErrNotDatabase, holdfast.ErrNotDatabase},
		{sqlitefile.ErrCorrupt, holdfast.ErrNotDatabase},
		{sqlitefile.ErrCannotOpen, holdfast.ErrUnavailable},
		{sqlitefile.ErrClosed, holdfast.ErrClosed},
	} {
		if errors.Is(err, t.from) {
			return &named{err, t.to}
		}
	}
	return err
}

// named is an error that has a second name.
type named struct {
	error
	name error
}

func (n *named) Unwrap() []error { return []error{n.error, n.name} }
