package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// Every attempt that failed is kept, whoever's worker made it and however it ended; a success is not.
func TestHistoryOfFailedAttempts(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := deadline(t)
		id := db.submit("job", holdfast.MaxAttempts(10))
		own := &holdfast.Task{ID: id, WorkerID: "foreign"}
		claim := func() {
			t.Helper()
			if !db.claim(id) {
				t.Fatal("not claimed")
			}
		}
		recover := func() {
			t.Helper()
			db.exec("update cairnq_tasks set lease_until_ms = 1 where id = '%s'", id)
			got, err := db.store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"other"}, Limit: 1}}, WorkerID: "w", Lease: time.Minute})
			if err != nil || len(got.Recovered) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		claim()
		if _, err := db.store.Fail(ctx, own, []byte(`{"code": "first", "message": "one"}`), true, 0); err != nil {
			t.Fatal(err)
		}
		claim()
		recover()
		claim()
		if _, err := db.store.Release(ctx, own, 0); err != nil { // a snooze is no failure
			t.Fatal(err)
		}
		db.run(id, holdfast.Failed) // by a foreign worker
		if _, err := db.client.Retry(ctx, id, true); err != nil {
			t.Fatal(err)
		}
		claim()
		if _, err := db.client.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
		recover()
		if _, err := db.client.Retry(ctx, id, false); err != nil {
			t.Fatal(err)
		}
		db.exec("update cairnq_tasks set max_attempts = 2 where id = '%s'", id)
		claim()
		recover()
		if _, err := db.client.Retry(ctx, id, true); err != nil {
			t.Fatal(err)
		}
		db.run(id, holdfast.Succeeded)
		got, err := db.client.Attempts(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"1 foreign queued first", "2 foreign queued lease_expired", "3 foreign failed handler_error",
			"1 foreign canceled lease_expired", "2 foreign failed lease_expired",
		}
		for i, a := range got {
			text := fmt.Sprintf("%d %s %s %s", a.Attempt, a.WorkerID, a.Status, a.Failure().Code)
			if i >= len(want) || text != want[i] {
				t.Errorf("attempt %d is %q", i, text)
			}
			if time.Since(a.EndedAt).Abs() > time.Minute {
				t.Errorf("ended at %v", a.EndedAt)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d attempts, want %d", len(got), len(want))
		}
		if f := got[1].Failure(); f.Message != "the lease ended before the attempt did" || !f.Retryable {
			t.Errorf("the record of an expired lease: %+v", f)
		}
		db.purge(id)
		if n := db.value("select count(*) from holdfast_attempts"); n != 0 {
			t.Errorf("%d attempts outlived their task", n)
		}
		if _, err := db.client.Attempts(ctx, id); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("the attempts of no task: %v", err)
		}
	})
}

// The newest attempts are kept, of each task for itself.
func TestHistoryIsBounded(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		ctx := context.Background()
		other, id := db.submit("other", holdfast.MaxAttempts(1)), db.submit("job", holdfast.MaxAttempts(1000))
		db.run(other, holdfast.Failed)
		for range holdfast.MaxHistory + 5 {
			if !db.claim(id) {
				t.Fatal("not claimed")
			}
			if _, err := db.store.Fail(ctx, &holdfast.Task{ID: id, WorkerID: "foreign"}, nil, true, 0); err != nil {
				t.Fatal(err)
			}
		}
		got, err := db.client.Attempts(ctx, id)
		if err != nil || len(got) != holdfast.MaxHistory || got[0].Attempt != 6 || got[len(got)-1].Attempt != holdfast.MaxHistory+5 {
			t.Errorf("%d attempts, %v", len(got), err)
		}
		if got, err = db.client.Attempts(ctx, other); err != nil || len(got) != 1 {
			t.Errorf("the other task has %d attempts, %v", len(got), err)
		}
	})
}
