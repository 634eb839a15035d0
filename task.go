package holdfast

import (
	"encoding/json"
	"fmt"
	"time"
)

// Status is where a task is in its life.
type Status string

// The five statuses of the protocol. The last three are terminal.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Canceled  Status = "canceled"
)

// Statuses lists all statuses, in the order of a task's life.
func Statuses() []Status { return []Status{Queued, Running, Succeeded, Failed, Canceled} }

// Terminal tells whether a task in this status has ended. Only Retry brings it back.
func (s Status) Terminal() bool { return s == Succeeded || s == Failed || s == Canceled }

func (s Status) check(field string) error {
	switch s {
	case Queued, Running, Succeeded, Failed, Canceled:
		return nil
	}
	return invalid(field, string(s), "is no status; use queued, running, succeeded, failed or canceled")
}

// Task is one row of the task table, as it was when it was read.
type Task struct {
	// ID is "task_" and a ULID, unique for ever.
	ID string
	// Name says which handler runs the task.
	Name string
	// Queue is the queue that workers claim it from.
	Queue string
	// Status is where in its life the task is.
	Status Status
	// Payload is the input, as JSON. SQLite keeps its bytes, Postgres its meaning.
	Payload json.RawMessage
	// Result is the JSON that the handler returned; nil where there is none.
	Result json.RawMessage
	// Error is the record of the last failure, as JSON; nil where there is none. See Failure.
	Error json.RawMessage
	// Metadata is a JSON value of the submitter's own.
	Metadata json.RawMessage
	// Progress is 0 to 1 as the handler reported it, or nil.
	Progress *float64
	// Message goes with Progress.
	Message string
	// Attempt counts the starts made so far.
	Attempt int
	// MaxAttempts bounds Attempt.
	MaxAttempts int
	// Priority: higher runs first.
	Priority int
	// WorkerID is who runs it, or who ran it last.
	WorkerID string
	// LeaseUntil is when the running worker's claim ends unless it is extended; zero unless running.
	LeaseUntil time.Time
	// RunAt is the earliest start.
	RunAt time.Time
	// CancelRequestedAt is when a running task was asked to stop; zero if it was not.
	CancelRequestedAt time.Time
	// ParentID is the task whose handler submitted this one, if any.
	ParentID string
	// RootID is the top of the tree; a task without parent is its own root.
	RootID string
	// CorrelationID is the submitter's own, for following work across systems.
	CorrelationID string
	// CreatedAt is when it was submitted, UpdatedAt when anything of it was last written; all times are to the
	// millisecond, and on Postgres the server's.
	CreatedAt time.Time
	UpdatedAt time.Time
	// CompletedAt is when it became terminal; zero before.
	CompletedAt time.Time

	// Reused is set by Submit and SubmitMany alone: the task was there already, and its key's strategy made
	// it the answer. It is no column of the table.
	Reused bool

	// row is where SQLite keeps it: a hint that makes later writes faster. They check ID beside it.
	row int64
}

// Failure answers the record of the last failure, or nil where there is none.
func (t *Task) Failure() *Failure { return parseFailure(t.Error) }

// Decode reads the payload into v.
func (t *Task) Decode(v any) error { return decode("payload", t.Payload, v) }

// DecodeResult reads the result into v. A task without result leaves v as it is.
func (t *Task) DecodeResult(v any) error {
	if t.Result == nil {
		return nil
	}
	return decode("result", t.Result, v)
}

// Due tells whether the task may be claimed at now.
func (t *Task) Due(now time.Time) bool { return t.Status == Queued && !t.RunAt.After(now) }

// MarshalJSON writes the task under the protocol's column names, times as epoch milliseconds; and, where
// it is true, "reused".
func (t *Task) MarshalJSON() ([]byte, error) {
	return json.Marshal(taskJSON{
		ID: t.ID, Name: t.Name, Queue: t.Queue, Status: t.Status, Payload: t.Payload, Result: t.Result, Error: t.Error, Metadata: t.Metadata,
		Progress: t.Progress, Message: optional(t.Message), Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, Priority: t.Priority,
		WorkerID: optional(t.WorkerID), LeaseUntil: optionalMS(t.LeaseUntil), RunAt: t.RunAt.UnixMilli(), CancelRequestedAt: optionalMS(t.CancelRequestedAt),
		ParentID: optional(t.ParentID), RootID: t.RootID, CorrelationID: optional(t.CorrelationID),
		CreatedAt: t.CreatedAt.UnixMilli(), UpdatedAt: t.UpdatedAt.UnixMilli(), CompletedAt: optionalMS(t.CompletedAt),
		Reused: t.Reused,
	})
}

type taskJSON struct {
	ID                string          `json:"id"`
	Name              string          `json:"name"`
	Queue             string          `json:"queue"`
	Status            Status          `json:"status"`
	Payload           json.RawMessage `json:"payload"`
	Result            json.RawMessage `json:"result"`
	Error             json.RawMessage `json:"error"`
	Metadata          json.RawMessage `json:"metadata"`
	Progress          *float64        `json:"progress"`
	Message           *string         `json:"message"`
	Attempt           int             `json:"attempt"`
	MaxAttempts       int             `json:"max_attempts"`
	Priority          int             `json:"priority"`
	WorkerID          *string         `json:"worker_id"`
	LeaseUntil        *int64          `json:"lease_until_ms"`
	RunAt             int64           `json:"run_at_ms"`
	CancelRequestedAt *int64          `json:"cancel_requested_at_ms"`
	ParentID          *string         `json:"parent_id"`
	RootID            string          `json:"root_id"`
	CorrelationID     *string         `json:"correlation_id"`
	CreatedAt         int64           `json:"created_at_ms"`
	UpdatedAt         int64           `json:"updated_at_ms"`
	CompletedAt       *int64          `json:"completed_at_ms"`
	Reused            bool            `json:"reused,omitempty"`
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func optionalMS(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// Failure is the error envelope of the protocol: what a task's error column holds.
type Failure struct {
	// Type names the kind of error, such as a Go type.
	Type string `json:"type"`
	// Code is for programs; see the Code constants.
	Code string `json:"code"`
	// Message is for people.
	Message string `json:"message"`
	// Retryable is false where another attempt cannot help.
	Retryable bool `json:"retryable"`
	// Details is any JSON; for a panic it holds the stack.
	Details json.RawMessage `json:"details,omitempty"`
}

// Codes of failures in use by every library of the protocol.
const (
	CodeHandlerError         = "handler_error"         // an ordinary error
	CodeTaskError            = "task_error"            // a failure that the handler made itself
	CodeHandlerTimeout       = "handler_timeout"       // the attempt's time was up
	CodeLeaseExpired         = "lease_expired"         // the worker vanished, and the attempts were used up
	CodeUnserializableResult = "unserializable_result" // the result cannot be said in JSON
	CodeNoHandler            = "no_handler"            // nobody to run it
	CodePanic                = "handler_panic"         // ours: the handler panicked; details hold the stack
	CodeInvalidPayload       = "invalid_payload"       // ours: the payload does not fit the handler's type
	CodeDiscarded            = "discarded"             // ours: the handler discarded the task
)

func (f *Failure) Error() string { return fmt.Sprintf("%s (%s)", f.Message, f.Code) }

// leaseExpired is what recovery records; every library writes the same text.
var leaseExpired = json.RawMessage(`{"type":"LeaseExpired","code":"lease_expired","message":"task lease expired and max attempts reached","retryable":false,"details":{}}`)

// parseFailure reads any library's error column. What is no envelope becomes the message.
func parseFailure(raw json.RawMessage) *Failure {
	if raw == nil {
		return nil
	}
	var f Failure
	if err := json.Unmarshal(raw, &f); err != nil || (f.Message == "" && f.Code == "" && f.Type == "") {
		return &Failure{Type: "Error", Code: CodeTaskError, Message: string(raw)}
	}
	return &f
}
