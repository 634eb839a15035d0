package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/mikestefanello/backlite"
)

func backliteContenders() []contender {
	return []contender{{
		library: "backlite", db: "sqlite", open: newBacklite, deaf: true,
		unsettled: "select (select count(*) from backlite_tasks) + (select count(*) from backlite_tasks_completed where not succeeded)",
	}}
}

type backliteTask struct{ N int64 }

// Config leaves out retention, so that a task that is done is deleted.
func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "noop", MaxAttempts: 3, Timeout: time.Minute}
}

// backlitePeer has one client for submitting and working, since its workers hear only of their own client's tasks. How many
// workers a client has is said when it is made, so Submit and Fill have one of their own as long as nobody works.
type backlitePeer struct {
	db     *sql.DB
	client *backlite.Client
}

func newBacklite(ctx context.Context, path string) (peer, error) {
	db, err := openSQLite(ctx, path)
	if err != nil {
		return nil, err
	}
	p := &backlitePeer{db: db}
	if err := errors.Join(p.connect(1), p.client.Install()); err != nil {
		db.Close()
		return nil, err
	}
	return p, nil
}

func (p *backlitePeer) connect(workers int) (err error) {
	p.client, err = backlite.NewClient(backlite.ClientConfig{DB: p.db, Logger: slog.Default(), NumWorkers: workers, ReleaseAfter: time.Hour})
	return err
}

func (p *backlitePeer) Submit(ctx context.Context, n int64) error {
	_, err := p.client.Add(backliteTask{n}).Ctx(ctx).Save()
	return err
}

func (p *backlitePeer) Fill(ctx context.Context, numbers []int64) error {
	tasks := make([]backlite.Task, len(numbers))
	for i, n := range numbers {
		tasks[i] = backliteTask{n}
	}
	_, err := p.client.Add(tasks...).Ctx(ctx).Save()
	return err
}

func (p *backlitePeer) Work(ctx context.Context, concurrency int, run func(int64)) (func(context.Context) error, error) {
	if err := p.connect(concurrency); err != nil {
		return nil, err
	}
	p.client.Register(backlite.NewQueue(func(_ context.Context, task backliteTask) error {
		run(task.N)
		return nil
	}))
	p.client.Start(ctx)
	return func(ctx context.Context) error {
		if !p.client.Stop(ctx) {
			return errors.New("backlite did not stop in time")
		}
		return nil
	}, nil
}

func (p *backlitePeer) Close() error { return p.db.Close() }
