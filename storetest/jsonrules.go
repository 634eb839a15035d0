package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/eda94727/holdfast"
)

// goodJSON is kept by every database: its bytes by SQLite, its meaning by Postgres.
var goodJSON = []string{
	`{}`, `[]`, `null`, `true`, `""`, `0`, `"text"`, `-1.5e-7`,
	`9007199254740993`, `-9223372036854775809`, `123456789012345678901234567890.123456789012345678901234567890`,
	`1e400`, `1E-300`, `0.1`, `1.10`, `-0.5`,
	" { \"a\" : [ 1 ,\t2 ] ,\n \"b\":{ } } ",
	`{"a":1,"a":2}`, `{"b":1,"a":{"b":1,"a":2}}`,
	`"\u00e9\n\t\"\\\/ é 日本 \ud83d\ude00 😀"`, `"\\u0000"`, `{"":""}`,
	`[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]`,
}

// badJSON is refused by every database before it is asked.
var badJSON = []string{
	``, ` `, `{`, `nul`, `NaN`, `Infinity`, `-Infinity`, `'a'`, `{a:1}`, `[1,]`, `{"a":1,}`, `1 2`, `01`, `+1`, `.5`, `1.`, "\"\x01\"", "\"\xff\"", "\"\xed\xa0\x80\"",
	`"\x41"`, `/* c */ 1`, "\ufeff1", `"`,
}

// notJSON fails unless err is a NotJSONError that names the field.
func notJSON(x *test, err error, field string) {
	x.Helper()
	var e *holdfast.NotJSONError
	if !errors.Is(err, holdfast.ErrNotJSON) || !errors.As(err, &e) || e.Field != field {
		x.Fatalf("the error is %v, want a NotJSONError of %s", err, field)
	}
}

// everywhere tells which ways JSON comes into the database, and what each is called in errors.
func (x *test) everywhere(raw json.RawMessage) map[string]func() (json.RawMessage, error) {
	return map[string]func() (json.RawMessage, error){
		"payload": func() (json.RawMessage, error) {
			t, err := x.s.Submit(x.ctx, &holdfast.Submission{Name: "json", Queue: "json", Payload: raw})
			if err != nil {
				return nil, err
			}
			return x.get(t.ID).Payload, nil
		},
		"metadata": func() (json.RawMessage, error) {
			t, err := x.s.Submit(x.ctx, &holdfast.Submission{Name: "json", Queue: "json", Key: "key", Strategy: holdfast.Replace, Metadata: raw})
			if err != nil {
				return nil, err
			}
			return x.get(t.ID).Metadata, nil
		},
		"result": func() (json.RawMessage, error) {
			t := x.running("w", holdfast.Submission{})
			for _, finish := range []func() error{
				func() error { return second(x.s.Complete(x.ctx, t, raw)) },
				func() error { return second(x.s.Succeed(x.ctx, t, raw)) },
			} {
				if err := finish(); err != nil {
					x.statusIs(t.ID, holdfast.Running) // nothing is half written
					x.must(second(x.s.Succeed(x.ctx, t, nil)))
					return nil, err
				}
				x.exec("update cairnq_tasks set status = 'running', completed_at_ms = null, lease_until_ms = updated_at_ms + 3600000 where id = '" + t.ID + "'")
			}
			kept := x.get(t.ID).Result
			x.exec("delete from cairnq_tasks where id = '" + t.ID + "'")
			return kept, nil
		},
		"error": func() (json.RawMessage, error) {
			t := x.running("w", holdfast.Submission{})
			if err := second(x.s.Fail(x.ctx, t, raw, false, 0)); err != nil {
				x.statusIs(t.ID, holdfast.Running)
				x.must(second(x.s.Succeed(x.ctx, t, nil)))
				return nil, err
			}
			return x.get(t.ID).Error, nil
		},
	}
}

var jsonRules = []rule{
	{"JSON is kept to the last digit", func(x *test) {
		for _, text := range goodJSON {
			for where, put := range x.everywhere(json.RawMessage(text)) {
				got, err := put()
				if err != nil {
					x.Fatalf("%s as %s: %v", text, where, err)
				}
				sameJSON(x, where, got, json.RawMessage(text))
				if x.s.Dialect().Name() == "sqlite" {
					is(x, "the bytes of the "+where, string(got), text)
				}
			}
		}
	}},
	{"what is no JSON is refused before it is written", func(x *test) {
		for _, text := range badJSON {
			for where, put := range x.everywhere(json.RawMessage(text)) {
				x.Logf("%q as %s", text, where)
				_, err := put()
				notJSON(x, err, where)
			}
		}
		is(x, "the number of tasks with it", x.number("select count(*) from cairnq_tasks where queue = 'json'"), 0)
	}},
	{"what this database cannot keep is refused before it is asked", func(x *test) {
		nested := func(n int) string { return strings.Repeat(`{"[":[`, n/2) + strings.Repeat(`]}`, n/2) }
		for _, text := range []string{nested(1000), nested(1002), nested(5000), `"\u0000"`, `{"a\u0000b":1}`, `"\ud800"`, `"\udc00\ud800"`, `["\ud83dx"]`, `1e200000`, `{"a":[1e-20000]}`} {
			for where, put := range x.everywhere(json.RawMessage(text)) {
				x.Logf("%.40s as %s", text, where)
				// Either kept or refused by name: never the database's own words.
				got, err := put()
				if err != nil {
					notJSON(x, err, where)
				} else if x.s.Dialect().Name() == "sqlite" {
					is(x, "the bytes", string(got), text)
				}
			}
		}
	}},
	{"a large payload is kept", func(x *test) {
		raw := json.RawMessage(`"` + strings.Repeat("0123456789abcdef", 1<<17) + `"`) // 2 MiB
		t := x.submit(holdfast.Submission{Payload: raw})
		is(x, "the payload", string(x.get(t.ID).Payload) == string(raw), true)
		is(x, "claimed", string(x.claim("w", 1)[0].Payload) == string(raw), true)
	}},
	{"digits come through a claim and a list", func(x *test) {
		raw := json.RawMessage(`{"n":9007199254740993}`)
		t := x.submit(holdfast.Submission{Payload: raw, Metadata: raw})
		sameJSON(x, "the payload listed", firstOf(x.s.List(x.ctx, holdfast.Filter{}))[0].Payload, raw)
		got := x.claim("w", 1)[0]
		sameJSON(x, "the payload claimed", got.Payload, raw)
		sameJSON(x, "the metadata claimed", got.Metadata, raw)
		var v struct{ N int64 }
		x.must(got.Decode(&v))
		is(x, "the number", v.N, 9007199254740993)
		_ = t
	}},
}

var othersRules = []rule{
	{"rows written by others are read, claimed and settled", func(x *test) {
		now, err := x.s.Now(x.ctx)
		x.must(err)
		ms := now.UnixMilli() - 1000
		for i, values := range []string{
			`'{}', null, null, '{}', null, null, 0, 3, 0, null, null, null`,
			`' { "a" : [ 1, 2 ] } ', 'null', ' {"type": "E"} ', ' { } ', 0.5, 'text', 1, 3, 5, 'python-1', null, 'corr'`,
			`'"text"', '[]', '"only text"', '{"k": {"l": [null]}}', 1, '', 2, 1, -5, '', null, ''`,
		} {
			x.exec(fmt.Sprintf(`insert into cairnq_tasks (id, name, queue, status, run_at_ms, created_at_ms, updated_at_ms,
				payload, result, error, metadata, progress, message, attempt, max_attempts, priority, worker_id, root_id, correlation_id)
				values ('task_0000000000000000000000000%d', 'theirs', 'theirs', 'queued', %d, %d, %d, %s)`, i, ms, ms, ms, values))
		}
		// As their workers and ours leave them: a queued task has no worker and no result.
		list, err := x.s.List(x.ctx, holdfast.Filter{Queue: "theirs"})
		x.must(err)
		is(x, "listed", len(list), 3)
		sameJSON(x, "the payload", list[1].Payload, json.RawMessage(`{"a":[1,2]}`))
		sameJSON(x, "the result", list[1].Result, json.RawMessage(`null`))
		is(x, "the failure", list[1].Failure().Type, "E")
		is(x, "the failure of any JSON", list[0].Failure().Message, `"only text"`)
		is(x, "the failure of none", list[2].Failure(), nil)
		is(x, "the root of none", list[2].RootID, "")
		x.exec("update cairnq_tasks set worker_id = null, result = null")
		got := x.claimAll(holdfast.Claim{Queues: []string{"theirs"}, Draws: anyName(5)}).Tasks
		is(x, "claimed", len(got), 3)
		for _, t := range got {
			x.must(second(x.s.Complete(x.ctx, t, json.RawMessage(`{"by":"us"}`))))
		}
		is(x, "succeeded", x.number("select count(*) from cairnq_tasks where status = 'succeeded' and attempt >= 1 and lease_until_ms is null"), 3)
	}},
	{"columns, indexes and tables that others have added do not disturb", func(x *test) {
		x.exec("alter table cairnq_tasks add column theirs_note text default 'x'")
		x.exec("create index theirs_idx on cairnq_tasks (name, priority, theirs_note)")
		x.exec("create table theirs_extra (id text primary key references cairnq_tasks (id) on delete cascade)")
		store := x.Again(x)
		for i, s := range []*holdfast.Store{x.s, store} {
			x.s = s
			t := x.ended(holdfast.Succeeded, holdfast.Submission{Key: fmt.Sprint("k", i)})
			x.exec("insert into theirs_extra values ('" + t.ID + "')")
			x.pass(later)
			is(x, "purged", x.purge(holdfast.PurgeFilter{}), []string{t.ID})
		}
	}},
	{"two stores on one database see each other's tasks at once", func(x *test) {
		other := x.Again(x)
		t := x.submit(holdfast.Submission{Key: "k"})
		same(x, "the task by the other", firstOf(other.Get(x.ctx, t.ID)), t)
		got, err := other.Claim(x.ctx, holdfast.Claim{Queues: []string{"default"}, Draws: anyName(1), WorkerID: "other", Lease: lease})
		x.must(err)
		is(x, "claimed by the other", idsOf(got.Tasks), []string{t.ID})
		x.statusIs(t.ID, holdfast.Running)
		is(x, "the worker", x.get(t.ID).WorkerID, "other")
		x.must(second(other.Complete(x.ctx, got.Tasks[0], nil)))
		x.statusIs(t.ID, holdfast.Succeeded)
	}},
	{"rows of ours say what others expect to read", func(x *test) {
		t := x.submit(holdfast.Submission{Key: "k"})
		is(x, "a queued task in their words", x.number(fmt.Sprintf(`select count(*) from cairnq_tasks where id = '%[1]s' and status = 'queued' and queue = 'default'
			and attempt = 0 and max_attempts = 3 and priority = 0 and root_id = id and run_at_ms = created_at_ms and updated_at_ms = created_at_ms
			and result is null and error is null and progress is null and message is null and worker_id is null and lease_until_ms is null
			and cancel_requested_at_ms is null and parent_id is null and correlation_id is null and completed_at_ms is null`, t.ID)), 1)
		is(x, "its key", x.number("select count(*) from cairnq_task_keys where key = 'k' and task_id = '"+t.ID+"' and created_at_ms = updated_at_ms"), 1)
		x.claim("w", 1)
		is(x, "a running task in their words", x.number(`select count(*) from cairnq_tasks where status = 'running' and worker_id = 'w' and attempt = 1
			and lease_until_ms - updated_at_ms = 3600000 and completed_at_ms is null`), 1)
		x.must(second(x.s.Complete(x.ctx, &holdfast.Task{ID: t.ID, WorkerID: "w"}, nil)))
		is(x, "a succeeded task in their words", x.number(`select count(*) from cairnq_tasks where status = 'succeeded' and progress = 1.0
			and lease_until_ms is null and worker_id = 'w' and completed_at_ms = updated_at_ms and result is null`), 1)
	}},
	{"the ledger holds every migration of the protocol", func(x *test) {
		names, err := strings1(x.SQL, "select name from cairnq_migrations where name like '00%' order by name")
		x.must(err)
		want := []string{"0001_init.sql", "0002_purge_index.sql", "0003_notify.sql", "0004_lease_index.sql", "0005_clear_terminal_lease.sql", "0006_claim_name_index.sql",
			"0007_purge_status_index.sql", "0008_claim_due_index.sql", "0009_purge_queue_index.sql", "0010_drop_status_index.sql"}
		if x.s.Dialect().Name() == "sqlite" {
			want = append(want[:2], want[3:]...)
		}
		is(x, "the ledger", names, want)
	}},
}
