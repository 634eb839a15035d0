package storetest

import (
	"fmt"
	"time"

	"github.com/eda94727/holdfast"
)

func (x *test) purge(f holdfast.PurgeFilter) []string {
	x.Helper()
	ids, err := x.s.Purge(x.ctx, f)
	x.must(err)
	for _, id := range ids {
		errorIs(x, second(x.s.Get(x.ctx, id)), holdfast.ErrNotFound)
	}
	return sorted(ids)
}

var purgeRules = []rule{
	{"ended tasks go when they are old enough, live ones never", func(x *test) {
		var ended, live []string
		for _, s := range holdfast.Statuses() {
			t := x.inStatus(s, holdfast.Submission{Priority: 1})
			if s == holdfast.Queued {
				x.must(second(x.s.Cancel(x.ctx, t.ID))) // so that later ones are claimed
				t = x.submit(holdfast.Submission{Delay: 1000 * time.Hour})
			}
			if s.Terminal() {
				ended = append(ended, t.ID)
			} else {
				live = append(live, t.ID)
			}
		}
		is(x, "purged at once", len(x.purge(holdfast.PurgeFilter{OlderThan: time.Hour})), 0)
		x.pass(time.Hour + later)
		x.must(second(x.s.Heartbeat(x.ctx, "w", lease, live...)))
		got := x.purge(holdfast.PurgeFilter{OlderThan: time.Hour})
		is(x, "purged", len(got), len(ended)+1)
		for _, id := range live {
			x.get(id)
		}
	}},
	{"age counts from the end, not from the start", func(x *test) {
		t := x.running("w", holdfast.Submission{})
		x.pass(lease / 2)
		x.must(second(x.s.Complete(x.ctx, t, nil)))
		x.pass(time.Minute)
		is(x, "purged", len(x.purge(holdfast.PurgeFilter{OlderThan: 2 * time.Minute})), 0)
		if x.Advance != nil { // only a clock that stands still meets the moment itself
			x.pass(time.Minute)
			is(x, "purged at the age itself", len(x.purge(holdfast.PurgeFilter{OlderThan: 2 * time.Minute})), 0)
		}
		x.pass(2 * time.Minute)
		is(x, "purged later", x.purge(holdfast.PurgeFilter{OlderThan: 2 * time.Minute}), []string{t.ID})
	}},
	{"each filter narrows the purge", func(x *test) {
		type kind struct {
			queue, name string
			status      holdfast.Status
		}
		var kinds []kind
		for _, q := range []string{"default", "q"} {
			for _, n := range []string{"a", "b"} {
				for _, s := range []holdfast.Status{holdfast.Succeeded, holdfast.Failed, holdfast.Canceled} {
					kinds = append(kinds, kind{q, n, s})
				}
			}
		}
		byID := map[string]kind{}
		for _, k := range kinds {
			t := x.ended(k.status, holdfast.Submission{Name: k.name})
			if k.queue != "default" {
				x.exec(fmt.Sprintf("update cairnq_tasks set queue = '%s' where id = '%s'", k.queue, t.ID))
			}
			byID[t.ID] = k
		}
		x.pass(time.Hour)
		for _, f := range []holdfast.PurgeFilter{
			{Queue: "none"}, {Queue: "q", Name: "a", Status: holdfast.Failed}, {Status: holdfast.Canceled}, {Name: "a", Queue: "q"}, {Queue: "q"}, {Status: holdfast.Failed, Name: "b"}, {Name: "a"}, {},
		} {
			want := []string{}
			for id, k := range byID {
				if (f.Queue == "" || f.Queue == k.queue) && (f.Name == "" || f.Name == k.name) && (f.Status == "" || f.Status == k.status) {
					want = append(want, id)
					delete(byID, id)
				}
			}
			is(x, fmt.Sprintf("purged by %+v", f), x.purge(f), sorted(want))
		}
		is(x, "the number of tasks", x.rows(), 0)
	}},
	{"the oldest go first, at most as many as the limit", func(x *test) {
		var ids []string
		for range 6 {
			ids = append(ids, x.ended(holdfast.Succeeded, holdfast.Submission{}).ID)
			x.pass(time.Minute)
		}
		is(x, "the first two", x.purge(holdfast.PurgeFilter{Limit: 2}), ids[:2])
		is(x, "the next two, of those old enough", x.purge(holdfast.PurgeFilter{Limit: 10, OlderThan: 150 * time.Second}), ids[2:4])
		is(x, "the rest", x.purge(holdfast.PurgeFilter{Limit: 10}), ids[4:])
	}},
	{"a purge takes 1000 unless told", func(x *test) {
		subs := make([]*holdfast.Submission, 1005)
		for i := range subs {
			subs[i] = &holdfast.Submission{Name: "job"}
		}
		x.must(second(x.s.SubmitMany(x.ctx, subs)))
		x.exec("update cairnq_tasks set status = 'canceled', completed_at_ms = updated_at_ms")
		x.pass(later)
		is(x, "purged", len(x.purge(holdfast.PurgeFilter{})), 1000)
		is(x, "purged then", len(x.purge(holdfast.PurgeFilter{})), 5)
	}},
	{"keys go with their tasks and are free then", func(x *test) {
		t := x.ended(holdfast.Succeeded, holdfast.Submission{Key: "k"})
		other := x.submit(holdfast.Submission{Key: "other", Delay: time.Hour})
		x.pass(later)
		is(x, "purged", x.purge(holdfast.PurgeFilter{}), []string{t.ID})
		is(x, "the number of keys", x.number("select count(*) from cairnq_task_keys"), 1)
		errorIs(x, second(x.s.GetByKey(x.ctx, "k")), holdfast.ErrNotFound)
		is(x, "the other key's task", firstOf(x.s.GetByKey(x.ctx, "other")).ID, other.ID)
		again := x.submit(holdfast.Submission{Key: "k", Strategy: holdfast.Reject})
		is(x, "the key's task", firstOf(x.s.GetByKey(x.ctx, "k")).ID, again.ID)
	}},
	{"a task that lost its key to another takes no key with it", func(x *test) {
		old := x.submit(holdfast.Submission{Key: "k"})
		t := x.submit(holdfast.Submission{Key: "k", Strategy: holdfast.Replace})
		x.pass(later)
		is(x, "purged", x.purge(holdfast.PurgeFilter{}), []string{old.ID})
		is(x, "the key's task", firstOf(x.s.GetByKey(x.ctx, "k")).ID, t.ID)
	}},
	{"a purge's arguments are refused by name", func(x *test) {
		t := x.ended(holdfast.Succeeded, holdfast.Submission{})
		x.pass(later)
		for _, c := range []struct {
			field string
			f     holdfast.PurgeFilter
		}{
			{"older_than", holdfast.PurgeFilter{OlderThan: -1}},
			{"limit", holdfast.PurgeFilter{Limit: -1}},
			{"status", holdfast.PurgeFilter{Status: "done"}},
			{"status", holdfast.PurgeFilter{Status: holdfast.Running}},
			{"status", holdfast.PurgeFilter{Status: holdfast.Queued}},
			{"queue", holdfast.PurgeFilter{Queue: "\x00"}},
			{"name", holdfast.PurgeFilter{Name: "\xff"}},
		} {
			refused(x, second(x.s.Purge(x.ctx, c.f)), c.field)
		}
		x.get(t.ID)
	}},
}
