package holdfast

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Strategy says what a submit does when its key is taken already.
type Strategy string

const (
	// Reuse answers the key's task, whatever its status. The default.
	Reuse Strategy = "reuse"
	// ReuseLive answers the key's task while it is queued or running; otherwise a new task takes the key.
	ReuseLive Strategy = "reuse-live"
	// ReuseSucceeded answers the key's task unless it failed or was canceled: a succeeded task is a
	// cached result.
	ReuseSucceeded Strategy = "reuse-succeeded"
	// Reject answers AlreadyExistsError.
	Reject Strategy = "reject"
	// Replace cancels the key's task if it is live; a new task takes the key.
	Replace Strategy = "replace"
)

// Submission is a task to be. Only Name is needed.
type Submission struct {
	// Name says which handler is to run the task: 1 to 255 bytes of valid UTF-8 without NUL, as every text
	// here that is given. Everything out of its limits is refused with an InvalidError that names the field.
	Name string
	// Queue is the queue that workers claim it from.
	Queue string // "default" if empty
	// Payload and Metadata are JSON; {} if nil.
	Payload  json.RawMessage
	Metadata json.RawMessage
	// MaxAttempts is at least 1; 0 means 3.
	MaxAttempts int
	// Priority: higher runs first.
	Priority int
	// Delay is how long the task is not to be claimed.
	Delay time.Duration
	// Key is a business key: at most one current task stands under it. See Strategy.
	Key      string
	Strategy Strategy // Reuse if empty
	// ParentID and RootID place the task in a tree; without RootID it is the root of its own.
	ParentID, RootID string
	// CorrelationID is the submitter's own.
	CorrelationID string
	// As names the task within one SubmitMany. See the options As, After, AfterFinished, KeepWaiting.
	As                   string
	After, AfterFinished []string
	KeepWaiting          bool
}

// Defaults of a submission, the protocol's.
const (
	DefaultQueue       = "default"
	DefaultMaxAttempts = 3
)

var emptyObject = json.RawMessage("{}")

// row checks the submission and makes its row.
func (s *Store) row(sub *Submission, now time.Time) (*Row, error) {
	if err := checkText("name", sub.Name, true); err != nil {
		return nil, err
	}
	for _, c := range [...]struct{ field, text string }{
		{"queue", sub.Queue}, {"key", sub.Key}, {"correlation_id", sub.CorrelationID}, {"parent_id", sub.ParentID}, {"root_id", sub.RootID},
	} {
		if c.text == "" {
			continue
		}
		if err := checkText(c.field, c.text, false); err != nil {
			return nil, err
		}
	}
	if sub.MaxAttempts < 0 {
		return nil, invalid("max_attempts", sub.MaxAttempts, "is below 1; a task is tried at least once")
	}
	if err := cmp.Or(checkInt32("max_attempts", sub.MaxAttempts), checkInt32("priority", sub.Priority), checkDuration("delay", sub.Delay)); err != nil {
		return nil, err
	}
	switch sub.Strategy {
	case "", Reuse, ReuseLive, ReuseSucceeded, Reject, Replace:
	default:
		return nil, invalid("strategy", string(sub.Strategy), "is unknown; use reuse, reuse-live, reuse-succeeded, reject or replace")
	}
	if sub.Strategy != "" && sub.Key == "" {
		return nil, invalid("key", "", "is empty, so the strategy "+string(sub.Strategy)+" has nothing to decide; give a key")
	}
	r := &Row{Key: sub.Key, Delay: sub.Delay.Milliseconds(), Now: now.UnixMilli()}
	t := &r.Task
	t.Payload, t.Metadata = emptyObject, emptyObject
	for _, c := range [...]struct {
		field string
		from  json.RawMessage
		to    *json.RawMessage
	}{{"payload", sub.Payload, &t.Payload}, {"metadata", sub.Metadata, &t.Metadata}} {
		if c.from == nil {
			continue
		}
		if err := s.checkJSON(c.field, c.from); err != nil {
			return nil, err
		}
		*c.to = c.from
	}
	t.ID = s.ids.next(now)
	t.Name, t.Queue = sub.Name, cmp.Or(sub.Queue, DefaultQueue)
	t.Status = Queued
	t.MaxAttempts, t.Priority = cmp.Or(sub.MaxAttempts, DefaultMaxAttempts), sub.Priority
	t.ParentID, t.RootID, t.CorrelationID = sub.ParentID, cmp.Or(sub.RootID, t.ID), sub.CorrelationID
	// To the millisecond, as the columns keep it.
	t.CreatedAt = time.UnixMilli(r.Now)
	t.UpdatedAt = t.CreatedAt
	t.RunAt = time.UnixMilli(r.Now + r.Delay)
	return r, nil
}

// Submit inserts one task, or answers the one that its key and strategy name (see Task.Reused). The
// payload must be JSON. Errors: ErrInvalid, ErrNotJSON, ErrAlreadyExists, and the database's.
func (s *Store) Submit(ctx context.Context, sub *Submission) (*Task, error) {
	now := s.clock()
	r, err := s.row(sub, now)
	if err != nil {
		return nil, err
	}
	subs := []*Submission{sub}
	g, err := planGraph(subs)
	if err != nil {
		return nil, err
	}
	if sub.Key != "" || g != nil {
		tasks, err := s.submitLinked(ctx, []*Row{r}, subs, g)
		if err != nil {
			return nil, err
		}
		return tasks[0], nil
	}
	if err := s.session.Query(ctx, StmtInsert, nil, r); err != nil {
		return nil, err
	}
	s.wakeQueue(r.Queue)
	return &r.Task, nil
}

// SubmitMany submits all, or none, in one transaction and, without keys, one round trip. The answers
// stand in the order of the submissions. Keys count from left to right, as if submitted one by one.
func (s *Store) SubmitMany(ctx context.Context, subs []*Submission) ([]*Task, error) {
	if len(subs) == 0 {
		return nil, nil
	}
	now := s.clock()
	rows := make([]*Row, len(subs))
	keyed := false
	for i, sub := range subs {
		r, err := s.row(sub, now)
		if err != nil {
			return nil, indexed(i, err)
		}
		rows[i] = r
		keyed = keyed || sub.Key != ""
	}
	g, err := planGraph(subs)
	if err != nil {
		return nil, err
	}
	if keyed || g != nil {
		return s.submitLinked(ctx, rows, subs, g)
	}
	if err := s.session.Query(ctx, StmtInsert, nil, rows...); err != nil {
		return nil, err
	}
	tasks := make([]*Task, len(rows))
	queues := map[string]struct{}{}
	for i, r := range rows {
		tasks[i] = &r.Task
		queues[r.Queue] = struct{}{}
	}
	for q := range queues {
		s.wakeQueue(q)
	}
	return tasks, nil
}

// submitLinked takes the locks of the keys, reads their tasks, decides, and writes, in one transaction.
// g is what the submissions wait for, or nil.
func (s *Store) submitLinked(ctx context.Context, rows []*Row, subs []*Submission, g *graph) ([]*Task, error) {
	var (
		tasks    []*Task
		reused   []int // which of them were there already
		canceled []*Task
		queues   map[string]struct{}
	)
	made := make([]Task, len(rows))
	for i, r := range rows {
		made[i] = r.Task
	}
	err := s.atomic(ctx, "submit", func(session Session) error {
		for i, r := range rows {
			r.Task = made[i] // as it was before a run that failed
		}
		tasks, reused, canceled, queues = make([]*Task, len(rows)), nil, nil, map[string]struct{}{}
		for _, r := range rows {
			r.Status, r.CompletedAt = Queued, time.Time{} // a run before this one may have changed them
		}
		current := map[string]*Task{}
		for _, sub := range subs {
			if sub.Key != "" {
				current[sub.Key] = nil
			}
		}
		// In one order everywhere, so that two submits of the same keys cannot wait for each other.
		keys := make([]*Row, 0, len(current))
		for _, key := range slices.Sorted(maps.Keys(current)) {
			keys = append(keys, &Row{Key: key})
		}
		if len(keys) > 0 {
			if err := session.Query(ctx, StmtLockKey, nil, keys...); err != nil {
				return err
			}
			if err := session.Query(ctx, StmtGetByKey, func(i int, a *Row) error {
				current[keys[i].Key] = &a.Task
				return nil
			}, keys...); err != nil {
				return err
			}
		}
		var inserts, replaced []*Row
		puts := map[string]*Row{}
		var order []string
		fresh := map[string]bool{} // inserted by this very call, so not to be canceled in the database
		for i, r := range rows {
			key := subs[i].Key
			if key != "" {
				if old := current[key]; old != nil {
					keep, err := decide(subs[i].Strategy, key, old)
					if err != nil {
						return indexedIf(len(rows) > 1, i, err)
					}
					if keep {
						tasks[i] = old
						reused = append(reused, i)
						continue
					}
					if subs[i].Strategy == Replace && !old.Status.Terminal() {
						if fresh[old.ID] {
							old.Status, old.CompletedAt = Canceled, time.UnixMilli(r.Now)
						}
						replaced = append(replaced, &Row{Task: Task{ID: old.ID}, Now: r.Now})
					}
				}
				current[key] = &r.Task
				if puts[key] == nil {
					order = append(order, key)
				}
				puts[key] = &Row{Key: key, Task: Task{ID: r.ID}, Now: r.Now}
			}
			tasks[i] = &r.Task
			fresh[r.ID] = true
			inserts = append(inserts, r)
			queues[r.Queue] = struct{}{}
		}
		if len(inserts) == 0 {
			return nil
		}
		var known parents
		if g != nil {
			var err error
			if known, err = g.look(ctx, session, tasks, fresh); err != nil {
				return err
			}
			if err := session.Query(ctx, StmtDependPrepare, nil, &Row{}); err != nil {
				return err
			}
		}
		if err := session.Query(ctx, StmtInsert, nil, inserts...); err != nil {
			return err
		}
		if len(replaced) > 0 {
			if err := session.Query(ctx, StmtCancel, func(_ int, a *Row) error {
				canceled = append(canceled, &a.Task)
				if known[a.ID] != nil {
					known[a.ID].Status = a.Status
				}
				return nil
			}, replaced...); err != nil {
				return err
			}
		}
		if len(order) > 0 {
			list := make([]*Row, len(order))
			for i, key := range order {
				list[i] = puts[key]
			}
			if err := session.Query(ctx, StmtPutKey, nil, list...); err != nil {
				return err
			}
		}
		if g == nil {
			return nil
		}
		ended, err := g.write(ctx, session, tasks, fresh, known, rows[0].Now)
		canceled = append(canceled, ended...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if g != nil {
		s.dependent.Store(true)
	}
	for _, i := range reused {
		t := *tasks[i] // several answers may be one task, of which one submission made it
		t.Reused = true
		tasks[i] = &t
	}
	for _, t := range canceled {
		s.settled(t.ID, t.Queue, t.Status)
	}
	for q := range queues {
		s.wakeQueue(q)
	}
	return tasks, nil
}

// decide tells whether the key's task is the answer; if not, a new one takes the key.
func decide(strategy Strategy, key string, old *Task) (keep bool, err error) {
	switch strategy {
	case Reject:
		return false, &AlreadyExistsError{Key: key, TaskID: old.ID}
	case ReuseLive:
		return !old.Status.Terminal(), nil
	case ReuseSucceeded:
		return !old.Status.Terminal() || old.Status == Succeeded, nil
	case Replace:
		return false, nil
	}
	return true, nil
}
