package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

func gueContenders() []contender {
	const unsettled = "select count(*) from gue_jobs" // a job that is done is deleted
	with := func(options ...gue.WorkerPoolOption) func(context.Context, string) (peer, error) {
		return func(ctx context.Context, dsn string) (peer, error) { return newGue(ctx, dsn, options) }
	}
	// The order by time is the one that its index has.
	tuned := with(gue.WithPoolPollInterval(5*time.Millisecond), gue.WithPoolPollStrategy(gue.RunAtPollStrategy))
	return []contender{
		{library: "gue", db: "postgres", settings: "tuned", open: tuned, unsettled: unsettled},
		{library: "gue", db: "postgres", settings: "defaults", open: with(), unsettled: unsettled},
	}
}

type guePeer struct {
	pool    *pgxpool.Pool
	client  *gue.Client
	options []gue.WorkerPoolOption
}

func newGue(ctx context.Context, dsn string, options []gue.WorkerPoolOption) (peer, error) {
	pool, err := openPool(ctx, dsn, 64) // each running job holds a connection
	if err != nil {
		return nil, err
	}
	p := &guePeer{pool: pool, options: options}
	if p.client, err = gue.NewClient(pgxv5.NewConnPool(pool)); err == nil {
		err = p.schema(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return p, nil
}

func (p *guePeer) schema(ctx context.Context) error {
	schema, err := moduleFile(ctx, "github.com/vgarvardt/gue/v5", "migrations/schema.sql")
	if err != nil {
		return err
	}
	_, err = p.pool.Exec(ctx, schema) // makes only what is missing
	return err
}

func gueJob(n int64) (*gue.Job, error) {
	args, err := json.Marshal(n)
	return &gue.Job{Type: "noop", Args: args}, err
}

func (p *guePeer) Submit(ctx context.Context, n int64) error {
	job, err := gueJob(n)
	if err != nil {
		return err
	}
	return p.client.Enqueue(ctx, job)
}

func (p *guePeer) Fill(ctx context.Context, numbers []int64) (err error) {
	jobs := make([]*gue.Job, len(numbers))
	for i, n := range numbers {
		if jobs[i], err = gueJob(n); err != nil {
			return err
		}
	}
	return p.client.EnqueueBatch(ctx, jobs)
}

func (p *guePeer) Work(ctx context.Context, concurrency int, run func(int64)) (func(context.Context) error, error) {
	handle := func(_ context.Context, job *gue.Job) error {
		var n int64
		if err := json.Unmarshal(job.Args, &n); err != nil {
			return err
		}
		run(n)
		return nil
	}
	options := append([]gue.WorkerPoolOption{gue.WithPoolGracefulShutdown(nil)}, p.options...)
	workers, err := gue.NewWorkerPool(p.client, gue.WorkMap{"noop": handle}, concurrency, options...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() { gone <- workers.Run(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-gone
	}, nil
}

func (p *guePeer) Close() error {
	p.pool.Close()
	return nil
}
