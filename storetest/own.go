package storetest

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/eda94727/holdfast"
)

// write is one of the writes that only the holder of a live lease may make.
type write struct {
	name string
	do   func(x *test, own *holdfast.Task) error
}

var writes = []write{
	{"heartbeat", func(x *test, own *holdfast.Task) error {
		held, err := x.s.Heartbeat(x.ctx, own.WorkerID, lease, own.ID)
		x.must(err)
		if len(held) == 0 {
			return &holdfast.LeaseLostError{TaskID: own.ID}
		}
		return nil
	}},
	{"progress", func(x *test, own *holdfast.Task) error {
		p := 0.25
		return x.s.Progress(x.ctx, own, &p, "quarter")
	}},
	{"succeed", func(x *test, own *holdfast.Task) error {
		return second(x.s.Succeed(x.ctx, own, json.RawMessage(`1`)))
	}},
	{"complete", func(x *test, own *holdfast.Task) error {
		return second(x.s.Complete(x.ctx, own, json.RawMessage(`1`)))
	}},
	{"fail", func(x *test, own *holdfast.Task) error {
		return second(x.s.Fail(x.ctx, own, failure("boom"), true, 0))
	}},
	{"discard", func(x *test, own *holdfast.Task) error { return second(x.s.Discard(x.ctx, own, failure("gone"))) }},
	{"release", func(x *test, own *holdfast.Task) error { return second(x.s.Release(x.ctx, own, 0)) }},
	{"release of many", func(x *test, own *holdfast.Task) error {
		n, err := x.s.ReleaseMany(x.ctx, []*holdfast.Task{own})
		if err == nil && n == 0 {
			err = &holdfast.LeaseLostError{TaskID: own.ID}
		}
		return err
	}},
}

// lost makes a task that is not, or no longer, the worker's, and answers what the worker believes.
var lost = []struct {
	name string
	make func(x *test) *holdfast.Task
}{
	{"never claimed", func(x *test) *holdfast.Task {
		t := *x.job()
		t.WorkerID = "w"
		return &t
	}},
	{"another worker's", func(x *test) *holdfast.Task {
		t := *x.running("other", holdfast.Submission{})
		t.WorkerID = "w"
		return &t
	}},
	{"of an ended lease that nobody has recovered", func(x *test) *holdfast.Task {
		t := x.running("w", holdfast.Submission{})
		x.pass(lease)
		return t
	}},
	{"recovered", func(x *test) *holdfast.Task {
		t := x.running("w", holdfast.Submission{})
		x.pass(lease)
		x.claimAll(holdfast.Claim{})
		return t
	}},
	{"recovered and another's", func(x *test) *holdfast.Task {
		t := x.running("w", holdfast.Submission{})
		x.pass(lease)
		is(x, "claimed by another", idsOf(x.claim("other", 1)), []string{t.ID})
		return t
	}},
	{"succeeded", func(x *test) *holdfast.Task { return x.ended(holdfast.Succeeded, holdfast.Submission{}) }},
	{"failed", func(x *test) *holdfast.Task { return x.ended(holdfast.Failed, holdfast.Submission{}) }},
	{"canceled", func(x *test) *holdfast.Task { return x.ended(holdfast.Canceled, holdfast.Submission{}) }},
	{"retried", func(x *test) *holdfast.Task {
		t := x.ended(holdfast.Failed, holdfast.Submission{})
		x.must(second(x.s.Retry(x.ctx, t.ID, true)))
		return t
	}},
}

var ownRules = append([]rule{
	{"a task that does not exist is nobody's", func(x *test) {
		for _, w := range writes {
			err := w.do(x, &holdfast.Task{ID: "task_00000000000000000000000000", WorkerID: "w"})
			errorIs(x, err, holdfast.ErrLeaseLost)
		}
	}},
	{"each write is accepted from the holder", func(x *test) {
		for _, w := range writes {
			if err := w.do(x, x.running("w", holdfast.Submission{})); err != nil {
				x.Errorf("%s: %v", w.name, err)
			}
			for _, t := range x.claim("w", 10) {
				x.must(second(x.s.Succeed(x.ctx, t, nil)))
			}
		}
	}},
	{"a task that is known by id and worker only can be written as well", func(x *test) {
		for _, w := range writes {
			t := x.running("w", holdfast.Submission{})
			if err := w.do(x, &holdfast.Task{ID: t.ID, WorkerID: "w"}); err != nil {
				x.Errorf("%s: %v", w.name, err)
			}
			for _, t := range x.claim("w", 10) {
				x.must(second(x.s.Succeed(x.ctx, t, nil)))
			}
		}
	}},
	{"a heartbeat extends the lease from now", func(x *test) {
		t := x.running("w", holdfast.Submission{})
		x.pass(lease / 2)
		held, err := x.s.Heartbeat(x.ctx, "w", 3*lease, t.ID)
		x.must(err)
		is(x, "held", len(held), 1)
		now := x.get(t.ID)
		is(x, "the lease told", held[0].LeaseUntil.Equal(now.LeaseUntil), true)
		is(x, "the lease", now.LeaseUntil.Sub(now.UpdatedAt), 3*lease)
		is(x, "the cancel request", held[0].CancelRequested, false)
		x.pass(2 * lease)
		is(x, "recovered", len(x.claimAll(holdfast.Claim{}).Recovered), 0)
	}},
	{"a heartbeat of many answers those still held, in the order asked", func(x *test) {
		var ids []string
		for range 6 {
			ids = append(ids, x.running("w", holdfast.Submission{}).ID)
		}
		other := x.running("other", holdfast.Submission{}).ID
		x.must(second(x.s.Complete(x.ctx, &holdfast.Task{ID: ids[1], WorkerID: "w"}, nil)))
		x.must(second(x.s.Cancel(x.ctx, ids[4])))
		held, err := x.s.Heartbeat(x.ctx, "w", lease, ids[5], "task_missing", ids[4], ids[0], other, ids[1], ids[0], ids[2])
		x.must(err)
		var got []string
		for _, h := range held {
			got = append(got, h.ID)
			is(x, "the cancel request of "+h.ID, h.CancelRequested, h.ID == ids[4])
		}
		is(x, "held", got, []string{ids[5], ids[4], ids[0], ids[2]})
		x.pass(lease / 2)
		is(x, "the other's lease", x.get(other).LeaseUntil.Before(x.get(ids[0]).LeaseUntil.Add(time.Millisecond)), true)
	}},
	{"a heartbeat of nothing is nothing", func(x *test) {
		held, err := x.s.Heartbeat(x.ctx, "w", lease)
		x.must(err)
		is(x, "held", len(held), 0)
	}},
	{"a heartbeat of thousands is one statement", func(x *test) {
		const n = 3000
		subs := make([]*holdfast.Submission, n)
		for i := range subs {
			subs[i] = &holdfast.Submission{Name: "job"}
		}
		x.must(second(x.s.SubmitMany(x.ctx, subs)))
		ids := idsOf(x.claim("w", n))
		held, err := x.s.Heartbeat(x.ctx, "w", 2*lease, ids...)
		x.must(err)
		is(x, "held", len(held), n)
	}},
	{"a heartbeat's arguments are refused by name", func(x *test) {
		t := x.running("w", holdfast.Submission{})
		for field, do := range map[string]func() error{
			"worker_id": func() error { return second(x.s.Heartbeat(x.ctx, "", lease, t.ID)) },
			"lease":     func() error { return second(x.s.Heartbeat(x.ctx, "w", -time.Second, t.ID)) },
		} {
			refused(x, do(), field)
		}
		refused(x, second(x.s.Heartbeat(x.ctx, "w", 0, t.ID)), "lease")
		is(x, "the lease", x.get(t.ID).LeaseUntil.Equal(t.LeaseUntil), true)
	}},
	{"progress that is not given leaves the old", func(x *test) {
		t := x.running("w", holdfast.Submission{})
		a, b := 0.25, 0.75
		for _, c := range []struct {
			progress    *float64
			message     string
			wantP       float64
			wantMessage string
		}{{&a, "one", 0.25, "one"}, {&b, "", 0.75, "one"}, {nil, "two", 0.75, "two"}, {nil, "", 0.75, "two"}} {
			x.must(x.s.Progress(x.ctx, t, c.progress, c.message))
			now := x.get(t.ID)
			is(x, "the progress", *now.Progress, c.wantP)
			is(x, "the message", now.Message, c.wantMessage)
			is(x, "the status", now.Status, holdfast.Running)
			is(x, "the lease", now.LeaseUntil.Equal(t.LeaseUntil), true)
		}
	}},
	{"progress is between 0 and 1", func(x *test) {
		t := x.running("w", holdfast.Submission{})
		for _, p := range []float64{-0.1, 1.0001, math.NaN(), math.Inf(1), math.Inf(-1)} {
			refused(x, x.s.Progress(x.ctx, t, &p, ""), "progress")
		}
		for _, p := range []float64{0, 1, 1.0 / 3} {
			x.must(x.s.Progress(x.ctx, t, &p, ""))
			is(x, "the progress", *x.get(t.ID).Progress, p)
		}
	}},
	{"a message is made fit to be kept", func(x *test) {
		t := x.running("w", holdfast.Submission{})
		x.must(x.s.Progress(x.ctx, t, nil, "a\x00b\xffc"))
		is(x, "the message", x.get(t.ID).Message, "a\uFFFDb\uFFFDc")
	}},
}, lostRules()...)

// lostRules has one rule for each way to lose a task: no write holds, and none leaves a trace.
func lostRules() (list []rule) {
	for _, l := range lost {
		list = append(list, rule{"no write holds on a task that is " + l.name, func(x *test) {
			believed := l.make(x)
			before := x.get(believed.ID)
			for _, w := range writes {
				err := w.do(x, believed)
				var e *holdfast.LeaseLostError
				if !errors.Is(err, holdfast.ErrLeaseLost) || !errors.As(err, &e) || e.TaskID != believed.ID {
					x.Fatalf("%s: the error is %v, want a LeaseLostError of %s", w.name, err, believed.ID)
				}
				same(x, "after "+w.name+" the task", x.get(believed.ID), before)
			}
		}})
	}
	return list
}
