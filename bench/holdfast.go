package main

import (
	"context"
	"log/slog"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
)

func holdfastContenders() []contender {
	const unsettled = "select count(*) from cairnq_tasks where status <> 'succeeded'"
	onSQLite := func(mode sqlite.Synchronous) func(context.Context, string) (peer, error) {
		return func(ctx context.Context, path string) (peer, error) {
			return newHoldfast(sqlite.Open(ctx, path, sqlite.WithSynchronous(mode)))
		}
	}
	return []contender{
		{library: "holdfast", db: "sqlite", open: onSQLite(sqlite.Normal), unsettled: unsettled},
		{library: "holdfast", db: "sqlite", settings: "FULL", open: onSQLite(sqlite.Full), unsettled: unsettled},
		{library: "holdfast", db: "postgres", unsettled: unsettled, open: func(ctx context.Context, dsn string) (peer, error) {
			return newHoldfast(postgres.Open(ctx, dsn))
		}},
	}
}

type holdfastPeer struct {
	store  *holdfast.Store
	client *holdfast.Client
	noop   holdfast.Definition[int64, struct{}]
}

func newHoldfast(store *holdfast.Store, err error) (peer, error) {
	if err != nil {
		return nil, err
	}
	return &holdfastPeer{store, holdfast.NewClient(store), holdfast.Define[int64, struct{}]("noop")}, nil
}

func (p *holdfastPeer) Submit(ctx context.Context, n int64) error {
	_, err := p.noop.Submit(ctx, p.client, n)
	return err
}

func (p *holdfastPeer) Fill(ctx context.Context, numbers []int64) error {
	items := make([]holdfast.Item, len(numbers))
	for i, n := range numbers {
		items[i] = p.noop.Item(n)
	}
	_, err := p.client.SubmitMany(ctx, items)
	return err
}

func (p *holdfastPeer) Work(ctx context.Context, concurrency int, run func(int64)) (func(context.Context) error, error) {
	worker := holdfast.NewWorker(p.store, holdfast.WorkerConfig{Concurrency: concurrency, Log: slog.Default()})
	p.noop.Handle(worker, func(_ context.Context, _ *holdfast.Run, n int64) (struct{}, error) {
		run(n)
		return struct{}{}, nil
	})
	return worker.Stop, worker.Start(ctx)
}

func (p *holdfastPeer) Close() error { return p.store.Close() }
