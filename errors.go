package holdfast

import (
	"errors"
	"fmt"
	"time"
)

// Errors to compare with errors.Is. Those with more to tell have a type of their own beside them,
// for errors.As.
var (
	// ErrNotFound: no task has this id, or no task stands under this key.
	ErrNotFound = errors.New("no such task")
	// ErrAlreadyExists: the key is taken and the strategy is Reject. See AlreadyExistsError.
	ErrAlreadyExists = errors.New("a task with this key already exists")
	// ErrLeaseLost: the task is no longer this worker's. See LeaseLostError.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrState: the task's status does not allow the operation. See StateError.
	ErrState = errors.New("not possible in this state")
	// ErrQueueFull: the queue stayed at its depth limit for as long as the submit may wait. See QueueFullError.
	ErrQueueFull = errors.New("the queue is full")
	// ErrWaitTimeout: the task has not ended yet. It goes on. See WaitTimeoutError.
	ErrWaitTimeout = errors.New("the task has not ended yet")
	// ErrTaskFailed: Call's task failed. See TaskFailedError.
	ErrTaskFailed = errors.New("the task failed")
	// ErrTaskCanceled: Call's task was canceled.
	ErrTaskCanceled = errors.New("the task was canceled")
	// ErrInvalid: an argument is out of its limits. See InvalidError.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotJSON: a value cannot be said in JSON, or a text is no JSON. See NotJSONError.
	ErrNotJSON = errors.New("not JSON")
	// ErrProtocol: the database speaks another protocol version. See ProtocolError.
	ErrProtocol = errors.New("unsupported protocol version")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the store is closed")

	// ErrBusy: another program held the database's lock for longer than the budget.
	ErrBusy = errors.New("the database is busy")
	// ErrReadOnly: the database cannot be written.
	ErrReadOnly = errors.New("the database is read-only")
	// ErrFull: the disk is full. Nothing of the operation was written.
	ErrFull = errors.New("the disk is full")
	// ErrNotDatabase: the file is something else.
	ErrNotDatabase = errors.New("not a database")
	// ErrUnavailable: the database cannot be reached or opened.
	ErrUnavailable = errors.New("the database is unavailable")
)

// Causes of a handler's context (context.Cause), beside ErrLeaseLost.
var (
	// ErrCancelRequested: somebody canceled the running task.
	ErrCancelRequested = errors.New("the task was asked to stop")
	// ErrAttemptTimeout: the time limit of one attempt is over.
	ErrAttemptTimeout = errors.New("the attempt took too long")
	// ErrWorkerStopping: the worker stops and gives the task back.
	ErrWorkerStopping = errors.New("the worker is stopping")
)

// InvalidError names the argument that was refused. Nothing was written. It matches ErrInvalid.
type InvalidError struct {
	Field   string // as in the protocol, such as "max_attempts"
	Value   string // what was given, shortened
	Problem string // what is wrong with it and what to do
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("holdfast: %s %q %s", e.Field, e.Value, e.Problem)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(field string, value any, problem string) error {
	v := fmt.Sprint(value)
	if len(v) > 64 {
		v = v[:61] + "..."
	}
	return &InvalidError{Field: field, Value: v, Problem: problem}
}

// NotJSONError names the value that cannot be said in JSON. It matches ErrNotJSON.
type NotJSONError struct {
	Field string // "payload", "metadata", "result", …
	// Err says what is wrong with it.
	Err error
}

func (e *NotJSONError) Error() string {
	return fmt.Sprintf("holdfast: the %s cannot be said in JSON: %v", e.Field, e.Err)
}
func (e *NotJSONError) Unwrap() error { return e.Err }

// Is reports whether target is ErrNotJSON.
func (e *NotJSONError) Is(target error) bool { return target == ErrNotJSON }

// AlreadyExistsError names the key and the task that has it. It matches ErrAlreadyExists.
type AlreadyExistsError struct {
	// Key is taken by the task TaskID.
	Key, TaskID string
}

func (e *AlreadyExistsError) Error() string {
	return fmt.Sprintf("holdfast: key %q belongs to %s already", e.Key, e.TaskID)
}

// Is reports whether target is ErrAlreadyExists.
func (e *AlreadyExistsError) Is(target error) bool { return target == ErrAlreadyExists }

// LeaseLostError names the task whose lease is lost: it ended, was taken by another worker, or was
// canceled and recovered. It matches ErrLeaseLost.
type LeaseLostError struct {
	// TaskID is the task that was to be written.
	TaskID string
}

func (e *LeaseLostError) Error() string {
	return fmt.Sprintf("holdfast: the lease of %s is lost: it ended or belongs to another worker now", e.TaskID)
}

// Is reports whether target is ErrLeaseLost.
func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// StateError says which status forbade the operation. It matches ErrState.
type StateError struct {
	// TaskID is the task, Op what was to be done to it, such as "cancel", and Status why it was not.
	TaskID string
	Op     string
	Status Status
}

func (e *StateError) Error() string {
	return fmt.Sprintf("holdfast: cannot %s %s: it is %s", e.Op, e.TaskID, e.Status)
}

// Is reports whether target is ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// QueueFullError says which limit a submit met, and for how long it waited. It matches ErrQueueFull.
type QueueFullError struct {
	// Queue is the one that has no room.
	Queue string
	Depth int // the limit
	// Waited is how long the submit waited for room.
	Waited time.Duration
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("holdfast: queue %q holds %d tasks, its limit; waited %v for room", e.Queue, e.Depth, e.Waited.Round(time.Millisecond))
}

// Is reports whether target is ErrQueueFull.
func (e *QueueFullError) Is(target error) bool { return target == ErrQueueFull }

// WaitTimeoutError says which task has not ended, and why it may be stuck. The task goes on: wait
// again with its id or key. It matches ErrWaitTimeout and the cause of the context that ended.
type WaitTimeoutError struct {
	// TaskID is the task to wait for again; empty where no task stood under the key.
	TaskID string
	// Status is what it was at the end of the wait; empty where it could not be read.
	Status Status
	// Why says in words why it may be stuck.
	Why string
	// Err is the cause of the context's end.
	Err error
}

func (e *WaitTimeoutError) Error() string {
	return fmt.Sprintf("holdfast: %s has not ended yet: %s", e.TaskID, e.Why)
}
func (e *WaitTimeoutError) Unwrap() error { return e.Err }

// Is reports whether target is ErrWaitTimeout.
func (e *WaitTimeoutError) Is(target error) bool { return target == ErrWaitTimeout }

// TaskFailedError is what Call answers when the task failed. It matches ErrTaskFailed.
type TaskFailedError struct {
	// TaskID is the task that failed.
	TaskID string
	// Failure is its record of the last failure.
	Failure *Failure
}

func (e *TaskFailedError) Error() string {
	return fmt.Sprintf("holdfast: %s failed: %v", e.TaskID, e.Failure)
}
func (e *TaskFailedError) Unwrap() error { return e.Failure }

// Is reports whether target is ErrTaskFailed.
func (e *TaskFailedError) Is(target error) bool { return target == ErrTaskFailed }

// ProtocolError says which version the database speaks. It matches ErrProtocol.
type ProtocolError struct {
	// Version is the database's.
	Version string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("holdfast: the database speaks protocol version %q and this library speaks 1; use a library of that version, or another database", e.Version)
}

// Is reports whether target is ErrProtocol.
func (e *ProtocolError) Is(target error) bool { return target == ErrProtocol }

// indexed says which of several submissions was refused.
func indexed(i int, err error) error { return fmt.Errorf("submission %d: %w", i, err) }

func indexedIf(several bool, i int, err error) error {
	if several {
		return indexed(i, err)
	}
	return err
}
