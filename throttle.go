package holdfast

import (
	"cmp"
	"context"
	"time"
)

// LimitKind says what a Limit is about.
type LimitKind string

const (
	// LimitQueue bounds all tasks of a queue.
	LimitQueue LimitKind = "queue"
	// LimitName bounds all tasks of a name, on every queue.
	LimitName LimitKind = "name"
)

// Limit bounds what all workers of a database start together: how many tasks of a queue or of a name
// run at once, how many start in a period, or both. It is kept in the database, may change while
// workers run, and is never exceeded by workers of this library; a worker that is killed gives its
// places back when its lease ends. Workers of other libraries do not ask for it, but what they run is
// counted.
type Limit struct {
	// Kind and Name say what is bounded.
	Kind LimitKind
	Name string // of the queue, or of the tasks
	// Concurrency is how many run at once; 0 is no bound.
	Concurrency int
	// Rate is how many start in each Per; 0 is no bound.
	Rate int
	// Per is the period of Rate, at least a millisecond; not more than one start a microsecond may result.
	Per time.Duration
	// Burst is how many may start at once after a pause; 0 means as many as Rate.
	Burst int
	// PausedAt is when the queue was paused; zero if it is not. SetLimit leaves it alone; see PauseQueue.
	PausedAt time.Time
}

func (l *Limit) row() (*Row, error) {
	switch l.Kind {
	case LimitQueue, LimitName:
	default:
		return nil, invalid("kind", string(l.Kind), "is unknown; use LimitQueue or LimitName")
	}
	burst := cmp.Or(l.Burst, l.Rate)
	switch {
	case l.Concurrency < 0:
		return nil, invalid("concurrency", l.Concurrency, "is negative; use 0 for no bound")
	case l.Rate < 0:
		return nil, invalid("rate", l.Rate, "is negative; use 0 for no bound")
	case l.Rate > 0 && l.Per < time.Millisecond:
		return nil, invalid("per", l.Per, "is below a millisecond; say in which period the rate counts")
	case l.Rate > 0 && int64(l.Rate) > l.Per.Microseconds():
		return nil, invalid("rate", l.Rate, "is more than one start a microsecond")
	case burst < 0:
		return nil, invalid("burst", l.Burst, "is negative")
	case l.Per > 366*24*time.Hour:
		return nil, invalid("per", l.Per, "is longer than a year")
	}
	if err := cmp.Or(checkText("name", l.Name, true), checkInt32("concurrency", l.Concurrency), checkInt32("rate", l.Rate), checkInt32("burst", l.Burst)); err != nil {
		return nil, err
	}
	return &Row{Kind: l.Kind, Key: l.Name, Concurrency: int64(l.Concurrency), RateCount: int64(l.Rate), RatePeriod: l.Per.Milliseconds(), RateBurst: int64(burst)}, nil
}

// SetLimit sets or changes a limit, for all workers of the database, from their next claim on. One
// without any bound removes it.
func (s *Store) SetLimit(ctx context.Context, l Limit) error {
	row, err := l.row()
	if err != nil {
		return err
	}
	err = s.atomic(ctx, "set a limit", func(session Session) error {
		row.Now = s.clock().UnixMilli()
		if err := session.Query(ctx, StmtLimitPut, nil, row); err != nil {
			return err
		}
		return session.Query(ctx, StmtLimitDrop, nil, row)
	})
	if err == nil {
		s.wakeAll()
	}
	return err
}

// Limits lists all limits and pauses, queues before names, in alphabetical order.
func (s *Store) Limits(ctx context.Context) ([]Limit, error) {
	out := []Limit{}
	err := s.query(ctx, StmtLimits, func(_ int, a *Row) error {
		out = append(out, Limit{Kind: a.Kind, Name: a.Key, Concurrency: int(a.Concurrency), Rate: int(a.RateCount),
			Per: time.Duration(a.RatePeriod) * time.Millisecond, Burst: int(a.RateBurst), PausedAt: a.PausedAt})
		return nil
	}, &Row{})
	return out, err
}

// PauseQueue keeps all workers of the database from claiming of the queue, from their next claim on.
// What runs goes on; submitting goes on. Workers of other libraries do not know of it.
func (s *Store) PauseQueue(ctx context.Context, queue string) error {
	return s.pause(ctx, queue, false)
}

// ResumeQueue ends a pause. A queue that is not paused stays as it is.
func (s *Store) ResumeQueue(ctx context.Context, queue string) error {
	return s.pause(ctx, queue, true)
}

func (s *Store) pause(ctx context.Context, queue string, resume bool) error {
	if err := checkText("queue", queue, true); err != nil {
		return err
	}
	row := &Row{Kind: LimitQueue, Key: queue, Reset: resume, Now: s.clock().UnixMilli()}
	err := s.atomic(ctx, "pause or resume a queue", func(session Session) error {
		if err := session.Query(ctx, StmtLimitPause, nil, row); err != nil || !resume {
			return err
		}
		return session.Query(ctx, StmtLimitDrop, nil, row)
	})
	if err == nil {
		s.wakeQueue(queue)
	}
	return err
}

// Drain waits until nothing of the queue is due or running: delayed tasks may remain. It looks twice
// a second. Together with PauseQueue it waits for what runs only if nothing is queued.
func (s *Store) Drain(ctx context.Context, queue string) error {
	for {
		busy, err := s.busy(ctx, queue)
		if err != nil || !busy {
			return err
		}
		select {
		case <-time.After(lastLook):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Store) busy(ctx context.Context, queue string) (bool, error) {
	if err := checkText("queue", queue, true); err != nil {
		return false, err
	}
	row := &Row{}
	row.Queue = queue
	busy := false
	err := s.query(ctx, StmtBusy, func(_ int, a *Row) error { busy = a.Count > 0; return nil }, row)
	return busy, err
}

// Partition says whose task it is (a tenant, a customer): the partitions of a name are served in
// turn, so that one with a large backlog does not hold up the others. Within a partition the usual
// order holds. It travels in the task's metadata as holdfast_partition, where programs in other
// languages can set it too; give every task of such a name one.
func Partition(name string) SubmitOption {
	return func(s *submission) {
		s.refuse(checkText("partition", name, true))
		s.partition = name
	}
}

// partitionField is where a task's metadata says its partition.
const partitionField = "holdfast_partition"
