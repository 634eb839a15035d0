package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) cancelCommand() *cobra.Command {
	var key string
	var bulk bulkFlags
	cmd := &cobra.Command{
		Use:     "cancel ID… | cancel --key KEY | cancel --all",
		GroupID: groupTasks,
		Short:   "Cancel tasks",
		Long: `Cancel ends a queued task at once. A running one is asked to stop: its worker hears of it with the
next heartbeat (a third of its lease), and the task ends as canceled whatever its handler answers.

With --all it cancels every live task that matches, in steps that leave room for others.`,
		Example: `  holdfast cancel task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM
  holdfast cancel --key report:2026-05
  holdfast cancel --all --queue old --status queued`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if all, err := bulk.given(args); err != nil {
				return err
			} else if all {
				return a.bulk(ctx, &bulk, "canceled", false, (*holdfast.Store).CancelAll)
			}
			return a.change(ctx, args, key, func(c *holdfast.Client, id string) (*holdfast.Task, error) {
				if key != "" {
					return c.CancelByKey(ctx, key)
				}
				return c.Cancel(ctx, id)
			})
		}),
	}
	cmd.Flags().StringVarP(&key, "key", "k", "", "the task that stands under this key now")
	bulk.register(cmd, "queued or running (default: both)")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) retryCommand() *cobra.Command {
	var (
		key   string
		reset bool
		bulk  bulkFlags
	)
	cmd := &cobra.Command{
		Use:     "retry ID… | retry --key KEY | retry --all",
		GroupID: groupTasks,
		Short:   "Queue failed or canceled tasks again",
		Long: `Retry puts a failed or canceled task back in its queue, to start at once. Its attempts count on, so
one that has used all of them is started once more; --reset gives it all its attempts back.

With --all it retries every failed task that matches, in steps that leave room for others.`,
		Example: `  holdfast retry task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM --reset
  holdfast retry --all --name mail.send --reset`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			if all, err := bulk.given(args); err != nil {
				return err
			} else if all {
				return a.bulk(ctx, &bulk, "retried", reset, (*holdfast.Store).RetryAll)
			}
			return a.change(ctx, args, key, func(c *holdfast.Client, id string) (*holdfast.Task, error) {
				if key != "" {
					return c.RetryByKey(ctx, key, reset)
				}
				return c.Retry(ctx, id, reset)
			})
		}),
	}
	cmd.Flags().StringVarP(&key, "key", "k", "", "the task that stands under this key now")
	cmd.Flags().BoolVar(&reset, "reset", false, "count attempts from 0 again")
	bulk.register(cmd, "failed (default) or canceled")
	a.jsonFlag(cmd)
	return cmd
}

// change does one thing to each task named. One that cannot be changed does not keep the others from
// it; the exit code is that of the first failure.
func (a *app) change(ctx context.Context, ids []string, key string, act func(*holdfast.Client, string) (*holdfast.Task, error)) error {
	if _, err := one(ids, key); err != nil {
		return err
	}
	store, err := openStore(ctx, &a.db, true)
	if err != nil {
		return err
	}
	defer store.Close()
	client := holdfast.NewClient(store)
	if key != "" {
		ids = []string{""}
	}
	var (
		first  error
		failed int
	)
	for _, id := range ids {
		t, err := act(client, id)
		switch {
		case err != nil && (ctx.Err() != nil || len(ids) == 1):
			return err
		case err != nil:
			if failed++; first == nil {
				first = err
			}
			a.report(err, exitCode(err))
			continue
		case a.json:
			if err := a.stdout.document(t); err != nil {
				return err
			}
			continue
		}
		what := string(t.Status)
		if t.Status == holdfast.Running {
			what = "running, asked to stop"
		}
		fmt.Fprintf(a.stdout, "%s  %s\n", clean(t.ID), a.stdout.paint(statusStyle(t.Status), what))
	}
	if first != nil {
		return exitError{exitCode(first), fmt.Errorf("%d of %d tasks were left as they are", failed, len(ids))}
	}
	return nil
}
