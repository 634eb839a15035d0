package holdfast

import (
	"context"
	"encoding/json"
	"time"
)

// This file is the seam between the protocol and a database. Programs do not need it; it is exported
// for the packages that implement it (sqlite, postgres) and for tests of them.

// A Statement is the name of one SQL statement. Every dialect has it, in a file of that name.
type Statement string

// The statements of the protocol. The comment says which fields of Row they read, and what they
// answer; "tasks" means all columns of the task table.
const (
	StmtInsert      Statement = "insert"          // a Task; Delay, Now → run_at_ms, created_at_ms where the database has the clock
	StmtLockKey     Statement = "lock_key"        // Key → nothing
	StmtGetByKey    Statement = "get_by_key"      // Key → tasks
	StmtPutKey      Statement = "put_key"         // Key, ID, Now → nothing
	StmtGet         Statement = "get"             // ID → tasks
	StmtStatus      Statement = "status"          // ID → id, status
	StmtStatusByKey Statement = "status_by_key"   // Key → id, status
	StmtRecover     Statement = "recover"         // Error, Now, Limit → id, queue, status
	StmtCancelAsked Statement = "cancel_requests" // IDs → id
	StmtHeartbeat   Statement = "heartbeat"       // IDs, WorkerID, Lease, Now → id, lease_until_ms, cancel_requested_at_ms
	StmtProgress    Statement = "progress"        // ID, WorkerID, Progress, Message, Now → tasks
	StmtSucceed     Statement = "succeed"         // ID, WorkerID, Result, Now → id, status, queue
	StmtComplete    Statement = "complete"        // likewise
	StmtFail        Statement = "fail"            // ID, WorkerID, Error, Retryable, Delay, Now → id, status, queue
	StmtRelease     Statement = "release"         // ID, WorkerID, Delay, Now → id, status, queue
	StmtCancel      Statement = "cancel"          // ID, Now → tasks
	StmtRetry       Statement = "retry"           // ID, Reset, Now → tasks
	StmtPurge       Statement = "purge"           // Older, Limit, Now, and any of Queue, Status, Name → id
	StmtList        Statement = "list"            // Limit, Offset, and any filter → tasks
	StmtStats       Statement = "stats"           // Queue or not → queue, status, count
	StmtDepth       Statement = "depth"           // Queue, Limit → count
	StmtBusy        Statement = "busy"            // Queue, Now → count: whether anything is due or running (0 or 1)
	StmtMeta        Statement = "meta"            // Key → value
	StmtLimits      Statement = "limits"          // → kind, key, concurrency, …: all shared limits
	StmtLimitPut    Statement = "limit_put"       // Kind, Key, Concurrency, RateCount, RatePeriod, RateBurst, Now → nothing
	StmtLimitPause  Statement = "limit_pause"     // Kind, Key, Reset (resume), Now → nothing
	StmtLimitDrop   Statement = "limit_drop"      // Kind, Key → nothing, if the row has no bound left
	StmtAttempts    Statement = "attempts"        // ID → attempt, worker_id, completed_at_ms, status, error

	// Bulk operations and trees, see bulk.go and tree.go. The first four look for tasks and take a filter.
	StmtBulkFailed  Statement = "bulk_failed"  // BeforeMS, AfterMS, AfterID, Limit → id, completed_at_ms
	StmtBulkEnded   Statement = "bulk_ended"   // likewise, and Status or not
	StmtBulkQueued  Statement = "bulk_queued"  // BeforeMS, Limit → id
	StmtBulkRunning Statement = "bulk_running" // likewise
	StmtDelete      Statement = "delete"       // ID → id
	StmtRedrive     Statement = "redrive"      // ID, Payload, Now → tasks
	StmtTree        Statement = "tree"         // ID, Limit → tasks without their JSON
	StmtTreeLive    Statement = "tree_live"    // ID, Limit → id

	// Dependencies, see dependencies.go.
	StmtDependPrepare  Statement = "depend_prepare"  // → nothing; makes what only a database with dependencies has
	StmtDependLook     Statement = "depend_look"     // ID → id, name, status; not deleted before the transaction ends
	StmtDependOn       Statement = "depend_on"       // ID, ParentID, Finished, Met, Position → nothing
	StmtDependWait     Statement = "depend_wait"     // ID, Keep, Count, Now → nothing
	StmtDependHold     Statement = "depend_hold"     // ID → nothing
	StmtDependCancel   Statement = "depend_cancel"   // ID, Error, Now → id, queue, status
	StmtDependGet      Statement = "depend_get"      // ID → id, run_at_ms, keep, count, released_at_ms
	StmtDependParents  Statement = "depend_parents"  // ID → id, name, status, purged, finished, met, position
	StmtDependResults  Statement = "depend_results"  // ID → likewise with result and error
	StmtDependChildren Statement = "depend_children" // ID, Limit → id, name, status, finished, met
	StmtDependRelease  Statement = "depend_release"  // ID, Now → tasks
	StmtDependReleased Statement = "depend_released" // ID, Now → nothing
)

// The statements of the registry of workers. What only the registry needs travels as one JSON text in
// Value, so that Row, of which each claimed task has one, does not grow.
const (
	StmtWorkerPut    Statement = "worker_put"    // WorkerID, Key (the token), Value, Lease, Now → worker_id; none if a worker with a lock stands there
	StmtWorkerSeen   Statement = "worker_seen"   // WorkerID, Key, Value (new token and state), Lease, Now → worker_id; none if the row is gone
	StmtWorkerDelete Statement = "worker_delete" // WorkerID, Key or not → worker_id
	StmtWorkerExpire Statement = "worker_expire" // WorkerID, Now → id: their leases end now
	StmtWorkers      Statement = "workers"       // → worker_id, key, value
	StmtWorkerTasks  Statement = "worker_tasks"  // Limit (for each worker) → worker_id, id, name, queue, attempt, lease_until_ms, count
)

// The statements of schedules.
const (
	StmtScheduleGet   Statement = "schedule_get"   // Name → schedules, now
	StmtScheduleLock  Statement = "schedule_lock"  // likewise, and keeps the row from others
	StmtScheduleList  Statement = "schedule_list"  // → schedules, now
	StmtScheduleNext  Statement = "schedule_next"  // Names (left out) → the first next_at_ms, now
	StmtScheduleDue   Statement = "schedule_due"   // Names (left out), Now → one due schedule that nobody else holds, now
	StmtSchedulePut   Statement = "schedule_put"   // a schedule, Now → nothing
	StmtScheduleMove  Statement = "schedule_move"  // Name, BeforeMS (its next tick until now), NextAt, LastAt, LastTask, Now → name
	StmtSchedulePause Statement = "schedule_pause" // Name, Reset (resume), NextAt, Now → name
	StmtScheduleDrop  Statement = "schedule_drop"  // Name → name
)

// Writes tells whether the statement changes anything.
func (s Statement) Writes() bool {
	switch s {
	case StmtGetByKey, StmtGet, StmtStatus, StmtStatusByKey, StmtList, StmtStats, StmtDepth, StmtMeta, StmtLimits, StmtBusy, StmtCancelAsked, StmtWorkers, StmtWorkerTasks,
		StmtScheduleGet, StmtScheduleList, StmtScheduleNext:
		return false
	case StmtAttempts,
		StmtBulkFailed, StmtBulkEnded, StmtBulkQueued, StmtBulkRunning, StmtTree, StmtTreeLive,
		StmtDependGet, StmtDependParents, StmtDependResults, StmtDependChildren:
		return false
	}
	return true
}

// Row carries values across the seam: a statement's parameters in, its columns out. A statement
// that answers columns of its own parameters' row (StmtInsert) writes them into that row.
type Row struct {
	Task

	// Key and Value are a business key, a key of the meta table, or a limit's name, and what goes with it.
	Key   string
	Value string
	// IDs, Queues and Names are lists to choose by.
	IDs    []string
	Queues []string
	Names  []string
	Lease  int64 // ms
	Delay  int64 // ms
	Older  int64 // ms
	Now    int64 // epoch ms, where the library gives the time
	// Limit and Offset page; Count is an answer; Reset and Retryable are flags of some statements.
	Limit     int64
	Offset    int64
	Count     int64
	Reset     bool
	Retryable bool
	BeforeMS  int64 // cursor of StmtList: older than this time,
	BeforeID  string
	Below     int64   // priority, exclusive
	Hints     []int64 // row numbers, see Hint
	Partition string

	// A shared limit; its name is in Key.
	Kind        LimitKind
	Concurrency int64
	RateCount   int64
	RatePeriod  int64 // ms
	RateBurst   int64
	TAT         int64     // theoretical arrival time, epoch microseconds
	PausedAt    time.Time // zero unless paused

	schedule *scheduleColumns // made when a statement names one of them
	AfterMS  int64            // cursor of the bulk statements: this time and
	AfterID  string

	Finished bool  // any end of the parent will do
	Met      bool  // the parent has ended as it should
	Keep     bool  // a parent's failure does not cancel
	Purged   bool  // the parent was deleted
	Position int64 // as the submitter named the parents
	// ReleasedAt is when a task stopped waiting.
	ReleasedAt time.Time
}

// Column names the fields of Row as SQL does.
type Column uint8

// ColumnOf finds the field of Row that SQL calls name, as a parameter or as a result column.
func ColumnOf(name string) (Column, bool) {
	for i, n := range columnNames {
		if n == name {
			return Column(i), true
		}
	}
	return 0, false
}

// The fields of Row, as SQL names them.
const (
	colId Column = iota
	colName
	colQueue
	colStatus
	colPayload
	colResult
	colError
	colMetadata
	colProgress
	colMessage
	colAttempt
	colMaxAttempts
	colPriority
	colWorkerId
	colLeaseUntilMs
	colRunAtMs
	colCancelRequestedAtMs
	colParentId
	colRootId
	colCorrelationId
	colCreatedAtMs
	colUpdatedAtMs
	colCompletedAtMs
	colRowid
	colKey
	colValue
	colIds
	colQueues
	colNames
	colLeaseMs
	colDelayMs
	colOlderMs
	colNow
	colLimit
	colOffset
	colCount
	colReset
	colRetryable
	colBeforeMs
	colBeforeId
	colBelow
	colHints
	colPartition
	colKind
	colConcurrency
	colRateCount
	colRatePeriodMs
	colRateBurst
	colTatUs
	colPausedAtMs
	colSpec
	colZone
	colTask
	colOptions
	colMissed
	colBound
	colGraceMs
	colAnchorMs
	colNextAtMs
	colLastAtMs
	colLastTask
	colDigest
	colFinished
	colMet
	colKeep
	colPurged
	colPosition
	colReleasedAtMs
	colAfterMs
	colAfterId
)

var columnNames = [...]string{
	colId: "id", colName: "name", colQueue: "queue", colStatus: "status", colPayload: "payload",
	colResult: "result", colError: "error", colMetadata: "metadata", colProgress: "progress",
	colMessage: "message", colAttempt: "attempt", colMaxAttempts: "max_attempts", colPriority: "priority",
	colWorkerId: "worker_id", colLeaseUntilMs: "lease_until_ms", colRunAtMs: "run_at_ms",
	colCancelRequestedAtMs: "cancel_requested_at_ms", colParentId: "parent_id", colRootId: "root_id",
	colCorrelationId: "correlation_id", colCreatedAtMs: "created_at_ms", colUpdatedAtMs: "updated_at_ms",
	colCompletedAtMs: "completed_at_ms", colRowid: "rowid", colKey: "key", colValue: "value", colIds: "ids",
	colQueues: "queues", colNames: "names", colLeaseMs: "lease_ms", colDelayMs: "delay_ms",
	colOlderMs: "older_ms", colNow: "now", colLimit: "limit", colOffset: "offset", colCount: "count",
	colReset: "reset", colRetryable: "retryable", colBeforeMs: "before_ms", colBeforeId: "before_id",
	colBelow: "below", colHints: "hints", colPartition: "partition",
	colKind: "kind", colConcurrency: "concurrency", colRateCount: "rate_count", colRatePeriodMs: "rate_period_ms",
	colRateBurst: "rate_burst", colTatUs: "tat_us", colPausedAtMs: "paused_at_ms",
	colSpec: "spec", colZone: "zone", colTask: "task", colOptions: "options", colMissed: "missed", colBound: "bound",
	colGraceMs: "grace_ms", colAnchorMs: "anchor_ms", colNextAtMs: "next_at_ms", colLastAtMs: "last_at_ms",
	colLastTask: "last_task", colDigest: "digest",
	colFinished: "finished", colMet: "met", colKeep: "keep", colPurged: "purged", colPosition: "position",
	colReleasedAtMs: "released_at_ms", colAfterMs: "after_ms", colAfterId: "after_id",
}

// TaskColumns is the list of all columns of the task table, for SQL.
const TaskColumns = "id, name, queue, status, payload, result, error, metadata, progress, message, attempt, max_attempts, priority, worker_id, lease_until_ms, run_at_ms, cancel_requested_at_ms, parent_id, root_id, correlation_id, created_at_ms, updated_at_ms, completed_at_ms"

// At answers a pointer to the field: *string, *Status, *int, *int64, *bool, **float64, *time.Time
// (epoch milliseconds in SQL), *json.RawMessage, *[]string or *[]int64. nullable says that the zero value is
// NULL in SQL.
func (r *Row) At(c Column) (field any, nullable bool) {
	switch c {
	case colId:
		return &r.ID, false
	case colName:
		return &r.Name, false
	case colQueue:
		return &r.Queue, false
	case colStatus:
		return &r.Status, false
	case colPayload:
		return &r.Payload, false
	case colResult:
		return &r.Result, true
	case colError:
		return &r.Error, true
	case colMetadata:
		return &r.Metadata, false
	case colProgress:
		return &r.Progress, true
	case colMessage:
		return &r.Message, true
	case colAttempt:
		return &r.Attempt, false
	case colMaxAttempts:
		return &r.MaxAttempts, false
	case colPriority:
		return &r.Priority, false
	case colWorkerId:
		return &r.WorkerID, true
	case colLeaseUntilMs:
		return &r.LeaseUntil, true
	case colRunAtMs:
		return &r.RunAt, false
	case colCancelRequestedAtMs:
		return &r.CancelRequestedAt, true
	case colParentId:
		return &r.ParentID, true
	case colRootId:
		return &r.RootID, true
	case colCorrelationId:
		return &r.CorrelationID, true
	case colCreatedAtMs:
		return &r.CreatedAt, false
	case colUpdatedAtMs:
		return &r.UpdatedAt, false
	case colCompletedAtMs:
		return &r.CompletedAt, true
	case colRowid:
		return &r.row, false
	case colKey:
		return &r.Key, false
	case colValue:
		return &r.Value, false
	case colIds:
		return &r.IDs, false
	case colQueues:
		return &r.Queues, false
	case colNames:
		return &r.Names, false
	case colLeaseMs:
		return &r.Lease, false
	case colDelayMs:
		return &r.Delay, false
	case colOlderMs:
		return &r.Older, false
	case colNow:
		return &r.Now, false
	case colLimit:
		return &r.Limit, false
	case colOffset:
		return &r.Offset, false
	case colCount:
		return &r.Count, false
	case colReset:
		return &r.Reset, false
	case colRetryable:
		return &r.Retryable, false
	case colBeforeMs:
		return &r.BeforeMS, false
	case colBeforeId:
		return &r.BeforeID, false
	case colBelow:
		return &r.Below, false
	case colHints:
		return &r.Hints, false
	case colPartition:
		return &r.Partition, false
	case colKind:
		return (*string)(&r.Kind), false
	case colConcurrency:
		return &r.Concurrency, false
	case colRateCount:
		return &r.RateCount, false
	case colRatePeriodMs:
		return &r.RatePeriod, false
	case colRateBurst:
		return &r.RateBurst, false
	case colTatUs:
		return &r.TAT, false
	case colPausedAtMs:
		return &r.PausedAt, true
	case colFinished:
		return &r.Finished, false
	case colMet:
		return &r.Met, false
	case colKeep:
		return &r.Keep, false
	case colPurged:
		return &r.Purged, false
	case colPosition:
		return &r.Position, false
	case colReleasedAtMs:
		return &r.ReleasedAt, true
	case colAfterMs:
		return &r.AfterMS, false
	case colAfterId:
		return &r.AfterID, false
	}
	if c >= colSpec && c <= colDigest {
		return r.scheduleAt(c)
	}
	panic("holdfast: no such column")
}

// Given tells whether an optional parameter of a statement has a value: StmtList and StmtPurge leave
// out the conditions of those that have none.
func (r *Row) Given(c Column) bool {
	switch f, _ := r.At(c); f := f.(type) {
	case *string:
		return *f != ""
	case *Status:
		return *f != ""
	case *int64:
		return *f != 0
	case *[]string:
		return *f != nil
	}
	return true
}

// Session runs statements. A Dialect is one in which each call stands alone; inside Dialect.Atomic
// all calls stand or fall together.
type Session interface {
	// Query runs stmt once for each of rows, in order and in one round trip where the database allows,
	// and calls each (which may be nil) for every row answered, with the index in rows of its cause.
	// The answer is the caller's to keep. Outside Atomic, each is called after the commit.
	Query(ctx context.Context, stmt Statement, each func(i int, answer *Row) error, rows ...*Row) error
	// Claim recovers, then claims.
	Claim(ctx context.Context, c *Claim) (*Claimed, error)
}

// Dialect is a database that keeps tasks.
type Dialect interface {
	Session
	// Name is "sqlite" or "postgres".
	Name() string
	// Atomic runs fn in one transaction and returns after its commit. fn may run again after a
	// transient failure, so it must not derive inside what it could not derive twice. op says what is
	// being done, for errors.
	Atomic(ctx context.Context, op string, fn func(Session) error) error
	// Claimable tells, without any lock, whether a claim may find or recover something, and if not,
	// when it might (0 where that is not known). A dialect whose readers cost as much as its claims
	// answers true.
	Claimable(ctx context.Context, c *Claim) (now bool, next time.Duration, err error)
	// CheckJSON refuses JSON that this database cannot keep, before it is asked to.
	CheckJSON(raw json.RawMessage) error
	// Hub is where the dialect reports what happened in the database.
	Hub() *Hub
	// Now is the database's time, to the millisecond.
	Now(ctx context.Context) (time.Time, error)
	// Close ends the dialect. What it opened itself is closed.
	Close() error
}

// Hinted tells whether the row carries the database's own row number as a hint (SQLite).
func (r *Row) Hinted() bool { return r.row != 0 }

// Hint is that number, 0 where there is none.
func (r *Row) Hint() int64 { return r.row }

// SetHint sets it.
func (r *Row) SetHint(row int64) { r.row = row }

// DropHint forgets it.
func (r *Row) DropHint() { r.row = 0 }
