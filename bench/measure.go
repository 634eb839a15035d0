package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// job is what one process does, and for whom.
type job struct {
	What      string // "submit", "fill", "drain", "pickup" or "order"
	Contender string // its id
	Target    string // the file or DSN
	Tasks     int
	Width     int // producers, or concurrency
}

// outcome is what a job reports.
type outcome struct {
	PerSecond float64   `json:",omitempty"`
	Pickups   []float64 `json:",omitempty"` // milliseconds
	PeakBytes int64     `json:",omitempty"` // of the process's memory; 0 where the system does not tell
}

// bench is one job at work.
type bench struct {
	job
	contender contender
	peer      peer
	db        *sql.DB // the harness's own connection
}

// do carries the job out in this process.
func (j job) do(ctx context.Context) (out outcome, err error) {
	b := &bench{job: j}
	for _, c := range contenders() {
		if c.id() == j.Contender {
			b.contender = c
		}
	}
	if b.contender.open == nil {
		return out, fmt.Errorf("there is no %q", j.Contender)
	}
	if b.peer, err = b.contender.open(ctx, j.Target); err != nil {
		return out, fmt.Errorf("open: %w", err)
	}
	if b.db, err = observe(b.contender.db, j.Target); err != nil {
		return out, errors.Join(err, b.peer.Close())
	}
	switch j.What {
	case "submit":
		out.PerSecond, err = b.submit(ctx)
	case "fill":
		err = b.fill(ctx)
	case "drain":
		out.PerSecond, err = b.drain(ctx)
	case "pickup":
		out.Pickups, err = b.pickup(ctx)
	case "order":
		err = b.order(ctx, os.Stdin)
	default:
		err = fmt.Errorf("there is no job %q", j.What)
	}
	out.PeakBytes = peakMemory()
	return out, errors.Join(err, b.db.Close(), b.peer.Close())
}

// submit measures producers that each wait for their commits. Each first submits one task that does not count, so that
// connections and statements are there.
func (b *bench) submit(ctx context.Context) (perSecond float64, err error) {
	if err := b.produce(ctx, b.Width); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := b.produce(ctx, b.Tasks); err != nil {
		return 0, err
	}
	took := time.Since(start)
	return float64(b.Tasks) / took.Seconds(), b.expect(ctx, b.Tasks+b.Width)
}

func (b *bench) produce(ctx context.Context, tasks int) error {
	var next atomic.Int64
	failures := make(chan error, b.Width)
	var producers sync.WaitGroup
	for range b.Width {
		producers.Go(func() {
			for n := next.Add(1); n <= int64(tasks); n = next.Add(1) {
				if err := b.peer.Submit(ctx, n-1); err != nil {
					failures <- fmt.Errorf("submit: %w", err)
					return
				}
			}
		})
	}
	producers.Wait()
	close(failures)
	return <-failures
}

// expect fails unless so many tasks wait in the database.
func (b *bench) expect(ctx context.Context, want int) error {
	got, err := count(ctx, b.db, b.contender.unsettled)
	if err == nil && got != want {
		err = fmt.Errorf("the database has %d tasks, submitted were %d", got, want)
	}
	return err
}

func (b *bench) fill(ctx context.Context) error {
	for at := 0; at < b.Tasks; {
		var numbers []int64
		for ; at < b.Tasks && len(numbers) < 1000; at++ {
			numbers = append(numbers, int64(at))
		}
		if err := b.peer.Fill(ctx, numbers); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return b.expect(ctx, b.Tasks)
}

// drain measures from before the worker starts until the database says that every task ended well, and then makes sure that
// each ran once.
func (b *bench) drain(ctx context.Context) (perSecond float64, err error) {
	runs := newTally(b.Tasks)
	start := time.Now()
	stop, err := b.peer.Work(ctx, b.Width, runs.add)
	if err != nil {
		return 0, fmt.Errorf("start the worker: %w", err)
	}
	took, err := b.drained(ctx, runs, start)
	err = errors.Join(err, stop(ctx))
	return float64(b.Tasks) / took.Seconds(), errors.Join(err, runs.check())
}

func (b *bench) drained(ctx context.Context, runs *tally, start time.Time) (time.Duration, error) {
	select {
	case <-runs.all:
	case <-ctx.Done():
		return 0, fmt.Errorf("handlers were still to run: %w", ctx.Err())
	}
	// Handlers have run; what is left is writing that down. Nothing tells when, in all the peers alike, so ask.
	for {
		left, err := count(ctx, b.db, b.contender.unsettled)
		if err != nil || left == 0 {
			return time.Since(start), err
		}
		time.Sleep(time.Millisecond)
	}
}

// pickupBudget ends a measurement of a worker that is slow to notice, and pickupWarmUp is how many tasks come first and do not
// count.
const (
	pickupBudget = 20 * time.Second
	pickupWarmUp = 3
)

// pickup measures, one after the other, from before the submit of a task in another process until its handler runs in this
// one, whose worker is idle. The pauses between differ, so that no rhythm of polling is met or missed each time.
func (b *bench) pickup(ctx context.Context) (took []float64, err error) {
	picked := make(chan time.Duration, 1)
	stop, err := b.peer.Work(ctx, b.Width, func(at int64) { picked <- time.Since(time.Unix(0, at)) })
	if err != nil {
		return nil, fmt.Errorf("start the worker: %w", err)
	}
	submit := func() error { return b.peer.Submit(ctx, time.Now().UnixNano()) }
	hangUp := func() error { return nil }
	if !b.contender.deaf {
		if submit, hangUp, err = b.submitter(ctx); err != nil {
			return nil, errors.Join(err, stop(ctx))
		}
	}
	var start time.Time
	for n := 0; err == nil && n < pickupWarmUp+b.Tasks; n++ {
		if n == pickupWarmUp {
			start = time.Now()
		}
		if n > pickupWarmUp && time.Since(start) > pickupBudget {
			break
		}
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
		if err = submit(); err != nil {
			break
		}
		select {
		case d := <-picked:
			took = append(took, float64(d.Microseconds())/1000)
		case <-ctx.Done():
			err = fmt.Errorf("a task was not picked up: %w", ctx.Err())
		}
	}
	if err = errors.Join(err, hangUp(), stop(ctx)); err != nil {
		return nil, err
	}
	return took[pickupWarmUp:], nil
}

// submitter starts a process that submits a task with the time of day each time it is told to.
func (b *bench) submitter(ctx context.Context) (submit, hangUp func() error, err error) {
	child := b.job
	child.What = "order"
	cmd, err := child.command(ctx)
	if err != nil {
		return nil, nil, err
	}
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	submit = func() error {
		_, err := orders.Write([]byte{'\n'})
		return err
	}
	hangUp = func() error { return errors.Join(orders.Close(), cmd.Wait()) }
	return submit, hangUp, nil
}

// order submits a task for each byte that it reads.
func (b *bench) order(ctx context.Context, orders io.Reader) error {
	for one := make([]byte, 1); ; {
		if _, err := orders.Read(one); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := b.peer.Submit(ctx, time.Now().UnixNano()); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
	}
}

// tally counts how often each task ran.
type tally struct {
	runs []atomic.Int32
	left atomic.Int64  // tasks that did not run yet
	all  chan struct{} // closed when all did
	odd  atomic.Int64  // runs of tasks that nobody submitted
}

func newTally(tasks int) *tally {
	t := &tally{runs: make([]atomic.Int32, tasks), all: make(chan struct{})}
	t.left.Store(int64(tasks))
	return t
}

func (t *tally) add(n int64) {
	if n < 0 || n >= int64(len(t.runs)) {
		t.odd.Add(1)
		return
	}
	if t.runs[n].Add(1) == 1 && t.left.Add(-1) == 0 {
		close(t.all)
	}
}

// check fails unless each task ran exactly once.
func (t *tally) check() error {
	missed, repeated := 0, 0
	for i := range t.runs {
		switch n := t.runs[i].Load(); {
		case n == 0:
			missed++
		case n > 1:
			repeated++
		}
	}
	if odd := t.odd.Load(); missed+repeated > 0 || odd > 0 {
		return fmt.Errorf("of %d tasks %d did not run, %d ran more than once, and %d ran that nobody submitted", len(t.runs), missed, repeated, odd)
	}
	return nil
}
