package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) workersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workers",
		GroupID: groupWorkers,
		Short:   "List the workers at work, and what they run",
		Long: `Lists the registered workers of the database, and after them those that are known only by
the tasks that they run, such as workers of other languages.

RECOVERY says what happens to a worker's tasks if its process dies: "fast", others claim them
within 1 s on SQLite and 5 s on Postgres; "lease", when their leases end.`,
		Example: `  holdfast workers
  holdfast workers --json | jq '{id, running}'`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.workers(ctx) }),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workers(ctx context.Context) error {
	store, err := openStore(ctx, &a.db, true)
	if err != nil {
		return err
	}
	defer store.Close()
	list, err := holdfast.NewClient(store).Workers(ctx)
	if err != nil {
		return err
	}
	if a.json {
		for _, w := range list {
			if err := a.stdout.document(w); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		fmt.Fprintln(a.stderr, "no workers")
		return nil
	}
	text := func(s string, n int) cell {
		if s == "" {
			return cell{text: "-", style: dim}
		}
		return cell{text: cut(s, n)}
	}
	number := func(n int) cell {
		c := cell{text: strconv.Itoa(n), right: true}
		if n == 0 {
			c.style = dim
		}
		return c
	}
	rows := make([][]cell, len(list))
	for i, w := range list {
		pid, recovery := "", "lease"
		if w.PID != 0 {
			pid = strconv.Itoa(w.PID)
		}
		if w.FastRecovery {
			recovery = "fast"
		}
		rows[i] = []cell{
			text(w.ID, 40), {text: string(w.State), style: workerStyle(w.State)}, text(w.Host, 24), text(pid, 10), text(a.ago(w.Since), 12), text(a.ago(w.Seen), 12),
			number(w.Running), number(w.Concurrency), text(strings.Join(w.Queues, ","), 30), text(strings.Join(w.Names, ","), 40), {text: recovery},
		}
	}
	a.stdout.table([]string{"WORKER", "STATE", "HOST", "PID", "SINCE", "SEEN", "RUNS", "OF", "QUEUES", "NAMES", "RECOVERY"}, rows)
	return nil
}

func workerStyle(s holdfast.WorkerState) style {
	switch s {
	case holdfast.WorkerRunning:
		return green
	case holdfast.WorkerStopping:
		return yellow
	case holdfast.WorkerGone:
		return red
	}
	return plain
}
