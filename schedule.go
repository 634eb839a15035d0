package holdfast

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrNoSchedule: no schedule has this name.
var ErrNoSchedule = errors.New("no such schedule")

// Schedule says that a task is to be submitted again and again, or at certain times. Declare it with
// WorkerConfig.Schedules, SchedulerConfig.Schedules or Client.PutSchedule: it is kept in the database
// under its name, and each of its ticks submits the task once, however many programs declare it.
//
// A declaration that says what the database has already writes nothing; otherwise the last one wins.
// A new Spec, Zone or Times means new ticks from now on; those that were due before are submitted first.
type Schedule struct {
	// Name is the schedule's own, at most 255 bytes, unique in the database.
	Name string
	// Spec is a cron expression of five fields (minute, hour, day of month, month, day of week) or six
	// (seconds first), or @yearly, @monthly, @weekly, @daily, @hourly, or "@every 10m" (at least 1 s), or
	// "@at " and times in RFC 3339. As in crontab, a day of month and a day of week that are both given
	// mean either. CRON_TZ=Europe/Berlin before it names the zone.
	//
	// A time of day that the zone's clocks jump over is a tick at the moment of the jump; one that comes
	// twice is a tick the first time only, except in expressions that name every hour, which go on in
	// the hour that comes again. @every counts from when it was first declared, and knows no zone.
	Spec string
	// Zone is a name of the IANA database, for Spec; UTC if empty. It can also be told in Spec.
	Zone string
	// Times are fixed times instead of a Spec, at most 1000; those that have passed when the schedule is
	// declared are no ticks.
	Times []time.Time

	// Task is the name of the task to submit, Payload its input, Options as for Client.Submit. With
	// Key(k, ReuseLive) a tick does nothing while the task of the tick before is queued or running.
	// Metadata must be an object; the tick is added to it (see TickOf).
	Task    string
	Payload any
	Options []SubmitOption

	// Missed says what becomes of ticks that nobody submitted in time; MissedOnce if empty.
	Missed MissedPolicy
	// Bound is the n of MissedBounded, 1 to 1000.
	Bound int
	// Grace is how late a tick may be without counting as missed: 1 min if 0, at most 24 h.
	Grace time.Duration
}

// MissedPolicy says what becomes of ticks that are later than the schedule's Grace, because nothing
// was running or the clock went forward.
type MissedPolicy string

const (
	// MissedOnce submits one task for all ticks that are due, with the time of the last. The default.
	MissedOnce MissedPolicy = "once"
	// MissedSkip drops the missed ticks.
	MissedSkip MissedPolicy = "skip"
	// MissedAll submits every one, in order.
	MissedAll MissedPolicy = "all"
	// MissedBounded submits the last Bound of the ticks that are due.
	MissedBounded MissedPolicy = "bounded"
)

const (
	defaultGrace = time.Minute
	maxGrace     = 24 * time.Hour
	maxBound     = 1000
)

// Schedule makes a schedule of the definition's tasks, with its defaults. Fill in the rest, such as
// Zone and Missed, before it is declared.
func (d Definition[In, Out]) Schedule(name, spec string, in In, options ...SubmitOption) Schedule {
	i := d.Item(in, options...)
	return Schedule{Name: name, Spec: spec, Task: i.name, Payload: i.payload, Options: i.options}
}

// ScheduleInfo is a schedule as the database has it.
type ScheduleInfo struct {
	// Name is unique in the database.
	Name string
	Spec string // "@at …" for Times; without its zone
	Zone string
	// Task is the name of the tasks.
	Task string
	// Queue and Payload are those of the tasks.
	Queue   string
	Payload json.RawMessage
	// Options are the other ones given, as a JSON object: metadata, max_attempts, priority, delay_ms, key,
	// strategy, correlation_id.
	Options json.RawMessage
	// Missed, Bound and Grace are as declared.
	Missed MissedPolicy
	Bound  int // of MissedBounded, else 0
	Grace  time.Duration
	// Next is the next tick: zero when none is left. While the schedule is paused it does not come.
	Next time.Time
	// Last is the last tick that was submitted, and LastTask the id of its task; zero if none was.
	Last     time.Time
	LastTask string
	// PausedAt is zero unless the schedule is paused.
	PausedAt time.Time
	// CreatedAt is when it was first declared.
	CreatedAt time.Time
	UpdatedAt time.Time // when it was declared anew, paused or resumed
}

// MarshalJSON writes the schedule under the names of the columns, times as epoch milliseconds.
func (s *ScheduleInfo) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name      string          `json:"name"`
		Spec      string          `json:"spec"`
		Zone      string          `json:"zone"`
		Task      string          `json:"task"`
		Queue     string          `json:"queue"`
		Payload   json.RawMessage `json:"payload"`
		Options   json.RawMessage `json:"options"`
		Missed    MissedPolicy    `json:"missed"`
		Bound     int             `json:"bound"`
		Grace     int64           `json:"grace_ms"`
		Next      *int64          `json:"next_at_ms"`
		Last      *int64          `json:"last_at_ms"`
		LastTask  *string         `json:"last_task"`
		PausedAt  *int64          `json:"paused_at_ms"`
		CreatedAt int64           `json:"created_at_ms"`
		UpdatedAt int64           `json:"updated_at_ms"`
	}{
		s.Name, s.Spec, s.Zone, s.Task, s.Queue, s.Payload, s.Options, s.Missed, s.Bound, s.Grace.Milliseconds(),
		optionalMS(s.Next), optionalMS(s.Last), optional(s.LastTask), optionalMS(s.PausedAt), s.CreatedAt.UnixMilli(), s.UpdatedAt.UnixMilli(),
	})
}

// scheduleOptions is the column options.
type scheduleOptions struct {
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	MaxAttempts   int             `json:"max_attempts,omitempty"`
	Priority      int             `json:"priority,omitempty"`
	DelayMS       int64           `json:"delay_ms,omitempty"`
	Key           string          `json:"key,omitempty"`
	Strategy      Strategy        `json:"strategy,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
}

// scheduleColumns are the fields of Row that only schedules have.
type scheduleColumns struct {
	spec, zone, task, missed, lastTask, digest string
	options                                    json.RawMessage
	bound, graceMS                             int64
	anchor, next, last                         time.Time
}

func (r *Row) sched() *scheduleColumns {
	if r.schedule == nil {
		r.schedule = &scheduleColumns{}
	}
	return r.schedule
}

func (r *Row) scheduleAt(c Column) (field any, nullable bool) {
	s := r.sched()
	switch c {
	case colSpec:
		return &s.spec, false
	case colZone:
		return &s.zone, false
	case colTask:
		return &s.task, false
	case colOptions:
		return &s.options, false
	case colMissed:
		return &s.missed, false
	case colBound:
		return &s.bound, false
	case colGraceMs:
		return &s.graceMS, false
	case colAnchorMs:
		return &s.anchor, false
	case colNextAtMs:
		return &s.next, true
	case colLastAtMs:
		return &s.last, true
	case colLastTask:
		return &s.lastTask, true
	}
	return &s.digest, false
}

func infoOf(r *Row) *ScheduleInfo {
	s := r.sched()
	return &ScheduleInfo{
		Name: r.Name, Spec: s.spec, Zone: s.zone, Task: s.task, Queue: r.Queue, Payload: r.Payload, Options: s.options,
		Missed: MissedPolicy(s.missed), Bound: int(s.bound), Grace: time.Duration(s.graceMS) * time.Millisecond,
		Next: s.next, Last: s.last, LastTask: s.lastTask, PausedAt: r.PausedAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}

// declaration is a checked Schedule: its row, but for the times that only the database knows.
type declaration struct {
	row *Row
}

// declare checks everything that can be checked without the database.
func (c *Client) declare(s Schedule) (*declaration, error) {
	if c.refused != nil {
		return nil, c.refused
	}
	if err := checkText("schedule name", s.Name, true); err != nil {
		return nil, err
	}
	if err := checkText("task", s.Task, true); err != nil {
		return nil, err
	}
	spec, zone := s.Spec, s.Zone
	switch {
	case s.Times != nil && spec != "":
		return nil, invalid("times", len(s.Times), "and a spec are both given; give one of them, such as Spec: \"0 9 * * *\"")
	case s.Times != nil:
		var err error
		if spec, err = timesSpec(s.Times); err != nil {
			return nil, err
		}
	}
	_, spec, zone, err := parseSpec(spec, zone, time.Time{})
	if err != nil {
		return nil, err
	}
	missed := cmp.Or(s.Missed, MissedOnce)
	switch missed {
	case MissedOnce, MissedSkip, MissedAll:
		if s.Bound != 0 {
			return nil, invalid("bound", s.Bound, "has nothing to bound; use it with Missed: MissedBounded")
		}
	case MissedBounded:
		if s.Bound < 1 || s.Bound > maxBound {
			return nil, invalid("bound", s.Bound, "is not between 1 and 1000; say how many missed ticks are to be made up for, such as 3")
		}
	default:
		return nil, invalid("missed", string(missed), "is unknown; use once, skip, all or bounded")
	}
	if s.Grace < 0 || s.Grace > maxGrace {
		return nil, invalid("grace", s.Grace, "is not between 0 (which means 1m) and 24h")
	}
	sub, err := Item{s.Task, s.Payload, s.Options}.build(c.limit, c.options)
	if err != nil {
		return nil, err
	}
	if sub.ParentID != "" || sub.RootID != "" {
		return nil, invalid("parent_id", sub.ParentID, "cannot be given to a schedule: its ticks outlive the tree; leave Parent out")
	}
	if sub.As != "" || len(sub.After) > 0 || len(sub.AfterFinished) > 0 {
		return nil, invalid("after", sub.As, "and As place a task among others of one submit, which a schedule's ticks have not; leave them out, such as Options: nil")
	}
	if _, err := withTick(sub.Metadata, tickRecord{}); err != nil {
		return nil, err
	}
	checked, err := c.store.row(sub, time.Now())
	if err != nil {
		return nil, err
	}
	options, err := json.Marshal(scheduleOptions{sub.Metadata, sub.MaxAttempts, sub.Priority, sub.Delay.Milliseconds(), sub.Key, sub.Strategy, sub.CorrelationID})
	if err != nil {
		return nil, &NotJSONError{Field: "metadata", Err: err}
	}
	r := &Row{}
	r.Name, r.Queue, r.Payload = s.Name, checked.Queue, checked.Payload
	col := r.sched()
	col.spec, col.zone, col.task, col.options, col.missed, col.bound = spec, zone, s.Task, options, string(missed), int64(s.Bound)
	col.graceMS = cmp.Or(s.Grace, defaultGrace).Milliseconds()
	// Postgres keeps the meaning of JSON, not its bytes, so the bytes are compared by this.
	sum := sha256.New()
	for _, part := range []any{col.spec, col.zone, col.task, r.Queue, string(r.Payload), string(options), col.missed, col.bound, col.graceMS} {
		text := fmt.Sprint(part)
		fmt.Fprintf(sum, "%d:%s", len(text), text)
	}
	col.digest = hex.EncodeToString(sum.Sum(nil)[:16])
	return &declaration{r}, nil
}

// PutSchedule declares a schedule and answers how the database has it now; what is paused stays paused.
// Bad declarations are refused with an InvalidError. Some program with a Worker or Scheduler that
// drives schedules has to run, or it never comes to anything.
func (c *Client) PutSchedule(ctx context.Context, s Schedule) (*ScheduleInfo, error) {
	d, err := c.declare(s)
	if err != nil {
		return nil, err
	}
	return c.store.putSchedule(ctx, d)
}

// GetSchedule reads a schedule. The error is ErrNoSchedule when there is none of that name.
func (c *Client) GetSchedule(ctx context.Context, name string) (*ScheduleInfo, error) {
	r, err := c.store.scheduleRow(ctx, c.store.session, StmtScheduleGet, name)
	if err != nil {
		return nil, err
	}
	return infoOf(r), nil
}

// Schedules reads all schedules, by name.
func (c *Client) Schedules(ctx context.Context) ([]*ScheduleInfo, error) {
	list := []*ScheduleInfo{}
	err := c.store.query(ctx, StmtScheduleList, func(_ int, a *Row) error { list = append(list, infoOf(a)); return nil }, &Row{})
	return list, err
}

// PauseSchedule stops a schedule's ticks, in all programs, until ResumeSchedule. Ticks that pass
// meanwhile are not missed but left out. A declaration does not resume it.
func (c *Client) PauseSchedule(ctx context.Context, name string) (*ScheduleInfo, error) {
	return c.store.pauseSchedule(ctx, name, false)
}

// ResumeSchedule lets a paused schedule's ticks come again, from now on.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (*ScheduleInfo, error) {
	return c.store.pauseSchedule(ctx, name, true)
}

// RunSchedule submits the schedule's task now, beside its ticks and also while it is paused. It moves
// no tick. The task's Tick says Manual.
func (c *Client) RunSchedule(ctx context.Context, name string) (*Task, error) {
	return c.store.runSchedule(ctx, name)
}

// DeleteSchedule deletes a schedule; tasks that it submitted stay. A program that declares it makes it
// anew at its next start.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	return c.store.dropSchedule(ctx, name)
}
