package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// clock is a time that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *clock) Move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func claimN(t *testing.T, store *holdfast.Store, worker string, limit int, draws ...holdfast.Draw) []*holdfast.Task {
	t.Helper()
	if len(draws) == 0 {
		draws = []holdfast.Draw{{AnyName: true}}
	}
	for i := range draws {
		draws[i].Limit = limit
	}
	got, err := store.Claim(context.Background(), holdfast.Claim{Queues: []string{"default", "other"}, Draws: draws, WorkerID: worker, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return got.Tasks
}

func TestSharedConcurrency(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit holdfast.Limit
		draws []holdfast.Draw
		want  int // of 10 tasks "a" on default, 5 "b" on default and 5 "a" on other
	}{
		{"queue", holdfast.Limit{Kind: holdfast.LimitQueue, Name: "default", Concurrency: 3}, nil, 3 + 5},
		{"name", holdfast.Limit{Kind: holdfast.LimitName, Name: "a", Concurrency: 4}, nil, 4 + 5},
		{"name, by names", holdfast.Limit{Kind: holdfast.LimitName, Name: "a", Concurrency: 4}, []holdfast.Draw{{Names: []string{"a", "b"}}}, 4 + 5},
		{"another name", holdfast.Limit{Kind: holdfast.LimitName, Name: "z", Concurrency: 1}, nil, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			time := newClock()
			store := newStore(t, sqlite.WithClock(time.Now))
			client := holdfast.NewClient(store)
			submitMany(t, client, "a", 10)
			submitMany(t, client, "b", 5)
			submitMany(t, client, "a", 5, holdfast.Queue("other"))
			ctx := context.Background()
			if err := client.SetLimit(ctx, c.limit); err != nil {
				t.Fatal(err)
			}
			first := claimN(t, store, "w1", 100, c.draws...)
			if len(first) != c.want {
				t.Fatalf("claimed %d, want %d", len(first), c.want)
			}
			if more := claimN(t, store, "w2", 100, c.draws...); len(more) != 0 {
				t.Fatalf("another worker claimed %d more", len(more))
			}
			if c.want == 20 {
				return
			}
			// A place comes back when its task ends, and when a dead worker's lease does.
			free := 0
			for _, task := range first {
				if (c.limit.Kind == holdfast.LimitQueue && task.Queue == c.limit.Name) || (c.limit.Kind == holdfast.LimitName && task.Name == c.limit.Name) {
					if _, err := store.Complete(ctx, task, nil); err != nil {
						t.Fatal(err)
					}
					free++
					break
				}
			}
			if more := claimN(t, store, "w2", 100, c.draws...); len(more) != free {
				t.Errorf("%d places came free and %d were claimed", free, len(more))
			}
			time.Move(2 * 60e9)
			limited := 0
			for _, task := range claimN(t, store, "w3", 100, c.draws...) {
				if (c.limit.Kind == holdfast.LimitQueue && task.Queue == c.limit.Name) || (c.limit.Kind == holdfast.LimitName && task.Name == c.limit.Name) {
					limited++
				}
			}
			if limited != c.limit.Concurrency {
				t.Errorf("after the leases had ended %d were claimed, want %d", limited, c.limit.Concurrency)
			}
		})
	}
}

func TestSharedRate(t *testing.T) {
	clock := newClock()
	store := newStore(t, sqlite.WithClock(clock.Now))
	client := holdfast.NewClient(store)
	submitMany(t, client, "mail", 100)
	ctx := context.Background()
	// Ten a second, at most five at once.
	if err := client.SetLimit(ctx, holdfast.Limit{Kind: holdfast.LimitName, Name: "mail", Rate: 10, Per: time.Second, Burst: 5}); err != nil {
		t.Fatal(err)
	}
	names := holdfast.Draw{Names: []string{"mail"}}
	for i, step := range []struct {
		move time.Duration
		want int
	}{{0, 5}, {0, 0}, {99 * time.Millisecond, 0}, {time.Millisecond, 1}, {250 * time.Millisecond, 2}, {50 * time.Millisecond, 1}, {time.Hour, 5}, {0, 0}, {-time.Hour, 1}, {0, 0}, {100 * time.Millisecond, 1}} {
		clock.Move(step.move)
		if got := len(claimN(t, store, "w", 100, names)); got != step.want {
			t.Errorf("step %d: after %v more, %d started, want %d", i, step.move, got, step.want)
		}
	}
	got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"mail"}, Limit: 1}}, WorkerID: "w", Lease: time.Minute})
	if err != nil || got.Next <= 0 || got.Next > 102*time.Millisecond {
		t.Errorf("a full rate says try again in %v, %v", got.Next, err)
	}
	// Changed while it is in use.
	if err := client.SetLimit(ctx, holdfast.Limit{Kind: holdfast.LimitName, Name: "mail"}); err != nil {
		t.Fatal(err)
	}
	if limits, err := client.Limits(ctx); err != nil || len(limits) != 0 {
		t.Errorf("a limit without bounds is left: %v, %v", limits, err)
	}
	if got := len(claimN(t, store, "w", 100, names)); got == 0 {
		t.Error("nothing is claimed although the limit is gone")
	}
}

func TestPauseAndResume(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, newStore opener) {
		store := newStore(t)
		client := holdfast.NewClient(store)
		ctx := deadline(t)
		if err := client.PauseQueue(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		ran := make(chan struct{}, 10)
		startWorker(t, store, holdfast.WorkerConfig{Queues: []string{"default", "other"}, Poll: time.Hour}, func(w *holdfast.Worker) {
			w.Handle("job", func(context.Context, *holdfast.Run) (any, error) { ran <- struct{}{}; return nil, nil })
		})
		submitMany(t, client, "job", 3)
		task := submitMany(t, client, "job", 1, holdfast.Queue("other"))[0]
		if _, err := client.Wait(ctx, task.ID); err != nil {
			t.Fatal(err)
		}
		if n := len(ran); n != 1 {
			t.Fatalf("%d tasks ran while the queue was paused", n)
		}
		if limits, err := client.Limits(ctx); err != nil || len(limits) != 1 || limits[0].PausedAt.IsZero() {
			t.Errorf("limits %+v, %v", limits, err)
		}
		if err := client.ResumeQueue(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		if err := client.Drain(ctx, "default"); err != nil {
			t.Fatal(err)
		}
		if n := len(ran); n != 4 {
			t.Errorf("%d tasks ran after the resume", n)
		}
		if limits, err := client.Limits(ctx); err != nil || len(limits) != 0 {
			t.Errorf("limits %+v, %v", limits, err)
		}
	})
}

// A tenant's 1,000 tasks do not delay another's one, also beside other names with older backlogs.
func TestPartitionsTakeTurns(t *testing.T) {
	clock := newClock()
	store := newStore(t, sqlite.WithClock(clock.Now))
	client := holdfast.NewClient(store)
	submitMany(t, client, "job", 1000, holdfast.Partition("large"))
	submitMany(t, client, "noise", 1000)
	clock.Move(time.Second)
	submitMany(t, client, "job", 1, holdfast.Partition("small"))
	submitMany(t, client, "job", 3, holdfast.Partition("middle"))
	submitMany(t, client, "job", 1) // without one
	got := map[string]int{}
	for _, task := range claimN(t, store, "w", 10, holdfast.Draw{Names: []string{"job"}}) {
		got[string(task.Metadata)]++
	}
	for who, want := range map[string]int{`{"holdfast_partition":"large"}`: 6, `{"holdfast_partition":"middle"}`: 3, `{"holdfast_partition":"small"}`: 1} {
		if got[who] != want {
			t.Errorf("%s got %d of 10 turns, want %d", who, got[who], want)
		}
	}
	// One at a time, the turn goes round: nobody is served twice before the others once.
	submitMany(t, client, "job", 5, holdfast.Partition("a"))
	submitMany(t, client, "job", 5, holdfast.Partition("b"))
	seen := map[string]int{}
	for range 9 {
		for _, task := range claimN(t, store, "w", 1, holdfast.Draw{Names: []string{"job"}}) {
			seen[string(task.Metadata)]++
		}
	}
	if seen[`{"holdfast_partition":"a"}`] < 3 || seen[`{"holdfast_partition":"b"}`] < 3 || seen[`{"holdfast_partition":"large"}`] < 3 {
		t.Errorf("nine turns of one went to %v", seen)
	}
	// Among other names, a partition takes the place of the backlog before it.
	submitMany(t, client, "job", 1, holdfast.Partition("late"))
	late := false
	for range 3 {
		for _, task := range claimN(t, store, "w", 10, holdfast.Draw{Names: []string{"job", "noise"}}) {
			late = late || string(task.Metadata) == `{"holdfast_partition":"late"}`
		}
	}
	if !late {
		t.Error("a late partition waits behind other names' and its own name's backlog")
	}
}

func TestLimitsRefuseBadInput(t *testing.T) {
	client := holdfast.NewClient(newStore(t))
	for field, l := range map[string]holdfast.Limit{
		"kind":        {Name: "x", Concurrency: 1},
		"name":        {Kind: holdfast.LimitName, Concurrency: 1},
		"concurrency": {Kind: holdfast.LimitName, Name: "x", Concurrency: -1},
		"per":         {Kind: holdfast.LimitName, Name: "x", Rate: 1},
		"burst":       {Kind: holdfast.LimitName, Name: "x", Rate: 1, Per: time.Second, Burst: -2},
		"rate":        {Kind: holdfast.LimitName, Name: "x", Rate: 2000, Per: time.Millisecond},
	} {
		var bad *holdfast.InvalidError
		if err := client.SetLimit(context.Background(), l); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := client.Submit(context.Background(), "x", nil, holdfast.Metadata([]int{1}), holdfast.Partition("p")); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a partition in metadata that is no object: %v", err)
	}
}
