package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

// bulkFlags select the tasks of a command with --all.
type bulkFlags struct {
	all                       bool
	status, queue, name, root string
	correlation, cursor       string
	step                      int
}

func (f *bulkFlags) register(cmd *cobra.Command, statuses string) {
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "every task that matches the flags below, in steps")
	fl.StringVarP(&f.status, "status", "s", "", "with --all: "+statuses)
	fl.StringVarP(&f.queue, "queue", "q", "", "with --all: only this queue")
	fl.StringVarP(&f.name, "name", "n", "", "with --all: only tasks of this name")
	fl.StringVar(&f.root, "root", "", "with --all: only this tree")
	fl.StringVar(&f.correlation, "correlation-id", "", "with --all: only tasks with this id of another system")
	fl.IntVar(&f.step, "step", holdfast.DefaultBulkStep, "with --all: how many tasks one transaction changes")
	fl.StringVar(&f.cursor, "cursor", "", "with --all: go on where a command that was interrupted stopped")
	cmd.MarkFlagsMutuallyExclusive("all", "key")
}

// given tells whether the command is a bulk one, and refuses what belongs to one otherwise.
func (f *bulkFlags) given(ids []string) (bool, error) {
	switch {
	case f.all && len(ids) > 0:
		return false, usagef("give ids or --all, not both")
	case !f.all && (f.status != "" || f.queue != "" || f.name != "" || f.root != "" || f.correlation != "" || f.cursor != ""):
		return false, usagef("--status, --queue, --name, --root, --correlation-id and --cursor select tasks for --all; add it")
	}
	return f.all, nil
}

type bulkOperation func(*holdfast.Store, context.Context, holdfast.BulkFilter, holdfast.BulkOptions) (holdfast.BulkProgress, error)

// bulk runs the operation, telling a terminal how far it is.
func (a *app) bulk(ctx context.Context, f *bulkFlags, verb string, reset bool, op bulkOperation) error {
	store, err := openStore(ctx, &a.db, true)
	if err != nil {
		return err
	}
	defer store.Close()
	filter := holdfast.BulkFilter{Status: toStatus(f.status), Queue: f.queue, Name: f.name, RootID: f.root, CorrelationID: f.correlation}
	done, err := op(store, ctx, filter, holdfast.BulkOptions{Step: f.step, Cursor: f.cursor, ResetAttempts: reset, Progress: func(p holdfast.BulkProgress) {
		if a.stderr.terminal && !p.Done {
			fmt.Fprintf(a.stderr, "\r%d tasks %s … ", p.Changed, verb)
		}
	}})
	if a.stderr.terminal && done.Changed > 0 {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
	switch {
	case err != nil && done.Changed > 0:
		return fmt.Errorf("%d tasks were %s; go on with --cursor %s: %w", done.Changed, verb, done.Cursor, err)
	case err != nil:
		return err
	case a.json:
		return a.stdout.document(map[string]int{verb: done.Changed, "skipped": done.Skipped})
	}
	fmt.Fprintf(a.stdout, "%d tasks %s\n", done.Changed, verb)
	return nil
}

func (a *app) redriveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "redrive ID JSON|-",
		GroupID: groupTasks,
		Short:   "Queue a failed task again with another payload",
		Long: `Redrive puts a failed or canceled task back in its queue with the payload that it should have had, and
gives it all its attempts again. What went wrong before stays in its history.`,
		Example: `  holdfast redrive task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM '{"to": "ada@example.org"}'
  holdfast get ID --json | jq .payload | sed s/old/new/ | holdfast redrive ID -`,
		Args: cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			payload, err := a.payload(ctx, args)
			if err != nil {
				return err
			}
			store, err := openStore(ctx, &a.db, true)
			if err != nil {
				return err
			}
			defer store.Close()
			t, err := holdfast.NewClient(store).Redrive(ctx, args[0], json.RawMessage(payload))
			switch {
			case errors.Is(err, holdfast.ErrNotJSON):
				return usagef("the payload is not JSON: %v", err)
			case err != nil:
				return err
			case a.json:
				return a.stdout.document(t)
			}
			fmt.Fprintf(a.stdout, "%s  %s\n", clean(t.ID), a.stdout.paint(statusStyle(t.Status), string(t.Status)))
			return nil
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}
