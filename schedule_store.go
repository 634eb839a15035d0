package holdfast

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// scheduleRow reads one schedule.
func (s *Store) scheduleRow(ctx context.Context, session Session, stmt Statement, name string) (*Row, error) {
	if err := checkText("schedule name", name, true); err != nil {
		return nil, err
	}
	var r *Row
	err := session.Query(ctx, stmt, func(_ int, a *Row) error { r = a; return nil }, &Row{Task: Task{Name: name}, Now: s.clock().UnixMilli()})
	if err == nil && r == nil {
		err = fmt.Errorf("holdfast: schedule %s: %w", strconv.Quote(name), ErrNoSchedule)
	}
	return r, err
}

// putSchedule writes a declaration, unless the database has it already.
func (s *Store) putSchedule(ctx context.Context, d *declaration) (*ScheduleInfo, error) {
	r, err := s.scheduleIf(ctx, s.session, StmtScheduleGet, d.row.Name)
	if err != nil || r != nil && r.sched().digest == d.row.sched().digest {
		return infoOrNil(r), err
	}
	var queues []string
	err = s.atomic(ctx, "declare schedule", func(session Session) error {
		queues = nil
		// A row that is not there yet cannot be held; without this, two that make it at once would both
		// set its first tick, the slower one perhaps after the first has been there and gone.
		if err := session.Query(ctx, StmtLockKey, nil, &Row{Key: "holdfast schedule " + d.row.Name}); err != nil {
			return err
		}
		old, err := s.scheduleIf(ctx, session, StmtScheduleLock, d.row.Name)
		if err != nil {
			return err
		}
		put := *d.row
		col := *d.row.sched()
		put.schedule, put.Now = &col, s.clock().UnixMilli()
		if old != nil {
			was := old.sched()
			if was.digest == col.digest {
				r = old
				return nil
			}
			if was.spec == col.spec && was.zone == col.zone {
				col.anchor, col.next = was.anchor, was.next
			} else if !was.next.IsZero() && !was.next.After(time.UnixMilli(old.Now)) && old.PausedAt.IsZero() {
				// These were due before the new ticks were thought of. A spec that cannot be read any more has
				// none.
				f, err := s.fire(ctx, session, old)
				if err != nil && !isBroken(err) {
					return err
				}
				queues = f.queues
				if !f.last.IsZero() {
					was.last = f.last
				}
			}
		}
		if col.anchor.IsZero() {
			now, err := s.scheduleNow(ctx, session)
			if err != nil {
				return err
			}
			col.anchor = now
			t, _, _, err := parseSpec(col.spec, col.zone, now)
			if err != nil {
				return err
			}
			after := now
			if old != nil && old.sched().last.After(after) {
				after = old.sched().last // the clock has been put back: nothing twice
			}
			col.next = t.next(after)
		}
		if err := session.Query(ctx, StmtSchedulePut, nil, &put); err != nil {
			return err
		}
		r, err = s.scheduleRow(ctx, session, StmtScheduleGet, d.row.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.wakeSchedules(queues)
	return infoOf(r), nil
}

func infoOrNil(r *Row) *ScheduleInfo {
	if r == nil {
		return nil
	}
	return infoOf(r)
}

// scheduleIf answers nil where there is no such schedule.
func (s *Store) scheduleIf(ctx context.Context, session Session, stmt Statement, name string) (*Row, error) {
	var r *Row
	err := session.Query(ctx, stmt, func(_ int, a *Row) error { r = a; return nil }, &Row{Task: Task{Name: name}, Now: s.clock().UnixMilli()})
	return r, err
}

// scheduleNow is the database's time, in its transaction.
func (s *Store) scheduleNow(ctx context.Context, session Session) (time.Time, error) {
	now, _, err := s.nextSchedule(ctx, session, nil)
	return now, err
}

// nextSchedule reads the database's time and the first tick of all schedules but some.
func (s *Store) nextSchedule(ctx context.Context, session Session, without []string) (now, next time.Time, err error) {
	in := &Row{Names: append([]string{}, without...), Now: s.clock().UnixMilli()}
	err = session.Query(ctx, StmtScheduleNext, func(_ int, a *Row) error {
		now, next = time.UnixMilli(a.Now), a.sched().next
		return nil
	}, in)
	return now, next, err
}

func (s *Store) pauseSchedule(ctx context.Context, name string, resume bool) (*ScheduleInfo, error) {
	var r *Row
	err := s.atomic(ctx, "pause schedule", func(session Session) error {
		old, err := s.scheduleRow(ctx, session, StmtScheduleLock, name)
		if err != nil {
			return err
		}
		r = old
		if old.PausedAt.IsZero() == resume {
			return nil // it is as wanted
		}
		in := &Row{Task: Task{Name: name}, Reset: resume, Now: s.clock().UnixMilli()}
		in.sched().next = old.sched().next
		if resume {
			t, _, _, err := parseSpec(old.sched().spec, old.sched().zone, old.sched().anchor)
			if err != nil {
				return fmt.Errorf("holdfast: schedule %s: %w", strconv.Quote(name), err)
			}
			after := time.UnixMilli(old.Now)
			if old.sched().last.After(after) {
				after = old.sched().last
			}
			in.sched().next = t.next(after)
		}
		if err := session.Query(ctx, StmtSchedulePause, nil, in); err != nil {
			return err
		}
		r, err = s.scheduleRow(ctx, session, StmtScheduleGet, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.wakeSchedules(nil)
	return infoOf(r), nil
}

func (s *Store) runSchedule(ctx context.Context, name string) (*Task, error) {
	r, err := s.scheduleRow(ctx, s.session, StmtScheduleGet, name)
	if err != nil {
		return nil, err
	}
	sub, err := submissionOf(r, tickRecord{Schedule: name, AtMS: r.Now, Manual: true})
	if err != nil {
		return nil, err
	}
	return s.Submit(ctx, sub)
}

func (s *Store) dropSchedule(ctx context.Context, name string) error {
	if err := checkText("schedule name", name, true); err != nil {
		return err
	}
	found := false
	if err := s.query(ctx, StmtScheduleDrop, func(int, *Row) error { found = true; return nil }, &Row{Task: Task{Name: name}}); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("holdfast: schedule %s: %w", strconv.Quote(name), ErrNoSchedule)
	}
	s.wakeSchedules(nil)
	return nil
}

// wakeSchedules tells this process's drivers that a schedule has changed, and workers that the queues
// have something.
func (s *Store) wakeSchedules(queues []string) {
	if s.inTx {
		return
	}
	for _, q := range queues {
		s.wakeQueue(q)
	}
	s.dialect.Hub().schedules.wake()
}

// submissionOf makes the submission of one tick.
func submissionOf(r *Row, tick tickRecord) (*Submission, error) {
	var o scheduleOptions
	if err := json.Unmarshal(r.sched().options, &o); err != nil {
		return nil, &NotJSONError{Field: "options", Err: err}
	}
	metadata, err := withTick(o.Metadata, tick)
	if err != nil {
		return nil, err
	}
	return &Submission{
		Name: r.sched().task, Queue: r.Queue, Payload: r.Payload, Metadata: metadata, MaxAttempts: o.MaxAttempts, Priority: o.Priority,
		Delay: time.Duration(o.DelayMS) * time.Millisecond, Key: o.Key, Strategy: o.Strategy, CorrelationID: o.CorrelationID,
	}, nil
}
