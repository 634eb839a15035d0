package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

type purgeFlags struct {
	olderThan           duration
	queue, status, name string
	limit               int
}

func (a *app) purgeCommand() *cobra.Command {
	var f purgeFlags
	cmd := &cobra.Command{
		Use:     "purge --older-than AGE",
		GroupID: groupDatabase,
		Short:   "Delete tasks that have ended",
		Long: `Purge deletes tasks that ended longer ago than AGE, oldest first, with their keys. It works in steps of
1,000, so that others can write in between. Live tasks are never deleted.`,
		Example: `  holdfast purge --older-than 30d
  holdfast purge --older-than 1h --status succeeded --queue metrics
  holdfast purge --older-than 0s --limit 10000`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.purge(ctx, &f) }),
	}
	fl := cmd.Flags()
	fl.Var(&f.olderThan, "older-than", "the least time since the task ended, such as 12h, 7d or 0s")
	fl.StringVarP(&f.queue, "queue", "q", "", "only this queue")
	fl.StringVarP(&f.status, "status", "s", "", "only succeeded, failed or canceled ones")
	fl.StringVarP(&f.name, "name", "n", "", "only tasks of this name")
	fl.IntVarP(&f.limit, "limit", "l", 0, "at most that many (default: all)")
	if err := cmd.MarkFlagRequired("older-than"); err != nil {
		panic(err) // the flag stands three lines above
	}
	a.jsonFlag(cmd)
	return cmd
}

// purgePause lets others write between two steps.
const purgePause = 5 * time.Millisecond

func (a *app) purge(ctx context.Context, f *purgeFlags) error {
	if f.limit < 0 {
		return usagef("--limit is %d; give a positive number, or leave it out for all", f.limit)
	}
	store, err := openStore(ctx, &a.db, true)
	if err != nil {
		return err
	}
	defer store.Close()
	client := holdfast.NewClient(store)
	deleted := 0
	for {
		step := holdfast.DefaultPurgeLimit
		if f.limit > 0 {
			step = min(step, f.limit-deleted)
		}
		ids, err := client.Purge(ctx, holdfast.PurgeFilter{OlderThan: time.Duration(f.olderThan), Queue: f.queue, Status: toStatus(f.status), Name: f.name, Limit: step})
		deleted += len(ids)
		if err != nil {
			if deleted > 0 {
				return fmt.Errorf("%d tasks were deleted, then: %w", deleted, err)
			}
			return err
		}
		if len(ids) < step || deleted == f.limit {
			break
		}
		select {
		case <-time.After(purgePause):
		case <-ctx.Done():
			return fmt.Errorf("%d tasks were deleted, then: %w", deleted, context.Cause(ctx))
		}
	}
	if a.json {
		return a.stdout.document(map[string]int{"deleted": deleted})
	}
	fmt.Fprintf(a.stdout, "%d tasks deleted\n", deleted)
	return nil
}
