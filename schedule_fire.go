package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// ticksAtOnce bounds the tasks of one transaction; a schedule with more ticks due goes on in the next.
const ticksAtOnce = 1000

// brokenError is a stored schedule that this program cannot read: another version declared it, or its
// zone is not known here. Others may be able to.
type brokenError struct {
	name string
	err  error
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("holdfast: schedule %s cannot be driven by this program: %v", strconv.Quote(e.name), e.err)
}
func (e *brokenError) Unwrap() error { return e.err }

func isBroken(err error) bool {
	var b *brokenError
	return errors.As(err, &b)
}

// fired is what one schedule's ticks came to.
type fired struct {
	name       string
	tasks      int
	queues     []string
	last       time.Time // the last tick submitted
	late       time.Duration
	missedFrom time.Time // where ticks were dropped, the first of those
}

// FireSchedules submits the tasks of all ticks that are due, each schedule's in a transaction of its
// own with the move to its next tick, and answers how many tasks those were and how long until the
// next tick (0 where there is none). Schedulers and workers call it; programs with a plan of their own
// may. A schedule that somebody else has in hand is left to them.
func (s *Store) FireSchedules(ctx context.Context) (tasks int, wait time.Duration, err error) {
	tasks, wait, err = s.fireSchedules(ctx, map[string]time.Time{}, func(fired) {})
	return tasks, wait, err
}

// held is how long to wait when what is due is in somebody else's hands.
const heldElsewhere = 50 * time.Millisecond

// fireSchedules leaves out broken schedules, and adds those that it finds: by name, with the time of
// their declaration.
func (s *Store) fireSchedules(ctx context.Context, broken map[string]time.Time, told func(fired)) (tasks int, wait time.Duration, err error) {
	var problems []error
	for {
		without := make([]string, 0, len(broken))
		for name := range broken {
			without = append(without, name)
		}
		now, next, err := s.nextSchedule(ctx, s.session, without)
		if err != nil {
			return tasks, 0, errors.Join(append(problems, err)...)
		}
		if next.IsZero() {
			return tasks, 0, errors.Join(problems...)
		}
		if next.After(now) {
			return tasks, next.Sub(now), errors.Join(problems...)
		}
		var f fired
		found := false
		err = s.atomic(ctx, "fire schedule", func(session Session) error {
			f, found = fired{}, false
			var r *Row
			if err := session.Query(ctx, StmtScheduleDue, func(_ int, a *Row) error { r = a; return nil }, &Row{Names: without, Now: s.clock().UnixMilli()}); err != nil || r == nil {
				return err
			}
			found = true
			f.name = r.Name
			var err error
			f, err = s.fire(ctx, session, r)
			return err
		})
		switch {
		case isBroken(err):
			broken[f.name] = now
			problems = append(problems, err)
			continue
		case err != nil:
			return tasks, 0, errors.Join(append(problems, err)...)
		case !found:
			return tasks, heldElsewhere, errors.Join(problems...)
		}
		tasks += f.tasks
		for _, q := range f.queues {
			s.wakeQueue(q)
		}
		told(f)
	}
}

// fire submits what is due of a schedule whose row the transaction holds, and moves it on.
func (s *Store) fire(ctx context.Context, session Session, r *Row) (fired, error) {
	f := fired{name: r.Name}
	col := r.sched()
	t, _, _, err := parseSpec(col.spec, col.zone, col.anchor)
	if err != nil {
		return f, &brokenError{r.Name, err}
	}
	now := time.UnixMilli(r.Now)
	due, next := dueTicks(t, col, now, ticksAtOnce)
	if len(due) == 0 || due[0].After(col.next) {
		f.missedFrom = col.next
	}
	subs := make([]*Submission, len(due))
	for i, at := range due {
		tick := tickRecord{Schedule: r.Name, AtMS: at.UnixMilli(), LateMS: now.Sub(at).Milliseconds()}
		if i == 0 && !f.missedFrom.IsZero() {
			tick.FromMS = f.missedFrom.UnixMilli()
		}
		if subs[i], err = submissionOf(r, tick); err != nil {
			return f, &brokenError{r.Name, err}
		}
	}
	in := *s
	in.inTx, in.session = true, session
	move := &Row{Task: Task{Name: r.Name}, BeforeMS: col.next.UnixMilli(), Now: r.Now}
	move.sched().next = next
	if len(due) > 0 {
		f.queues, f.last, f.late = []string{r.Queue}, due[len(due)-1], now.Sub(due[0])
		move.sched().last = f.last
		made, err := in.submitTicks(ctx, subs)
		if err != nil {
			if errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotJSON) {
				err = &brokenError{r.Name, err}
			}
			return f, err
		}
		f.tasks = len(made)
		if len(made) > 0 {
			move.sched().lastTask = made[len(made)-1].ID
		}
	}
	moved := false
	if err := session.Query(ctx, StmtScheduleMove, func(int, *Row) error { moved = true; return nil }, move); err != nil {
		return f, err
	}
	if !moved {
		// The row was ours alone, so this cannot be; if it were, nothing of it may stand.
		return f, fmt.Errorf("holdfast: schedule %s was moved by somebody else: %w", strconv.Quote(r.Name), ErrBusy)
	}
	return f, nil
}

// submitTicks submits inside fire's transaction. A tick whose key is taken under Reject comes to nothing.
func (s *Store) submitTicks(ctx context.Context, subs []*Submission) ([]*Task, error) {
	if subs[0].Key == "" {
		return s.SubmitMany(ctx, subs)
	}
	var made []*Task
	for _, sub := range subs {
		t, err := s.Submit(ctx, sub)
		switch {
		case errors.Is(err, ErrAlreadyExists):
		case err != nil:
			return nil, err
		default:
			made = append(made, t)
		}
	}
	return made, nil
}

// dueTicks answers, by the schedule's policy, which of its ticks from the next one up to now are to be
// submitted, at most limit, and which tick comes after those.
func dueTicks(t ticks, col *scheduleColumns, now time.Time, limit int) (due []time.Time, next time.Time) {
	first := col.next
	missedBefore := now.Add(-time.Duration(col.graceMS) * time.Millisecond)
	if first.Before(missedBefore) {
		switch MissedPolicy(col.missed) {
		case MissedSkip:
			first = t.next(missedBefore.Add(-time.Nanosecond))
		case MissedBounded:
			first = lastTicks(t, first, now, int(col.bound))
		case MissedAll:
		default:
			first = lastTicks(t, first, now, 1)
		}
	}
	for !first.IsZero() && !first.After(now) && len(due) < limit {
		due = append(due, first)
		first = t.next(first)
	}
	return due, first
}

// lastTicks answers the first of the last n ticks from first to now. It looks back from now, further
// and further, so that a long pause of a frequent schedule costs little.
func lastTicks(t ticks, first, now time.Time, n int) time.Time {
	for back := time.Minute; ; back *= 4 {
		start := now.Add(-back)
		if whole := !start.After(first); whole {
			start = first.Add(-time.Nanosecond)
		}
		var list []time.Time
		for x := t.next(start); !x.IsZero() && !x.After(now); x = t.next(x) {
			if list = append(list, x); len(list) > n {
				list = slices.Delete(list, 0, 1)
			}
		}
		if len(list) == n || start.Before(first) {
			return list[0]
		}
	}
}
