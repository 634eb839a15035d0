package holdfast_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"
	"pgregory.net/rapid"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
)

// scheduleDB is a database in which a test lets time pass. On Postgres, whose clock nobody moves, the
// schedules go back instead.
type scheduleDB struct {
	*holdfast.Store
	client *holdfast.Client
	sql    *sql.DB
	dsn    string
	clock  *clock // nil on Postgres
	tx     func(*sql.Tx) holdfast.Tx
}

func onBoth(t *testing.T, fn func(t *testing.T, db *scheduleDB)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db := &scheduleDB{dsn: filepath.Join(t.TempDir(), "tasks.db"), clock: newClock(), tx: sqlite.Tx}
		var err error
		if db.sql, err = sql.Open("sqlite3", "file:"+db.dsn+"?_txlock=immediate"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.sql.Close() })
		db.Store = db.again(t)
		db.client = holdfast.NewClient(db.Store)
		fn(t, db)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := &scheduleDB{dsn: pgtest.DSN(t), tx: func(*sql.Tx) holdfast.Tx { return nil }}
		var err error
		if db.sql, err = sql.Open("pgx", db.dsn); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.sql.Close() })
		db.Store = db.again(t)
		db.client = holdfast.NewClient(db.Store)
		fn(t, db)
	})
}

// openSchedules opens the database by its name alone, as another process does.
func openSchedules(dsn string, options ...sqlite.Option) (*holdfast.Store, error) {
	if strings.HasPrefix(dsn, "postgres") {
		return postgres.Open(context.Background(), dsn)
	}
	return sqlite.Open(context.Background(), dsn, options...)
}

// again opens one more store on the database.
func (db *scheduleDB) again(t *testing.T) *holdfast.Store {
	t.Helper()
	var options []sqlite.Option
	if db.clock != nil {
		options = append(options, sqlite.WithClock(db.clock.Now))
	}
	store, err := openSchedules(db.dsn, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func (db *scheduleDB) pass(t *testing.T, d time.Duration) {
	t.Helper()
	if db.clock != nil {
		db.clock.Move(d)
		return
	}
	ms := d.Milliseconds()
	if _, err := db.sql.Exec(fmt.Sprintf("update holdfast_schedules set anchor_ms = anchor_ms - %[1]d, next_at_ms = next_at_ms - %[1]d, last_at_ms = last_at_ms - %[1]d", ms)); err != nil {
		t.Fatal(err)
	}
}

func (db *scheduleDB) put(t *testing.T, s holdfast.Schedule) *holdfast.ScheduleInfo {
	t.Helper()
	info, err := db.client.PutSchedule(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func (db *scheduleDB) get(t *testing.T, name string) *holdfast.ScheduleInfo {
	t.Helper()
	info, err := db.client.GetSchedule(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func (db *scheduleDB) fire(t *testing.T, want int) time.Duration {
	t.Helper()
	n, wait, err := db.FireSchedules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Fatalf("%d tasks were submitted, want %d", n, want)
	}
	return wait
}

// ticks answers the ticks that were submitted, in order.
func (db *scheduleDB) ticks(t testing.TB) (list []holdfast.Tick) {
	t.Helper()
	tasks, err := db.client.List(context.Background(), holdfast.Filter{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range slices.Backward(tasks) {
		tick, ok := holdfast.TickOf(task)
		if !ok {
			t.Fatalf("%s has no tick: %s", task.ID, task.Metadata)
		}
		list = append(list, tick)
	}
	return list
}

func TestATickSubmitsItsTaskOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		first := db.put(t, holdfast.Schedule{Name: "often", Spec: "@every 1m", Task: "job", Payload: map[string]any{"n": json.Number("12345678901234567890")},
			Options: []holdfast.SubmitOption{holdfast.Queue("q"), holdfast.Priority(7), holdfast.MaxAttempts(9), holdfast.Metadata(map[string]int{"own": 1}), holdfast.CorrelationID("c")}})
		if wait := db.fire(t, 0); wait <= 0 || wait > time.Minute {
			t.Errorf("the next tick is in %v", wait)
		}
		db.pass(t, time.Minute+2*time.Second)
		due := db.get(t, "often").Next
		db.fire(t, 1)
		db.fire(t, 0)
		info := db.get(t, "often")
		if !info.Last.Equal(due) || !info.Next.Equal(due.Add(time.Minute)) || info.LastTask == "" {
			t.Errorf("last %v, next %v, task %q after the tick at %v", info.Last, info.Next, info.LastTask, due)
		}
		task, err := db.client.Get(t.Context(), info.LastTask)
		if err != nil {
			t.Fatal(err)
		}
		tick, ok := holdfast.TickOf(task)
		at, _ := holdfast.ScheduledAt(task)
		if !ok || !at.Equal(due) || tick.Schedule != "often" || tick.Late < 2*time.Second || tick.Late > 30*time.Second || !tick.MissedFrom.IsZero() || tick.Manual {
			t.Errorf("the task's tick is %+v", tick)
		}
		var own struct{ Own int }
		if err := json.Unmarshal(task.Metadata, &own); err != nil || own.Own != 1 {
			t.Errorf("metadata %s", task.Metadata)
		}
		if !strings.Contains(string(task.Payload), "12345678901234567890") || task.Queue != "q" || task.Priority != 7 || task.MaxAttempts != 9 || task.CorrelationID != "c" {
			t.Errorf("the task is %+v", task)
		}
		if first.CreatedAt.IsZero() || first.Next.IsZero() || !first.Last.IsZero() {
			t.Errorf("declared: %+v", first)
		}
	})
}

func TestMissedTicks(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy holdfast.MissedPolicy
		bound  int
		grace  time.Duration
		pass   time.Duration
		want   []int // the ticks' numbers, from 1
		left   bool  // whether the first one tells of ticks that were left out
	}{
		{"on time", "", 0, 0, 70 * time.Second, []int{1}, false},
		{"a bit late", holdfast.MissedSkip, 0, 5 * time.Minute, 3*time.Minute + 30*time.Second, []int{1, 2, 3}, false},
		{"once", "", 0, 0, 630 * time.Second, []int{10}, true},
		{"once, of one", holdfast.MissedOnce, 0, time.Second, 90 * time.Second, []int{1}, false},
		{"skip", holdfast.MissedSkip, 0, 0, 630 * time.Second, []int{10}, true},
		{"skip leaves nothing", holdfast.MissedSkip, 0, time.Second, 630 * time.Second, nil, true},
		{"all", holdfast.MissedAll, 0, 0, 630 * time.Second, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, false},
		{"bounded", holdfast.MissedBounded, 3, 0, 630 * time.Second, []int{8, 9, 10}, true},
		{"bounded, enough", holdfast.MissedBounded, 20, 0, 210 * time.Second, []int{1, 2, 3}, false},
		{"once, of very many", "", 0, 0, 9 * 365 * 24 * time.Hour, []int{9 * 365 * 24 * 60}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, db *scheduleDB) {
				db.put(t, holdfast.Schedule{Name: "s", Spec: "@every 1m", Task: "job", Missed: c.policy, Bound: c.bound, Grace: c.grace})
				db.pass(t, c.pass)
				first := db.get(t, "s").Next
				wait := db.fire(t, len(c.want))
				if wait <= 0 || wait > time.Minute {
					t.Errorf("the next tick is in %v", wait)
				}
				ticks := db.ticks(t)
				for i, n := range c.want {
					if want := first.Add(time.Duration(n-1) * time.Minute); !ticks[i].At.Equal(want) {
						t.Errorf("tick %d is that of %v, want %v", i, ticks[i].At, want)
					}
					if left := !ticks[i].MissedFrom.IsZero(); left != (c.left && i == 0) || left && !ticks[i].MissedFrom.Equal(first) {
						t.Errorf("tick %d tells of ticks left out from %v", i, ticks[i].MissedFrom)
					}
				}
			})
		})
	}
}

func TestMoreTicksThanOneTransactionTakes(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		db.put(t, holdfast.Schedule{Name: "s", Spec: "@every 1s", Task: "job", Missed: holdfast.MissedAll})
		db.pass(t, 2345*time.Second+500*time.Millisecond)
		n, _, err := db.FireSchedules(t.Context())
		// On Postgres real time passes meanwhile.
		if err != nil || n < 2345 || n > 2355 || db.clock != nil && n != 2345 {
			t.Fatalf("%d, %v", n, err)
		}
		ticks := db.ticks(t)
		for i := 1; i < len(ticks); i++ {
			if ticks[i].At.Sub(ticks[i-1].At) != time.Second {
				t.Fatalf("after %v comes %v", ticks[i-1].At, ticks[i].At)
			}
		}
	})
}

func TestTheClockGoingBackRunsNothingTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		s := holdfast.Schedule{Name: "s", Spec: "@every 1m", Task: "job", Missed: holdfast.MissedAll}
		db.put(t, s)
		db.pass(t, 5*time.Minute+time.Second)
		db.fire(t, 5)
		db.pass(t, -4*time.Minute)
		db.put(t, s)
		db.fire(t, 0)
		db.pass(t, 3*time.Minute)
		db.fire(t, 0)
		db.pass(t, 2*time.Minute)
		db.fire(t, 1)
	})
}

func TestDeclaringAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		s := holdfast.Schedule{Name: "s", Spec: "@every 1h", Task: "job", Payload: map[string]int{"b": 1, "a": 2}, Missed: holdfast.MissedAll}
		first := db.put(t, s)
		db.pass(t, 10*time.Minute)
		before := db.get(t, "s")
		if again := db.put(t, s); !again.UpdatedAt.Equal(before.UpdatedAt) || !again.Next.Equal(before.Next) {
			t.Errorf("an unchanged declaration made %+v of %+v", again, before)
		}
		s.Payload = map[string]int{"a": 3}
		if changed := db.put(t, s); !changed.Next.Equal(before.Next) || !strings.Contains(string(changed.Payload), "3") || db.clock != nil && !changed.UpdatedAt.After(first.UpdatedAt) {
			t.Errorf("another payload made %+v", changed)
		}
		db.pass(t, 2*time.Hour)
		s.Spec = "@every 2h"
		changed := db.put(t, s)
		now, err := db.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if in := changed.Next.Sub(now); in < 2*time.Hour-10*time.Second || in > 2*time.Hour {
			t.Errorf("the next tick of another spec is in %v", in)
		}
		if ticks := db.ticks(t); len(ticks) != 2 || !ticks[0].At.Equal(before.Next.Add(-db.back(2*time.Hour))) {
			t.Errorf("what was due before is %+v", ticks)
		}
	})
}

// back is what pass has moved rows of Postgres by.
func (db *scheduleDB) back(d time.Duration) time.Duration {
	if db.clock != nil {
		return 0
	}
	return d
}

func TestPauseRunAndDelete(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		s := holdfast.Schedule{Name: "s", Spec: "@every 1m", Task: "job", Missed: holdfast.MissedAll}
		db.put(t, s)
		db.put(t, holdfast.Schedule{Name: "a", Times: []time.Time{time.Now().AddDate(5, 0, 0)}, Task: "other"})
		if info, err := db.client.PauseSchedule(t.Context(), "s"); err != nil || info.PausedAt.IsZero() {
			t.Fatalf("%+v, %v", info, err)
		}
		db.pass(t, 5*time.Minute+10*time.Second)
		db.fire(t, 0)
		s.Payload = 1 // a declaration does not resume it
		if info := db.put(t, s); info.PausedAt.IsZero() {
			t.Error("a declaration resumed the schedule")
		}
		db.fire(t, 0)
		task, err := db.client.RunSchedule(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if tick, ok := holdfast.TickOf(task); !ok || !tick.Manual || tick.Schedule != "s" {
			t.Errorf("the tick is %+v", tick)
		}
		info, err := db.client.ResumeSchedule(t.Context(), "s")
		if err != nil || !info.PausedAt.IsZero() {
			t.Fatalf("%+v, %v", info, err)
		}
		db.fire(t, 0) // what passed meanwhile is left out
		db.pass(t, time.Minute)
		db.fire(t, 1)
		list, err := db.client.Schedules(t.Context())
		if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].Name != "s" {
			t.Fatalf("%v, %v", list, err)
		}
		if err := db.client.DeleteSchedule(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		db.pass(t, time.Hour)
		db.fire(t, 0)
		for op, err := range map[string]error{
			"delete": db.client.DeleteSchedule(t.Context(), "s"),
			"get":    func() error { _, err := db.client.GetSchedule(t.Context(), "s"); return err }(),
			"pause":  func() error { _, err := db.client.PauseSchedule(t.Context(), "s"); return err }(),
			"resume": func() error { _, err := db.client.ResumeSchedule(t.Context(), "s"); return err }(),
			"run":    func() error { _, err := db.client.RunSchedule(t.Context(), "s"); return err }(),
		} {
			if !errors.Is(err, holdfast.ErrNoSchedule) {
				t.Errorf("%s of a schedule that is gone: %v", op, err)
			}
		}
	})
}

func TestFixedTimesOfASchedule(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		now, err := db.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now = now.Truncate(time.Millisecond)
		info := db.put(t, holdfast.Schedule{Name: "s", Times: []time.Time{now.Add(time.Hour), now.Add(-time.Hour), now.Add(2 * time.Hour), now.Add(time.Hour)}, Task: "job"})
		if !info.Next.Equal(now.Add(time.Hour)) {
			t.Errorf("next is %v", info.Next)
		}
		if db.clock == nil {
			return // nobody moves the times themselves; TestAWorkerDrivesItsSchedules has them on Postgres
		}
		db.pass(t, time.Hour)
		db.fire(t, 1)
		db.pass(t, time.Hour)
		if wait := db.fire(t, 1); wait != 0 || !db.get(t, "s").Next.IsZero() {
			t.Errorf("after the last there is another in %v", wait)
		}
	})
}

// A key keeps ticks from overlapping.
func TestAScheduleWithAKey(t *testing.T) {
	for strategy, want := range map[holdfast.Strategy]int{holdfast.ReuseLive: 1, holdfast.Reject: 1, holdfast.Replace: 3} {
		t.Run(string(strategy), func(t *testing.T) {
			onBoth(t, func(t *testing.T, db *scheduleDB) {
				db.put(t, holdfast.Schedule{Name: "s", Spec: "@every 1m", Task: "job", Missed: holdfast.MissedAll, Options: []holdfast.SubmitOption{holdfast.Key("k", strategy)}})
				db.pass(t, 3*time.Minute+time.Second)
				if _, _, err := db.FireSchedules(t.Context()); err != nil {
					t.Fatal(err)
				}
				if ticks := db.ticks(t); len(ticks) != want {
					t.Errorf("%d tasks, want %d", len(ticks), want)
				}
				db.fire(t, 0)
			})
		})
	}
}

func TestBadSchedulesAreRefused(t *testing.T) {
	good := holdfast.Schedule{Name: "s", Spec: "@daily", Task: "job"}
	for _, c := range []struct {
		name, field string
		change      func(s *holdfast.Schedule)
	}{
		{"no name", "schedule name", func(s *holdfast.Schedule) { s.Name = "" }},
		{"no task", "task", func(s *holdfast.Schedule) { s.Task = "" }},
		{"no spec", "spec", func(s *holdfast.Schedule) { s.Spec = "" }},
		{"bad spec", "spec", func(s *holdfast.Schedule) { s.Spec = "61 * * * *" }},
		{"no such zone", "zone", func(s *holdfast.Schedule) { s.Zone = "Europe/Nowhere" }},
		{"two ways", "times", func(s *holdfast.Schedule) { s.Times = []time.Time{time.Now()} }},
		{"no times", "times", func(s *holdfast.Schedule) { s.Spec, s.Times = "", []time.Time{} }},
		{"zero time", "times", func(s *holdfast.Schedule) { s.Spec, s.Times = "", make([]time.Time, 1) }},
		{"policy", "missed", func(s *holdfast.Schedule) { s.Missed = "never" }},
		{"no bound", "bound", func(s *holdfast.Schedule) { s.Missed = holdfast.MissedBounded }},
		{"bound below 1", "bound", func(s *holdfast.Schedule) { s.Missed, s.Bound = holdfast.MissedBounded, -1 }},
		{"bound of nothing", "bound", func(s *holdfast.Schedule) { s.Bound = 3 }},
		{"grace", "grace", func(s *holdfast.Schedule) { s.Grace = -time.Second }},
		{"metadata", "metadata", func(s *holdfast.Schedule) { s.Options = []holdfast.SubmitOption{holdfast.Metadata([]int{1})} }},
		{"parent", "parent_id", func(s *holdfast.Schedule) {
			s.Options = []holdfast.SubmitOption{holdfast.Parent(&holdfast.Task{ID: "task_1"})}
		}},
		{"queue", "queue", func(s *holdfast.Schedule) { s.Options = []holdfast.SubmitOption{holdfast.Queue("")} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newStore(t)
			bad := good
			c.change(&bad)
			_, err := holdfast.NewClient(store).PutSchedule(t.Context(), bad)
			worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Schedules: []holdfast.Schedule{good, bad}, Log: quiet})
			worker.Handle("job", func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
			for who, err := range map[string]error{
				"client":    err,
				"scheduler": holdfast.NewScheduler(store, holdfast.SchedulerConfig{Schedules: []holdfast.Schedule{good, bad}, Log: quiet}).Start(t.Context()),
				"worker":    worker.Start(t.Context()),
			} {
				var refused *holdfast.InvalidError
				if !errors.As(err, &refused) || refused.Field != c.field {
					t.Errorf("%s: %v", who, err)
				}
			}
			if list, err := holdfast.NewClient(store).Schedules(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("declared nevertheless: %v, %v", list, err)
			}
		})
	}
	twice := holdfast.NewScheduler(newStore(t), holdfast.SchedulerConfig{Schedules: []holdfast.Schedule{good, good}, Log: quiet})
	if err := twice.Start(t.Context()); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("the same name twice: %v", err)
	}
}

// A schedule that this program cannot read does not hold up the others.
func TestAScheduleOfAnotherVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		for _, name := range []string{"a", "b", "c"} {
			db.put(t, holdfast.Schedule{Name: name, Spec: "@every 1m", Task: "job"})
		}
		if _, err := db.sql.Exec("update holdfast_schedules set spec = '@full-moon' where name = 'b'"); err != nil {
			t.Fatal(err)
		}
		db.pass(t, 61*time.Second)
		n, wait, err := db.FireSchedules(t.Context())
		if n != 2 || wait <= 0 || err == nil || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("%d, %v, %v", n, wait, err)
		}
		// Declared anew, it works again.
		db.put(t, holdfast.Schedule{Name: "b", Spec: "@every 2m", Task: "job"})
		db.pass(t, 2*time.Minute)
		if _, _, err := db.FireSchedules(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAScheduleIsDeclaredInATransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		if db.clock == nil {
			db.tx = func(tx *sql.Tx) holdfast.Tx { return postgres.SQLTx(tx) }
		}
		for _, commit := range []bool{false, true} {
			tx, err := db.sql.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.client.In(db.tx(tx)).PutSchedule(t.Context(), holdfast.Schedule{Name: "s", Spec: "CRON_TZ=Europe/Berlin 30 4 * * *", Task: "job"}); err != nil {
				t.Fatal(err)
			}
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if _, err := db.client.GetSchedule(t.Context(), "s"); errors.Is(err, holdfast.ErrNoSchedule) == commit {
				t.Errorf("committed %v: %v", commit, err)
			}
		}
		if info := db.get(t, "s"); info.Spec != "30 4 * * *" || info.Zone != "Europe/Berlin" {
			t.Errorf("kept as %q in %q", info.Spec, info.Zone)
		}
	})
}

func TestAWorkerDrivesItsSchedules(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		db.clock = nil // real time
		store := db.again(t)
		now, err := store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at := now.Add(300 * time.Millisecond).Truncate(time.Millisecond)
		got := make(chan time.Time, 1)
		job := holdfast.Define[int, int]("job")
		startWorker(t, store, holdfast.WorkerConfig{Schedules: []holdfast.Schedule{func() holdfast.Schedule {
			s := job.Schedule("s", "", 1)
			s.Times = []time.Time{at}
			return s
		}()}}, func(w *holdfast.Worker) {
			job.Handle(w, func(_ context.Context, run *holdfast.Run, in int) (int, error) {
				when, _ := holdfast.ScheduledAt(run.Task())
				got <- when
				return in, nil
			})
		})
		select {
		case when := <-got:
			if !when.Equal(at) {
				t.Errorf("the task is that of %v, want %v", when, at)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the tick did not come")
		}
	})
}

// A change in the same process is known at once, whatever the poll.
func TestASchedulerWakesWhenSchedulesChange(t *testing.T) {
	store := newStore(t)
	client := holdfast.NewClient(store)
	s := holdfast.NewScheduler(store, holdfast.SchedulerConfig{Poll: time.Hour, Log: quiet})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	got := make(chan struct{}, 10)
	startWorker(t, store, holdfast.WorkerConfig{}, func(w *holdfast.Worker) {
		w.Handle("job", func(context.Context, *holdfast.Run) (any, error) { got <- struct{}{}; return nil, nil })
	})
	for i := range 2 {
		if _, err := client.PutSchedule(t.Context(), holdfast.Schedule{Name: fmt.Sprint("s", i), Times: []time.Time{time.Now().Add(50 * time.Millisecond)}, Task: "job"}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-got:
		case <-time.After(20 * time.Second):
			t.Fatal("the scheduler slept on")
		}
	}
	s.Stop()
	if err := s.Start(t.Context()); err == nil {
		t.Error("a scheduler started twice")
	}
}

func TestAScheduleIsMadeOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		db.clock = nil // real time, so that each would write another first tick
		var all sync.WaitGroup
		for range 6 {
			client := holdfast.NewClient(db.again(t))
			all.Go(func() {
				for i := range 20 {
					if _, err := client.PutSchedule(t.Context(), holdfast.Schedule{Name: fmt.Sprint("s", i), Spec: "@every 1h", Task: "job"}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		list, err := db.client.Schedules(t.Context())
		if err != nil || len(list) != 20 {
			t.Fatal(len(list), err)
		}
		for _, s := range list {
			if !s.UpdatedAt.Equal(s.CreatedAt) {
				t.Errorf("%s was written again %v after it was made", s.Name, s.UpdatedAt.Sub(s.CreatedAt))
			}
		}
	})
}

func TestManyStoresDriveTheSameSchedules(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		const schedules, minutes, drivers = 5, 40, 6
		var list []holdfast.Schedule
		for i := range schedules {
			list = append(list, holdfast.Schedule{Name: fmt.Sprint("s", i), Spec: "@every 1m", Task: "job", Missed: holdfast.MissedAll})
		}
		stores := make([]*holdfast.Store, drivers)
		for i := range stores {
			stores[i] = db.again(t)
		}
		for _, s := range list {
			db.put(t, s)
		}
		for range minutes / 10 {
			db.pass(t, 10*time.Minute)
			var all sync.WaitGroup
			for _, store := range stores {
				all.Go(func() {
					client := holdfast.NewClient(store)
					for _, s := range list {
						if _, err := client.PutSchedule(t.Context(), s); err != nil {
							t.Error(err)
						}
					}
					if _, _, err := store.FireSchedules(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		db.FireSchedules(t.Context())
		seen := map[string]int{}
		for _, tick := range db.ticks(t) {
			seen[tick.Schedule]++
		}
		for name, n := range seen {
			if n != minutes {
				t.Errorf("%s: %d tasks, want %d", name, n, minutes)
			}
		}
		if len(seen) != schedules {
			t.Errorf("%d schedules ran", len(seen))
		}
	})
}

// TestScheduleChild is a process that drives schedules until it is killed or its input ends.
func TestScheduleChild(t *testing.T) {
	dsn := os.Getenv("HOLDFAST_TEST_SCHEDULES")
	if dsn == "" {
		return // it is TestProcessesDriveTheSameSchedules that needs it
	}
	store, err := openSchedules(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := holdfast.NewScheduler(store, holdfast.SchedulerConfig{Poll: 50 * time.Millisecond, Log: quiet})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	fmt.Println("driving")
	bufio.NewReader(os.Stdin).ReadString('\n')
	s.Stop()
}

func TestProcessesDriveTheSameSchedules(t *testing.T) {
	onBoth(t, func(t *testing.T, db *scheduleDB) {
		db.clock = nil // real time
		db.Store = db.again(t)
		db.client = holdfast.NewClient(db.Store)
		info := db.put(t, holdfast.Schedule{Name: "s", Spec: "@every 1s", Task: "job", Missed: holdfast.MissedAll})
		var kids []*exec.Cmd
		for range 3 {
			kid := exec.Command(os.Args[0], "-test.run=^TestScheduleChild$")
			kid.Env = append(os.Environ(), "HOLDFAST_TEST_SCHEDULES="+db.dsn)
			in, err := kid.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := kid.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := kid.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { in.Close(); kid.Wait() }()
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "driving\n" {
				t.Fatalf("a driver says %q, %v", line, err)
			}
			kids = append(kids, kid)
		}
		anchor := info.Next.Add(-time.Second)
		const rounds, step = 4, 300 * time.Second
		for i := range rounds {
			// Back goes the schedule, so that ticks are due for whoever is first; one driver dies meanwhile.
			db.pass(t, step)
			anchor = anchor.Add(-step)
			if i < 2 {
				kids[i].Process.Kill()
			}
			for late := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				now, err := db.Now(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if db.get(t, "s").Next.After(now) {
					break
				}
				if time.Now().After(late) {
					t.Fatal("nobody submits the ticks")
				}
			}
		}
		// Each tick has a number of its own, counted from the anchor as it was at the time.
		ticks := db.ticks(t)
		now := db.get(t, "s").Next
		if want := int(now.Sub(anchor)/time.Second) - 1; len(ticks) != want && len(ticks) != want+1 {
			t.Errorf("%d tasks, want %d", len(ticks), want)
		}
	})
}

// Whatever the clock does, no tick is submitted twice, and under MissedAll none is left out.
func TestEachTickOnceWhateverTheClockDoes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := &clock{now: time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 86400).Draw(r, "start")) * time.Second)}
		if rapid.Bool().Draw(r, "autumn") {
			c.now = c.now.AddDate(0, 0, 210)
		}
		open := func(c *clock) *holdfast.Store {
			store, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.WithClock(c.Now))
			if err != nil {
				r.Fatal(err)
			}
			return store
		}
		db := &scheduleDB{Store: open(c), clock: c}
		defer db.Close()
		db.client = holdfast.NewClient(db.Store)
		s := holdfast.Schedule{
			Name: "s", Task: "job",
			Spec:   rapid.SampledFrom([]string{"*/7 * * * *", "30 2 * * *", "15,45 1-3 * * *", "@hourly", "@every 11m", "0 0 * * SUN", "*/20 */2 * * *"}).Draw(r, "spec"),
			Zone:   rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}).Draw(r, "zone"),
			Missed: rapid.SampledFrom([]holdfast.MissedPolicy{holdfast.MissedAll, holdfast.MissedAll, holdfast.MissedOnce, holdfast.MissedSkip, holdfast.MissedBounded}).Draw(r, "missed"),
		}
		if s.Missed == holdfast.MissedBounded {
			s.Bound = 2
		}
		first := db.put(t, s)
		high := c.Now() // the latest time at which somebody looked
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			c.Move(time.Duration(rapid.IntRange(-3*3600, 7*3600).Draw(r, "seconds")) * time.Second)
			switch rapid.IntRange(0, 3).Draw(r, "what") {
			case 0:
				db.put(t, s)
			default:
				if _, _, err := db.FireSchedules(t.Context()); err != nil {
					r.Fatal(err)
				}
				if now := c.Now(); now.After(high) {
					high = now
				}
			}
		}
		var got []time.Time
		for _, tick := range db.ticks(t) {
			got = append(got, tick.At)
		}
		slices.SortFunc(got, time.Time.Compare)
		for i := 1; i < len(got); i++ {
			if !got[i].After(got[i-1]) {
				r.Fatalf("the tick of %v was submitted twice", got[i])
			}
		}
		// The ticks that there are, as a schedule in a database of its own finds them, one by one.
		next := db.get(t, "s").Next
		if !next.After(high) {
			r.Fatalf("the next tick is %v, before %v", next, high)
		}
		if s.Missed != holdfast.MissedAll {
			return
		}
		walk := &scheduleDB{clock: &clock{now: first.CreatedAt}}
		walk.Store = open(walk.clock)
		defer walk.Close()
		walk.client = holdfast.NewClient(walk.Store)
		var want []time.Time
		for at := walk.put(t, s).Next; !at.After(high); at = walk.get(t, "s").Next {
			want = append(want, at)
			walk.clock.Move(at.Sub(walk.clock.Now()))
			walk.fire(t, 1)
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			r.Fatalf("%d ticks, want %d:\n%v\n%v", len(got), len(want), got, want)
		}
	})
}
