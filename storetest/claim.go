package storetest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

func newContext(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// sorted sorts a list for comparison: claimed rows come back in no promised order.
func sorted(list []string) []string { slices.Sort(list); return list }

// claimInTurn claims one at a time, so that the order shows.
func (x *test) claimInTurn(c holdfast.Claim) (names []string) {
	x.Helper()
	names = []string{}
	for {
		got := x.claimAll(c).Tasks
		if len(got) == 0 {
			return names
		}
		names = append(names, namesOf(got)...)
	}
}

var claimRules = []rule{
	{"a claimed task runs under the worker's lease", func(x *test) {
		t := x.job()
		x.pass(later)
		got := x.claimAll(holdfast.Claim{WorkerID: "w1", Lease: 42 * time.Second, Draws: anyName(5)}).Tasks
		is(x, "claimed", idsOf(got), []string{t.ID})
		same(x, "the task as read", x.get(t.ID), got[0])
		want := *x.get(t.ID)
		want.Status, want.WorkerID, want.Attempt, want.LeaseUntil = holdfast.Running, "w1", 1, want.UpdatedAt.Add(42*time.Second)
		same(x, "the task", got[0], &want)
		if !got[0].UpdatedAt.After(got[0].CreatedAt) {
			x.Errorf("updated at %v, created at %v", got[0].UpdatedAt, got[0].CreatedAt)
		}
		is(x, "claimed again", idsOf(x.claim("w2", 5)), []string{})
	}},
	{"order is by priority, then time, then id", func(x *test) {
		for _, s := range []holdfast.Submission{
			{Name: "low", Priority: -1}, {Name: "first"}, {Name: "second"}, {Name: "high", Priority: 5}, {Name: "highest", Priority: 1 << 30},
			{Name: "late", Priority: 5, Delay: 20 * time.Minute},
			{Name: "early", Priority: 5, Delay: 10 * time.Minute},
			{Name: "not due", Priority: 9, Delay: 24 * time.Hour},
		} {
			x.submit(s)
		}
		x.pass(30 * time.Minute)
		is(x, "the order", x.claimInTurn(holdfast.Claim{Draws: anyName(1)}), []string{"highest", "high", "early", "late", "first", "second", "low"})
	}},
	{"a limited claim takes the first in order", func(x *test) {
		for _, s := range []holdfast.Submission{{Name: "c", Priority: 1}, {Name: "d"}, {Name: "a", Priority: 3}, {Name: "b", Priority: 2}} {
			x.submit(s)
		}
		is(x, "the first three", sorted(namesOf(x.claim("w", 3))), []string{"a", "b", "c"})
		is(x, "the rest", namesOf(x.claim("w", 3)), []string{"d"})
	}},
	{"tasks that are not due hide nothing", func(x *test) {
		var subs []*holdfast.Submission
		for i := range 300 {
			subs = append(subs, &holdfast.Submission{Name: "later", Priority: i % 3, Delay: 24 * time.Hour})
		}
		_, err := x.s.SubmitMany(x.ctx, subs)
		x.must(err)
		t := x.submit(holdfast.Submission{Priority: -1})
		is(x, "claimed", idsOf(x.claim("w", 10)), []string{t.ID})
	}},
	{"a name filter takes those names only", func(x *test) {
		for _, n := range []string{"alpha", "beta", "gamma", "alpha"} {
			x.submit(holdfast.Submission{Name: n})
		}
		x.submit(holdfast.Submission{Name: "gamma", Priority: 9})
		take := func(d holdfast.Draw) []string {
			return sorted(namesOf(x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{d}}).Tasks))
		}
		is(x, "of an unknown name", take(named(10, "delta")), []string{})
		is(x, "of alpha and beta", take(named(10, "alpha", "beta")), []string{"alpha", "alpha", "beta"})
		is(x, "of any name", take(holdfast.Draw{AnyName: true, Limit: 10}), []string{"gamma", "gamma"})
	}},
	{"an empty list of names takes nothing", func(x *test) {
		t := x.job()
		is(x, "of no names", idsOf(x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{{Names: []string{}, Limit: 5}}}).Tasks), []string{})
		is(x, "of nil names", idsOf(x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{{Limit: 5}}}).Tasks), []string{})
		is(x, "without draws", idsOf(x.claimAll(holdfast.Claim{}).Tasks), []string{})
		x.statusIs(t.ID, holdfast.Queued)
	}},
	{"order holds across names", func(x *test) {
		for i, n := range []string{"b", "a", "b", "a"} {
			x.submit(holdfast.Submission{Name: n, Priority: i % 2, CorrelationID: string(rune('0' + i))})
		}
		var order []string
		for range 4 {
			got := x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{named(1, "a", "b")}}).Tasks
			is(x, "claimed", len(got), 1)
			order = append(order, got[0].CorrelationID)
		}
		is(x, "the order", order, []string{"1", "3", "0", "2"})
	}},
	{"several queues are one, in order, and others are left", func(x *test) {
		for _, s := range []holdfast.Submission{
			{Name: "a", Queue: "q1"}, {Name: "b", Queue: "q2", Priority: 2}, {Name: "c", Queue: "q3", Priority: 9}, {Name: "d", Queue: "q1", Priority: 1}, {Name: "e", Queue: "q2"},
		} {
			x.submit(s)
		}
		is(x, "the order", x.claimInTurn(holdfast.Claim{Queues: []string{"q2", "q1", "nothing here"}, Draws: anyName(1)}), []string{"b", "d", "a", "e"})
		is(x, "left", x.claimInTurn(holdfast.Claim{Queues: []string{"q3"}, Draws: anyName(1)}), []string{"c"})
	}},
	{"a queue or a name that is given twice counts once", func(x *test) {
		for range 4 {
			x.job()
		}
		queues := []string{"default", "default"}
		is(x, "by any name", len(x.claimAll(holdfast.Claim{Queues: queues, Draws: anyName(2)}).Tasks), 2)
		is(x, "by name", len(x.claimAll(holdfast.Claim{Queues: queues, Draws: []holdfast.Draw{named(2, "job", "job")}}).Tasks), 2)
	}},
	{"draws have quotas of their own, in one claim", func(x *test) {
		for range 3 {
			for _, n := range []string{"a", "b", "c"} {
				x.submit(holdfast.Submission{Name: n})
			}
		}
		got := x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{named(1, "b"), named(2, "a"), named(0, "c"), {AnyName: true, Limit: 3}}}).Tasks
		// After one b and two a, the shared draw takes the first three left in order: b and c of the
		// first rounds are older than those of the last.
		is(x, "claimed", sorted(namesOf(got)), []string{"a", "a", "b", "b", "c", "c"})
		seen := map[string]bool{}
		for _, t := range got {
			if seen[t.ID] {
				x.Errorf("%s was claimed twice", t.ID)
			}
			seen[t.ID] = true
			is(x, "the attempt", t.Attempt, 1)
		}
	}},
	{"a limit of 0 takes nothing, one beyond the queue takes all", func(x *test) {
		for range 3 {
			x.job()
		}
		is(x, "of limit 0", len(x.claim("w", 0)), 0)
		is(x, "of limit 1000000", len(x.claim("w", 1_000_000)), 3)
	}},
	{"what is out of its limits is refused by name", func(x *test) {
		t := x.job()
		ok := holdfast.Claim{Queues: []string{"default"}, Draws: anyName(1), WorkerID: "w", Lease: lease}
		for _, c := range []struct {
			field  string
			change func(*holdfast.Claim)
		}{
			{"worker_id", func(c *holdfast.Claim) { c.WorkerID = "" }},
			{"worker_id", func(c *holdfast.Claim) { c.WorkerID = "\xff" }},
			{"queues", func(c *holdfast.Claim) { c.Queues = nil }},
			{"queues", func(c *holdfast.Claim) { c.Queues = []string{"default", "\x00"} }},
			{"names", func(c *holdfast.Claim) { c.Draws = []holdfast.Draw{named(1, "a\xff")} }},
			{"lease", func(c *holdfast.Claim) { c.Lease = 0 }},
			{"lease", func(c *holdfast.Claim) { c.Lease = -time.Second }},
			{"lease", func(c *holdfast.Claim) { c.Lease = holdfast.MaxDelay + time.Hour }},
			{"limit", func(c *holdfast.Claim) { c.Draws = anyName(-1) }},
		} {
			bad := ok
			c.change(&bad)
			_, err := x.s.Claim(x.ctx, bad)
			refused(x, err, c.field)
		}
		x.statusIs(t.ID, holdfast.Queued)
	}},
	{"an idle claim may tell when to look again, and never too late", func(x *test) {
		is(x, "on an empty database", x.claimAll(holdfast.Claim{Draws: anyName(1)}).Next, 0)
		x.submit(holdfast.Submission{Delay: 10 * time.Minute})
		x.submit(holdfast.Submission{Delay: 5 * time.Minute, Priority: -1})
		if next := x.claimAll(holdfast.Claim{Draws: anyName(1)}).Next; next < 0 || next > 5*time.Minute {
			x.Errorf("told to look again in %v, but a task is due in 5m", next)
		}
		x.submit(holdfast.Submission{Queue: "other"})
		x.claimAll(holdfast.Claim{Queues: []string{"other"}, Lease: 2 * time.Minute, Draws: anyName(1)})
		if next := x.claimAll(holdfast.Claim{Draws: anyName(1)}).Next; next < 0 || next > 2*time.Minute {
			x.Errorf("told to look again in %v, but a lease ends in 2m", next)
		}
	}},
}

var recoveryRules = []rule{
	{"an expired lease gives the task back, and the same claim takes it", func(x *test) {
		t := x.running("w1", holdfast.Submission{})
		half := 0.5
		x.must(x.s.Progress(x.ctx, t, &half, "half"))
		x.pass(lease - time.Second)
		got := x.claimAll(holdfast.Claim{WorkerID: "w2", Draws: anyName(1)})
		is(x, "claimed before the end", len(got.Tasks)+len(got.Recovered), 0)
		x.pass(time.Second) // the end itself is too late already
		got = x.claimAll(holdfast.Claim{WorkerID: "w2", Draws: anyName(1)})
		is(x, "recovered", idsOf(got.Recovered), []string{t.ID})
		is(x, "the status it was recovered to", got.Recovered[0].Status, holdfast.Queued)
		is(x, "its queue", got.Recovered[0].Queue, "default")
		is(x, "claimed", idsOf(got.Tasks), []string{t.ID})
		now := got.Tasks[0]
		is(x, "the worker", now.WorkerID, "w2")
		is(x, "the attempt", now.Attempt, 2)
		is(x, "the message", now.Message, "")
		if now.Progress != nil {
			x.Errorf("the progress is %v, want none", *now.Progress)
		}
	}},
	{"a recovered task is queued at once, without owner", func(x *test) {
		t := x.running("w1", holdfast.Submission{})
		half := 0.5
		x.must(x.s.Progress(x.ctx, t, &half, "half"))
		x.pass(2 * lease)
		x.claimAll(holdfast.Claim{Queues: []string{"another queue"}, Draws: anyName(1)})
		got := x.get(t.ID)
		want := *got
		want.Status, want.WorkerID, want.Message, want.Progress, want.LeaseUntil, want.Attempt = holdfast.Queued, "", "", nil, time.Time{}, 1
		want.RunAt, want.CompletedAt = got.UpdatedAt, time.Time{}
		same(x, "the task", got, &want)
		if !got.UpdatedAt.After(got.CreatedAt.Add(lease)) {
			x.Error("recovery did not touch updated_at")
		}
	}},
	{"with its attempts used up the task fails", func(x *test) {
		t := x.running("w1", holdfast.Submission{MaxAttempts: 1})
		x.pass(2 * lease)
		got := x.claimAll(holdfast.Claim{WorkerID: "w2", Draws: anyName(5)})
		is(x, "claimed", idsOf(got.Tasks), []string{})
		is(x, "recovered", idsOf(got.Recovered), []string{t.ID})
		is(x, "the status it was recovered to", got.Recovered[0].Status, holdfast.Failed)
		now := x.get(t.ID)
		is(x, "the status", now.Status, holdfast.Failed)
		is(x, "the worker who ran it last", now.WorkerID, "w1")
		is(x, "the end", now.CompletedAt.Equal(now.UpdatedAt), true)
		sameJSON(x, "the error", now.Error, json.RawMessage(
			`{"type":"LeaseExpired","code":"lease_expired","message":"task lease expired and max attempts reached","retryable":false,"details":{}}`))
	}},
	{"cancel wins on recovery, with or without attempts left", func(x *test) {
		for _, attempts := range []int{1, 3} {
			t := x.running("w1", holdfast.Submission{MaxAttempts: attempts})
			_, err := x.s.Cancel(x.ctx, t.ID)
			x.must(err)
			x.pass(2 * lease)
			got := x.claimAll(holdfast.Claim{Draws: anyName(5)})
			is(x, "claimed", idsOf(got.Tasks), []string{})
			is(x, "the status it was recovered to", got.Recovered[0].Status, holdfast.Canceled)
			x.statusIs(t.ID, holdfast.Canceled)
			if e := x.get(t.ID).Error; e != nil {
				x.Errorf("the error is %s, want none", e)
			}
		}
	}},
	{"a claim that takes nothing recovers as well", func(x *test) {
		for _, c := range []holdfast.Claim{{}, {Draws: []holdfast.Draw{named(5)}}, {Draws: anyName(0)}, {Queues: []string{"other"}, Draws: anyName(1)}} {
			t := x.running("w1", holdfast.Submission{})
			x.pass(2 * lease)
			is(x, "recovered", idsOf(x.claimAll(c).Recovered), []string{t.ID})
			x.statusIs(t.ID, holdfast.Queued)
			x.must(second(x.s.Cancel(x.ctx, t.ID)))
		}
	}},
	{"live leases are left alone", func(x *test) {
		short := x.running("w1", holdfast.Submission{})
		x.pass(lease / 2)
		long := x.running("w1", holdfast.Submission{})
		x.pass(lease/2 + later)
		is(x, "recovered", idsOf(x.claimAll(holdfast.Claim{}).Recovered), []string{short.ID})
		x.statusIs(long.ID, holdfast.Running)
	}},
	{"recovered tasks keep their place by priority", func(x *test) {
		x.submit(holdfast.Submission{Name: "running", Priority: 1})
		x.claim("w1", 1)
		x.submit(holdfast.Submission{Name: "above", Priority: 2})
		x.submit(holdfast.Submission{Name: "below"})
		x.pass(2 * lease)
		is(x, "the order", x.claimInTurn(holdfast.Claim{Draws: anyName(1)}), []string{"above", "running", "below"})
	}},
}

func second[T any](_ T, err error) error { return err }
