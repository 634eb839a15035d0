package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) statsCommand() *cobra.Command {
	var queue string
	cmd := &cobra.Command{
		Use:     "stats",
		GroupID: groupTasks,
		Short:   "Count tasks by queue and status",
		Example: `  holdfast stats
  holdfast stats --queue reports --json | jq .queued`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.stats(ctx, queue) }),
	}
	cmd.Flags().StringVarP(&queue, "queue", "q", "", "only this queue, even if it is empty")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) stats(ctx context.Context, queue string) error {
	store, err := openStore(ctx, &a.db, true)
	if err != nil {
		return err
	}
	defer store.Close()
	queues, err := holdfast.NewClient(store).Stats(ctx, queue)
	if err != nil {
		return err
	}
	if a.json {
		for _, q := range queues {
			if err := a.stdout.document(q); err != nil {
				return err
			}
		}
		return nil
	}
	if len(queues) == 0 {
		fmt.Fprintln(a.stderr, "no tasks")
		return nil
	}
	number := func(n int64, s style) cell {
		if n == 0 {
			s = dim
		}
		return cell{text: strconv.FormatInt(n, 10), style: s, right: true}
	}
	rows := make([][]cell, len(queues))
	for i, q := range queues {
		rows[i] = []cell{{text: cut(q.Queue, 40)}, number(q.Queued, plain), number(q.Running, cyan), number(q.Succeeded, green), number(q.Failed, red), number(q.Canceled, yellow), number(q.Total(), bold)}
	}
	a.stdout.table([]string{"QUEUE", "QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED", "ALL"}, rows)
	return nil
}
