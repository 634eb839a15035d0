package outbox

import (
	"fmt"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// The queue's own codes. Errors of this package that have a code are
// *[record.Error]; ask with errors.Is(err, outbox.QueueInUse).
const (
	// WrongQueueOwner: the file is another application's.
	WrongQueueOwner record.Code = "wrong_queue_owner"
	// QueueInUse: the file is open already, in this process or another.
	QueueInUse record.Code = "queue_in_use"
	// UnknownQueue: there is no queue in that file, or no file.
	UnknownQueue record.Code = "unknown_queue"
	// QueueHasNoClient: the queue was opened for looking after it, without a client
	// that could send.
	QueueHasNoClient record.Code = "queue_has_no_client"
	// QueueKeyMismatch: the file does not open with this key, or without one.
	QueueKeyMismatch record.Code = "queue_key_mismatch"
	// QueueWorkerBusy: a flush or a migration is at it; try again after it.
	QueueWorkerBusy record.Code = "queue_worker_busy"
	// QueueRouteUpdateRequired: the patient's route is not the client's Host for
	// that patient; follow the migration.
	QueueRouteUpdateRequired record.Code = "queue_route_update_required"
	// QueueOperationIDConflict: the operation id stands for another write.
	QueueOperationIDConflict record.Code = "queue_operation_id_conflict"
	// UnknownQueueRoute: nothing was ever enqueued for that patient.
	UnknownQueueRoute record.Code = "unknown_queue_route"
	// UnknownQueueEntry: there is no entry with that operation id.
	UnknownQueueEntry record.Code = "unknown_queue_entry"
	// QueueStateConflict: the entry's state does not allow it.
	QueueStateConflict record.Code = "queue_state_conflict"
	// QueueOutcomeUnknown: the Host may have done the write without our knowing, so
	// that putting another in its place, or forgetting it, needs an explicit word.
	QueueOutcomeUnknown record.Code = "queue_outcome_unknown"
	// QueueEntryAltered: the entry in the file is not what was enqueued.
	QueueEntryAltered record.Code = "queue_entry_altered"
)

// ErrClosed: the queue was closed.
var ErrClosed = sqlitefile.ErrClosed

func failf(code record.Code, field, format string, args ...any) error {
	return &record.Error{Code: code, Field: field, Detail: fmt.Sprintf(format, args...)}
}
