package holdfast_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

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
		// Each tick has a number of its own, counted from the anchor as it was at the time. Time goes on:
		// looked at until no tick comes in between.
		next, ticks := db.get(t, "s").Next, db.ticks(t)
		for tries := 0; tries < 100; tries++ {
			after := db.get(t, "s").Next
			if after.Equal(next) {
				break
			}
			next, ticks = after, db.ticks(t)
		}
		if want := int(next.Sub(anchor)/time.Second) - 1; len(ticks) != want {
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
