package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/host"
)

const (
	demoPatients = 4
	demoOffline  = 30 // writes for each patient while the Host is down
	demoKilled   = 60 // and while it is killed
)

// recordsReport is the second act for machines.
type recordsReport struct {
	Operations int   `json:"operations"`
	Receipts   int   `json:"receipts"`
	Writes     int64 `json:"writes_at_the_hosts"`
	// LostAnswers had been committed when the Host was killed, and were settled by their receipts.
	LostAnswers int   `json:"lost_answers"`
	AtA         int   `json:"during_the_move_at_a"`
	AtB         int   `json:"during_the_move_at_b"`
	TookMS      int64 `json:"took_ms"`
}

// recordsDemo is the second act.
type recordsDemo struct {
	*app
	world    *demoWorld
	writer   *client.Client // of the queue
	other    *client.Client // of another clinic
	patients []string
	box      *outbox.Outbox
	lanes    map[string][]string // by patient: operation ids in the order in which they must be done
	report   recordsReport
}

// recordsAct is the second act.
func (a *app) recordsAct(ctx context.Context) (report recordsReport, err error) {
	began := a.now()
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(dir)
	d := &recordsDemo{app: a, lanes: map[string][]string{}}
	d.say(bold, "Writes to patients' records, which live on other machines\n")
	if d.world, err = newDemoWorld(ctx, dir); err != nil {
		return report, err
	}
	defer d.world.end()
	if err := d.prepare(ctx); err != nil {
		return report, err
	}
	d.say(plain, "   %d patients' records live at Host A (process %d); there is a Host B (process %d), and a Directory", demoPatients, d.world.a.pid(), d.world.b.pid())
	d.say(plain, "   (process %d) that says which is where. The writes to them go into an outbox, one SQLite file.\n", d.world.directory.pid())
	if d.box, err = outbox.Open(ctx, filepath.Join(dir, "outbox.db"), d.writer, outbox.Options{Retry: outbox.Backoff{First: 50 * time.Millisecond, Most: 300 * time.Millisecond}}); err != nil {
		return report, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	defer func() {
		stop()
		err = errors.Join(err, <-ended, d.box.Close())
	}()
	start := func() { go func() { ended <- d.box.Run(running) }() }
	if err := d.offline(ctx, start); err != nil {
		return report, err
	}
	for _, step := range []func(context.Context) error{d.killing, d.conflict, d.moving, d.check} {
		if err := step(ctx); err != nil {
			return report, err
		}
	}
	took := d.now().Sub(began)
	d.report.TookMS = took.Milliseconds()
	d.say(bold, "What happened")
	d.say(plain, "   The Hosts were asked for every operation: %d operations, %d receipts, %d writes in the records.", d.report.Operations, d.report.Receipts, d.report.Writes)
	d.say(plain, "   Each was done once, and each patient's in their order, in %s.\n", millis(took))
	return d.report, nil
}

// prepare makes the records and lets the applications write to them.
func (d *recordsDemo) prepare(ctx context.Context) (err error) {
	if d.writer, err = d.world.application("app"); err != nil {
		return err
	}
	if d.other, err = d.world.application("other"); err != nil {
		return err
	}
	return d.world.askHost(ctx, d.world.a, func(h *host.Host) error {
		for range demoPatients {
			r, err := h.CreateRecord(ctx, host.NewRecord{})
			if err != nil {
				return err
			}
			for _, k := range []*client.Client{d.writer, d.other} {
				if _, err := h.Grant(ctx, host.Grant{Record: r.ID, Client: k.Subject(), Scope: "patient/*.cruds"}); err != nil {
					return err
				}
			}
			d.patients = append(d.patients, r.ID)
		}
		return nil
	})
}

// enqueue puts a write at the end of its lane.
func (d *recordsDemo) enqueue(ctx context.Context, i record.Intent) error {
	id, err := d.box.Enqueue(ctx, i)
	d.lanes[i.Patient] = append(d.lanes[i.Patient], id)
	return err
}

// until waits until the queue's numbers are as wanted.
func (d *recordsDemo) until(ctx context.Context, what string, good func(outbox.Summary) bool) error {
	changes, cancel := d.box.Changes()
	defer cancel()
	for {
		sum, err := d.box.Summary(ctx)
		if err != nil || good(sum) {
			return err
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return fmt.Errorf("while the demo waited until %s (%d writes wait, %d wait for somebody): %w", what, sum.Waiting(), sum.Blocked(), context.Cause(ctx))
		}
	}
}

func (d *recordsDemo) untilDelivered(ctx context.Context) error {
	return d.until(ctx, "everything was delivered", func(s outbox.Summary) bool { return s.Waiting()+s.Blocked() == 0 })
}

// offline writes while the Host is down.
func (d *recordsDemo) offline(ctx context.Context, run func()) (err error) {
	began := false
	defer func() {
		if !began {
			run() // whoever stops it waits for its end
		}
	}()
	d.say(bold, "4. The Host is down")
	d.world.a.kill()
	start := time.Now()
	for n := range demoOffline {
		for _, p := range d.patients {
			if err := d.enqueue(ctx, observation(p, n)); err != nil {
				return err
			}
		}
	}
	total := demoOffline * demoPatients
	d.say(plain, "   %d writes enqueued in %s: each was on disk before the next.", total, millis(time.Since(start)))
	report, err := d.box.Flush(ctx)
	if err != nil {
		return err
	}
	if report.Committed != 0 || len(report.Stops) != demoPatients {
		return fmt.Errorf("a flush to a Host that is down came to %+v", report)
	}
	d.say(plain, "   Sending them: %s. The writes wait, %d patients' in a lane each.", report.Stops[0].Code, len(report.Stops))
	run()
	began = true
	if err := d.world.a.start(ctx); err != nil {
		return err
	}
	start = time.Now()
	if err := d.untilDelivered(ctx); err != nil {
		return err
	}
	d.say(plain, "   The Host came up (process %d). %s later all %d were delivered.\n", d.world.a.pid(), millis(time.Since(start)), total)
	return nil
}

// killing kills the Host while it takes writes.
func (d *recordsDemo) killing(ctx context.Context) error {
	d.say(bold, "5. The Host dies in the middle")
	events, cancel := d.box.Events()
	defer cancel()
	total := demoKilled * demoPatients
	before := len(d.lanes[d.patients[0]])
	enqueued := make(chan error, 1)
	go func() {
		for n := range demoKilled {
			for _, p := range d.patients {
				if err := d.enqueue(ctx, observation(p, n)); err != nil {
					enqueued <- err
					return
				}
			}
		}
		enqueued <- nil
	}()
	committed := 0
	for committed < total/4 {
		select {
		case e := <-events:
			committed += e.Missed
			if e.State == outbox.Committed {
				committed++
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	pid := d.world.a.kill()
	if err := <-enqueued; err != nil {
		return err
	}
	sum, err := d.box.Summary(ctx)
	if err != nil {
		return err
	}
	d.say(plain, "   %d writes; when %d of them were committed, process %d was killed by SIGKILL.", total, total-int(sum.Waiting()), pid)
	if err := d.world.a.start(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := d.untilDelivered(ctx); err != nil {
		return err
	}
	for _, p := range d.patients {
		for _, id := range d.lanes[p][before:] {
			e, err := d.box.Entry(ctx, id)
			if err != nil {
				return err
			}
			if e.Result != nil && e.Result.Replayed {
				d.report.LostAnswers++
			}
		}
	}
	d.say(plain, "   It was started again (process %d), and took the other %d in %s.", d.world.a.pid(), sum.Waiting(), millis(time.Since(start)))
	d.say(plain, "   %s\n", lostAnswers(d.report.LostAnswers))
	return nil
}

func lostAnswers(n int) string {
	if n == 0 {
		return "What it was working on was sent again, with the same operation ids: done once."
	}
	return fmt.Sprintf("Done, but with the answer lost in the crash: %d. Sent again, they got their receipts back: done once.", n)
}

// conflict meets another clinic's write.
func (d *recordsDemo) conflict(ctx context.Context) error {
	d.say(bold, "6. Somebody else was faster")
	p := d.patients[0]
	rename := func(name string, base int64) record.Intent {
		return record.Intent{Operation: record.UpdateDemographics, Patient: p, OperationID: record.NewID(), BaseVersion: base, Resource: fmt.Appendf(nil, `{"name":%q}`, name)}
	}
	if _, err := d.other.Locate(ctx, p); err != nil {
		return err
	}
	if _, err := d.other.Write(ctx, rename("A. Lovelace", 1)); err != nil {
		return err
	}
	mine := rename("Ada Lovelace", 1)
	if _, err := d.box.Enqueue(ctx, mine); err != nil {
		return err
	}
	behind := observation(p, 1)
	if _, err := d.box.Enqueue(ctx, behind); err != nil {
		return err
	}
	if err := d.until(ctx, "there was a conflict", func(s outbox.Summary) bool { return s.Open[outbox.Conflicted].Count == 1 }); err != nil {
		return err
	}
	e, err := d.box.Entry(ctx, mine.OperationID)
	if err != nil {
		return err
	}
	d.say(plain, "   Another clinic has changed a patient's name, and the outbox holds a change of the version before:")
	d.say(plain, "   %s, %s. The patient's next write waits behind it. Nothing is overwritten.", e.State, e.Code)
	now, err := d.writer.Read(ctx, p, "Patient", p)
	if err != nil {
		return err
	}
	id, err := d.box.Rebase(ctx, mine.OperationID, now.Version, outbox.Change{Reason: "both names read; this one is right", By: "demo"})
	if err != nil {
		return err
	}
	if err := d.untilDelivered(ctx); err != nil {
		return err
	}
	d.lanes[p] = append(d.lanes[p], id, behind.OperationID)
	if e, err = d.box.Entry(ctx, id); err != nil {
		return err
	}
	if e.State != outbox.Committed || e.Result == nil || e.Result.Version != now.Version+1 {
		return fmt.Errorf("the rebased write came to %+v", e)
	}
	d.say(plain, "   Somebody looks at version %d and still wants the write: rebased, it is version %d; the lane goes on.\n", now.Version, e.Result.Version)
	return nil
}

// moving moves a record while it is written to.
func (d *recordsDemo) moving(ctx context.Context) error {
	d.say(bold, "7. A record moves to another Host")
	p := d.patients[0]
	if err := d.world.askHost(ctx, d.world.b, func(h *host.Host) error { return h.Expect(ctx, p) }); err != nil {
		return err
	}
	var start time.Time
	moved := make(chan error, 1)
	// A clinic that goes on writing, before the move, during it and after it.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	before := len(d.lanes[p])
	done := time.Duration(0)
	for writes, after := 0, 0; after < 10; {
		select {
		case err := <-moved:
			if err != nil {
				return err
			}
			done, moved = time.Since(start), nil
		case <-tick.C:
			if writes++; writes == 10 {
				start = time.Now()
				go func() { moved <- d.move(ctx, p) }()
			}
			if moved == nil {
				after++
			}
			if err := d.enqueue(ctx, observation(p, len(d.lanes[p]))); err != nil {
				return err
			}
		}
	}
	d.say(plain, "   One patient's record moved from A to B in %s, with its history, grants and receipts, while %d", millis(done), len(d.lanes[p])-before)
	d.say(plain, "   writes came in.")
	if e, err := d.box.Heads(ctx, "", 1); err != nil {
		return err
	} else if len(e) == 1 && e[0].Code == record.RecordFrozen {
		d.say(plain, "   In between, Host A takes none (%s: come again in 5 s). The outbox waits as it is asked to.", record.RecordFrozen)
	}
	if err := d.untilDelivered(ctx); err != nil {
		return err
	}
	at := map[string]int{}
	for _, id := range d.lanes[p][before:] {
		e, err := d.box.Entry(ctx, id)
		if err != nil {
			return err
		}
		r, err := record.ReadReceipt(e.Result.Receipt)
		if err != nil {
			return err
		}
		at[r.Host]++
	}
	d.report.AtA, d.report.AtB = at[d.world.a.ID], at[d.world.b.ID]
	route, _, err := d.box.Route(ctx, p)
	if err != nil {
		return err
	}
	if route.Host != d.world.b.ID || d.report.AtB == 0 {
		return fmt.Errorf("the outbox has not followed the record: %+v, %v", route, at)
	}
	d.say(plain, "   Host A did %d of them. Then the outbox asked the Directory, which says Host B now (generation %d),", d.report.AtA, route.Generation)
	d.say(plain, "   and sent the other %d there.\n", d.report.AtB)
	return nil
}

// move is what "holdfast record move" does.
func (d *recordsDemo) move(ctx context.Context, p string) error {
	store, err := openTasks(ctx, d.world.a.folder, "")
	if err != nil {
		return err
	}
	defer store.Close()
	c := holdfast.NewClient(store)
	t, err := host.MoveTask().Submit(ctx, c, host.MoveInput{Record: p, To: hostRef(d.world.b.URL, d.world.b.ID)}, host.MoveKey(p))
	if err != nil {
		return err
	}
	t, err = c.Wait(ctx, t.ID)
	if err != nil {
		return err
	}
	return moveEnd(t)
}

// check asks the Hosts what they have done, operation by operation.
func (d *recordsDemo) check(ctx context.Context) error {
	faults := make([]error, len(d.patients))
	var (
		all      sync.WaitGroup
		receipts atomic.Int64
	)
	for i, p := range d.patients {
		all.Go(func() {
			last := int64(0)
			for n, id := range d.lanes[p] {
				r, err := d.writer.Receipt(ctx, p, id)
				if err == nil && (r.Operation != id || r.Seq <= last) {
					err = fmt.Errorf("write %d of the record is operation %d of the lane, after write %d", r.Seq, n+1, last)
				}
				if err != nil {
					faults[i] = fmt.Errorf("patient %d: %w", i+1, err)
					return
				}
				last = r.Seq
				receipts.Add(1)
			}
		})
	}
	all.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	d.report.Receipts = int(receipts.Load())
	for i, p := range d.patients {
		h, own := d.world.a, int64(1) // the Patient that the record began with
		if i == 0 {
			h, own = d.world.b, 2 // and the other clinic's write
		}
		var r host.Record
		err := d.world.askHost(ctx, h, func(h *host.Host) (err error) { r, err = h.Record(ctx, p); return err })
		if err != nil {
			return err
		}
		d.report.Operations += len(d.lanes[p])
		d.report.Writes += r.Writes - own
	}
	if d.report.Writes != int64(d.report.Operations) {
		return fmt.Errorf("%d operations came to %d writes at the Hosts", d.report.Operations, d.report.Writes)
	}
	return nil
}
