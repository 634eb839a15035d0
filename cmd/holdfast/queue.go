package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queue",
		GroupID: groupWorkers,
		Short:   "Pause, resume and drain queues; limit what runs",
		Long: `Pauses and limits are kept in the database and hold for all Holdfast workers, from their next
claim on. Workers of other libraries do not ask for them; what they run is counted.`,
		Example: `  holdfast queue pause mail
  holdfast queue drain mail --timeout 5m
  holdfast queue limit mail --rate 100 --per 1m
  holdfast queue list`,
		Args: cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			return usagef(`say what to do with queues: list, pause, resume, drain or limit; "holdfast help queue" tells more`)
		}),
	}
	cmd.AddCommand(a.queueList(),
		a.queueChange("pause", "Keep all workers from claiming of queues", "What runs goes on, and submitting goes on.", (*holdfast.Client).PauseQueue),
		a.queueChange("resume", "End the pause of queues", "A queue that is not paused stays as it is.", (*holdfast.Client).ResumeQueue),
		a.queueDrain(), a.queueLimit())
	return cmd
}

func (a *app) queueList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List pauses and limits",
		Example: `  holdfast queue list --json | jq 'select(.paused_at_ms)'`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, true, func(c *holdfast.Client) error {
				list, err := c.Limits(ctx)
				if err != nil {
					return err
				}
				return a.limits(list)
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// limitDocument is a limit for machines.
type limitDocument struct {
	Kind        holdfast.LimitKind `json:"kind"`
	Name        string             `json:"name"`
	Concurrency int                `json:"concurrency"`
	Rate        int                `json:"rate"`
	PerMS       int64              `json:"per_ms"`
	Burst       int                `json:"burst"`
	PausedAtMS  *int64             `json:"paused_at_ms"`
}

func (a *app) limits(list []holdfast.Limit) error {
	if a.json {
		for _, l := range list {
			d := limitDocument{Kind: l.Kind, Name: l.Name, Concurrency: l.Concurrency, Rate: l.Rate, PerMS: l.Per.Milliseconds(), Burst: l.Burst}
			if !l.PausedAt.IsZero() {
				ms := l.PausedAt.UnixMilli()
				d.PausedAtMS = &ms
			}
			if err := a.stdout.document(d); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		fmt.Fprintln(a.stderr, "nothing is paused or limited")
		return nil
	}
	none := cell{text: "-", style: dim}
	rows := make([][]cell, len(list))
	for i, l := range list {
		paused, concurrency, rate := none, none, none
		if !l.PausedAt.IsZero() {
			paused = cell{text: "since " + a.ago(l.PausedAt), style: yellow}
		}
		if l.Concurrency > 0 {
			concurrency = cell{text: strconv.Itoa(l.Concurrency), right: true}
		}
		if l.Rate > 0 {
			rate = cell{text: fmt.Sprintf("%d in %v, %d at once", l.Rate, l.Per, l.Burst)}
		}
		rows[i] = []cell{{text: string(l.Kind)}, {text: cut(l.Name, 40)}, paused, concurrency, rate}
	}
	a.stdout.table([]string{"OF A", "NAME", "PAUSED", "AT ONCE", "RATE"}, rows)
	return nil
}

// queueChange is a command that does one thing to each queue named.
func (a *app) queueChange(verb, short, long string, act func(*holdfast.Client, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " QUEUE…",
		Short:   short,
		Long:    short + ". " + long,
		Example: "  holdfast queue " + verb + " mail",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.action(func(ctx context.Context, queues []string) error {
			return a.withClient(ctx, true, func(c *holdfast.Client) error {
				for _, q := range queues {
					if err := act(c, ctx, q); err != nil {
						return err
					}
					fmt.Fprintf(a.stderr, "%s: %sd\n", clean(q), verb)
				}
				return nil
			})
		}),
	}
}

func (a *app) queueDrain() *cobra.Command {
	timeout := duration(0)
	cmd := &cobra.Command{
		Use:   "drain QUEUE",
		Short: "Wait until nothing of a queue is due or running",
		Long: `Waits until the queue has nothing that is due and nothing that runs; delayed tasks may remain.
With --timeout it gives up with exit code 5.`,
		Example: `  holdfast queue drain mail --timeout 10m && echo done`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, true, func(c *holdfast.Client) error {
				if timeout == 0 {
					return c.Drain(ctx, args[0])
				}
				limited, cancel := context.WithTimeout(ctx, time.Duration(timeout))
				defer cancel()
				err := c.Drain(limited, args[0])
				if err != nil && limited.Err() != nil && ctx.Err() == nil {
					return exitError{exitTimeout, fmt.Errorf("queue %q is still at work after %v", clean(args[0]), time.Duration(timeout))}
				}
				return err
			})
		}),
	}
	cmd.Flags().Var(&timeout, "timeout", "give up after this long; 0 waits for ever")
	return cmd
}

func (a *app) queueLimit() *cobra.Command {
	var l holdfast.Limit
	var names, none bool
	per := duration(time.Second)
	cmd := &cobra.Command{
		Use:   "limit QUEUE",
		Short: "Limit how many tasks run at once, or start in a period",
		Long: `Bounds what all workers of the database start together. It changes while they run, and a worker
that is killed gives its places back. --none takes the limit away.`,
		Example: `  holdfast queue limit mail --concurrency 5
  holdfast queue limit mail --rate 100 --per 1m --burst 10
  holdfast queue limit --name image.resize --concurrency 2
  holdfast queue limit mail --none`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			l.Kind, l.Name, l.Per = holdfast.LimitQueue, args[0], time.Duration(per)
			if names {
				l.Kind = holdfast.LimitName
			}
			switch bound := l.Concurrency != 0 || l.Rate != 0; {
			case none && bound:
				return usagef("--none takes a limit away; leave out --concurrency and --rate")
			case !none && !bound:
				return usagef("give --concurrency, --rate or both; --none takes a limit away")
			}
			return a.withClient(ctx, true, func(c *holdfast.Client) error { return c.SetLimit(ctx, l) })
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&names, "name", false, "the limit is of all tasks of that name, on every queue")
	f.IntVar(&l.Concurrency, "concurrency", 0, "how many run at once")
	f.IntVar(&l.Rate, "rate", 0, "how many start in each --per")
	f.Var(&per, "per", "the period of --rate")
	f.IntVar(&l.Burst, "burst", 0, "how many may start at once after a pause (default: as many as --rate)")
	f.BoolVar(&none, "none", false, "no limit any more")
	return cmd
}
