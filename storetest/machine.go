package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eda94727/holdfast"
)

// runModel runs random operations on the store and on the model, and compares them after each.
func runModel(t *testing.T, open func(t testing.TB) *Database) {
	db := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{test: &test{TB: checkTB{t, rt}, Database: db, ctx: t.Context(), s: db.Store}, rt: rt, model: newModel()}
		m.exec("delete from cairnq_task_keys")
		m.exec("delete from cairnq_tasks")
		m.exec("delete from holdfast_limits")
		rt.Repeat(map[string]func(*rapid.T){
			"":               m.compare,
			"submit":         m.submit,
			"submit many":    m.submitMany,
			"claim":          m.claim,
			"claim more":     m.claim, // twice, so that more tasks get on their way
			"heartbeat":      m.heartbeat,
			"progress":       m.progress,
			"finish":         m.finish,
			"fail":           m.fail,
			"release":        m.release,
			"release many":   m.releaseMany,
			"cancel":         m.cancel,
			"retry":          m.retry,
			"purge":          m.purge,
			"let time pass":  m.letPass,
			"limit":          m.limit,
			"pause":          m.pause,
			"read by others": m.read,
		})
		CheckInvariants(m, db.SQL)
	})
}

// checkTB is a test whose failures rapid sees, so that it can look for a shorter way to them.
type checkTB struct {
	testing.TB
	rt *rapid.T
}

func (c checkTB) Helper()                      { c.rt.Helper() }
func (c checkTB) Log(args ...any)              { c.rt.Log(args...) }
func (c checkTB) Logf(f string, args ...any)   { c.rt.Logf(f, args...) }
func (c checkTB) Error(args ...any)            { c.rt.Error(args...) }
func (c checkTB) Errorf(f string, args ...any) { c.rt.Errorf(f, args...) }
func (c checkTB) Fatal(args ...any)            { c.rt.Fatal(args...) }
func (c checkTB) Fatalf(f string, args ...any) { c.rt.Fatalf(f, args...) }
func (c checkTB) FailNow()                     { c.rt.FailNow() }
func (c checkTB) Fail()                        { c.rt.Fail() }
func (c checkTB) Failed() bool                 { return c.rt.Failed() }

// machine drives the store and the model.
type machine struct {
	*test
	rt    *rapid.T
	model *model
}

// The values that operations draw from. Few, so that they meet; and times that are told apart by
// half hours at least, so that the time which a test takes makes no difference.
var (
	drawQueue    = rapid.SampledFrom([]string{"q1", "q2"})
	drawName     = rapid.SampledFrom([]string{"a", "b", "c"})
	drawWorker   = rapid.SampledFrom([]string{"w1", "w2"})
	drawKey      = rapid.SampledFrom([]string{"", "", "k1", "k2", "k3"})
	drawStrategy = rapid.SampledFrom([]holdfast.Strategy{"", holdfast.Reuse, holdfast.ReuseLive, holdfast.ReuseSucceeded, holdfast.Replace, holdfast.Replace, holdfast.Reject})
	drawDelay    = rapid.SampledFrom([]time.Duration{0, 0, 0, time.Hour, 2 * time.Hour})
	drawLease    = rapid.SampledFrom([]time.Duration{time.Hour, 3 * time.Hour})
	drawPass     = rapid.SampledFrom([]time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour})
	drawAge      = rapid.SampledFrom([]time.Duration{15 * time.Minute, 75 * time.Minute, 3*time.Hour + 15*time.Minute})
	drawJSON     = rapid.SampledFrom([]string{`{"n":1}`, `[]`, `"text"`, `9007199254740993`, `{"a":{"b":null}}`})
	drawStatus   = rapid.SampledFrom([]holdfast.Status{"", "", holdfast.Succeeded, holdfast.Failed, holdfast.Canceled})
)

// during runs an operation and answers the window of time in which the database saw it.
func (m *machine) during(op func() error) (stamp, error) {
	before, err := m.s.Now(m.ctx)
	m.must(err)
	failed := op()
	after, err := m.s.Now(m.ctx)
	m.must(err)
	return stamp{before.UnixMilli(), after.UnixMilli()}, failed
}

// pick draws one of the tasks, or one that is not there.
func (m *machine) pick(rt *rapid.T) string {
	ids := []string{"task_00000000000000000000000000"}
	for id := range m.model.tasks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[rapid.IntRange(0, len(ids)-1).Draw(rt, "task")]
}

// pickOwn draws a running task with its worker more often than another.
func (m *machine) pickOwn(rt *rapid.T) *holdfast.Task {
	var running []string
	for id, t := range m.model.tasks {
		if t.status == holdfast.Running {
			running = append(running, id)
		}
	}
	slices.Sort(running)
	if len(running) == 0 || rapid.IntRange(0, 4).Draw(rt, "any") == 0 {
		return &holdfast.Task{ID: m.pick(rt), WorkerID: drawWorker.Draw(rt, "worker")}
	}
	id := running[rapid.IntRange(0, len(running)-1).Draw(rt, "running task")]
	return &holdfast.Task{ID: id, WorkerID: m.model.tasks[id].worker}
}

func (m *machine) drawSubmission(rt *rapid.T) *holdfast.Submission {
	s := &holdfast.Submission{
		Name: drawName.Draw(rt, "name"), Queue: drawQueue.Draw(rt, "queue"), Key: drawKey.Draw(rt, "key"), Priority: rapid.IntRange(-1, 1).Draw(rt, "priority"),
		MaxAttempts: rapid.IntRange(1, 3).Draw(rt, "max_attempts"), Delay: drawDelay.Draw(rt, "delay"),
	}
	if s.Key != "" {
		s.Strategy = drawStrategy.Draw(rt, "strategy")
	}
	return s
}

func (m *machine) submit(rt *rapid.T) { m.submitAll(m.drawSubmission(rt)) }

func (m *machine) submitMany(rt *rapid.T) {
	subs := make([]*holdfast.Submission, rapid.IntRange(2, 5).Draw(rt, "submissions"))
	for i := range subs {
		subs[i] = m.drawSubmission(rt)
	}
	m.submitAll(subs...)
}

func (m *machine) submitAll(subs ...*holdfast.Submission) {
	var got []*holdfast.Task
	now, err := m.during(func() (err error) {
		if len(subs) > 1 {
			got, err = m.s.SubmitMany(m.ctx, subs)
			return err
		}
		t, err := m.s.Submit(m.ctx, subs[0])
		got = []*holdfast.Task{t}
		return err
	})
	// One by one on the model; all or nothing, so a rejection takes the others back.
	undo := m.model.clone()
	for i, sub := range subs {
		what, old := m.model.decide(sub.Key, sub.Strategy)
		if what == rejectNew {
			m.model = undo
			var e *holdfast.AlreadyExistsError
			if !errors.As(err, &e) {
				m.Fatalf("submission %d: the error is %v, want that %s has the key", i, err, old.id)
			}
			return
		}
		if err != nil {
			continue // a later one may be the reason
		}
		if what == keepOld {
			is(m, "the task answered", got[i].ID, old.id)
			continue
		}
		if _, exists := m.model.tasks[got[i].ID]; exists {
			m.Fatalf("submission %d was answered by %s, want a new task", i, got[i].ID)
		}
		if what == replaceOld {
			old.askToStop(now)
		}
		m.model.submit(got[i].ID, sub, now)
	}
	if err != nil {
		// The ids of the tasks that were not made are unknown, so follow with made-up ones.
		m.model = undo
		m.mustReject(subs, err)
	}
}

// mustReject fails unless one of the submissions is to be rejected because of one before it.
func (m *machine) mustReject(subs []*holdfast.Submission, err error) {
	trial := m.model.clone()
	for i, sub := range subs {
		what, old := trial.decide(sub.Key, sub.Strategy)
		switch what {
		case rejectNew:
			errorIs(m, err, holdfast.ErrAlreadyExists)
			return
		case replaceOld:
			old.askToStop(stamp{1, 1})
			fallthrough
		case makeNew:
			trial.submit(fmt.Sprint("trial ", i), sub, stamp{1, 1})
		}
	}
	m.Fatalf("the submit failed: %v", err)
}

func (m *model) clone() *model {
	c := newModel()
	for id, t := range m.tasks {
		copied := *t
		c.tasks[id] = &copied
	}
	c.keys, c.queueLimits, c.nameLimits, c.paused = maps.Clone(m.keys), m.queueLimits, m.nameLimits, m.paused // submits change no limits
	return c
}

// expired is what recovery writes; the texts are the protocol's.
const expired = `{"type":"LeaseExpired","code":"lease_expired","message":"task lease expired and max attempts reached","retryable":false,"details":{}}`

func (m *machine) claim(rt *rapid.T) {
	c := holdfast.Claim{
		WorkerID: drawWorker.Draw(rt, "worker"), Lease: drawLease.Draw(rt, "lease"),
		Queues: rapid.SampledFrom([][]string{{"q1"}, {"q2"}, {"q1", "q2"}, {"q2", "none", "q1"}}).Draw(rt, "queues"),
	}
	for range rapid.IntRange(1, 3).Draw(rt, "draws") {
		d := holdfast.Draw{Limit: rapid.IntRange(0, 3).Draw(rt, "limit")}
		if d.AnyName = rapid.Bool().Draw(rt, "any name"); !d.AnyName {
			d.Names = rapid.SampledFrom([][]string{{"a"}, {"b", "c"}, {}, {"c", "a"}}).Draw(rt, "names")
		}
		c.Draws = append(c.Draws, d)
	}
	// The order of a claim hangs on milliseconds, so the times that are known only roughly are read.
	for id, t := range m.model.tasks {
		if t.run.lo != t.run.hi {
			task, err := m.s.Get(m.ctx, id)
			m.must(err)
			t.compare(m.test, task)
		}
	}
	var got *holdfast.Claimed
	now, err := m.during(func() (err error) { got, err = m.s.Claim(m.ctx, c); return err })
	m.must(err)
	wantRecovered := m.model.recover(now, expired)
	recovered := map[string]holdfast.Status{}
	for _, t := range got.Recovered {
		recovered[t.ID] = t.Status
	}
	is(m, "recovered", recovered, wantRecovered)
	is(m, "claimed", sorted(idsOf(got.Tasks)), m.model.claim(c, now))
	for _, t := range got.Tasks {
		m.model.tasks[t.ID].compare(m.test, t)
	}
}

func (m *machine) heartbeat(rt *rapid.T) {
	worker, extend := drawWorker.Draw(rt, "worker"), drawLease.Draw(rt, "lease")
	var ids []string
	for range rapid.IntRange(1, 4).Draw(rt, "ids") {
		if id := m.pick(rt); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var held []holdfast.Held
	now, err := m.during(func() (err error) { held, err = m.s.Heartbeat(m.ctx, worker, extend, ids...); return err })
	m.must(err)
	var got, want []string
	for _, h := range held {
		got = append(got, fmt.Sprint(h.ID, h.CancelRequested))
	}
	for _, id := range ids {
		if t := m.model.owned(id, worker, now); t != nil {
			t.lease, t.updated = now.plus(extend), now
			want = append(want, fmt.Sprint(id, t.cancel != stamp{}))
		}
	}
	is(m, "held", got, want)
}

// owned runs a worker's write on the store, and on the model if the worker holds the task.
func (m *machine) owned(own *holdfast.Task, write func() (holdfast.Status, error), change func(t *modelTask, now stamp)) {
	var status holdfast.Status
	now, err := m.during(func() (err error) { status, err = write(); return err })
	t := m.model.owned(own.ID, own.WorkerID, now)
	if t == nil {
		errorIs(m, err, holdfast.ErrLeaseLost)
		return
	}
	m.must(err)
	change(t, now)
	if status != "" {
		is(m, "the status answered", status, t.status)
	}
}

func (m *machine) progress(rt *rapid.T) {
	own := m.pickOwn(rt)
	var p *float64
	if rapid.Bool().Draw(rt, "with progress") {
		f := rapid.Float64Range(0, 1).Draw(rt, "progress")
		p = &f
	}
	message := rapid.SampledFrom([]string{"", "one", "two"}).Draw(rt, "message")
	m.owned(own, func() (holdfast.Status, error) { return "", m.s.Progress(m.ctx, own, p, message) }, func(t *modelTask, now stamp) {
		t.updated = now
		if p != nil {
			t.progress = *p
		}
		if message != "" {
			t.message = message
		}
	})
}

func (m *machine) finish(rt *rapid.T) {
	own, result := m.pickOwn(rt), drawJSON.Draw(rt, "result")
	if rapid.Bool().Draw(rt, "whatever was asked") {
		m.owned(own, func() (holdfast.Status, error) { return m.s.Succeed(m.ctx, own, json.RawMessage(result)) }, func(t *modelTask, now stamp) { t.succeed(result, now) })
		return
	}
	m.owned(own, func() (holdfast.Status, error) { return m.s.Complete(m.ctx, own, json.RawMessage(result)) }, func(t *modelTask, now stamp) { t.complete(result, now) })
}

func (m *machine) fail(rt *rapid.T) {
	own, record, retryable, delay := m.pickOwn(rt), drawJSON.Draw(rt, "error"), rapid.Bool().Draw(rt, "retryable"), drawDelay.Draw(rt, "delay")
	m.owned(own, func() (holdfast.Status, error) {
		return m.s.Fail(m.ctx, own, json.RawMessage(record), retryable, delay)
	}, func(t *modelTask, now stamp) { t.fail(record, retryable, delay, now) })
}

func (m *machine) release(rt *rapid.T) {
	own, delay := m.pickOwn(rt), drawDelay.Draw(rt, "delay")
	m.owned(own, func() (holdfast.Status, error) { return m.s.Release(m.ctx, own, delay) }, func(t *modelTask, now stamp) { t.release(delay, now) })
}

func (m *machine) releaseMany(rt *rapid.T) {
	var own []*holdfast.Task
	for range rapid.IntRange(1, 3).Draw(rt, "tasks") {
		if t := m.pickOwn(rt); !slices.ContainsFunc(own, func(o *holdfast.Task) bool { return o.ID == t.ID }) {
			own = append(own, t)
		}
	}
	var n int
	now, err := m.during(func() (err error) { n, err = m.s.ReleaseMany(m.ctx, own); return err })
	m.must(err)
	want := 0
	for _, o := range own {
		if t := m.model.owned(o.ID, o.WorkerID, now); t != nil {
			t.release(0, now)
			want++
		}
	}
	is(m, "released", n, want)
}

// change runs a cancel or retry, by id or by key.
func (m *machine) change(rt *rapid.T, byID func(id string) (*holdfast.Task, error), byKey func(key string) (*holdfast.Task, error), change func(t *modelTask, now stamp) bool) {
	var (
		id  string
		got *holdfast.Task
		now stamp
		err error
	)
	if key := drawKey.Draw(rt, "key"); key != "" {
		id = m.model.keys[key]
		now, err = m.during(func() (err error) { got, err = byKey(key); return err })
	} else {
		id = m.pick(rt)
		now, err = m.during(func() (err error) { got, err = byID(id); return err })
	}
	t := m.model.tasks[id]
	switch {
	case t == nil:
		errorIs(m, err, holdfast.ErrNotFound)
	case !change(t, now):
		errorIs(m, err, holdfast.ErrState)
	default:
		m.must(err)
		t.compare(m.test, got)
	}
}

func (m *machine) cancel(rt *rapid.T) {
	m.change(rt,
		func(id string) (*holdfast.Task, error) { return m.s.Cancel(m.ctx, id) },
		func(key string) (*holdfast.Task, error) { return m.s.CancelByKey(m.ctx, key) },
		func(t *modelTask, now stamp) bool { return t.askToStop(now) })
}

func (m *machine) retry(rt *rapid.T) {
	reset := rapid.Bool().Draw(rt, "reset")
	m.change(rt,
		func(id string) (*holdfast.Task, error) { return m.s.Retry(m.ctx, id, reset) },
		func(key string) (*holdfast.Task, error) { return m.s.RetryByKey(m.ctx, key, reset) },
		func(t *modelTask, now stamp) bool { return t.retry(reset, now) })
}

func (m *machine) purge(rt *rapid.T) {
	f := holdfast.PurgeFilter{OlderThan: drawAge.Draw(rt, "older than"), Status: drawStatus.Draw(rt, "status"), Limit: rapid.IntRange(1, 5).Draw(rt, "limit")}
	if rapid.Bool().Draw(rt, "one queue") {
		f.Queue = drawQueue.Draw(rt, "queue")
	}
	if rapid.IntRange(0, 3).Draw(rt, "one name") == 0 {
		f.Name = drawName.Draw(rt, "name")
	}
	var ids []string
	now, err := m.during(func() (err error) { ids, err = m.s.Purge(m.ctx, f); return err })
	m.must(err)
	list := m.model.purgeable(f, now)
	is(m, "the number of purged tasks", len(ids), min(len(list), f.Limit))
	if len(ids) == 0 {
		return
	}
	// Of those that ended at the same time any may go, but none that ended later.
	last := list[len(ids)-1].completed.lo
	for _, id := range ids {
		t := m.model.tasks[id]
		if !slices.Contains(list, t) || t.completed.lo > last {
			m.Fatalf("%s was purged out of turn", id)
		}
		m.model.remove(id)
	}
}

func (m *machine) letPass(rt *rapid.T) {
	d := drawPass.Draw(rt, "for")
	m.pass(d)
	if m.Advance == nil {
		m.model.shift(d)
	}
}

func (m *machine) limit(rt *rapid.T) {
	l := holdfast.Limit{Kind: holdfast.LimitQueue, Concurrency: rapid.IntRange(0, 3).Draw(rt, "concurrency")}
	set := m.model.queueLimits
	if l.Name = drawQueue.Draw(rt, "queue"); rapid.Bool().Draw(rt, "of a name") {
		l.Kind, l.Name, set = holdfast.LimitName, drawName.Draw(rt, "name"), m.model.nameLimits
	}
	m.must(m.s.SetLimit(m.ctx, l))
	if set[l.Name] = l.Concurrency; l.Concurrency == 0 {
		delete(set, l.Name)
	}
}

func (m *machine) pause(rt *rapid.T) {
	queue := drawQueue.Draw(rt, "queue")
	if m.model.paused[queue] {
		m.must(m.s.ResumeQueue(m.ctx, queue))
	} else {
		m.must(m.s.PauseQueue(m.ctx, queue))
	}
	m.model.paused[queue] = !m.model.paused[queue]
}

// read compares what the store answers about queues with the model.
func (m *machine) read(rt *rapid.T) {
	queue := drawQueue.Draw(rt, "queue")
	want := holdfast.QueueStats{Queue: queue}
	for _, t := range m.model.tasks {
		if t.queue == queue {
			*map[holdfast.Status]*int64{holdfast.Queued: &want.Queued, holdfast.Running: &want.Running, holdfast.Succeeded: &want.Succeeded,
				holdfast.Failed: &want.Failed, holdfast.Canceled: &want.Canceled}[t.status]++
		}
	}
	stats, err := m.s.Stats(m.ctx, queue)
	m.must(err)
	is(m, "the stats", stats, []holdfast.QueueStats{want})
	room, err := m.s.QueueDepth(m.ctx, queue, 3)
	m.must(err)
	is(m, "the room", room, max(0, 3-int(want.Queued)))
}

// compare runs after every operation: all rows and keys are what the model says.
func (m *machine) compare(*rapid.T) {
	list, err := m.s.List(m.ctx, holdfast.Filter{Limit: 1000})
	m.must(err)
	if len(list) != len(m.model.tasks) {
		m.Fatalf("there are %d tasks, the model has %d", len(list), len(m.model.tasks))
	}
	for i, got := range list {
		t := m.model.tasks[got.ID]
		if t == nil {
			m.Fatalf("%s is not in the model", got.ID)
		}
		t.compare(m.test, got)
		if i > 0 && (got.CreatedAt.After(list[i-1].CreatedAt) || got.CreatedAt.Equal(list[i-1].CreatedAt) && got.ID > list[i-1].ID) {
			m.Fatalf("the list is not newest first: %s after %s", got.ID, list[i-1].ID)
		}
	}
	for _, key := range []string{"k1", "k2", "k3"} {
		got, err := m.s.StatusByKey(m.ctx, key)
		if id, ok := m.model.keys[key]; ok {
			m.must(err)
			is(m, "the task of "+key, got.ID, id)
		} else {
			errorIs(m, err, holdfast.ErrNotFound)
		}
	}
}
