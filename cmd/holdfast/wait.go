package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) waitCommand() *cobra.Command {
	var (
		key     string
		timeout duration
	)
	cmd := &cobra.Command{
		Use:     "wait ID | wait --key KEY",
		GroupID: groupTasks,
		Short:   "Wait for a task's end and print its result",
		Long: `Wait waits until the task has ended and prints its result as JSON (with --json, the whole task).
The exit code is 0 when it succeeded, 6 when it failed or was canceled, and 5 when --timeout was over
first: then the task goes on, and you may wait again.`,
		Example: `  holdfast wait task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM --timeout 5m
  id=$(holdfast submit math.add '{"A": 2, "B": 3}') && holdfast wait "$id"
  holdfast wait --key invoice:7 --json | jq -r .status`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			id, err := one(args, key)
			if err != nil {
				return err
			}
			store, err := openStore(ctx, &a.db, true)
			if err != nil {
				return err
			}
			defer store.Close()
			client := holdfast.NewClient(store)
			return a.await(ctx, time.Duration(timeout), func(ctx context.Context) (*holdfast.Task, error) {
				if key != "" {
					return client.WaitByKey(ctx, key)
				}
				return client.Wait(ctx, id)
			})
		}),
	}
	cmd.Flags().StringVarP(&key, "key", "k", "", "the task that stands under this key; if another takes its place, that one")
	cmd.Flags().VarP(&timeout, "timeout", "t", "for how long (default: for ever)")
	a.jsonFlag(cmd)
	return cmd
}

// await waits for a task and turns its end into output and exit code.
func (a *app) await(ctx context.Context, timeout time.Duration, wait func(context.Context) (*holdfast.Task, error)) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	t, err := wait(ctx)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.stdout.document(t); err != nil {
			return err
		}
	}
	switch t.Status {
	case holdfast.Failed:
		return &holdfast.TaskFailedError{TaskID: t.ID, Failure: t.Failure()}
	case holdfast.Canceled:
		return fmt.Errorf("%s: %w", t.ID, holdfast.ErrTaskCanceled)
	}
	if !a.json && t.Result != nil {
		fmt.Fprintf(a.stdout, "%s\n", t.Result)
	}
	return nil
}

func (a *app) watchCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:     "watch ID | watch --key KEY",
		GroupID: groupTasks,
		Short:   "Print a task's changes until it has ended",
		Long: `Watch prints a line each time the task's status or progress changes, and ends with the task. With
--json, each line is the whole task. The exit code tells the task's end as that of "holdfast wait" does.`,
		Example: `  holdfast watch task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM
  holdfast watch --key report:2026-05 --json | jq .progress`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			id, err := one(args, key)
			if err != nil {
				return err
			}
			return a.watch(ctx, id, key)
		}),
	}
	cmd.Flags().StringVarP(&key, "key", "k", "", "the task that stands under this key now")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) watch(ctx context.Context, id, key string) error {
	store, err := openStore(ctx, &a.db, true)
	if err != nil {
		return err
	}
	defer store.Close()
	client := holdfast.NewClient(store)
	if key != "" {
		t, err := client.GetByKey(ctx, key)
		if err != nil {
			return err
		}
		id = t.ID
	}
	var last *holdfast.Task
	for t, err := range client.Watch(ctx, id) {
		if err != nil {
			return err
		}
		if err := a.changed(last, t); err != nil {
			return err
		}
		last = t
	}
	switch {
	case last == nil:
		return nil
	case last.Status == holdfast.Failed:
		return &holdfast.TaskFailedError{TaskID: last.ID, Failure: last.Failure()}
	case last.Status == holdfast.Canceled:
		return fmt.Errorf("%s: %w", last.ID, holdfast.ErrTaskCanceled)
	}
	return nil
}

// changed prints one step of a task's life, if it is one that people see.
func (a *app) changed(last, t *holdfast.Task) error {
	if a.json {
		return a.stdout.document(t)
	}
	text := ""
	if t.Progress != nil {
		text = fmt.Sprintf("%3.0f %%  ", *t.Progress*100)
	}
	text += clean(t.Message)
	if t.Status != holdfast.Running {
		text = clean(a.note(t))
	}
	line := fmt.Sprintf("%-9s  attempt %d of %d  %s", t.Status, t.Attempt, t.MaxAttempts, text)
	if last != nil && last.Status == t.Status && last.Attempt == t.Attempt && t.Status == holdfast.Running && sameProgress(last, t) {
		return nil // a heartbeat
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s\n", a.stdout.paint(dim, a.now().Format("15:04:05.000")), a.stdout.paint(statusStyle(t.Status), line))
	return err
}

func sameProgress(a, b *holdfast.Task) bool {
	if a.Message != b.Message || (a.Progress == nil) != (b.Progress == nil) {
		return false
	}
	return a.Progress == nil || *a.Progress == *b.Progress
}
