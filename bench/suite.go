package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/eda94727/holdfast/internal/pgtest"
)

// suite says how much is measured.
type suite struct {
	Tasks   int `json:"tasks"`
	Rounds  int `json:"rounds"`
	Pickups int `json:"pickups"`
}

// measure is a column of the table, or two.
type measure struct {
	what  string // a job
	width int
}

func (m measure) String() string { return fmt.Sprintf("%s %d", m.what, m.width) }

func measures() []measure {
	return []measure{{"submit", 1}, {"submit", 16}, {"drain", 16}, {"drain", 64}, {"pickup", 16}}
}

// run measures the contenders in turn, so that whatever else the machine does meets them alike. A measurement that fails is
// in the report, and the others go on. With an error from the clearing up there is a report too.
func (s suite) run(ctx context.Context, chosen []contender, progress func(string)) (r *report, err error) {
	r = newReport(s, chosen)
	if r.has("postgres") {
		progress("starting Postgres")
		stop, failed := servePostgres()
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, stop()) }()
		if r.Postgres, err = describePostgres(ctx, os.Getenv(postgresEnv)); err != nil {
			return nil, err
		}
	}
	for round := range s.Rounds {
		for _, m := range measures() {
			for i, c := range chosen {
				progress(fmt.Sprintf("round %d of %d: %s, %s on %s", round+1, s.Rounds, m, c.name(), c.db))
				out, err := s.measure(ctx, c, m)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				r.add(i, m, out, err)
			}
		}
	}
	return r, nil
}

// postgresEnv names the server on which pgtest.Create makes databases.
const postgresEnv = "HOLDFAST_TEST_POSTGRES"

// servePostgres starts a private server with the settings it was installed with, or leaves it to the one that the
// environment names.
func servePostgres() (stop func() error, err error) {
	if os.Getenv(postgresEnv) != "" {
		return func() error { return nil }, nil
	}
	server, err := pgtest.New(pgtest.Options{Durable: true})
	if err != nil {
		return nil, fmt.Errorf("%w (-db sqlite does without)", err)
	}
	if err := os.Setenv(postgresEnv, server.DSN()); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return func() error { return errors.Join(os.Unsetenv(postgresEnv), server.Close()) }, nil
}

// measure measures one contender in a fresh database and a fresh process. What is to be drained is filled in by another.
func (s suite) measure(ctx context.Context, c contender, m measure) (out outcome, err error) {
	target, drop, err := place(ctx, c.db)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	j := job{What: m.what, Contender: c.id(), Target: target, Tasks: s.Tasks, Width: m.width}
	switch m.what {
	case "pickup":
		j.Tasks = s.Pickups
	case "drain":
		fill := j
		fill.What = "fill"
		if _, err := fill.run(ctx); err != nil {
			return out, fmt.Errorf("fill: %w", err)
		}
	}
	return j.run(ctx)
}

// place makes a fresh database.
func place(ctx context.Context, db string) (target string, drop func() error, err error) {
	if db == "postgres" {
		dsn, drop, err := pgtest.Create(ctx)
		return dsn, func() error { return drop(context.WithoutCancel(ctx)) }, err
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	return filepath.Join(dir, "tasks.db"), func() error { return os.RemoveAll(dir) }, err
}
