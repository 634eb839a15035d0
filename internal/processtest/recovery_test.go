package processtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// dead waits until the others have buried a worker.
func dead(t testing.TB, client *holdfast.Client, id string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); workers(t, client)[id] != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("worker %s is still there: %+v", id, workers(t, client)[id])
		}
	}
}

// The tasks of a process that is killed are claimed again long before their leases end, by the rules
// of recovery, and once.
func TestKilledProcess(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		client := holdfast.NewClient(d.open(t))
		const tasks = 5
		best := time.Hour
		for round := range 3 { // a machine that is busy with something else may be late, but not each time
			victim := fmt.Sprintf("victim-%d", round)
			p := d.start(t, process{ID: victim, Lease: time.Hour})
			var retried []string
			for range tasks {
				retried = append(retried, submit(t, client, "hold").ID)
			}
			last := submit(t, client, "hold", holdfast.MaxAttempts(1)).ID
			canceled := submit(t, client, "hold").ID
			p.all("started", tasks+2)
			if _, err := client.Cancel(deadline(t), canceled); err != nil {
				t.Fatal(err)
			}
			// Two take over, and each task has one of them.
			heirs := [2]*local{startLocal(t, d.open(t), holdfast.WorkerConfig{}), startLocal(t, d.open(t), holdfast.WorkerConfig{})}
			info := workers(t, client)[victim]
			if info == nil || !info.FastRecovery || info.Running != tasks+2 || len(info.Tasks) != tasks+2 || info.PID != p.cmd.Process.Pid || info.State != holdfast.WorkerRunning {
				t.Fatalf("before its death: %+v", info)
			}
			p.kill()
			killed := time.Now()
			var got []string
			for range tasks {
				select {
				case id := <-heirs[0].starts:
					got = append(got, id)
				case id := <-heirs[1].starts:
					got = append(got, id)
				case <-time.After(30 * time.Second):
					t.Fatalf("%d of %d tasks were claimed again", len(got), tasks)
				}
			}
			took := time.Since(killed)
			best = min(best, took)
			t.Logf("claimed again after %v", took)
			slices.Sort(got)
			if !slices.Equal(got, retried) {
				t.Errorf("claimed again: %v, want %v", got, retried)
			}
			for _, id := range retried {
				if task := get(t, client, id); task.Status != holdfast.Running || task.Attempt != 2 {
					t.Errorf("%+v", task)
				}
				past, err := client.Attempts(deadline(t), id)
				if err != nil || len(past) != 1 || past[0].Attempt != 1 || past[0].WorkerID != victim || past[0].Failure().Code != holdfast.CodeLeaseExpired {
					t.Errorf("the history of %s: %+v, %v", id, past, err)
				}
			}
			if task := get(t, client, last); task.Status != holdfast.Failed || task.Failure() == nil || task.Failure().Code != holdfast.CodeLeaseExpired || !task.LeaseUntil.IsZero() {
				t.Errorf("out of attempts: %+v", task)
			}
			if task := get(t, client, canceled); task.Status != holdfast.Canceled || !task.LeaseUntil.IsZero() {
				t.Errorf("canceled: %+v", task)
			}
			if info := workers(t, client)[victim]; info != nil {
				t.Errorf("after its death: %+v", info)
			}
			for _, h := range heirs {
				h.stop(t, 100*time.Millisecond)
			}
			for _, id := range got {
				if _, err := client.Cancel(deadline(t), id); err != nil {
					t.Fatal(err)
				}
			}
			if best <= d.limit {
				return
			}
		}
		t.Errorf("it took %v at best, the limit is %v", best, d.limit)
	})
}

// A worker that stops, and one that dies, take nothing from the other workers, in the same process or
// elsewhere, and nothing from workers that are not registered.
func TestTheLivingKeepTheirTasks(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		store := d.open(t)
		client := holdfast.NewClient(store)
		var stays, goes *local
		foreign := submit(t, client, "hold")
		if got, err := store.Claim(deadline(t), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "python-1", Lease: time.Hour}); err != nil || len(got.Tasks) != 1 {
			t.Fatal(got, err)
		}
		stays = startLocal(t, store, holdfast.WorkerConfig{Concurrency: 1})
		kept := submit(t, client, "hold")
		next(t, stays.starts)
		goes = startLocal(t, store, holdfast.WorkerConfig{Concurrency: 1, Queues: []string{"other"}})
		back := submit(t, client, "hold", holdfast.Queue("other"))
		next(t, goes.starts)
		victim := d.start(t, process{ID: "victim", Concurrency: 1, Lease: time.Hour})
		lost := submit(t, client, "hold")
		victim.all("started", 1)
		stays.ends = make(chan string, 10)
		goes.stop(t, 100*time.Millisecond)
		if task := get(t, client, back.ID); task.Status != holdfast.Queued || task.Attempt != 0 {
			t.Errorf("not handed back: %+v", task)
		}
		if info := workers(t, client)[goes.ID()]; info != nil {
			t.Errorf("stopped, but registered: %+v", info)
		}
		victim.kill()
		dead(t, client, "victim")
		for id, worker := range map[string]string{foreign.ID: "python-1", kept.ID: stays.ID()} {
			if task := get(t, client, id); task.Status != holdfast.Running || task.WorkerID != worker || task.Attempt != 1 {
				t.Errorf("of %s: %+v", worker, task)
			}
		}
		if task := get(t, client, lost.ID); task.Status != holdfast.Queued || task.WorkerID != "" {
			t.Errorf("of the victim: %+v", task)
		}
		all := workers(t, client)
		if w := all["python-1"]; w == nil || w.State != holdfast.WorkerUnregistered || w.Running != 1 || w.Tasks[0].ID != foreign.ID || w.PID != 0 {
			t.Errorf("of another language: %+v", w)
		}
		if w := all[stays.ID()]; w == nil || w.State != holdfast.WorkerRunning || w.Running != 1 || !slices.Equal(w.Queues, []string{"default"}) ||
			!slices.Equal(w.Names, []string{"deaf", "hold", "quick", "slow"}) || w.Concurrency != 1 || w.Host == "" {
			t.Errorf("the living: %+v", w)
		}
	})
}

// A worker id belongs to one running worker. A successor of a dead one has it, and its tasks, at once.
func TestWorkerIDs(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		client := holdfast.NewClient(d.open(t))
		p := d.start(t, process{ID: "w-1", Lease: time.Hour})
		task := submit(t, client, "hold")
		p.all("started", 1)
		w := holdfast.NewWorker(d.open(t), holdfast.WorkerConfig{ID: "w-1"})
		handlers(w, func(string, ...any) {})
		if err := w.Start(context.Background()); invalidField(err) != "worker_id" {
			t.Errorf("a second worker of the id: %v", err)
		}
		p.kill()
		again := d.start(t, process{ID: "w-1", Lease: time.Hour})
		if got := again.all("started", 1); got[0] != task.ID {
			t.Errorf("the successor began with %v", got)
		}
		if task := get(t, client, task.ID); task.Attempt != 2 || task.WorkerID != "w-1" {
			t.Errorf("%+v", task)
		}
	})
}

// A worker's row says that it is stopping while it waits for its handlers, and goes when it has
// stopped.
func TestStoppingIsShown(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		store := d.open(t)
		client := holdfast.NewClient(store)
		w := startLocal(t, store, holdfast.WorkerConfig{})
		submit(t, client, "deaf")
		next(t, w.starts)
		ctx, cancel := context.WithCancel(context.Background())
		stopped := make(chan error, 1)
		go func() { stopped <- w.Stop(ctx) }()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if info := workers(t, client)[w.ID()]; info != nil && info.State == holdfast.WorkerStopping {
				break
			} else if time.Now().After(end) {
				t.Fatalf("%+v", info)
			}
		}
		cancel()
		if err := next(t, stopped); err != nil {
			t.Error(err)
		}
		if info := workers(t, client)[w.ID()]; info != nil {
			t.Errorf("%+v", info)
		}
	})
}

// A worker with a plain lease says so, and nobody takes over from it when it dies; its row is
// forgotten some time later.
func TestPlainLease(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		client := holdfast.NewClient(d.open(t))
		p := d.start(t, process{ID: "plain", PlainLease: true, Concurrency: 1, Lease: 3 * time.Second})
		task := submit(t, client, "hold")
		p.all("started", 1)
		if w := workers(t, client)["plain"]; w == nil || w.FastRecovery || w.State != holdfast.WorkerRunning {
			t.Fatalf("%+v", w)
		}
		victim := d.start(t, process{ID: "victim", Lease: time.Hour})
		submit(t, client, "hold")
		victim.all("started", 1)
		heir := startLocal(t, d.open(t), holdfast.WorkerConfig{})
		lease := get(t, client, task.ID).LeaseUntil
		p.kill()
		victim.kill()
		for {
			id := next(t, heir.starts)
			if id == task.ID {
				now, err := client.Store().Now(deadline(t))
				if err != nil {
					t.Fatal(err)
				}
				if now.Before(lease) {
					t.Errorf("claimed again at %v, before its lease ended at %v", now, lease)
				}
				break
			}
		}
		dead(t, client, "plain")
	})
}
