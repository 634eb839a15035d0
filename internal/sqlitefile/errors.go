package sqlitefile

import (
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"
)

var (
	// ErrClosed: the file was closed.
	ErrClosed = errors.New("sqlite: the file is closed")
	// ErrNotDatabase: the file is there and is no SQLite database, or needs another key.
	ErrNotDatabase = errors.New("sqlite: not a database")
	// ErrCannotOpen: the path cannot be opened at all (a directory, a missing folder, no permission).
	ErrCannotOpen = errors.New("sqlite: cannot open")
	// ErrReadOnly: the file or its folder cannot be written.
	ErrReadOnly = errors.New("sqlite: read-only")
	// ErrFull: the disk, or a limit of the database, is full. Nothing of the write is left behind.
	ErrFull = errors.New("sqlite: disk full")
	// ErrBusy matches every *BusyError.
	ErrBusy = errors.New("sqlite: busy")
	// ErrCorrupt: SQLite found the file damaged.
	ErrCorrupt = errors.New("sqlite: damaged")
)

// BusyError says who waited how long for what. It matches ErrBusy.
type BusyError struct {
	Path   string
	Op     string        // what waited, such as "submit"
	Waited time.Duration // until it gave up
	Budget time.Duration
	Holder string // who held the write lock, where that can be told
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("sqlite: %s is busy: %s waited %v for the write lock, held by %s (the limit is %v)",
		e.Path, e.Op, e.Waited.Round(time.Millisecond), e.Holder, e.Budget)
}

// Is reports whether target is ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

func isBusy(err error) bool {
	return errors.Is(err, sqlite3.BUSY) || errors.Is(err, sqlite3.LOCKED) || errors.Is(err, sqlite3.PROTOCOL)
}

// explain names the cause of a driver's error; other errors pass as they are.
func (f *File) explain(op string, err error) error {
	// The driver's errors are of several types: those without more to tell are bare codes.
	var code sqlite3.ErrorCode
	if err == nil || !errors.As(err, &code) {
		return err
	}
	// The driver keeps no trace of the system's error where a write of SQLite fails, so the disk is asked.
	if code == sqlite3.IOERR && diskFull(f.path) {
		code = sqlite3.FULL
	}
	var kind error
	hint := ""
	switch code {
	case sqlite3.NOTADB:
		kind, hint = ErrNotDatabase, " (another kind of file, or encrypted with another key)"
	case sqlite3.CANTOPEN, sqlite3.PERM, sqlite3.AUTH:
		kind = ErrCannotOpen
	case sqlite3.READONLY:
		kind, hint = ErrReadOnly, " (check the permissions of the file and of its folder)"
	case sqlite3.FULL:
		kind, hint = ErrFull, " (free some space, then try again)"
	case sqlite3.CORRUPT:
		kind, hint = ErrCorrupt, " (restore a backup, or see .recover of the sqlite3 shell)"
	case sqlite3.BUSY, sqlite3.LOCKED, sqlite3.PROTOCOL:
		return &BusyError{Path: f.path, Op: op, Waited: f.o.BusyBudget, Budget: f.o.BusyBudget, Holder: f.holder()}
	default:
		return fmt.Errorf("sqlite: %s: %s: %w", f.path, op, err)
	}
	return fmt.Errorf("%w: %s: %s%s: %w", kind, f.path, op, hint, err)
}
