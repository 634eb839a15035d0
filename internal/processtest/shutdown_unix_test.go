//go:build unix

package processtest

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// SIGTERM to a worker process under load, again and again: it ends in time, without a panic, although
// some handlers are deaf. Every outcome that it was told to be written is in the database. Everything
// else is free for the next worker at once.
func TestShutdownUnderLoad(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	onEach(t, func(t *testing.T, d *database) {
		store := d.open(t)
		client := holdfast.NewClient(store)
		const grace = 100 * time.Millisecond
		acknowledged := map[string]holdfast.Status{} // by task, the last that was told
		var slowest time.Duration
		start := func(round int) *child {
			return d.start(t, process{ID: fmt.Sprintf("w-%d", round), Concurrency: 8, Lease: time.Hour, Grace: grace})
		}
		p := start(0)
		for round := range rounds {
			var items []holdfast.Item
			for i := range 40 {
				items = append(items, holdfast.NewItem([]string{"quick", "slow", "slow", "quick"}[i%4], nil))
			}
			items = append(items, holdfast.NewItem("deaf", nil, holdfast.Priority(1)), holdfast.NewItem("hold", nil, holdfast.Priority(1)))
			if _, err := client.SubmitMany(deadline(t), items); err != nil {
				t.Fatal(err)
			}
			p.all("started", 5+round%20) // at another moment each time
			successor := start(round + 1)
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			select {
			case <-p.done:
			case <-time.After(grace + 10*time.Second):
				t.Fatal("the process does not end")
			}
			slowest = max(slowest, time.Since(began))
			if p.err != nil {
				t.Fatalf("round %d: the process ended with %v", round, p.err)
			}
			p.mu.Lock()
			for _, l := range p.lines {
				switch l[0] {
				case "settled":
					acknowledged[l[1]] = holdfast.Status(l[2])
				case "lost":
					t.Errorf("round %d: %s was lost", round, l[1])
				}
			}
			p.mu.Unlock()
			// Nothing waits for a lease of the process that is gone.
			running, err := client.List(deadline(t), holdfast.Filter{Status: holdfast.Running, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(running, func(t *holdfast.Task) bool { return t.WorkerID == fmt.Sprintf("w-%d", round) }); i >= 0 {
				t.Errorf("round %d: %+v is not handed back", round, running[i])
			}
			if info := workers(t, client)[fmt.Sprintf("w-%d", round)]; info != nil {
				t.Errorf("round %d: still registered: %+v", round, info)
			}
			// The deaf and those that hold on would fill every worker by and by.
			for _, name := range []string{"deaf", "hold"} {
				for _, status := range []holdfast.Status{holdfast.Queued, holdfast.Running} {
					list, err := client.List(deadline(t), holdfast.Filter{Name: name, Status: status, Limit: 1000})
					if err != nil {
						t.Fatal(err)
					}
					for _, task := range list {
						if status == holdfast.Queued && task.Attempt != 0 {
							t.Errorf("round %d: %s was handed back with attempt %d", round, task.ID, task.Attempt)
						}
						if _, err := client.Cancel(deadline(t), task.ID); err != nil && !errors.Is(err, holdfast.ErrState) {
							t.Fatal(err)
						}
					}
				}
			}
			p = successor
		}
		t.Logf("%d outcomes were acknowledged; the slowest end took %v with a grace of %v", len(acknowledged), slowest, grace)
		for id, status := range acknowledged {
			task := get(t, client, id)
			if status.Terminal() && task.Status != status {
				t.Errorf("%s was acknowledged as %s and is %s", id, status, task.Status)
			}
			if task.Status == holdfast.Succeeded && string(task.Result) != `"`+id+`"` {
				t.Errorf("%s has the result %s", id, task.Result)
			}
		}
	})
}
