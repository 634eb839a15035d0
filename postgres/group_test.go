package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
)

// waitFor waits until the server says so.
func waitFor(t *testing.T, conn *pgx.Conn, what, query string, want int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		var n int
		if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d, want %d", what, n, want)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

const blocked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// lockTasks holds the task table until the answered function is called.
func lockTasks(t *testing.T, dsn string) (release func()) {
	t.Helper()
	tx, err := connect(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table cairnq_tasks in share row exclusive mode"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestGroupFailsOnlyTheGuilty: a rule of the application's own refuses some of those who share a
// statement.
func TestGroupFailsOnlyTheGuilty(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, dsn)
	look := connect(t, dsn)
	if _, err := look.Exec(t.Context(), "alter table cairnq_tasks add constraint no_bad check (name <> 'bad')"); err != nil {
		t.Fatal(err)
	}
	release := lockTasks(t, dsn)
	const n = 40
	errs := make([]error, n)
	tasks := make([]*holdfast.Task, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			name := "good"
			if i%10 == 3 {
				name = "bad"
			}
			tasks[i], errs[i] = store.Submit(t.Context(), &holdfast.Submission{Name: name})
		})
	}
	waitFor(t, look, "blocked inserts", blocked, 1)
	release()
	wg.Wait()
	for i := range n {
		if bad := i%10 == 3; bad != (errs[i] != nil) {
			t.Errorf("submit %d: %v", i, errs[i])
		} else if !bad {
			if _, err := store.Get(t.Context(), tasks[i].ID); err != nil {
				t.Errorf("submit %d was answered: %v", i, err)
			}
		}
	}
	waitFor(t, look, "tasks", "select count(*) from cairnq_tasks", n-n/10)
}

// TestGroupLeaving: who leaves while waiting for a turn has written nothing; who is under way stays
// for the answer.
func TestGroupLeaving(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, dsn)
	look := connect(t, dsn)
	release := lockTasks(t, dsn)
	ctx, leave := context.WithCancel(t.Context())
	const n = 30
	type answer struct {
		task *holdfast.Task
		err  error
	}
	answers := make(chan answer, n)
	var wg sync.WaitGroup
	submit := func() {
		wg.Go(func() {
			task, err := store.Submit(ctx, &holdfast.Submission{Name: "n"})
			answers <- answer{task, err}
		})
	}
	submit()
	waitFor(t, look, "blocked inserts", blocked, 1)
	for range n - 1 {
		submit()
	}
	leave()
	left, stayed := 0, 0
	// Those who wait for a turn leave although the table is still locked. At most as many groups as
	// run at once are under way; the others are out when nobody has left for a while.
	for left+stayed < n {
		select {
		case a := <-answers:
			if !errors.Is(a.err, context.Canceled) {
				t.Fatalf("while the table is locked: %v", a.err)
			}
			left++
			continue
		case <-time.After(300 * time.Millisecond):
		}
		if left == 0 {
			t.Fatal("nobody could leave")
		}
		break
	}
	release()
	wg.Wait()
	for left+stayed < n {
		if a := <-answers; a.err != nil {
			t.Errorf("under way: %v", a.err)
		}
		stayed++
	}
	waitFor(t, look, "tasks", "select count(*) from cairnq_tasks", stayed)
	var rows int
	if err := look.QueryRow(t.Context(), "select count(*) from cairnq_tasks").Scan(&rows); err != nil || rows != stayed {
		t.Fatalf("%d tasks, %d were answered: %v", rows, stayed, err)
	}
	if stayed == 0 {
		t.Error("the first was under way and should have had an answer")
	}
}

// TestGroupLosesItsConnection: nobody is told of success or of a duplicate; the error says that the
// database was unavailable.
func TestGroupLosesItsConnection(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, dsn)
	look := connect(t, dsn)
	release := lockTasks(t, dsn)
	const n = 10
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := store.Submit(t.Context(), &holdfast.Submission{Name: "n"})
			errs <- err
		}()
	}
	waitFor(t, look, "blocked inserts", blocked, 1)
	if _, err := look.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("the error is %v, want ErrUnavailable", err)
	}
	release()
	for range n - 1 {
		if err := <-errs; err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("the error is %v, want ErrUnavailable or none", err)
		}
	}
	if _, err := store.Submit(t.Context(), &holdfast.Submission{Name: "after"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestDeadlockIsTriedAgain: the server ends one of two transactions that wait for each other, and the
// caller does not hear of it.
func TestDeadlockIsTriedAgain(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, with(dsn, "deadlock_timeout=5"))
	ctx := t.Context()
	const n = 2
	subs := make([]*holdfast.Submission, n)
	for i := range subs {
		subs[i] = &holdfast.Submission{Name: "n"}
	}
	if _, err := store.SubmitMany(ctx, subs); err != nil {
		t.Fatal(err)
	}
	got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"n"}, Limit: n}}, WorkerID: "w", Lease: time.Hour})
	if err != nil || len(got.Tasks) != n {
		t.Fatalf("claimed %d: %v", len(got.Tasks), err)
	}
	// Ours takes a and then b; another's has b and wants a, and is the first to wait. Whoever waits last
	// finds the deadlock, after deadlock_timeout, and is ended: ours.
	a, b := got.Tasks[0], got.Tasks[1]
	other, look := connect(t, dsn), connect(t, dsn)
	if _, err := other.Exec(ctx, "set deadlock_timeout = '1h'"); err != nil {
		t.Fatal(err)
	}
	tx, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select 1 from cairnq_tasks where id = $1 for update", b.ID); err != nil {
		t.Fatal(err)
	}
	crossed := make(chan error, 1)
	runs, released := 0, 0
	if err := store.Dialect().Atomic(ctx, "test", func(s holdfast.Session) error {
		runs++
		released = 0
		for _, id := range []string{a.ID, b.ID} {
			row := &holdfast.Row{}
			row.ID, row.WorkerID = id, "w"
			if err := s.Query(ctx, holdfast.StmtRelease, func(int, *holdfast.Row) error { released++; return nil }, row); err != nil {
				return err
			}
			if runs == 1 && id == a.ID {
				go func() {
					_, err := tx.Exec(ctx, "select 1 from cairnq_tasks where id = $1 for update", a.ID)
					crossed <- errors.Join(err, tx.Rollback(ctx))
				}()
				waitFor(t, look, "blocked", blocked, 1)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-crossed; err != nil {
		t.Fatalf("the other was chosen: %v", err)
	}
	if runs != 2 || released != 2 {
		t.Errorf("ran %d times and released %d, want 2 and 2", runs, released)
	}
}

// TestNothingStaysBehind: a store that was used in every way leaves no goroutine when it is closed.
func TestNothingStaysBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	dsn := pgtest.DSN(t)
	func() {
		sub := t
		store := openAt(sub, dsn)
		exercise(sub, store)
		l := store.Dialect().Hub().ListenQueues("q")
		l.Arm()
		l.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	if err := goleak.Find(before); err != nil {
		t.Error(fmt.Errorf("left behind: %w", err))
	}
}

// TestHeartbeatPassesLockedRows: a heartbeat waits for nobody. A task whose row somebody else has locked
// is told as held and not extended, the others are extended.
func TestHeartbeatPassesLockedRows(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, dsn)
	ctx := t.Context()
	for range 3 {
		if _, err := store.Submit(ctx, &holdfast.Submission{Name: "n"}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 3}}, WorkerID: "w", Lease: time.Minute})
	if err != nil || len(got.Tasks) != 3 {
		t.Fatal(got, err)
	}
	locked := got.Tasks[1]
	tx, err := connect(t, dsn).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "update cairnq_tasks set cancel_requested_at_ms = 1 where id = $1", locked.ID); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	held, err := store.Heartbeat(short, "w", time.Hour, got.Tasks[0].ID, locked.ID, got.Tasks[2].ID)
	if err != nil || len(held) != 3 {
		t.Fatalf("held %v, %v", held, err)
	}
	for i, h := range held {
		now, err := store.Get(ctx, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		extended := now.LeaseUntil.After(got.Tasks[i].LeaseUntil)
		if want := h.ID != locked.ID; extended != want || h.LeaseUntil.IsZero() == want || h.CancelRequested {
			t.Errorf("%+v, extended: %v", h, extended)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	held, err = store.Heartbeat(ctx, "w", time.Hour, locked.ID)
	if err != nil || len(held) != 1 || held[0].LeaseUntil.IsZero() || !held[0].CancelRequested {
		t.Errorf("after the commit: %v, %v", held, err)
	}
}
