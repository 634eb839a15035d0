package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"
)

func goqiteContenders() []contender {
	const unsettled = "select count(*) from goqite" // a job that is done is deleted
	with := func(poll time.Duration) func(context.Context, string) (peer, error) {
		return func(ctx context.Context, path string) (peer, error) { return newGoqite(ctx, path, poll) }
	}
	return []contender{
		{library: "goqite", db: "sqlite", settings: "tuned", open: with(time.Millisecond), unsettled: unsettled},
		{library: "goqite", db: "sqlite", settings: "defaults", open: with(0), unsettled: unsettled},
	}
}

type goqitePeer struct {
	db    *sql.DB
	queue *goqite.Queue
	poll  time.Duration // 0 is its default, 100 ms
}

func newGoqite(ctx context.Context, path string, poll time.Duration) (peer, error) {
	db, err := openSQLite(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := goqiteSchema(ctx, db); err != nil {
		db.Close()
		return nil, err
	}
	return &goqitePeer{db, goqite.New(goqite.NewOpts{DB: db, Name: "jobs"}), poll}, nil
}

func goqiteSchema(ctx context.Context, db *sql.DB) error {
	if there, err := hasTable(ctx, db, "goqite"); there || err != nil {
		return err
	}
	schema, err := moduleFile(ctx, "maragu.dev/goqite", "schema_sqlite.sql")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, schema)
	return err
}

func (p *goqitePeer) Submit(ctx context.Context, n int64) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	_, err = jobs.Create(ctx, p.queue, "noop", goqite.Message{Body: body})
	return err
}

func (p *goqitePeer) Fill(ctx context.Context, numbers []int64) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, n := range numbers {
		body, err := json.Marshal(n)
		if err != nil {
			return err
		}
		if _, err := jobs.CreateTx(ctx, tx, p.queue, "noop", goqite.Message{Body: body}); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (p *goqitePeer) Work(ctx context.Context, concurrency int, run func(int64)) (func(context.Context) error, error) {
	runner := jobs.NewRunner(jobs.NewRunnerOpts{Queue: p.queue, Limit: concurrency, PollInterval: p.poll})
	runner.Register("noop", func(_ context.Context, body []byte) error {
		var n int64
		if err := json.Unmarshal(body, &n); err != nil {
			return err
		}
		run(n)
		return nil
	})
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		runner.Start(ctx)
	}()
	return func(context.Context) error {
		cancel()
		<-gone
		return nil
	}, nil
}

func (p *goqitePeer) Close() error { return p.db.Close() }
