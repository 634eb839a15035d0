package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

func riverContenders() []contender {
	const unsettled = "select count(*) from river_job where state <> 'completed'"
	// "Throughput is limited by this value", its documentation says of the first.
	tuned := river.Config{FetchCooldown: river.FetchCooldownMin, FetchPollInterval: 10 * time.Millisecond}
	onSQLite := func(config river.Config) func(context.Context, string) (peer, error) {
		return func(ctx context.Context, path string) (peer, error) {
			db, err := openSQLite(ctx, path)
			if err != nil {
				return nil, err
			}
			return newRiver(ctx, riversqlite.New(db), config, db.Close)
		}
	}
	onPostgres := func(config river.Config, connections int32) func(context.Context, string) (peer, error) {
		return func(ctx context.Context, dsn string) (peer, error) {
			pool, err := openPool(ctx, dsn, connections)
			if err != nil {
				return nil, err
			}
			return newRiver(ctx, riverpgxv5.New(pool), config, func() error { pool.Close(); return nil })
		}
	}
	return []contender{
		{library: "river", db: "sqlite", settings: "tuned", open: onSQLite(tuned), unsettled: unsettled},
		{library: "river", db: "sqlite", settings: "defaults", open: onSQLite(river.Config{}), unsettled: unsettled},
		{library: "river", db: "postgres", settings: "tuned", open: onPostgres(tuned, 16), unsettled: unsettled},
		{library: "river", db: "postgres", settings: "defaults", open: onPostgres(river.Config{}, 0), unsettled: unsettled},
	}
}

type riverTask struct {
	N int64 `json:"n"`
}

func (riverTask) Kind() string { return "noop" }

type riverPeer[Tx any] struct {
	driver riverdriver.Driver[Tx]
	config river.Config
	client *river.Client[Tx] // only inserts
	close  func() error
}

func newRiver[Tx any](ctx context.Context, driver riverdriver.Driver[Tx], config river.Config, closeDB func() error) (peer, error) {
	config.Logger = slog.Default()
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: config.Logger})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	client, err := river.NewClient(driver, &config)
	if err != nil {
		return nil, err
	}
	return &riverPeer[Tx]{driver, config, client, closeDB}, nil
}

func (p *riverPeer[Tx]) Submit(ctx context.Context, n int64) error {
	_, err := p.client.Insert(ctx, riverTask{n}, nil)
	return err
}

func (p *riverPeer[Tx]) Fill(ctx context.Context, numbers []int64) error {
	jobs := make([]river.InsertManyParams, len(numbers))
	for i, n := range numbers {
		jobs[i].Args = riverTask{n}
	}
	_, err := p.client.InsertManyFast(ctx, jobs)
	return err
}

func (p *riverPeer[Tx]) Work(ctx context.Context, concurrency int, run func(int64)) (func(context.Context) error, error) {
	config := p.config
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}}
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverTask]) error {
		run(job.Args.N)
		return nil
	}))
	worker, err := river.NewClient(p.driver, &config)
	if err != nil {
		return nil, err
	}
	return worker.Stop, worker.Start(ctx)
}

func (p *riverPeer[Tx]) Close() error { return p.close() }
