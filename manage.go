package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Get reads a task. The error is ErrNotFound when there is none.
func (s *Store) Get(ctx context.Context, id string) (*Task, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	return found(id)(s.one(ctx, StmtGet, &Row{Task: Task{ID: id}}))
}

// GetByKey reads the task that stands under a key now.
func (s *Store) GetByKey(ctx context.Context, key string) (*Task, error) {
	if err := checkText("key", key, true); err != nil {
		return nil, err
	}
	return found("key " + strconv.Quote(key))(s.one(ctx, StmtGetByKey, &Row{Key: key}))
}

// Status reads the id and status of a task, and nothing else: what waiting needs.
func (s *Store) Status(ctx context.Context, id string) (*Task, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	return found(id)(s.one(ctx, StmtStatus, &Row{Task: Task{ID: id}}))
}

// StatusByKey is Status of the task that stands under a key now.
func (s *Store) StatusByKey(ctx context.Context, key string) (*Task, error) {
	if err := checkText("key", key, true); err != nil {
		return nil, err
	}
	return found("key " + strconv.Quote(key))(s.one(ctx, StmtStatusByKey, &Row{Key: key}))
}

func found(what string) func(*Task, error) (*Task, error) {
	return func(t *Task, err error) (*Task, error) {
		if err == nil && t == nil {
			return nil, fmt.Errorf("holdfast: %s: %w", what, ErrNotFound)
		}
		return t, err
	}
}

// Filter selects tasks for List. The zero value selects the newest 100.
type Filter struct {
	// Status, Queue, Name, RootID and CorrelationID have to be equal where they are given. An unknown status, and
	// a text that no task can have, is refused with an InvalidError.
	Status        Status
	Queue         string
	Name          string
	RootID        string
	CorrelationID string
	// Limit is 100 if 0.
	// Limit is how many to answer at most; negative is refused.
	Limit int
	// Offset skips that many. Rows that come and go between pages shift the pages; After does not.
	Offset int
	// After is the Cursor of the last task of the page before.
	After string
}

// DefaultListLimit is how many tasks List answers unless told.
const DefaultListLimit = 100

// Cursor marks the task's place in List's order, for Filter.After. It is plain text and stays valid.
func (t *Task) Cursor() string { return strconv.FormatInt(t.CreatedAt.UnixMilli(), 10) + "." + t.ID }

// List answers tasks, newest first.
func (s *Store) List(ctx context.Context, f Filter) ([]*Task, error) {
	row := &Row{Limit: int64(cmp.Or(f.Limit, DefaultListLimit)), Offset: int64(f.Offset)}
	if err := cmp.Or(checkLimit("limit", f.Limit), checkLimit("offset", f.Offset), checkText("queue", f.Queue, false), checkText("name", f.Name, false),
		checkText("root_id", f.RootID, false), checkText("correlation_id", f.CorrelationID, false)); err != nil {
		return nil, err
	}
	if f.Status != "" {
		if err := f.Status.check("status"); err != nil {
			return nil, err
		}
	}
	if f.After != "" {
		ms, id, ok := strings.Cut(f.After, ".")
		n, err := strconv.ParseInt(ms, 10, 64)
		if !ok || err != nil || checkText("after", id, true) != nil {
			return nil, invalid("after", f.After, "is no cursor; use the Cursor of a task that List answered")
		}
		row.BeforeMS, row.BeforeID = n, id
	}
	row.Status, row.Queue, row.Name, row.RootID, row.CorrelationID = f.Status, f.Queue, f.Name, f.RootID, f.CorrelationID
	tasks := []*Task{}
	err := s.query(ctx, StmtList, func(_ int, a *Row) error { tasks = append(tasks, &a.Task); return nil }, row)
	return tasks, err
}

// Cancel ends a queued task at once, and asks the worker of a running one to stop: its handler's
// context is canceled, and whatever the handler answers, the task ends as canceled. The error is
// ErrNotFound, or ErrState for a task that has ended.
func (s *Store) Cancel(ctx context.Context, id string) (*Task, error) {
	return s.change(ctx, StmtCancel, "cancel", &Row{Task: Task{ID: id}})
}

// Retry puts a failed or canceled task back in its queue, to start now. Unless reset, the attempts
// made count on. The error is ErrNotFound, or ErrState for a task that is live or succeeded.
func (s *Store) Retry(ctx context.Context, id string, reset bool) (*Task, error) {
	return s.change(ctx, StmtRetry, "retry", &Row{Task: Task{ID: id}, Reset: reset})
}

func (s *Store) change(ctx context.Context, stmt Statement, op string, row *Row) (*Task, error) {
	if err := checkID("id", row.ID); err != nil {
		return nil, err
	}
	t, err := s.one(ctx, stmt, row)
	if err == nil && t == nil {
		now, err := s.Status(ctx, row.ID)
		if err != nil {
			return nil, err
		}
		return nil, &StateError{TaskID: row.ID, Op: op, Status: now.Status}
	}
	if err != nil {
		return nil, err
	}
	s.settled(t.ID, t.Queue, t.Status)
	return t, nil
}

// CancelByKey cancels the task that stands under a key now.
func (s *Store) CancelByKey(ctx context.Context, key string) (*Task, error) {
	return s.changeByKey(ctx, StmtCancel, "cancel", &Row{Key: key})
}

// RetryByKey retries the task that stands under a key now.
func (s *Store) RetryByKey(ctx context.Context, key string, reset bool) (*Task, error) {
	return s.changeByKey(ctx, StmtRetry, "retry", &Row{Key: key, Reset: reset})
}

// changeByKey resolves the key and acts under the key's lock, so that a replace cannot come between.
func (s *Store) changeByKey(ctx context.Context, stmt Statement, op string, row *Row) (*Task, error) {
	if err := checkText("key", row.Key, true); err != nil {
		return nil, err
	}
	row.Now = s.clock().UnixMilli()
	var t *Task
	err := s.atomic(ctx, op, func(session Session) error {
		if err := session.Query(ctx, StmtLockKey, nil, row); err != nil {
			return err
		}
		current, err := found("key " + strconv.Quote(row.Key))(queryOne(ctx, session, StmtStatusByKey, row))
		if err != nil {
			return err
		}
		act := *row
		act.ID = current.ID
		t, err = queryOne(ctx, session, stmt, &act)
		if err == nil && t == nil {
			err = &StateError{TaskID: current.ID, Op: op, Status: current.Status}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.settled(t.ID, t.Queue, t.Status)
	return t, nil
}

// PurgeFilter selects ended tasks for Purge.
type PurgeFilter struct {
	// OlderThan is the least time since the task ended.
	OlderThan time.Duration
	// Queue, Status and Name narrow the purge where they are given.
	Queue  string
	Status Status // terminal, or empty for all three
	Name   string
	// Limit bounds one call; 0 means 1000. Call again while it answers as many.
	Limit int
}

func (f PurgeFilter) check() error {
	if err := cmp.Or(checkDuration("older_than", f.OlderThan), checkLimit("limit", f.Limit), checkText("queue", f.Queue, false), checkText("name", f.Name, false)); err != nil {
		return err
	}
	if f.Status == "" {
		return nil
	}
	if err := f.Status.check("status"); err != nil {
		return err
	}
	if !f.Status.Terminal() {
		return invalid("status", string(f.Status), "is not terminal; only succeeded, failed or canceled tasks can be purged")
	}
	return nil
}

// DefaultPurgeLimit is how many tasks one Purge deletes at most unless told.
const DefaultPurgeLimit = 1000

// Purge deletes ended tasks, oldest first, with their keys, and answers their ids.
func (s *Store) Purge(ctx context.Context, f PurgeFilter) ([]string, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	row := &Row{Older: f.OlderThan.Milliseconds(), Limit: int64(cmp.Or(f.Limit, DefaultPurgeLimit))}
	row.Queue, row.Status, row.Name = f.Queue, f.Status, f.Name
	ids := []string{}
	err := s.query(ctx, StmtPurge, func(_ int, a *Row) error { ids = append(ids, a.ID); return nil }, row)
	return ids, err
}

// QueueStats counts one queue's tasks by status.
type QueueStats struct {
	// Queue is its name; the others are how many tasks it has in each status.
	Queue     string `json:"queue"`
	Queued    int64  `json:"queued"`
	Running   int64  `json:"running"`
	Succeeded int64  `json:"succeeded"`
	Failed    int64  `json:"failed"`
	Canceled  int64  `json:"canceled"`
}

// Total is the sum of all statuses.
func (q *QueueStats) Total() int64 { return q.Queued + q.Running + q.Succeeded + q.Failed + q.Canceled }

func (q *QueueStats) count(s Status) *int64 {
	switch s {
	case Queued:
		return &q.Queued
	case Running:
		return &q.Running
	case Succeeded:
		return &q.Succeeded
	case Failed:
		return &q.Failed
	}
	return &q.Canceled
}

// Stats counts tasks by queue and status, queues in alphabetical order. With a queue given, that one
// is present even when it is empty.
func (s *Store) Stats(ctx context.Context, queue string) ([]QueueStats, error) {
	if err := checkText("queue", queue, false); err != nil {
		return nil, err
	}
	by := map[string]*QueueStats{}
	if queue != "" {
		by[queue] = &QueueStats{Queue: queue}
	}
	row := &Row{}
	row.Queue = queue
	err := s.query(ctx, StmtStats, func(_ int, a *Row) error {
		if by[a.Queue] == nil {
			by[a.Queue] = &QueueStats{Queue: a.Queue}
		}
		*by[a.Queue].count(a.Status) += a.Count
		return nil
	}, row)
	if err != nil {
		return nil, err
	}
	out := make([]QueueStats, 0, len(by))
	for _, q := range by {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b QueueStats) int { return strings.Compare(a.Queue, b.Queue) })
	return out, nil
}

// QueueDepth answers the room left in a queue that may hold up to max queued tasks, delayed ones
// included; never below 0. It reads at most max index entries.
func (s *Store) QueueDepth(ctx context.Context, queue string, max int) (room int, err error) {
	if err := cmp.Or(checkText("queue", queue, true), checkLimit("max", max)); err != nil {
		return 0, err
	}
	row := &Row{Limit: int64(max)}
	row.Queue = queue
	var n int64
	err = s.query(ctx, StmtDepth, func(_ int, a *Row) error { n = a.Count; return nil }, row)
	return int(int64(max) - n), err
}
