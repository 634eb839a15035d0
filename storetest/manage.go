package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/eda94727/holdfast"
)

// badState fails unless err says that the task's status forbids the operation.
func (x *test) badState(err error, id string, status holdfast.Status) {
	x.Helper()
	var e *holdfast.StateError
	if !errors.Is(err, holdfast.ErrState) || !errors.As(err, &e) || e.TaskID != id || e.Status != status {
		x.Fatalf("the error is %v, want that %s is %s", err, id, status)
	}
}

var cancelRules = []rule{
	{"a queued task is canceled at once", func(x *test) {
		was := x.submit(holdfast.Submission{Delay: time.Hour})
		x.pass(later)
		got, err := x.s.Cancel(x.ctx, was.ID)
		x.must(err)
		same(x, "the answer", got, x.get(was.ID))
		x.after(was, func(t *holdfast.Task) { t.Status, t.CompletedAt = holdfast.Canceled, t.UpdatedAt })
		x.pass(2 * time.Hour)
		is(x, "claimed", len(x.claim("w", 1)), 0)
	}},
	{"a running task is asked to stop", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		got, err := x.s.Cancel(x.ctx, was.ID)
		x.must(err)
		now := x.get(was.ID)
		same(x, "the answer", got, now)
		is(x, "the status", now.Status, holdfast.Running)
		is(x, "the request", now.CancelRequestedAt.Equal(now.UpdatedAt), true)
		is(x, "the lease", now.LeaseUntil.Equal(was.LeaseUntil), true)
		held, err := x.s.Heartbeat(x.ctx, "w", lease, was.ID)
		x.must(err)
		is(x, "the heartbeat's news", held[0].CancelRequested, true)
		x.must(second(x.s.Cancel(x.ctx, was.ID))) // asking again is no error
	}},
	{"an ended task cannot be canceled", func(x *test) {
		for _, status := range []holdfast.Status{holdfast.Succeeded, holdfast.Failed, holdfast.Canceled} {
			t := x.ended(status, holdfast.Submission{})
			_, err := x.s.Cancel(x.ctx, t.ID)
			x.badState(err, t.ID, status)
			same(x, "the task", x.get(t.ID), t)
		}
	}},
	{"a canceled task is never run again unless it is retried", func(x *test) {
		t := x.ended(holdfast.Canceled, holdfast.Submission{})
		x.pass(10 * lease)
		is(x, "claimed", len(x.claim("w", 1)), 0)
		x.must(second(x.s.Retry(x.ctx, t.ID, false)))
		is(x, "claimed after the retry", idsOf(x.claim("w", 1)), []string{t.ID})
	}},
	{"retry makes an ended task new, at once", func(x *test) {
		for _, reset := range []bool{false, true} {
			for _, status := range []holdfast.Status{holdfast.Failed, holdfast.Canceled} {
				was := x.midway(holdfast.Submission{Queue: "default"}, status == holdfast.Canceled)
				x.must(second(x.s.Fail(x.ctx, was, failure("boom"), false, 0)))
				x.pass(later)
				got, err := x.s.Retry(x.ctx, was.ID, reset)
				x.must(err)
				now := x.get(was.ID)
				same(x, "the answer", got, now)
				attempt := 1
				if reset {
					attempt = 0
				}
				same(x, "the task", now, &holdfast.Task{
					ID: was.ID, Name: "job", Queue: "default", Status: holdfast.Queued, Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{}`),
					Attempt: attempt, MaxAttempts: 3, RootID: was.ID, CreatedAt: now.CreatedAt, UpdatedAt: now.UpdatedAt, RunAt: now.UpdatedAt,
				})
				is(x, "claimed", idsOf(x.claim("w", 1)), []string{was.ID})
			}
		}
	}},
	{"what has not failed and was not canceled cannot be retried", func(x *test) {
		for _, status := range []holdfast.Status{holdfast.Queued, holdfast.Running, holdfast.Succeeded} {
			t := x.inStatus(status, holdfast.Submission{Queue: string(status)[:0]})
			_, err := x.s.Retry(x.ctx, t.ID, true)
			x.badState(err, t.ID, status)
			same(x, "the task", x.get(t.ID), t)
			if !status.Terminal() {
				x.must(second(x.s.Cancel(x.ctx, t.ID)))
			}
		}
	}},
	{"a retry without reset goes on counting", func(x *test) {
		t := x.running("w", holdfast.Submission{MaxAttempts: 1})
		x.must(second(x.s.Fail(x.ctx, t, failure("one"), true, 0)))
		x.must(second(x.s.Retry(x.ctx, t.ID, false)))
		got := x.claim("w", 1)
		is(x, "the attempt", got[0].Attempt, 2)
		x.settledAs(holdfast.Failed)(x.s.Fail(x.ctx, got[0], failure("two"), true, 0))
	}},
	{"what does not exist can be neither canceled nor retried", func(x *test) {
		for _, id := range noTasks {
			errorIs(x, second(x.s.Cancel(x.ctx, id)), holdfast.ErrNotFound)
			errorIs(x, second(x.s.Retry(x.ctx, id, false)), holdfast.ErrNotFound)
		}
		refused(x, second(x.s.Cancel(x.ctx, "")), "id")
		refused(x, second(x.s.Retry(x.ctx, "", false)), "id")
	}},
	{"by key, the key's present task is canceled and retried", func(x *test) {
		old := x.submit(holdfast.Submission{Key: "k"})
		t := x.submit(holdfast.Submission{Key: "k", Strategy: holdfast.Replace})
		got, err := x.s.CancelByKey(x.ctx, "k")
		x.must(err)
		is(x, "canceled", got.ID, t.ID)
		same(x, "the answer", got, x.get(t.ID))
		_, err = x.s.CancelByKey(x.ctx, "k")
		x.badState(err, t.ID, holdfast.Canceled)
		got, err = x.s.RetryByKey(x.ctx, "k", true)
		x.must(err)
		is(x, "retried", got.ID, t.ID)
		same(x, "the answer", got, x.get(t.ID))
		_, err = x.s.RetryByKey(x.ctx, "k", true)
		x.badState(err, t.ID, holdfast.Queued)
		x.statusIs(old.ID, holdfast.Canceled)
		for _, do := range []func(string) error{
			func(key string) error { return second(x.s.CancelByKey(x.ctx, key)) },
			func(key string) error { return second(x.s.RetryByKey(x.ctx, key, false)) },
		} {
			errorIs(x, do("another"), holdfast.ErrNotFound)
			refused(x, do(""), "key")
			refused(x, do("\x00"), "key")
		}
	}},
}

// noTasks can be no task's id, in several ways.
var noTasks = []string{"task_00000000000000000000000000", "x", "a\x00b", "\xff", "'; drop table cairnq_tasks; --", string(make([]byte, 300)), "task_" + string([]rune{0x1F600})}

var readRules = []rule{
	{"get, get by key and status answer the same task", func(x *test) {
		t := x.submit(holdfast.Submission{Key: "k", Payload: json.RawMessage(`[1]`)})
		same(x, "get", firstOf(x.s.Get(x.ctx, t.ID)), t)
		same(x, "get by key", firstOf(x.s.GetByKey(x.ctx, "k")), t)
		for _, status := range []func() (*holdfast.Task, error){
			func() (*holdfast.Task, error) { return x.s.Status(x.ctx, t.ID) },
			func() (*holdfast.Task, error) { return x.s.StatusByKey(x.ctx, "k") },
		} {
			got, err := status()
			x.must(err)
			is(x, "the id", got.ID, t.ID)
			is(x, "the status", got.Status, holdfast.Queued)
			is(x, "the payload, which a status read leaves out", got.Payload, nil)
		}
	}},
	{"what does not exist is not found", func(x *test) {
		x.job()
		for _, id := range noTasks {
			errorIs(x, second(x.s.Get(x.ctx, id)), holdfast.ErrNotFound)
			errorIs(x, second(x.s.Status(x.ctx, id)), holdfast.ErrNotFound)
		}
		refused(x, second(x.s.Get(x.ctx, "")), "id")
		refused(x, second(x.s.Status(x.ctx, "")), "id")
		errorIs(x, second(x.s.GetByKey(x.ctx, "no key")), holdfast.ErrNotFound)
		errorIs(x, second(x.s.StatusByKey(x.ctx, "no key")), holdfast.ErrNotFound)
		refused(x, second(x.s.GetByKey(x.ctx, "")), "key")
		refused(x, second(x.s.StatusByKey(x.ctx, "a\xff")), "key")
	}},
	{"list is newest first, with each filter", func(x *test) {
		var all []*holdfast.Task
		for i := range 12 {
			t := x.submit(holdfast.Submission{
				Name: fmt.Sprint("n", i%2), Queue: fmt.Sprint("q", i%3), CorrelationID: fmt.Sprint("c", i%4),
				RootID: map[bool]string{true: "root"}[i%5 == 0],
			})
			all = append([]*holdfast.Task{t}, all...)
			x.pass(time.Duration(i%2) * time.Second) // pairs of one time, told apart by id
		}
		for i, t := range all {
			if i%4 == 0 {
				x.must(second(x.s.Cancel(x.ctx, t.ID)))
			}
		}
		for i := range all {
			all[i] = x.get(all[i].ID)
		}
		match := func(f holdfast.Filter) []string {
			ids := []string{}
			for _, t := range all {
				if (f.Status == "" || f.Status == t.Status) && (f.Queue == "" || f.Queue == t.Queue) && (f.Name == "" || f.Name == t.Name) &&
					(f.RootID == "" || f.RootID == t.RootID) && (f.CorrelationID == "" || f.CorrelationID == t.CorrelationID) {
					ids = append(ids, t.ID)
				}
			}
			return ids
		}
		for _, f := range []holdfast.Filter{
			{}, {Status: holdfast.Queued}, {Status: holdfast.Canceled}, {Status: holdfast.Running}, {Queue: "q1"}, {Queue: "none"}, {Name: "n1"},
			{RootID: "root"}, {RootID: all[3].RootID}, {CorrelationID: "c2"}, {Status: holdfast.Queued, Queue: "q0", Name: "n0"},
			{Status: holdfast.Canceled, Queue: "q1", Name: "n1", CorrelationID: "c3"},
		} {
			got, err := x.s.List(x.ctx, f)
			x.must(err)
			is(x, fmt.Sprintf("the list of %+v", f), idsOf(got), match(f))
			if got == nil {
				x.Error("an empty list is nil")
			}
			for _, t := range got {
				same(x, "the task in the list", t, x.get(t.ID))
			}
		}
	}},
	{"pages by offset and by cursor hold each task once", func(x *test) {
		var want []string
		for i := range 23 {
			want = append([]string{x.submit(holdfast.Submission{Queue: "q"}).ID}, want...)
			if i%7 == 0 {
				x.pass(time.Second)
			}
		}
		x.submit(holdfast.Submission{Queue: "another"})
		var byOffset, byCursor []string
		after := ""
		for page := range 6 {
			tasks, err := x.s.List(x.ctx, holdfast.Filter{Queue: "q", Limit: 5, Offset: page * 5})
			x.must(err)
			byOffset = append(byOffset, idsOf(tasks)...)
			tasks, err = x.s.List(x.ctx, holdfast.Filter{Queue: "q", Limit: 5, After: after})
			x.must(err)
			byCursor = append(byCursor, idsOf(tasks)...)
			if len(tasks) > 0 {
				after = tasks[len(tasks)-1].Cursor()
			}
		}
		is(x, "by offset", byOffset, want)
		is(x, "by cursor", byCursor, want)
	}},
	{"a cursor stays valid while rows come and go", func(x *test) {
		var ids []string
		for range 10 {
			ids = append(ids, x.job().ID)
		}
		page, err := x.s.List(x.ctx, holdfast.Filter{Limit: 4})
		x.must(err)
		cursor := page[3].Cursor()
		is(x, "the page's end", page[3].ID, ids[6])
		x.job() // newer than all
		x.must(second(x.s.Cancel(x.ctx, ids[5])))
		x.exec("delete from cairnq_tasks where id = '" + ids[6] + "'") // the cursor's own task
		page, err = x.s.List(x.ctx, holdfast.Filter{Limit: 4, After: cursor})
		x.must(err)
		is(x, "the next page", idsOf(page), []string{ids[5], ids[4], ids[3], ids[2]})
	}},
	{"a list holds 100 unless told", func(x *test) {
		subs := make([]*holdfast.Submission, 130)
		for i := range subs {
			subs[i] = &holdfast.Submission{Name: "job"}
		}
		x.must(second(x.s.SubmitMany(x.ctx, subs)))
		is(x, "without limit", len(firstOf(x.s.List(x.ctx, holdfast.Filter{}))), 100)
		is(x, "with limit 120", len(firstOf(x.s.List(x.ctx, holdfast.Filter{Limit: 120}))), 120)
		is(x, "with limit 1000", len(firstOf(x.s.List(x.ctx, holdfast.Filter{Limit: 1000}))), 130)
	}},
	{"a list's arguments are refused by name", func(x *test) {
		x.job()
		for _, c := range []struct {
			field string
			f     holdfast.Filter
		}{
			{"status", holdfast.Filter{Status: "done"}},
			{"limit", holdfast.Filter{Limit: -1}},
			{"offset", holdfast.Filter{Offset: -1}},
			{"after", holdfast.Filter{After: "yesterday"}},
			{"after", holdfast.Filter{After: "1e3.task_1"}},
			{"after", holdfast.Filter{After: "1700000000000."}},
			{"queue", holdfast.Filter{Queue: "a\x00"}},
			{"name", holdfast.Filter{Name: "\xff"}},
			{"root_id", holdfast.Filter{RootID: "\x00"}},
			{"correlation_id", holdfast.Filter{CorrelationID: "\x00"}},
		} {
			refused(x, second(x.s.List(x.ctx, c.f)), c.field)
		}
	}},
	{"stats count every queue and status", func(x *test) {
		for i, s := range holdfast.Statuses() {
			for range i + 1 {
				x.inStatus(s, holdfast.Submission{Queue: "default", Name: "job", Priority: 1})
				if s == holdfast.Queued {
					x.claim("w", 1)
					x.exec("update cairnq_tasks set queue = 'parked', status = 'queued', worker_id = null, lease_until_ms = null where status = 'running'")
				}
			}
		}
		x.submit(holdfast.Submission{Queue: "b", Delay: time.Hour})
		got, err := x.s.Stats(x.ctx, "")
		x.must(err)
		is(x, "the stats", got, []holdfast.QueueStats{
			{Queue: "b", Queued: 1}, {Queue: "default", Running: 2, Succeeded: 3, Failed: 4, Canceled: 5}, {Queue: "parked", Queued: 1},
		})
		is(x, "the total", got[1].Total(), 14)
		is(x, "of one queue", firstOf(x.s.Stats(x.ctx, "b")), []holdfast.QueueStats{{Queue: "b", Queued: 1}})
	}},
	{"stats of an empty database are empty, of a named queue zero", func(x *test) {
		is(x, "the stats", len(firstOf(x.s.Stats(x.ctx, ""))), 0)
		is(x, "the named queue", firstOf(x.s.Stats(x.ctx, "nothing here")), []holdfast.QueueStats{{Queue: "nothing here"}})
		refused(x, second(x.s.Stats(x.ctx, "\x00")), "queue")
	}},
	{"depth is the room left for queued tasks, delayed ones included", func(x *test) {
		room := func(max, want int) {
			x.Helper()
			got, err := x.s.QueueDepth(x.ctx, "default", max)
			x.must(err)
			is(x, fmt.Sprintf("the room of %d", max), got, want)
		}
		room(3, 3)
		x.job()
		x.submit(holdfast.Submission{Delay: time.Hour})
		x.submit(holdfast.Submission{Queue: "other"})
		room(3, 1)
		room(2, 0)
		room(1, 0)
		room(0, 0)
		x.claim("w", 1)
		room(3, 2)
		refused(x, second(x.s.QueueDepth(x.ctx, "default", -1)), "max")
		refused(x, second(x.s.QueueDepth(x.ctx, "", 1)), "queue")
	}},
	{"the database says which protocol it speaks", func(x *test) {
		version, err := x.s.ProtocolVersion(x.ctx)
		x.must(err)
		is(x, "the protocol", version, "1")
		is(x, "the schema", firstOf(x.s.Meta(x.ctx, "schema_version")), "10")
		is(x, "what is not there", firstOf(x.s.Meta(x.ctx, "nothing")), "")
	}},
	{"the time is the database's, to the millisecond or finer", func(x *test) {
		before, err := x.s.Now(x.ctx)
		x.must(err)
		x.pass(0)
		t := x.job()
		if t.CreatedAt.Before(before.Truncate(time.Millisecond)) {
			x.Errorf("created at %v, after %v", t.CreatedAt, before)
		}
	}},
}
