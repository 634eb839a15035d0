package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/eda94727/holdfast"
)

// failed makes n failed tasks, in the order of their ends.
func (d *database) failed(n int, name, queue string) []string {
	d.t.Helper()
	tasks := submitMany(d.t, d.client, name, n, holdfast.Queue(queue))
	ids := make([]string, n)
	for i, t := range tasks {
		ids[i] = t.ID
	}
	// Several of one millisecond, as in life.
	d.exec(`update cairnq_tasks set status = 'failed', attempt = 3, completed_at_ms = created_at_ms, error = '{"code": "x"}' where id in ('%s')`, strings.Join(ids, "', '"))
	return ids
}

func (d *database) count(where string) int64 {
	d.t.Helper()
	return d.value("select count(*) from cairnq_tasks where %s", where)
}

// Everything that matches is retried, in bounded steps that tell how far they are; nothing else is.
func TestRetryAll(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		db.failed(1234, "mail", "one")
		db.failed(10, "mail", "two")
		db.failed(10, "other", "one")
		steps, again := 0, 0
		done, err := db.client.RetryAll(ctx, holdfast.BulkFilter{Name: "mail", Queue: "one"}, holdfast.BulkOptions{ResetAttempts: true, Progress: func(p holdfast.BulkProgress) {
			steps++
			if p.Done {
				return
			}
			// One that is retried and fails again at once is not retried for ever.
			now, err := db.store.Now(ctx)
			if err != nil {
				t.Error(err)
			}
			again += int(db.exec("update cairnq_tasks set status = 'failed', completed_at_ms = %d where id = (select min(id) from cairnq_tasks where status = 'queued')", now.UnixMilli()+1))
		}})
		if err != nil || done.Changed != 1234 || done.Skipped != 0 || !done.Done || steps != 4 || again != 3 {
			t.Errorf("%+v after %d steps, %v", done, steps, err)
		}
		if n := db.count("status = 'queued' and attempt = 0 and error is null"); n != 1234-int64(again) {
			t.Errorf("%d are queued", n)
		}
		if n := db.count("status = 'failed' and (name = 'other' or queue = 'two')"); n != 20 {
			t.Errorf("%d of the others are left alone", n)
		}
	})
}

// When its context ends, a bulk operation stops between two steps and goes on from its cursor.
func TestBulkGoesOnFromItsCursor(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ids := db.failed(1000, "mail", "one")
		ctx, cancel := context.WithCancelCause(deadline(t))
		enough := errors.New("enough")
		first, err := db.client.DeleteAll(ctx, holdfast.BulkFilter{Status: holdfast.Failed}, holdfast.BulkOptions{Step: 300, Progress: func(holdfast.BulkProgress) { cancel(enough) }})
		if !errors.Is(err, enough) || first.Changed != 300 || first.Done {
			t.Fatalf("%+v, %v", first, err)
		}
		if n := db.count(fmt.Sprintf("id in ('%s')", strings.Join(ids[:300], "', '"))); n != 0 {
			t.Errorf("%d of the oldest are left", n)
		}
		db.failed(5, "late", "one") // after the start: none of this operation's business
		db.exec("update cairnq_tasks set completed_at_ms = completed_at_ms + 3600000 where name = 'late'")
		db.retry(ids[999])
		second, err := db.client.DeleteAll(deadline(t), holdfast.BulkFilter{Status: holdfast.Failed}, holdfast.BulkOptions{Cursor: first.Cursor})
		if err != nil || second.Changed != 699 || !second.Done {
			t.Errorf("%+v, %v", second, err)
		}
		if n := db.count("status = 'failed'"); n != 5 {
			t.Errorf("%d are left", n)
		}
	})
}

// A task that somebody else changed first is skipped, not changed twice.
func TestBulkSkipsWhatOthersChanged(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ids := db.failed(10, "mail", "one")
		db.cancel(db.submit("queued"))
		done, err := db.client.RetryAll(deadline(t), holdfast.BulkFilter{}, holdfast.BulkOptions{Step: 5, Progress: func(p holdfast.BulkProgress) {
			if p.Changed == 5 {
				db.purge(ids[9])
			}
		}})
		if err != nil || done.Changed != 9 {
			t.Errorf("%+v, %v", done, err)
		}
		if n := db.count("status = 'canceled'"); n != 1 {
			t.Error("a canceled task was retried without being asked for")
		}
		if done, err = db.client.RetryAll(deadline(t), holdfast.BulkFilter{Status: holdfast.Canceled}, holdfast.BulkOptions{}); err != nil || done.Changed != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

func TestCancelAll(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		submitMany(t, db.client, "a", 20)
		b := submitMany(t, db.client, "b", 20)
		for _, task := range b[:5] {
			db.claim(task.ID)
		}
		child := db.submit("child", holdfast.After(b[19].ID))
		done, err := db.client.CancelAll(deadline(t), holdfast.BulkFilter{Name: "b"}, holdfast.BulkOptions{Step: 3})
		if err != nil || done.Changed != 20 || !done.Done {
			t.Errorf("%+v, %v", done, err)
		}
		if n := db.count("name = 'b' and status = 'running' and cancel_requested_at_ms is not null"); n != 5 {
			t.Errorf("%d were asked to stop", n)
		}
		if n := db.count("name = 'b' and status = 'canceled'"); n != 15 {
			t.Errorf("%d were canceled", n)
		}
		db.want(child, "canceled")
		if done, err = db.client.CancelAll(deadline(t), holdfast.BulkFilter{Status: holdfast.Queued}, holdfast.BulkOptions{}); err != nil || done.Changed != 20 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

func TestDeleteAll(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		db.failed(3, "a", "one")
		for range 3 {
			db.run(db.submit("ok", holdfast.Queue("one")), holdfast.Succeeded)
			db.cancel(db.submit("no"))
		}
		db.submit("live", holdfast.Key("k"))
		for _, c := range []struct {
			filter holdfast.BulkFilter
			want   int
		}{
			{holdfast.BulkFilter{Status: holdfast.Succeeded, Name: "a"}, 0},
			{holdfast.BulkFilter{Status: holdfast.Succeeded}, 3},
			{holdfast.BulkFilter{Queue: "one"}, 3},
			{holdfast.BulkFilter{Queue: "one"}, 0},
			{holdfast.BulkFilter{}, 3},
		} {
			if done, err := db.client.DeleteAll(ctx, c.filter, holdfast.BulkOptions{}); err != nil || done.Changed != c.want {
				t.Errorf("%+v: %+v, %v", c.filter, done, err)
			}
		}
		if n := db.count("1 = 1"); n != 1 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

func TestBulkMistakes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		for _, c := range []struct {
			field string
			op    func(context.Context, holdfast.BulkFilter, holdfast.BulkOptions) (holdfast.BulkProgress, error)
			f     holdfast.BulkFilter
			o     holdfast.BulkOptions
		}{
			{"status", db.client.RetryAll, holdfast.BulkFilter{Status: holdfast.Succeeded}, holdfast.BulkOptions{}},
			{"status", db.client.RetryAll, holdfast.BulkFilter{Status: "lost"}, holdfast.BulkOptions{}},
			{"status", db.client.CancelAll, holdfast.BulkFilter{Status: holdfast.Failed}, holdfast.BulkOptions{}},
			{"status", db.client.DeleteAll, holdfast.BulkFilter{Status: holdfast.Running}, holdfast.BulkOptions{}},
			{"step", db.client.DeleteAll, holdfast.BulkFilter{}, holdfast.BulkOptions{Step: -1}},
			{"step", db.client.DeleteAll, holdfast.BulkFilter{}, holdfast.BulkOptions{Step: holdfast.MaxBulkStep + 1}},
			{"cursor", db.client.DeleteAll, holdfast.BulkFilter{}, holdfast.BulkOptions{Cursor: "12"}},
			{"cursor", db.client.DeleteAll, holdfast.BulkFilter{}, holdfast.BulkOptions{Cursor: "12.1.0.x"}},
		} {
			var bad *holdfast.InvalidError
			if _, err := c.op(ctx, c.f, c.o); !errors.As(err, &bad) || bad.Field != c.field {
				t.Errorf("%+v %+v: %v", c.f, c.o, err)
			}
		}
	})
}

// A failed task runs again with what it should have had, and keeps its history.
func TestRedrive(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		id := db.submit("job")
		db.run(id, holdfast.Failed)
		var bad *holdfast.NotJSONError
		if _, err := db.client.Redrive(ctx, id, func() {}); !errors.As(err, &bad) || bad.Field != "payload" {
			t.Errorf("a function as payload: %v", err)
		}
		if _, err := db.store.Redrive(ctx, id, []byte("{")); !errors.As(err, &bad) {
			t.Errorf("half an object as payload: %v", err)
		}
		if _, err := holdfast.NewClient(db.store, holdfast.WithPayloadLimit(10)).Redrive(ctx, id, "longer than that"); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a payload beyond the limit: %v", err)
		}
		db.want(id, "failed")
		task, err := db.client.Redrive(ctx, id, map[string]int{"n": 9007199254740993})
		if err != nil || task.Status != holdfast.Queued || task.Attempt != 0 || task.Error != nil {
			t.Fatalf("%+v, %v", task, err)
		}
		var payload struct{ N int }
		if err := db.get(id).Decode(&payload); err != nil || payload.N != 9007199254740993 {
			t.Errorf("%v, %v", payload, err)
		}
		if _, err := db.client.Redrive(ctx, id, nil); !errors.Is(err, holdfast.ErrState) {
			t.Errorf("a queued task: %v", err)
		}
		if list, err := db.client.Attempts(ctx, id); err != nil || len(list) != 1 {
			t.Errorf("history %v, %v", list, err)
		}
		if _, err := db.client.Redrive(ctx, "task_none", nil); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("no task: %v", err)
		}
	})
}

// The looks of bulk operations read an index, not the table.
func TestBulkUsesIndexes(t *testing.T) {
	db := onSQLite(t)
	for _, c := range []struct{ where, index string }{
		{"status = 'failed' and error is not null and completed_at_ms <= 9 and completed_at_ms >= 1 and (completed_at_ms > 1 or id > 'x') and +name = 'n' order by completed_at_ms, id", "cairnq_tasks_status_completed_idx"},
		{"completed_at_ms is not null and completed_at_ms <= 9 and completed_at_ms >= 1 and (completed_at_ms > 1 or id > 'x') order by completed_at_ms, id", "cairnq_tasks_completed_idx"},
		{"completed_at_ms is not null and completed_at_ms <= 9 and completed_at_ms >= 1 and (completed_at_ms > 1 or id > 'x') and queue = 'q' order by completed_at_ms, id", "cairnq_tasks_queue_completed_idx"},
		{"status = 'queued' and created_at_ms <= 9", "cairnq_tasks_claim"},
		{"status = 'running' and lease_until_ms is not null and cancel_requested_at_ms is null and created_at_ms <= 9", "cairnq_tasks_lease_idx"},
		{"root_id = 'x' and root_id <> id", "cairnq_tasks_root_idx"},
	} {
		var a, b, parent, detail string
		if err := db.sql.QueryRow("explain query plan select id from cairnq_tasks where "+c.where+" limit 500").Scan(&a, &b, &parent, &detail); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(detail, c.index) {
			t.Errorf("%s: %s", c.where, detail)
		}
	}
}
