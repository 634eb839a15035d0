package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/eda94727/holdfast"
)

// keyDecisions is the protocol's table: what a submit does when the key's task is in a status.
var keyDecisions = []struct {
	strategy holdfast.Strategy
	keeps    []holdfast.Status // the recorded task is the answer
}{
	{"", holdfast.Statuses()},
	{holdfast.Reuse, holdfast.Statuses()},
	{holdfast.ReuseLive, []holdfast.Status{holdfast.Queued, holdfast.Running}},
	{holdfast.ReuseSucceeded, []holdfast.Status{holdfast.Queued, holdfast.Running, holdfast.Succeeded}},
	{holdfast.Reject, nil},
	{holdfast.Replace, nil},
}

func (x *test) keyed(key string) *holdfast.Task {
	x.Helper()
	t, err := x.s.GetByKey(x.ctx, key)
	x.must(err)
	return t
}

var keyRules = append(strategyRules(), []rule{
	{"a free key is taken under every strategy", func(x *test) {
		for _, d := range keyDecisions {
			key := "key " + string(d.strategy)
			t := x.submit(holdfast.Submission{Key: key, Strategy: d.strategy})
			same(x, "the key's task", x.keyed(key), t)
			is(x, "reused", t.Reused, false)
		}
	}},
	{"keys are told apart by every byte", func(x *test) {
		ids := map[string]bool{}
		for _, key := range []string{"a", "A", "a ", " a", "ä", "a\u0308", "%", "_", "a'b", `a"b`} {
			ids[x.submit(holdfast.Submission{Key: key}).ID] = true
		}
		is(x, "the number of tasks", len(ids), 10)
	}},
	{"a reused task is told as it is", func(x *test) {
		t := x.ended(holdfast.Succeeded, holdfast.Submission{Key: "k"})
		x.pass(later)
		was := x.get(t.ID)
		got := x.submit(holdfast.Submission{Name: "other", Queue: "other", Priority: 9, Key: "k", Strategy: holdfast.ReuseSucceeded})
		same(x, "the answer", got, was)
		same(x, "the task", x.get(t.ID), was)
		is(x, "reused", got.Reused, true)
		many, err := x.s.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "a", Key: "k"}, {Name: "b", Key: "new"}, {Name: "c", Key: "new"}, {Name: "d"}, {Name: "e", Key: "k", Strategy: holdfast.Replace}})
		x.must(err)
		reused := []bool{}
		for _, t := range many {
			reused = append(reused, t.Reused)
		}
		is(x, "reused of many", reused, []bool{true, false, true, false, false})
		is(x, "the task that was made and reused in one call", many[2].ID, many[1].ID)
	}},
	{"many in one call count from left to right, as one by one", func(x *test) {
		sequences := [][]string{
			{"a:", "a:"},
			{"a:reject", "b:reject", "c:reject"},
			{"a:replace", "a:replace", "a:replace"},
			{"a:replace", "a:reuse", "b:", "a:replace", "a:reuse-live", "-", "b:replace"},
			{"a:reuse-live", "a:replace", "a:reuse-succeeded", "-", "-"},
			{"live:replace", "live:replace", "live:reuse"},
			{"live:reuse", "live:replace", "live:reuse-live"},
			{"running:replace", "running:reuse-live", "running:replace"},
			{"done:reuse", "done:reuse-live", "done:reuse-succeeded"},
			{"done:reuse-succeeded", "done:replace", "done:replace", "done:reuse"},
			{"failed:reuse-succeeded", "failed:reuse-succeeded", "failed:replace"},
		}
		for i, sequence := range sequences {
			x.Log(sequence)
			alone, together := x.playKeys(fmt.Sprint(i, "alone"), sequence, false), x.playKeys(fmt.Sprint(i, "together"), sequence, true)
			is(x, "what became of them", together, alone)
		}
	}},
	{"a rejection in the midst of many leaves nothing", func(x *test) {
		_, err := x.s.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "a", Key: "k"}, {Name: "b", Key: "k", Strategy: holdfast.Reject}})
		errorIs(x, err, holdfast.ErrAlreadyExists)
		is(x, "the number of tasks", x.rows(), 0)
		is(x, "the number of keys", x.number("select count(*) from cairnq_task_keys"), 0)
	}},
	{"a key whose task was deleted by others is free", func(x *test) {
		for _, d := range keyDecisions {
			old := x.submit(holdfast.Submission{Key: "k", Strategy: holdfast.ReuseLive})
			x.exec("delete from cairnq_tasks where id = '" + old.ID + "'")
			t := x.submit(holdfast.Submission{Key: "k", Strategy: d.strategy})
			is(x, "the key's task", x.keyed("k").ID, t.ID)
			x.must(second(x.s.Cancel(x.ctx, t.ID)))
		}
	}},
	{"a key's row tells when it was made and last moved", func(x *test) {
		x.submit(holdfast.Submission{Key: "k"})
		x.pass(later)
		t := x.submit(holdfast.Submission{Key: "k", Strategy: holdfast.Replace})
		// A server's clock goes on between two statements.
		moved := x.number("select updated_at_ms from cairnq_task_keys") - t.CreatedAt.UnixMilli()
		is(x, "the key moved with its task", moved >= 0 && moved < later.Milliseconds(), true)
		is(x, "the time between", x.number("select updated_at_ms - created_at_ms from cairnq_task_keys") >= later.Milliseconds(), true)
	}},
}...)

// strategyRules has one rule for each strategy and status.
func strategyRules() (list []rule) {
	for _, d := range keyDecisions {
		for _, status := range holdfast.Statuses() {
			list = append(list, rule{fmt.Sprintf("%s over a task that is %s", orDefault(d.strategy), status), func(x *test) {
				old := x.inStatus(status, holdfast.Submission{Key: "k"})
				x.pass(later)
				was := x.get(old.ID)
				got, err := x.s.Submit(x.ctx, &holdfast.Submission{Name: "new", Key: "k", Strategy: d.strategy})
				if d.strategy == holdfast.Reject {
					var e *holdfast.AlreadyExistsError
					if !errors.Is(err, holdfast.ErrAlreadyExists) || !errors.As(err, &e) || e.TaskID != old.ID || e.Key != "k" {
						x.Fatalf("the error is %v, want an AlreadyExistsError of %s", err, old.ID)
					}
					same(x, "the old task", x.get(old.ID), was)
					is(x, "the number of tasks", x.rows(), 1)
					return
				}
				x.must(err)
				for _, s := range d.keeps {
					if s == status {
						same(x, "the answer", got, was)
						same(x, "the old task", x.get(old.ID), was)
						is(x, "the number of tasks", x.rows(), 1)
						return
					}
				}
				is(x, "the name of the new task", got.Name, "new")
				is(x, "the number of tasks", x.rows(), 2)
				same(x, "the key's task", x.keyed("k"), got)
				same(x, "the new task as read", x.get(got.ID), got)
				if d.strategy != holdfast.Replace || status.Terminal() {
					same(x, "the old task", x.get(old.ID), was)
					return
				}
				// Replaced as by cancel.
				now := x.get(old.ID)
				if status == holdfast.Queued {
					is(x, "the old task's status", now.Status, holdfast.Canceled)
					// A server's clock goes on between two statements.
					after := now.CompletedAt.Sub(got.CreatedAt)
					is(x, "the old task ended with the new one's start", after >= 0 && after < later, true)
				} else {
					is(x, "the old task's status", now.Status, holdfast.Running)
					is(x, "the old task's request", now.CancelRequestedAt.IsZero(), false)
				}
			}})
		}
	}
	return list
}

func orDefault(s holdfast.Strategy) string {
	if s == "" {
		return "no strategy"
	}
	return string(s)
}

// playKeys submits "key:strategy" (or "-" without a key) one by one or in one call, and tells what
// became of it: for each submission whose task it was answered and what that task's status is at the
// end, and for each key whose task it is.
func (x *test) playKeys(prefix string, sequence []string, together bool) []string {
	x.Helper()
	for name, status := range map[string]holdfast.Status{"live": holdfast.Queued, "running": holdfast.Running, "done": holdfast.Succeeded, "failed": holdfast.Failed} {
		for _, s := range sequence {
			if len(s) > len(name) && s[:len(name)+1] == name+":" {
				// High priority, so that a claim inside takes this one.
				x.inStatus(status, holdfast.Submission{Name: "old " + name, Key: prefix + name, Priority: 100})
				break
			}
		}
	}
	var subs []*holdfast.Submission
	for i, s := range sequence {
		sub := &holdfast.Submission{Name: fmt.Sprint("new ", i), Delay: 1000 * time.Hour}
		for j := range s {
			if s[j] == ':' {
				sub.Key, sub.Strategy = prefix+s[:j], holdfast.Strategy(s[j+1:])
			}
		}
		subs = append(subs, sub)
	}
	var got []*holdfast.Task
	var err error
	if together {
		got, err = x.s.SubmitMany(x.ctx, subs)
		x.must(err)
	} else {
		for _, sub := range subs {
			t, err := x.s.Submit(x.ctx, sub)
			x.must(err)
			got = append(got, t)
		}
	}
	var out []string
	for i, t := range got {
		now := x.get(t.ID)
		out = append(out, fmt.Sprintf("%d is %s: %s, asked to stop: %v", i, now.Name, now.Status, !now.CancelRequestedAt.IsZero()))
		if subs[i].Key != "" {
			key := x.keyed(subs[i].Key)
			out = append(out, fmt.Sprintf("%s is %s", sequence[i], key.Name))
		}
	}
	x.exec("delete from cairnq_task_keys")
	x.exec("delete from cairnq_tasks")
	return out
}
