package storetest

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/eda94727/holdfast"
)

// model is what the task protocol says the database holds. It is written as plainly as the protocol
// is, and shares nothing with the store but the names.
type model struct {
	tasks map[string]*modelTask
	keys  map[string]string // key → id of its present task
	// The bounds that all workers share: how many tasks of a queue or name run at once, and pauses.
	queueLimits, nameLimits map[string]int
	paused                  map[string]bool
}

// stamp is a time that the database wrote: at some moment between lo and hi. Once it has been read it
// is known exactly. The zero stamp is null.
type stamp struct{ lo, hi int64 }

func (s stamp) plus(d time.Duration) stamp {
	if s == (stamp{}) {
		return s
	}
	return stamp{s.lo + d.Milliseconds(), s.hi + d.Milliseconds()}
}

// reached tells whether the moment is over at now. Steps of time are so much longer than a test that
// it can always be told.
func (s stamp) reached(now stamp) bool { return s.hi <= now.lo }

type modelTask struct {
	id, name, queue, worker, message, result, err   string
	status                                          holdfast.Status
	attempt, max, priority                          int
	progress                                        float64 // -1 is null
	lease, run, cancel, created, updated, completed stamp
}

func newModel() *model {
	return &model{tasks: map[string]*modelTask{}, keys: map[string]string{}, queueLimits: map[string]int{}, nameLimits: map[string]int{}, paused: map[string]bool{}}
}

// shift is for databases whose rows' times move when time passes.
func (m *model) shift(d time.Duration) {
	for _, t := range m.tasks {
		for _, s := range []*stamp{&t.lease, &t.run, &t.cancel, &t.created, &t.updated, &t.completed} {
			*s = s.plus(-d)
		}
	}
}

// submit adds the task that a submit answered as new.
func (m *model) submit(id string, sub *holdfast.Submission, now stamp) {
	m.tasks[id] = &modelTask{
		id: id, name: sub.Name, queue: sub.Queue, status: holdfast.Queued, max: sub.MaxAttempts, priority: sub.Priority,
		progress: -1, run: now.plus(sub.Delay), created: now, updated: now,
	}
	if sub.Key != "" {
		m.keys[sub.Key] = id
	}
}

// keyDecision is what the protocol's table of strategies says.
type keyDecision int

const (
	makeNew keyDecision = iota
	keepOld
	rejectNew
	replaceOld
)

func (m *model) decide(key string, s holdfast.Strategy) (keyDecision, *modelTask) {
	t := m.tasks[m.keys[key]]
	if key == "" || t == nil {
		return makeNew, nil
	}
	live := t.status == holdfast.Queued || t.status == holdfast.Running
	switch {
	case s == holdfast.Reject:
		return rejectNew, t
	case s == holdfast.Reuse || s == "", s == holdfast.ReuseLive && live, s == holdfast.ReuseSucceeded && (live || t.status == holdfast.Succeeded):
		return keepOld, t
	case s == holdfast.Replace && live:
		return replaceOld, t
	}
	return makeNew, t
}

// out ends the running state: cancel wins, unless the task succeeded come what may.
func (t *modelTask) out(to holdfast.Status, now stamp) {
	t.lease, t.updated = stamp{}, now
	if t.cancel != (stamp{}) && to != holdfast.Succeeded {
		to = holdfast.Canceled
	}
	t.status = to
	if to == holdfast.Queued {
		t.worker, t.message, t.progress = "", "", -1
		return
	}
	t.completed = now
}

func (m *model) recover(now stamp, record string) (recovered map[string]holdfast.Status) {
	recovered = map[string]holdfast.Status{}
	for _, t := range m.tasks {
		if t.status != holdfast.Running || !t.lease.reached(now) {
			continue
		}
		if t.attempt < t.max {
			if t.out(holdfast.Queued, now); t.status == holdfast.Queued {
				t.run = now
			}
		} else if t.out(holdfast.Failed, now); t.status == holdfast.Failed {
			t.err = record
		}
		recovered[t.id] = t.status
	}
	return recovered
}

func (m *model) claim(c holdfast.Claim, now stamp) (ids []string) {
	ids = []string{}
	for _, d := range c.Draws {
		var list []*modelTask
		for _, t := range m.tasks {
			due := t.run.reached(now) || t.run == now // recovered by this very claim
			if t.status == holdfast.Queued && due && slices.Contains(c.Queues, t.queue) && (d.AnyName || slices.Contains(d.Names, t.name)) {
				list = append(list, t)
			}
		}
		slices.SortFunc(list, func(a, b *modelTask) int {
			return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.run.lo, b.run.lo), cmp.Compare(a.id, b.id))
		})
		taken := 0
		for _, t := range list {
			if taken == d.Limit {
				break
			}
			if !m.room(t) {
				continue // and holds nobody else up
			}
			taken++
			t.status, t.worker, t.lease, t.updated = holdfast.Running, c.WorkerID, now.plus(c.Lease), now
			t.attempt++
			ids = append(ids, t.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// room tells whether the limits and pauses let the task start.
func (m *model) room(t *modelTask) bool {
	ofQueue, ofName := 0, 0
	for _, other := range m.tasks {
		if other.status == holdfast.Running {
			if other.queue == t.queue {
				ofQueue++
			}
			if other.name == t.name {
				ofName++
			}
		}
	}
	q, limitedQueue := m.queueLimits[t.queue]
	n, limitedName := m.nameLimits[t.name]
	return !m.paused[t.queue] && (!limitedQueue || ofQueue < q) && (!limitedName || ofName < n)
}

// owned answers the task if the worker holds it under a live lease.
func (m *model) owned(id, worker string, now stamp) *modelTask {
	t := m.tasks[id]
	if t == nil || t.status != holdfast.Running || t.worker != worker || t.lease.reached(now) {
		return nil
	}
	return t
}

func (t *modelTask) succeed(result string, now stamp) {
	t.out(holdfast.Succeeded, now)
	t.result, t.progress = result, 1
}

func (t *modelTask) complete(result string, now stamp) {
	if t.cancel != (stamp{}) {
		t.out(holdfast.Canceled, now)
		return
	}
	t.succeed(result, now)
}

func (t *modelTask) fail(record string, retryable bool, delay time.Duration, now stamp) {
	t.err = record
	if !retryable || t.attempt >= t.max {
		t.out(holdfast.Failed, now)
	} else if t.out(holdfast.Queued, now); t.status == holdfast.Queued {
		t.run = now.plus(delay)
	}
}

func (t *modelTask) release(delay time.Duration, now stamp) {
	if t.out(holdfast.Queued, now); t.status == holdfast.Queued {
		t.attempt = max(t.attempt-1, 0)
		if delay > 0 {
			t.run = now.plus(delay)
		}
	}
}

// askToStop is a cancel; it tells whether it did anything.
func (t *modelTask) askToStop(now stamp) bool {
	switch t.status {
	case holdfast.Queued:
		t.status, t.completed = holdfast.Canceled, now
	case holdfast.Running:
		t.cancel = now
	default:
		return false
	}
	t.updated = now
	return true
}

func (t *modelTask) retry(reset bool, now stamp) bool {
	if t.status != holdfast.Failed && t.status != holdfast.Canceled {
		return false
	}
	if reset {
		t.attempt = 0
	}
	t.status, t.run, t.updated = holdfast.Queued, now, now
	t.err, t.worker, t.message, t.progress = "", "", "", -1
	t.lease, t.cancel, t.completed = stamp{}, stamp{}, stamp{}
	return true
}

// purgeable lists the ended tasks that the filter selects, oldest first.
func (m *model) purgeable(f holdfast.PurgeFilter, now stamp) (list []*modelTask) {
	limit := now.plus(-f.OlderThan)
	for _, t := range m.tasks {
		if t.status.Terminal() && t.completed.hi < limit.lo && (f.Queue == "" || f.Queue == t.queue) && (f.Name == "" || f.Name == t.name) && (f.Status == "" || f.Status == t.status) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *modelTask) int { return cmp.Compare(a.completed.lo, b.completed.lo) })
	return list
}

func (m *model) remove(id string) {
	delete(m.tasks, id)
	for key, of := range m.keys {
		if of == id {
			delete(m.keys, key)
		}
	}
}

// compare fails unless the row is what the model says, and takes over the times that the row has.
func (t *modelTask) compare(x *test, got *holdfast.Task) {
	x.Helper()
	progress := -1.0
	if got.Progress != nil {
		progress = *got.Progress
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"name", got.Name, t.name}, {"queue", got.Queue, t.queue}, {"status", got.Status, t.status}, {"attempt", got.Attempt, t.attempt}, {"max_attempts", got.MaxAttempts, t.max},
		{"priority", got.Priority, t.priority}, {"worker_id", got.WorkerID, t.worker}, {"message", got.Message, t.message}, {"progress", progress, t.progress},
		{"result", normal(got.Result), normal(json.RawMessage(t.result))}, {"error", normal(got.Error), normal(json.RawMessage(t.err))},
	} {
		if c.got != c.want {
			x.Fatalf("%s: %s is %v, the model says %v", t.id, c.what, c.got, c.want)
		}
	}
	for _, c := range []struct {
		what string
		got  time.Time
		want *stamp
	}{
		{"lease_until", got.LeaseUntil, &t.lease}, {"run_at", got.RunAt, &t.run}, {"cancel_requested_at", got.CancelRequestedAt, &t.cancel},
		{"created_at", got.CreatedAt, &t.created}, {"updated_at", got.UpdatedAt, &t.updated}, {"completed_at", got.CompletedAt, &t.completed},
	} {
		if c.got.IsZero() != (*c.want == stamp{}) {
			x.Fatalf("%s: %s is %v, the model says %v", t.id, c.what, c.got, *c.want)
		}
		if c.got.IsZero() {
			continue
		}
		ms := c.got.UnixMilli()
		if ms < c.want.lo || ms > c.want.hi {
			x.Fatalf("%s: %s is %d, the model says between %d and %d", t.id, c.what, ms, c.want.lo, c.want.hi)
		}
		*c.want = stamp{ms, ms}
	}
}

// normal is JSON without the spacing and order that a database may change.
func normal(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	v, err := parseExact(raw)
	if err != nil {
		return string(raw)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(out)
}
