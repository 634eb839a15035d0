package processtest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// Four processes share limits while one after the other is killed: neither the concurrency of a name
// nor the rate of another is ever exceeded, the places of the dead come back, and all the work is done.
func TestLimitsHoldWhileProcessesAreKilled(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		const (
			tasks       = 120
			concurrency = 3
			rate        = 20 // a second
			burst       = 4
			kills       = 6
		)
		store := d.open(t)
		client := holdfast.NewClient(store)
		ctx := deadline(t)
		for _, l := range []holdfast.Limit{
			{Kind: holdfast.LimitName, Name: "slow", Concurrency: concurrency},
			{Kind: holdfast.LimitName, Name: "quick", Rate: rate, Per: time.Second, Burst: burst},
		} {
			if err := client.SetLimit(ctx, l); err != nil {
				t.Fatal(err)
			}
		}
		items := make([]holdfast.Item, 0, 2*tasks)
		for range tasks {
			// A killed process spends an attempt of each task that it ran.
			items = append(items, holdfast.NewItem("slow", nil, holdfast.MaxAttempts(50)), holdfast.NewItem("quick", nil, holdfast.MaxAttempts(50)))
		}
		if _, err := client.SubmitMany(ctx, items); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		started := 0
		spawn := func() *child {
			started++
			return d.start(t, process{ID: fmt.Sprintf("w%d", started), Concurrency: 8, Lease: 20 * time.Second})
		}
		var children []*child
		for range 4 {
			children = append(children, spawn())
		}

		// What runs is counted by others' eyes, all the time: each row that is running has a live lease.
		var looks, most atomic.Int64
		stop := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				running, err := client.List(ctx, holdfast.Filter{Name: "slow", Status: holdfast.Running})
				if err != nil {
					done <- err
					return
				}
				looks.Add(1)
				if n := int64(len(running)); n > most.Load() {
					most.Store(n)
				}
			}
		}()

		for i := range kills {
			children[i%4].all("started", 1)
			children[i%4].kill()
			children[i%4] = spawn()
		}
		for {
			left := 0
			for _, status := range []holdfast.Status{holdfast.Queued, holdfast.Running} {
				some, err := client.List(ctx, holdfast.Filter{Status: status, Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				left += len(some)
			}
			if left == 0 {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("the work is not done: places of killed processes did not come back")
			}
		}
		took := time.Since(began)
		close(stop)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := most.Load(); n > concurrency || n == 0 {
			t.Errorf("%d tasks ran at once, the limit is %d (%d looks)", n, concurrency, looks.Load())
		}
		// A rate of n a period with a burst lets at most burst + n × periods start.
		if least := time.Duration(tasks-burst) * time.Second / rate; took < least {
			t.Errorf("%d tasks at %d a second were done after %v, sooner than %v", tasks, rate, took, least)
		}
		failed, err := client.List(ctx, holdfast.Filter{Status: holdfast.Failed})
		if err != nil || len(failed) != 0 {
			t.Errorf("%d tasks failed, %v", len(failed), err)
		}
	})
}
