package storetest

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

var idPattern = regexp.MustCompile(`^task_[0-7][0-9A-HJKMNP-TV-Z]{25}$`)

var submitRules = []rule{
	{"a task is queued with the protocol's defaults", func(x *test) {
		before, err := x.s.Now(x.ctx)
		x.must(err)
		t := x.submit(holdfast.Submission{Name: "job"})
		after, err := x.s.Now(x.ctx)
		x.must(err)
		if !idPattern.MatchString(t.ID) {
			x.Errorf("the id %q is not task_ and a ULID", t.ID)
		}
		if t.CreatedAt.Before(before.Truncate(time.Millisecond)) || t.CreatedAt.After(after) {
			x.Errorf("created at %v, between %v and %v by the database's clock", t.CreatedAt, before, after)
		}
		same(x, "the task as read", x.get(t.ID), t)
		same(x, "the task", t, &holdfast.Task{
			ID: t.ID, Name: "job", Queue: "default", Status: holdfast.Queued, Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{}`),
			MaxAttempts: 3, RootID: t.ID, CreatedAt: t.CreatedAt, UpdatedAt: t.CreatedAt, RunAt: t.CreatedAt,
		})
	}},
	{"every field of a submission is kept", func(x *test) {
		top := x.job()
		t := x.submit(holdfast.Submission{
			Name: "näme of a task", Queue: "quëue", Payload: json.RawMessage(`{"a":[1,2,{"b":null}]}`), Metadata: json.RawMessage(`{"by":"somebody"}`),
			MaxAttempts: 7, Priority: -3, Delay: 90 * time.Second, Key: "a key", ParentID: top.ID, RootID: top.ID, CorrelationID: "abc",
		})
		same(x, "the task as read", x.get(t.ID), t)
		same(x, "the task", t, &holdfast.Task{
			ID: t.ID, Name: "näme of a task", Queue: "quëue", Status: holdfast.Queued, Payload: json.RawMessage(`{"a":[1,2,{"b":null}]}`),
			Metadata: json.RawMessage(`{"by":"somebody"}`), MaxAttempts: 7, Priority: -3, ParentID: top.ID, RootID: top.ID, CorrelationID: "abc",
			CreatedAt: t.CreatedAt, UpdatedAt: t.CreatedAt, RunAt: t.CreatedAt.Add(90 * time.Second),
		})
	}},
	{"a delayed task is not claimed before its time", func(x *test) {
		t := x.submit(holdfast.Submission{Delay: 10 * time.Minute})
		is(x, "the delay", t.RunAt.Sub(t.CreatedAt), 10*time.Minute)
		x.pass(9 * time.Minute)
		is(x, "claimed after 9 minutes", idsOf(x.claim("w", 5)), []string{})
		x.pass(time.Minute)
		is(x, "claimed after 10 minutes", idsOf(x.claim("w", 5)), []string{t.ID})
	}},
	{"what is out of its limits is refused by name, and nothing is written", func(x *test) {
		long := strings.Repeat("x", holdfast.MaxNameBytes+1)
		over := math.MaxInt32 + 1
		for _, c := range []struct {
			field string
			sub   holdfast.Submission
		}{
			{"name", holdfast.Submission{Name: ""}},
			{"name", holdfast.Submission{Name: long}},
			{"name", holdfast.Submission{Name: "a\x00b"}},
			{"name", holdfast.Submission{Name: "\xff"}},
			{"queue", holdfast.Submission{Name: "job", Queue: long}},
			{"queue", holdfast.Submission{Name: "job", Queue: "\x00"}},
			{"queue", holdfast.Submission{Name: "job", Queue: "a\xc3"}},
			{"key", holdfast.Submission{Name: "job", Key: long}},
			{"key", holdfast.Submission{Name: "job", Key: "\x00"}},
			{"key", holdfast.Submission{Name: "job", Key: "\xed\xa0\x80"}},
			{"key", holdfast.Submission{Name: "job", Strategy: holdfast.Reject}},
			{"correlation_id", holdfast.Submission{Name: "job", CorrelationID: long}},
			{"correlation_id", holdfast.Submission{Name: "job", CorrelationID: "\x00"}},
			{"parent_id", holdfast.Submission{Name: "job", ParentID: long}},
			{"root_id", holdfast.Submission{Name: "job", RootID: "\xff"}},
			{"max_attempts", holdfast.Submission{Name: "job", MaxAttempts: -1}},
			{"max_attempts", holdfast.Submission{Name: "job", MaxAttempts: over}},
			{"priority", holdfast.Submission{Name: "job", Priority: over}},
			{"priority", holdfast.Submission{Name: "job", Priority: math.MinInt32 - 1}},
			{"delay", holdfast.Submission{Name: "job", Delay: -time.Millisecond}},
			{"delay", holdfast.Submission{Name: "job", Delay: holdfast.MaxDelay + time.Millisecond}},
			{"strategy", holdfast.Submission{Name: "job", Key: "k", Strategy: "keep"}},
		} {
			what := fmt.Sprintf("%s of %.60q", c.field, fmt.Sprint(c.sub))
			_, err := x.s.Submit(x.ctx, &c.sub)
			named := func(err error) { x.Helper(); x.Log(what); refused(x, err, c.field) }
			named(err)
			_, err = x.s.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "job"}, &c.sub})
			named(err)
			if !strings.Contains(err.Error(), "submission 1") {
				x.Errorf("%s: the error does not say which submission: %v", what, err)
			}
		}
		is(x, "the number of tasks", x.rows(), 0)
	}},
	{"what is at its limits is accepted", func(x *test) {
		full := strings.Repeat("é", 127) + "x" // 255 bytes
		for _, sub := range []holdfast.Submission{
			{Name: full, Queue: full, Key: full, CorrelationID: full, ParentID: full, RootID: full},
			{Name: "job", MaxAttempts: math.MaxInt32, Priority: math.MaxInt32},
			{Name: "job", MaxAttempts: 1, Priority: math.MinInt32},
			{Name: "job", Delay: holdfast.MaxDelay},
		} {
			t := x.submit(sub)
			same(x, "the task as read", x.get(t.ID), t)
		}
	}},
	{"many are submitted in one call, in order", func(x *test) {
		const n = 2000
		subs := make([]*holdfast.Submission, n)
		for i := range subs {
			subs[i] = &holdfast.Submission{Name: fmt.Sprint("job", i), Queue: fmt.Sprint("q", i%3), Payload: json.RawMessage(fmt.Sprintf(`{"i":%d}`, i))}
		}
		tasks, err := x.s.SubmitMany(x.ctx, subs)
		x.must(err)
		is(x, "answers", len(tasks), n)
		for i, t := range tasks {
			is(x, "the name", t.Name, subs[i].Name)
			if i > 0 && t.ID <= tasks[i-1].ID {
				x.Fatalf("the ids do not rise: %s after %s", t.ID, tasks[i-1].ID)
			}
		}
		is(x, "the number of tasks", x.rows(), n)
		for _, i := range []int{0, 1, n / 2, n - 1} {
			same(x, "the task as read", x.get(tasks[i].ID), tasks[i])
		}
	}},
	{"of many in one call, small and large, each keeps its own fields", func(x *test) {
		for n := 1; n <= 40; n++ {
			subs := make([]*holdfast.Submission, n)
			for i := range subs {
				subs[i] = &holdfast.Submission{Name: fmt.Sprint("job", i), Priority: n*i - 100, Delay: time.Duration(i) * time.Second, Payload: json.RawMessage(fmt.Sprintf(`{"n":%d,"i":%d}`, n, i))}
				if i%3 == 1 {
					subs[i].CorrelationID = fmt.Sprint("c", n, i)
				}
				if i%7 == n%7 {
					subs[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 4000+100*i) + `"`)
				}
			}
			tasks, err := x.s.SubmitMany(x.ctx, subs)
			x.must(err)
			for i, t := range tasks {
				same(x, "the task as read", x.get(t.ID), t)
				is(x, "the payload", string(t.Payload), string(subs[i].Payload))
			}
		}
	}},
	{"none submitted is none, and no error", func(x *test) {
		tasks, err := x.s.SubmitMany(x.ctx, nil)
		x.must(err)
		is(x, "answers", len(tasks), 0)
	}},
	{"many are submitted or none: no JSON", func(x *test) {
		_, err := x.s.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "a"}, {Name: "b", Payload: json.RawMessage(`{`)}, {Name: "c"}})
		errorIs(x, err, holdfast.ErrNotJSON)
		_, err = x.s.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "a", Key: "k"}, {Name: "b", Metadata: json.RawMessage(`nul`)}, {Name: "c"}})
		errorIs(x, err, holdfast.ErrNotJSON)
		is(x, "the number of tasks", x.rows(), 0)
	}},
	{"many are submitted or none: a key that is taken", func(x *test) {
		old := x.submit(holdfast.Submission{Key: "k"})
		_, err := x.s.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "a"}, {Name: "b", Key: "new"}, {Name: "c", Key: "k", Strategy: holdfast.Reject}})
		errorIs(x, err, holdfast.ErrAlreadyExists)
		is(x, "the number of tasks", x.rows(), 1)
		same(x, "the old task", x.get(old.ID), old)
	}},
	{"ids rise in the order of submission", func(x *test) {
		var ids []string
		for range 50 {
			ids = append(ids, x.job().ID)
		}
		if !slices.IsSorted(ids) {
			x.Error("ids of one process do not rise")
		}
	}},
	{"a submit whose context has ended writes nothing", func(x *test) {
		ctx, cancel := newContext(x)
		cancel()
		if _, err := x.s.Submit(ctx, &holdfast.Submission{Name: "job"}); err == nil {
			x.Error("the submit did not fail")
		}
		if _, err := x.s.Submit(ctx, &holdfast.Submission{Name: "job", Key: "k"}); err == nil {
			x.Error("the submit with a key did not fail")
		}
		is(x, "the number of tasks", x.rows(), 0)
	}},
}

var _ testing.TB = (*test)(nil)
