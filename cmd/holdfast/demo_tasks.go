package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

// The demo's tasks.
type (
	squareIn  struct{ N int }
	squareOut struct{ Square int }
	reportIn  struct{ Pages int }
	reportOut struct{ WrittenBy string }
)

const (
	demoTasks = 2000
	// demoLease is short, so that nobody waits for the recovery of the killed worker's task.
	demoLease = 2 * time.Second
)

// demo is one performance.
type demo struct {
	*app
	store  *holdfast.Store
	client *holdfast.Client
	prefix string // of its queues, so that nobody else's tasks are touched

	square holdfast.Definition[squareIn, squareOut]
	flaky  holdfast.Definition[squareIn, squareOut]
	report holdfast.Definition[reportIn, reportOut]

	ran       int
	perSecond float64
	retried   *holdfast.Task
	killed    int
	recovered *holdfast.Task
	took      time.Duration
}

func newDemo(a *app, store *holdfast.Store, prefix string) *demo {
	return &demo{
		app: a, store: store, client: holdfast.NewClient(store), prefix: prefix,
		square: holdfast.Define[squareIn, squareOut]("demo.square", holdfast.Queue(prefix)),
		flaky:  holdfast.Define[squareIn, squareOut]("demo.flaky", holdfast.Queue(prefix)),
		report: holdfast.Define[reportIn, reportOut]("demo.report", holdfast.Queue(prefix)),
	}
}

// tasksReport is the first act for machines.
type tasksReport struct {
	Submitted   int64 `json:"submitted"`
	Succeeded   int64 `json:"succeeded"`
	Retried     int   `json:"attempts_of_the_failing_one"`
	RecoveredMS int64 `json:"recovered_after_ms"`
	TookMS      int64 `json:"took_ms"`
}

// tasksAct is the first act.
func (a *app) tasksAct(ctx context.Context) (report tasksReport, err error) {
	began := a.now()
	// HOLDFAST_DB is for real work: only a database that was named here and now is used.
	given := a.db.url != ""
	where := "a temporary SQLite file"
	if !given {
		dir, err := os.MkdirTemp("", "holdfast-demo-")
		if err != nil {
			return report, err
		}
		defer os.RemoveAll(dir)
		a.db.url = filepath.Join(dir, "tasks.db")
		defer func() { a.db.url = "" }()
	} else {
		where = clean(a.db.String())
	}
	store, err := openStore(ctx, &a.db, false)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	d := newDemo(a, store, "demo-"+ulid.Make().String())
	defer func() { err = errors.Join(err, d.cleanUp(ctx, given)) }()

	d.say(bold, "Tasks, on %s\n", where)
	for _, step := range []func(context.Context) error{d.many, d.failing, d.killing} {
		if err := step(ctx); err != nil {
			return report, err
		}
	}
	return d.summary(ctx, began)
}

// worker starts a worker of this process; stop ends it.
func (d *demo) worker(ctx context.Context, concurrency int, register func(*holdfast.Worker)) (stop func(), err error) {
	w := holdfast.NewWorker(d.store, holdfast.WorkerConfig{
		Queues: []string{d.prefix}, Concurrency: concurrency, Lease: demoLease, Log: slog.New(slog.DiscardHandler),
		Backoff: holdfast.Exponential(500*time.Millisecond, time.Second),
	})
	register(w)
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	return func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = w.Stop(limited) // what it cannot hand back, the clean-up removes
	}, nil
}

// many submits and runs a lot of small tasks.
func (d *demo) many(ctx context.Context) error {
	d.say(bold, "1. Many tasks")
	items := make([]holdfast.Item, demoTasks)
	for i := range items {
		items[i] = d.square.Item(squareIn{i})
	}
	start := time.Now()
	if _, err := d.client.SubmitMany(ctx, items); err != nil {
		return err
	}
	d.say(plain, "   %d tasks submitted in one transaction, in %s.", demoTasks, millis(time.Since(start)))

	var done atomic.Int64
	all := make(chan struct{})
	start = time.Now()
	stop, err := d.worker(ctx, 16, func(w *holdfast.Worker) {
		d.square.Handle(w, func(_ context.Context, _ *holdfast.Run, in squareIn) (squareOut, error) {
			if done.Add(1) == demoTasks {
				close(all)
			}
			return squareOut{in.N * in.N}, nil
		})
	})
	if err != nil {
		return err
	}
	defer stop()
	bar := d.progress(demoTasks)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-all:
			running = false
		case <-tick.C:
		}
		bar(int(done.Load()))
	}
	stop()
	took := time.Since(start)
	stats, err := d.client.Stats(ctx, d.prefix)
	if err != nil {
		return err
	}
	if n := stats[0].Succeeded; n != demoTasks {
		return fmt.Errorf("%d of %d tasks have succeeded; the others: %+v", n, demoTasks, stats[0])
	}
	d.ran, d.perSecond = demoTasks, demoTasks/took.Seconds()
	d.say(plain, "   All of them ran in %s, 16 at a time, each kept with its result.\n", millis(took))
	return nil
}

// progress shows a line that grows, where a person looks; elsewhere it says nothing.
func (d *demo) progress(most int) func(int) {
	if !d.stdout.terminal || d.json {
		return func(int) {}
	}
	bar := progressbar.NewOptions(most,
		progressbar.OptionSetWriter(d.stdout), progressbar.OptionSetDescription("   running"), progressbar.OptionShowCount(), progressbar.OptionSetWidth(40),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false), progressbar.OptionThrottle(0))
	return func(n int) { _ = bar.Set(n) } // an output that fails is reported at the end
}

// failing shows a retry.
func (d *demo) failing(ctx context.Context) error {
	d.say(bold, "2. A task that fails")
	stop, err := d.worker(ctx, 1, func(w *holdfast.Worker) {
		d.flaky.Handle(w, func(_ context.Context, run *holdfast.Run, in squareIn) (squareOut, error) {
			if run.Attempt() == 1 {
				return squareOut{}, errors.New("the network is down")
			}
			return squareOut{in.N * in.N}, nil
		})
	})
	if err != nil {
		return err
	}
	defer stop()
	task, err := d.flaky.Submit(ctx, d.client, squareIn{12})
	if err != nil {
		return err
	}
	var again sync.Once
	for t, err := range d.client.Watch(ctx, task.ID) {
		if err != nil {
			return err
		}
		if f := t.Failure(); f != nil && t.Status == holdfast.Queued {
			again.Do(func() {
				d.say(plain, "   Attempt 1 failed: %q. It is queued again, to start in %s.", f.Message, millis(time.Until(t.RunAt)))
			})
		}
		d.retried = t
	}
	if d.retried.Status != holdfast.Succeeded {
		return fmt.Errorf("the task that fails once ended as %s: %v", d.retried.Status, d.retried.Failure())
	}
	d.say(plain, "   Attempt %d succeeded, with the result %s.\n", d.retried.Attempt, d.retried.Result)
	return nil
}

// killing kills a worker process in the middle of a task.
func (d *demo) killing(ctx context.Context) error {
	d.say(bold, "3. A worker that dies")
	task, err := d.report.Submit(ctx, d.client, reportIn{10})
	if err != nil {
		return err
	}
	// By environment, not by argument: others can read arguments, and a URL may hold a password.
	child, err := startChild(append(os.Environ(), d.db.environment()...), "demo", "worker", d.prefix)
	if err != nil {
		return err
	}
	defer child.end()
	if err := d.halfWay(ctx, task.ID, child); err != nil {
		return err
	}
	d.killed = child.cmd.Process.Pid
	if err := child.cmd.Process.Kill(); err != nil {
		return err
	}
	start := time.Now()
	d.say(plain, "   It was killed just now, by SIGKILL. Nobody told the database.")

	stop, err := d.worker(ctx, 1, func(w *holdfast.Worker) {
		d.report.Handle(w, func(_ context.Context, run *holdfast.Run, _ reportIn) (reportOut, error) {
			return reportOut{fmt.Sprintf("process %d, attempt %d", os.Getpid(), run.Attempt())}, nil
		})
	})
	if err != nil {
		return err
	}
	defer stop()
	if d.recovered, err = d.client.Wait(ctx, task.ID); err != nil {
		return err
	}
	d.took = time.Since(start)
	var out reportOut
	if err := d.recovered.DecodeResult(&out); err != nil {
		return err
	}
	if d.recovered.Status != holdfast.Succeeded || d.recovered.Attempt != 2 {
		return fmt.Errorf("the killed worker's task ended as %s in attempt %d: %v", d.recovered.Status, d.recovered.Attempt, d.recovered.Failure())
	}
	d.say(plain, "   %s later another worker had taken the task over and finished it (%s).\n", millis(d.took), out.WrittenBy)
	return nil
}

// halfWay waits until the child is in the middle of the task.
func (d *demo) halfWay(ctx context.Context, id string, child *child) error {
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-child.ended:
			stop(fmt.Errorf("the demo's worker process ended by itself: %s", cleanLines(child.errors.String())))
		case <-watching.Done():
		}
	}()
	for t, err := range d.client.Watch(watching, id) {
		switch {
		case err != nil:
			return err
		case t.Status.Terminal():
			return fmt.Errorf("the task ended before its worker was killed: %s", t.Status)
		case t.Progress != nil && *t.Progress >= 0.5:
			d.say(plain, "   Process %d writes a report and is at %.0f %% (%q).", child.cmd.Process.Pid, *t.Progress*100, t.Message)
			return nil
		}
	}
	return context.Cause(watching)
}

// summary says what happened.
func (d *demo) summary(ctx context.Context, began time.Time) (tasksReport, error) {
	stats, err := d.client.Stats(ctx, d.prefix)
	if err != nil {
		return tasksReport{}, err
	}
	s := stats[0]
	if s.Total() != s.Succeeded || s.Succeeded != int64(d.ran+2) {
		return tasksReport{}, fmt.Errorf("not every task has succeeded: %+v", s)
	}
	took := d.now().Sub(began)
	d.say(bold, "What happened")
	d.say(plain, "   %d tasks were submitted and %d succeeded, in %s. None was lost.", s.Total(), s.Succeeded, millis(took))
	d.say(plain, "   One failed at first and was retried. One lost its worker (process %d) and was recovered.", d.killed)
	d.say(plain, "   All of it is in one database; the demo removes its part now.\n")
	return tasksReport{s.Total(), s.Succeeded, d.retried.Attempt, d.took.Milliseconds(), took.Milliseconds()}, nil
}

// cleanUp removes the demo's tasks from a database that stays.
func (d *demo) cleanUp(ctx context.Context, given bool) error {
	if !given {
		return nil // the file goes
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for {
		for _, status := range []holdfast.Status{holdfast.Queued, holdfast.Running} {
			live, err := d.client.List(ctx, holdfast.Filter{Queue: d.prefix, Status: status, Limit: 1000})
			if err != nil {
				return err
			}
			for _, t := range live {
				if _, err := d.client.Cancel(ctx, t.ID); err != nil && !errors.Is(err, holdfast.ErrState) {
					return err
				}
			}
		}
		if _, err := d.client.Purge(ctx, holdfast.PurgeFilter{Queue: d.prefix}); err != nil {
			return err
		}
		stats, err := d.client.Stats(ctx, d.prefix)
		if err != nil {
			return err
		}
		if stats[0].Total() == 0 {
			return nil
		}
		if stats[0].Running > 0 {
			// A canceled task of a worker that is gone ends with its lease; some claim has to see that.
			if _, err := d.store.Claim(ctx, holdfast.Claim{Queues: []string{d.prefix}, WorkerID: d.prefix, Lease: time.Second}); err != nil {
				return err
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the demo's queue %s could not be removed: %w", d.prefix, ctx.Err())
		}
	}
}

// demoWorkerCommand is the process that the demo kills. It ends by itself when the demo is gone.
func (a *app) demoWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker QUEUE",
		Hidden: true,
		Short:  "The worker process that the demo kills",
		Args:   cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			store, err := openStore(ctx, &a.db, true)
			if err != nil {
				return err
			}
			defer store.Close()
			d := newDemo(a, store, args[0])
			stop, err := d.worker(ctx, 1, func(w *holdfast.Worker) {
				d.report.Handle(w, func(ctx context.Context, run *holdfast.Run, in reportIn) (reportOut, error) {
					if err := run.Progress(ctx, 0.5, fmt.Sprintf("page %d of %d", in.Pages/2, in.Pages)); err != nil {
						return reportOut{}, err
					}
					<-ctx.Done() // the demo does not let it get further
					return reportOut{}, context.Cause(ctx)
				})
			})
			if err != nil {
				return err
			}
			defer stop()
			gone, cancel := a.untilGone(ctx)
			defer cancel()
			<-gone.Done()
			return nil
		}),
	}
}
