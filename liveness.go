package holdfast

import (
	"context"
	"errors"
	"time"
)

// Liveness is what a Dialect offers beside its tables where the operating system or the server can
// tell at once that a process has died: a lock for each worker that vanishes with the worker's
// process, so that its tasks need not wait for their leases to end. Like the rest of the seam, it is
// for packages that implement a database.
//
// # Why nobody loses a task that he may still count on
//
// A holder's lock may vanish while the holder lives (Postgres: a connection that is cut). All times
// below are durations on monotonic clocks of one process each, so clocks need not agree.
//
// The holder proves its lock every Beat. A proof counts from when it was begun: the lock was there at
// that moment or later. When Hold has passed since the last proof counted, the holder ends its
// attempts with ErrLeaseLost and claims nothing, until it has a lock again. Each new lock comes with
// a new token in the worker's row, written before the lock counts as proven.
//
// Whoever wants to take over looks every Look. It takes over only when, for Grace since the answer
// that first said so, every look found the lock free and the token the same. No proof under that
// token can have been begun after that first answer, so the last one was begun at least Grace
// earlier, and since Hold < Grace the holder has let go by then. The takeover deletes the row, in one
// transaction that begins by making sure that the lock is free still and cannot be had until the
// commit: a holder that comes back finds either its row, with all leases whole, or no row, and knows.
//
// A process that stands still for longer than Grace (a suspended machine) can do neither. Its writes
// are refused by the database then, as they are after the end of any lease.
//
// From the death to the takeover it takes at most 1.2 Look + Grace, and the time of a few statements.
type Liveness interface {
	// Enter takes the lock of the worker id. It answers nil where there is nobody to hold it against (a
	// database in memory). Errors: ErrWorkerTaken; a *LeaseOnlyError where locks cannot be had, which
	// another try does not change; anything else may be tried again.
	Enter(ctx context.Context, id string) (WorkerLock, error)
	// Gone answers the registered workers whose lock is free, and the rows to be forgotten.
	Gone(ctx context.Context, now time.Time) ([]GoneWorker, error)
	// Seize runs fn in one transaction during which nobody holds the lock of id and nobody can get it.
	// It answers false, and does not run fn, when that cannot be had.
	Seize(ctx context.Context, id string, fn func(Session) error) (bool, error)
	// Timing is how long all this takes on this database.
	Timing() LivenessTiming
}

// WorkerLock is the lock of one worker.
type WorkerLock interface {
	// Prove makes sure that the lock is still held. After an error it is not, or nobody knows.
	Prove(ctx context.Context) error
	// Release gives the lock up, whatever state it is in.
	Release()
}

// GoneWorker is a row of the registry without a living worker.
type GoneWorker struct {
	// ID is the worker's, Token that of the row that was seen.
	ID    string
	Token string
	// Stale says that the worker has no lock and was not seen for a long time: its row is forgotten,
	// and its tasks are left to their leases.
	Stale bool
}

// LivenessTiming are the times of Liveness.
type LivenessTiming struct {
	Look  time.Duration // how often the others look, give or take a fifth; 0: nobody looks
	Grace time.Duration // how long a lock must have been free before leases are ended
	Beat  time.Duration // how often the holder proves its lock; 0: it cannot be lost by the living
	Hold  time.Duration // how long a proof is good for; below Grace
}

// ErrWorkerTaken: a running worker has this id already.
var ErrWorkerTaken = errors.New("a running worker has this id")

// LeaseOnlyError says why a worker cannot hold a lock: its tasks wait for their leases to end if its
// process dies. Everything else works.
type LeaseOnlyError struct {
	// Reason is for people.
	Reason string
	Err    error // may be nil
}

func (e *LeaseOnlyError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}
func (e *LeaseOnlyError) Unwrap() error { return e.Err }
