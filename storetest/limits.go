package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/eda94727/holdfast"
)

// jobs submits n tasks of a name to a queue.
func (x *test) jobs(n int, name, queue string, metadata string) {
	x.Helper()
	subs := make([]*holdfast.Submission, n)
	for i := range subs {
		subs[i] = &holdfast.Submission{Name: name, Queue: queue}
		if metadata != "" {
			subs[i].Metadata = json.RawMessage(metadata)
		}
	}
	x.must(second(x.s.SubmitMany(x.ctx, subs)))
}

func countBy(tasks []*holdfast.Task, key func(*holdfast.Task) string) map[string]int {
	out := map[string]int{}
	for _, t := range tasks {
		out[key(t)]++
	}
	return out
}

func byName(t *holdfast.Task) string { return t.Queue + "/" + t.Name }

var limitRules = []rule{
	{"a limit bounds what runs at once, and holds nobody else up", func(x *test) {
		both := []string{"default", "other"}
		for i, c := range []struct {
			limit holdfast.Limit
			draw  holdfast.Draw
			want  map[string]int
		}{
			{holdfast.Limit{Kind: holdfast.LimitQueue, Name: "default", Concurrency: 3}, holdfast.Draw{AnyName: true}, map[string]int{"default/a": 3, "other/a": 5}},
			{holdfast.Limit{Kind: holdfast.LimitName, Name: "a", Concurrency: 4}, holdfast.Draw{AnyName: true}, map[string]int{"default/a": 4, "default/b": 5}},
			{holdfast.Limit{Kind: holdfast.LimitName, Name: "a", Concurrency: 4}, holdfast.Draw{Names: []string{"a", "b"}}, map[string]int{"default/a": 4, "default/b": 5}},
			{holdfast.Limit{Kind: holdfast.LimitName, Name: "z", Concurrency: 1}, holdfast.Draw{AnyName: true}, map[string]int{"default/a": 10, "default/b": 5, "other/a": 5}},
		} {
			x.exec("delete from cairnq_tasks")
			x.jobs(10, "a", "default", "")
			x.jobs(5, "b", "default", "")
			x.jobs(5, "a", "other", "")
			x.must(x.s.SetLimit(x.ctx, c.limit))
			c.draw.Limit = 100
			claim := holdfast.Claim{Queues: both, Draws: []holdfast.Draw{c.draw}}
			first := x.claimAll(claim).Tasks
			is(x, fmt.Sprint("claimed in case ", i), countBy(first, byName), c.want)
			claim.WorkerID = "another"
			is(x, "claimed by another worker", len(x.claimAll(claim).Tasks), 0)
			limited := func(t *holdfast.Task) bool {
				return c.limit.Kind == holdfast.LimitQueue && t.Queue == c.limit.Name || c.limit.Kind == holdfast.LimitName && t.Name == c.limit.Name
			}
			// A place comes back with the end of its task, and with a dead worker's lease.
			free := 0
			for _, t := range first {
				if limited(t) {
					x.must(second(x.s.Complete(x.ctx, t, nil)))
					free = 1
					break
				}
			}
			is(x, "claimed when a place is free", len(x.claimAll(claim).Tasks), free)
			x.pass(lease)
			n := 0
			for _, t := range x.claimAll(claim).Tasks {
				if limited(t) {
					n++
				}
			}
			is(x, "claimed when the leases have ended", n, c.limit.Concurrency*free)
			c.limit.Concurrency = 0
			x.must(x.s.SetLimit(x.ctx, c.limit))
			is(x, "the limits left", firstOf(x.s.Limits(x.ctx)), []holdfast.Limit{})
		}
	}},
	{"what workers of other libraries run is counted", func(x *test) {
		t := x.running("theirs", holdfast.Submission{})
		x.must(x.s.SetLimit(x.ctx, holdfast.Limit{Kind: holdfast.LimitQueue, Name: "default", Concurrency: 2}))
		x.jobs(5, "job", "default", "")
		is(x, "claimed", len(x.claim("w", 5)), 1)
		x.must(second(x.s.Complete(x.ctx, t, nil)))
		is(x, "claimed when theirs has ended", len(x.claim("w", 5)), 1)
	}},
	{"a limit of a queue and one of a name both hold", func(x *test) {
		x.must(x.s.SetLimit(x.ctx, holdfast.Limit{Kind: holdfast.LimitQueue, Name: "default", Concurrency: 3}))
		x.must(x.s.SetLimit(x.ctx, holdfast.Limit{Kind: holdfast.LimitName, Name: "a", Concurrency: 2}))
		x.jobs(5, "a", "default", "")
		x.jobs(5, "b", "default", "")
		x.jobs(5, "a", "other", "")
		got := x.claimAll(holdfast.Claim{Queues: []string{"default", "other"}, Draws: anyName(100)}).Tasks
		is(x, "claimed", countBy(got, byName), map[string]int{"default/a": 2, "default/b": 1})
	}},
	{"draws of one claim share the places", func(x *test) {
		x.must(x.s.SetLimit(x.ctx, holdfast.Limit{Kind: holdfast.LimitName, Name: "a", Concurrency: 3}))
		x.jobs(5, "a", "default", "")
		x.jobs(5, "b", "default", "")
		got := x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{named(2, "a"), {AnyName: true, Limit: 4}, named(9, "a")}}).Tasks
		is(x, "claimed", countBy(got, byName), map[string]int{"default/a": 3, "default/b": 3})
	}},
	{"a rate bounds how many start in a time", func(x *test) {
		// Six an hour: one in ten minutes, at most three at once.
		x.must(x.s.SetLimit(x.ctx, holdfast.Limit{Kind: holdfast.LimitName, Name: "job", Rate: 6, Per: time.Hour, Burst: 3}))
		x.jobs(50, "job", "default", "")
		x.jobs(1, "free", "default", "")
		for i, step := range []struct {
			pass time.Duration
			want map[string]int
		}{
			{0, map[string]int{"default/job": 3, "default/free": 1}}, {0, map[string]int{}}, {9 * time.Minute, map[string]int{}},
			{time.Minute, map[string]int{"default/job": 1}}, {25 * time.Minute, map[string]int{"default/job": 2}}, {5 * time.Minute, map[string]int{"default/job": 1}},
			{24 * time.Hour, map[string]int{"default/job": 3}}, {0, map[string]int{}},
		} {
			x.pass(step.pass)
			got := x.claimAll(holdfast.Claim{Draws: anyName(100), Lease: 1000 * time.Hour})
			is(x, fmt.Sprint("started in step ", i), countBy(got.Tasks, byName), step.want)
			if len(got.Tasks) == 0 && (got.Next < 0 || got.Next > 10*time.Minute+time.Second) {
				x.Errorf("step %d: told to look again in %v", i, got.Next)
			}
		}
	}},
	{"a paused queue gives nothing until it is resumed", func(x *test) {
		x.must(x.s.PauseQueue(x.ctx, "default"))
		t := x.job() // submitting goes on
		x.submit(holdfast.Submission{Queue: "other"})
		got := x.claimAll(holdfast.Claim{Queues: []string{"default", "other"}, Draws: anyName(10)}).Tasks
		is(x, "claimed", countBy(got, byName), map[string]int{"other/job": 1})
		limits, err := x.s.Limits(x.ctx)
		x.must(err)
		if len(limits) != 1 || limits[0].Name != "default" || limits[0].Kind != holdfast.LimitQueue || limits[0].PausedAt.IsZero() {
			x.Fatalf("the limits are %+v", limits)
		}
		x.must(x.s.PauseQueue(x.ctx, "default"))
		is(x, "paused since, after a second pause", firstOf(x.s.Limits(x.ctx))[0].PausedAt.Equal(limits[0].PausedAt), true)
		x.must(x.s.ResumeQueue(x.ctx, "default"))
		is(x, "claimed after the resume", idsOf(x.claim("w", 10)), []string{t.ID})
		is(x, "the limits left", firstOf(x.s.Limits(x.ctx)), []holdfast.Limit{})
		x.must(x.s.ResumeQueue(x.ctx, "default"))
		x.must(x.s.ResumeQueue(x.ctx, "never paused"))
	}},
	{"what runs of a paused queue goes on, and is recovered", func(x *test) {
		a, b := x.running("w", holdfast.Submission{}), x.running("w", holdfast.Submission{})
		x.must(x.s.PauseQueue(x.ctx, "default"))
		x.must(second(x.s.Complete(x.ctx, a, nil)))
		x.pass(lease)
		got := x.claimAll(holdfast.Claim{Draws: anyName(10)})
		is(x, "recovered", idsOf(got.Recovered), []string{b.ID})
		is(x, "claimed", len(got.Tasks), 0)
	}},
	{"limits are listed as they were set", func(x *test) {
		want := []holdfast.Limit{
			{Kind: holdfast.LimitQueue, Name: "b", Concurrency: 1},
			{Kind: holdfast.LimitName, Name: "a", Rate: 5, Per: 2 * time.Second, Burst: 5},
			{Kind: holdfast.LimitName, Name: "b", Concurrency: 7, Rate: 3, Per: time.Minute, Burst: 9},
		}
		for i := range want {
			x.must(x.s.SetLimit(x.ctx, want[len(want)-1-i]))
		}
		is(x, "the limits", firstOf(x.s.Limits(x.ctx)), want)
		want[0].Concurrency = 2
		x.must(x.s.SetLimit(x.ctx, want[0]))
		is(x, "the limits", firstOf(x.s.Limits(x.ctx)), want)
	}},
	{"a limit's parts are refused by name", func(x *test) {
		for field, l := range map[string]holdfast.Limit{
			"kind":        {Name: "x", Concurrency: 1},
			"name":        {Kind: holdfast.LimitName, Concurrency: 1},
			"concurrency": {Kind: holdfast.LimitName, Name: "x", Concurrency: -1},
			"per":         {Kind: holdfast.LimitName, Name: "x", Rate: 1},
			"burst":       {Kind: holdfast.LimitName, Name: "x", Rate: 1, Per: time.Second, Burst: -2},
			"rate":        {Kind: holdfast.LimitQueue, Name: "x", Rate: 2000, Per: time.Millisecond},
		} {
			refused(x, x.s.SetLimit(x.ctx, l), field)
		}
		refused(x, x.s.PauseQueue(x.ctx, ""), "queue")
		refused(x, x.s.ResumeQueue(x.ctx, strings.Repeat("x", 256)), "queue")
		is(x, "the limits", firstOf(x.s.Limits(x.ctx)), []holdfast.Limit{})
	}},
	{"calls and resources bound the draws of a claim together", func(x *test) {
		x.jobs(20, "a", "default", "")
		x.jobs(20, "b", "default", "")
		a, b := named(10, "a"), named(10, "b")
		take := func(c holdfast.Claim) map[string]int { x.Helper(); return countBy(x.claimAll(c).Tasks, byName) }
		is(x, "of 3 calls", take(holdfast.Claim{Calls: 3, Draws: []holdfast.Draw{{Names: []string{"a"}, Limit: 2}, b}}), map[string]int{"default/a": 2, "default/b": 1})
		a.Batch = 4
		is(x, "of 2 calls, one of four", take(holdfast.Claim{Calls: 2, Draws: []holdfast.Draw{{Names: []string{"a"}, Limit: 4, Batch: 4}, b}}), map[string]int{"default/a": 4, "default/b": 1})
		a.Resource, a.Batch, b.Resource = "gpu", 0, "gpu"
		is(x, "of 3 places of a resource", take(holdfast.Claim{Resources: map[string]int{"gpu": 3}, Draws: []holdfast.Draw{{Names: []string{"a"}, Limit: 2, Resource: "gpu"}, b}}), map[string]int{"default/a": 2, "default/b": 1})
		is(x, "of a resource without places", take(holdfast.Claim{Draws: []holdfast.Draw{a, b}}), map[string]int{})
	}},
	{"partitions of a name are served in turn", func(x *test) {
		part := func(name string) string { return fmt.Sprintf(`{"holdfast_partition":"%s"}`, name) }
		of := func(t *holdfast.Task) string {
			var m struct {
				P string `json:"holdfast_partition"`
			}
			x.must(json.Unmarshal(t.Metadata, &m))
			return m.P
		}
		x.jobs(100, "job", "default", part("large"))
		x.jobs(50, "noise", "default", "")
		x.pass(later)
		x.jobs(1, "job", "default", part("small"))
		x.jobs(3, "job", "default", part("middle"))
		got := x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{named(8, "job")}}).Tasks
		is(x, "eight turns", countBy(got, of), map[string]int{"large": 4, "middle": 3, "small": 1})
		x.jobs(5, "job", "default", part("a"))
		x.jobs(5, "job", "default", part("b"))
		turns := map[string]int{}
		for range 9 {
			for p, n := range countBy(x.claimAll(holdfast.Claim{Draws: []holdfast.Draw{named(1, "job")}}).Tasks, of) {
				turns[p] += n
			}
		}
		is(x, "nine turns of one", turns, map[string]int{"large": 3, "a": 3, "b": 3})
	}},
}
