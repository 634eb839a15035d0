package holdfast

import (
	"context"
	"encoding/json"
	"time"
)

// MaxHistory is how many failed attempts of a task are kept; older ones go.
const MaxHistory = 100

// FailedAttempt is one attempt at a task that failed, or whose worker vanished. Any library's worker
// may have made it: the database keeps the record.
type FailedAttempt struct {
	// Attempt counts as Task.Attempt does. After a Retry that counts anew, a number can come again.
	Attempt int
	// WorkerID is who made the attempt.
	WorkerID string
	// EndedAt is when it failed, or when its lease was found to have ended.
	EndedAt time.Time
	// Status is what became of the task: queued for another attempt, failed, or canceled.
	Status Status
	// Error is the failure record, as JSON. See Failure.
	Error json.RawMessage
}

// Failure answers the failure record.
func (a *FailedAttempt) Failure() *Failure { return parseFailure(a.Error) }

// Attempts reads the failed attempts of a task, oldest first, at most MaxHistory of them. They are
// kept until the task is purged. The error is ErrNotFound when there is no task.
func (s *Store) Attempts(ctx context.Context, id string) ([]*FailedAttempt, error) {
	if _, err := s.Status(ctx, id); err != nil {
		return nil, err
	}
	var list []*FailedAttempt
	err := s.query(ctx, StmtAttempts, func(_ int, a *Row) error {
		list = append(list, &FailedAttempt{Attempt: a.Attempt, WorkerID: a.WorkerID, EndedAt: a.CompletedAt, Status: a.Status, Error: a.Error})
		return nil
	}, &Row{Task: Task{ID: id}})
	return list, err
}

// Attempts reads the failed attempts of a task. See Store.Attempts.
func (c *Client) Attempts(ctx context.Context, id string) ([]*FailedAttempt, error) {
	return c.store.Attempts(ctx, id)
}
