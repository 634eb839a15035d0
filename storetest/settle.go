package storetest

import (
	"encoding/json"
	"time"

	"github.com/eda94727/holdfast"
)

// after is the task as it was, changed as a write at its new updated_at changes it.
func (x *test) after(was *holdfast.Task, change func(t *holdfast.Task)) {
	x.Helper()
	got := x.get(was.ID)
	want := *was
	want.UpdatedAt, want.LeaseUntil = got.UpdatedAt, time.Time{}
	// Where time passes by moving the rows' times, those of the past have moved.
	want.CreatedAt, want.RunAt = got.CreatedAt, got.RunAt
	if !was.CancelRequestedAt.IsZero() {
		want.CancelRequestedAt = got.CancelRequestedAt
	}
	change(&want)
	same(x, "the task", got, &want)
	if !want.UpdatedAt.After(want.CreatedAt) {
		x.Error("updated_at is as at the start")
	}
}

// midway is a running task with everything set that a way out may have to clear.
func (x *test) midway(sub holdfast.Submission, cancel bool) *holdfast.Task {
	x.Helper()
	t := x.running("w", sub)
	half := 0.5
	x.must(x.s.Progress(x.ctx, t, &half, "half"))
	if cancel {
		x.must(second(x.s.Cancel(x.ctx, t.ID)))
	}
	x.pass(later)
	return x.get(t.ID)
}

func (x *test) settledAs(want holdfast.Status) func(holdfast.Status, error) {
	return func(got holdfast.Status, err error) {
		x.Helper()
		x.must(err)
		is(x, "the status answered", got, want)
	}
}

var one = 1.0

var settleRules = []rule{
	{"succeed ends the task with its result", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Succeeded)(x.s.Succeed(x.ctx, was, json.RawMessage(`{"n":1}`)))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Result, t.Progress, t.CompletedAt = holdfast.Succeeded, json.RawMessage(`{"n":1}`), &one, t.UpdatedAt
		})
	}},
	{"succeed holds when a cancel is pending", func(x *test) {
		was := x.midway(holdfast.Submission{}, true)
		x.settledAs(holdfast.Succeeded)(x.s.Succeed(x.ctx, was, json.RawMessage(`[]`)))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Result, t.Progress, t.CompletedAt = holdfast.Succeeded, json.RawMessage(`[]`), &one, t.UpdatedAt
		})
	}},
	{"complete ends the task with its result", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Succeeded)(x.s.Complete(x.ctx, was, json.RawMessage(`"done"`)))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Result, t.Progress, t.CompletedAt = holdfast.Succeeded, json.RawMessage(`"done"`), &one, t.UpdatedAt
		})
	}},
	{"complete without a result leaves it null", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Succeeded)(x.s.Complete(x.ctx, was, nil))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Progress, t.CompletedAt = holdfast.Succeeded, &one, t.UpdatedAt
		})
		is(x, "results that are null", x.number("select count(*) from cairnq_tasks where result is null"), 1)
	}},
	{"cancel wins over complete, and the result is not kept", func(x *test) {
		was := x.midway(holdfast.Submission{}, true)
		x.settledAs(holdfast.Canceled)(x.s.Complete(x.ctx, was, json.RawMessage(`1`)))
		x.after(was, func(t *holdfast.Task) { t.Status, t.CompletedAt = holdfast.Canceled, t.UpdatedAt })
	}},
	{"a failure that can be retried is queued after the delay", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Queued)(x.s.Fail(x.ctx, was, failure("boom"), true, 10*time.Minute))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Error, t.WorkerID, t.Progress, t.Message = holdfast.Queued, failure("boom"), "", nil, ""
			t.RunAt = t.UpdatedAt.Add(10 * time.Minute)
		})
		x.pass(9 * time.Minute)
		is(x, "claimed after 9 minutes", len(x.claim("w", 1)), 0)
		x.pass(time.Minute)
		got := x.claim("w", 1)
		is(x, "claimed after 10 minutes", idsOf(got), []string{was.ID})
		is(x, "the attempt", got[0].Attempt, 2)
		sameJSON(x, "the error of the attempt before", got[0].Error, failure("boom"))
	}},
	{"a permanent failure ends the task", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Failed)(x.s.Fail(x.ctx, was, failure("boom"), false, time.Hour))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Error, t.CompletedAt = holdfast.Failed, failure("boom"), t.UpdatedAt
		})
	}},
	{"a failure at the last attempt ends the task", func(x *test) {
		was := x.midway(holdfast.Submission{MaxAttempts: 1}, false)
		x.settledAs(holdfast.Failed)(x.s.Fail(x.ctx, was, failure("boom"), true, 0))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Error, t.CompletedAt = holdfast.Failed, failure("boom"), t.UpdatedAt
		})
	}},
	{"attempts are made until they are used up", func(x *test) {
		t := x.submit(holdfast.Submission{MaxAttempts: 3})
		for attempt := 1; attempt <= 3; attempt++ {
			got := x.claim("w", 1)
			is(x, "claimed", idsOf(got), []string{t.ID})
			is(x, "the attempt", got[0].Attempt, attempt)
			want := holdfast.Queued
			if attempt == 3 {
				want = holdfast.Failed
			}
			x.settledAs(want)(x.s.Fail(x.ctx, got[0], failure("boom"), true, 0))
		}
		is(x, "claimed after the end", len(x.claim("w", 1)), 0)
	}},
	{"cancel wins over failure, and the error is kept", func(x *test) {
		for _, retryable := range []bool{true, false} {
			was := x.midway(holdfast.Submission{}, true)
			x.settledAs(holdfast.Canceled)(x.s.Fail(x.ctx, was, failure("boom"), retryable, 0))
			x.after(was, func(t *holdfast.Task) {
				t.Status, t.Error, t.CompletedAt = holdfast.Canceled, failure("boom"), t.UpdatedAt
			})
			is(x, "claimed after the end", len(x.claim("w", 1)), 0)
		}
	}},
	{"a failure without a record is recorded as such", func(x *test) {
		t := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Failed)(x.s.Fail(x.ctx, t, nil, false, 0))
		if x.get(t.ID).Error == nil {
			x.Error("there is no error")
		}
	}},
	{"a failure's delay is not negative", func(x *test) {
		t := x.midway(holdfast.Submission{}, false)
		refused(x, second(x.s.Fail(x.ctx, t, failure("boom"), true, -1)), "delay")
		refused(x, second(x.s.Release(x.ctx, t, -1)), "delay")
		same(x, "the task", x.get(t.ID), t)
	}},
	{"discard ends the task as canceled, with the reason, whether or not a cancel was asked for", func(x *test) {
		for _, asked := range []bool{false, true} {
			was := x.midway(holdfast.Submission{}, asked)
			x.settledAs(holdfast.Canceled)(x.s.Discard(x.ctx, was, failure("gone")))
			now := x.get(was.ID)
			is(x, "the status", now.Status, holdfast.Canceled)
			is(x, "the reason", now.Failure().Message, "gone")
			is(x, "the end", now.CompletedAt.Equal(now.UpdatedAt), true)
		}
		was := x.midway(holdfast.Submission{}, false)
		errorIs(x, second(x.s.Discard(x.ctx, was, json.RawMessage(`{`))), holdfast.ErrNotJSON)
		same(x, "the task", x.get(was.ID), was)
	}},
	{"release puts the task back where it was, and the attempt is not spent", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Queued)(x.s.Release(x.ctx, was, 0))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Attempt, t.WorkerID, t.Progress, t.Message = holdfast.Queued, 0, "", nil, ""
		})
		now := x.get(was.ID)
		is(x, "the place", now.RunAt.Equal(now.CreatedAt), true)
		is(x, "claimed again", idsOf(x.claim("w2", 1)), []string{was.ID})
	}},
	{"release may delay the task", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.settledAs(holdfast.Queued)(x.s.Release(x.ctx, was, time.Minute))
		x.after(was, func(t *holdfast.Task) {
			t.Status, t.Attempt, t.WorkerID, t.Progress, t.Message = holdfast.Queued, 0, "", nil, ""
			t.RunAt = t.UpdatedAt.Add(time.Minute)
		})
	}},
	{"cancel wins over release", func(x *test) {
		was := x.midway(holdfast.Submission{}, true)
		x.settledAs(holdfast.Canceled)(x.s.Release(x.ctx, was, 0))
		x.after(was, func(t *holdfast.Task) { t.Status, t.CompletedAt = holdfast.Canceled, t.UpdatedAt })
	}},
	{"release of many passes over what is lost", func(x *test) {
		a, b, c := x.running("w", holdfast.Submission{}), x.running("w", holdfast.Submission{}), x.running("w", holdfast.Submission{})
		x.must(second(x.s.Complete(x.ctx, b, nil)))
		x.must(second(x.s.Cancel(x.ctx, c.ID)))
		n, err := x.s.ReleaseMany(x.ctx, []*holdfast.Task{a, b, c})
		x.must(err)
		is(x, "released", n, 2)
		x.statusIs(a.ID, holdfast.Queued)
		x.statusIs(b.ID, holdfast.Succeeded)
		x.statusIs(c.ID, holdfast.Canceled)
		is(x, "released nothing", firstOf(x.s.ReleaseMany(x.ctx, nil)), 0)
	}},
	{"settling twice fails the second time and changes nothing", func(x *test) {
		was := x.midway(holdfast.Submission{}, false)
		x.must(second(x.s.Complete(x.ctx, was, json.RawMessage(`1`))))
		now := x.get(was.ID)
		for _, w := range writes[2:] {
			errorIs(x, w.do(x, was), holdfast.ErrLeaseLost)
		}
		same(x, "the task", x.get(was.ID), now)
	}},
}

func firstOf[T any](v T, _ error) T { return v }
