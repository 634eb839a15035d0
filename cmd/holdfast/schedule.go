package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) scheduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedule",
		GroupID: groupTasks,
		Short:   "Submit tasks again and again, or at certain times",
		Long: `Schedules are kept in the database: what task to submit, and when. Each tick submits its task
once, however many workers are at work. "holdfast worker" drives them, and so do workers in Go that
declare schedules of their own; while none of them runs, ticks are missed (see add's --missed).`,
		Example: `  holdfast schedule add nightly backup '{"disk": "sda"}' --spec '30 4 * * *' --zone Europe/Berlin
  holdfast schedule list
  holdfast schedule pause nightly`,
		Args: cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			return usagef(`say what to do with schedules: list, add, pause, resume, run or delete; "holdfast help schedule" tells more`)
		}),
	}
	cmd.AddCommand(a.scheduleList(), a.scheduleAdd(),
		a.scheduleChange("pause", "Stop the ticks of schedules until they are resumed", "What passes meanwhile is left out, not made up for. A program that declares the schedule does not\nresume it.",
			func(ctx context.Context, c *holdfast.Client, name string) (*holdfast.ScheduleInfo, error) {
				return c.PauseSchedule(ctx, name)
			}),
		a.scheduleChange("resume", "Let the ticks of paused schedules come again", "The next tick is the first one from now on.",
			func(ctx context.Context, c *holdfast.Client, name string) (*holdfast.ScheduleInfo, error) {
				return c.ResumeSchedule(ctx, name)
			}),
		a.scheduleRun(),
		a.scheduleChange("delete", "Delete schedules", "Tasks that they submitted stay. A program that declares the schedule makes it anew when it starts.",
			func(ctx context.Context, c *holdfast.Client, name string) (*holdfast.ScheduleInfo, error) {
				return nil, c.DeleteSchedule(ctx, name)
			}))
	return cmd
}

// withClient opens the database for one action.
func (a *app) withClient(ctx context.Context, existing bool, fn func(*holdfast.Client) error) error {
	store, err := openStore(ctx, &a.db, existing)
	if err != nil {
		return err
	}
	defer store.Close()
	return fn(holdfast.NewClient(store))
}

func (a *app) scheduleList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the schedules",
		Long:    `Lists all schedules by name, with their next tick and the last one that was submitted.`,
		Example: `  holdfast schedule list --json | jq '{name, next_at_ms}'`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, true, func(c *holdfast.Client) error {
				list, err := c.Schedules(ctx)
				if err != nil {
					return err
				}
				return a.schedules(list)
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) schedules(list []*holdfast.ScheduleInfo) error {
	if a.json {
		for _, s := range list {
			if err := a.stdout.document(s); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		fmt.Fprintln(a.stderr, "no schedules")
		return nil
	}
	rows := make([][]cell, len(list))
	for i, s := range list {
		next, last := cell{text: a.nextTick(s)}, cell{text: "-", style: dim}
		if !s.PausedAt.IsZero() {
			next.style = yellow
		}
		if !s.Last.IsZero() {
			last = cell{text: a.ago(s.Last)}
		}
		rows[i] = []cell{{text: cut(s.Name, 40)}, {text: cut(s.Spec, 40)}, {text: cut(s.Zone, 30)}, {text: cut(s.Task, 40)}, {text: cut(s.Queue, 30)}, next, last, {text: string(s.Missed)}}
	}
	a.stdout.table([]string{"SCHEDULE", "SPEC", "ZONE", "TASK", "QUEUE", "NEXT", "LAST", "MISSED"}, rows)
	return nil
}

func (a *app) nextTick(s *holdfast.ScheduleInfo) string {
	switch {
	case !s.PausedAt.IsZero():
		return "paused"
	case s.Next.IsZero():
		return "never"
	}
	return a.ago(s.Next)
}

type scheduleFlags struct {
	submitFlags
	spec, zone, missed string
	times              []string
	bound              int
	grace              duration
}

func (a *app) scheduleAdd() *cobra.Command {
	var f scheduleFlags
	cmd := &cobra.Command{
		Use:   "add SCHEDULE TASK [JSON|-]",
		Short: "Add a schedule, or change it",
		Long: `Add keeps a schedule of that name in the database, in the place of the one that stands there. --spec
is a cron expression of five fields (minute, hour, day of month, month, day of week) or six (seconds
first), or @yearly, @monthly, @weekly, @daily, @hourly or "@every 10m"; --at, given once or more, is
a time. The payload is JSON, or - to read it from standard input; {} if there is none.

A time of day that a zone's clocks jump over is a tick at the moment of the jump; one that comes
twice is a tick the first time only.`,
		Example: `  holdfast schedule add nightly backup --spec '30 4 * * *' --zone Europe/Berlin --missed once
  holdfast schedule add poll feed.fetch '{"url": "https://example.org/feed"}' --spec '@every 10m' --key feed --strategy reuse-live
  holdfast schedule add launch mail.send - --at 2027-01-01T00:00:00Z <mail.json`,
		Args: cobra.RangeArgs(2, 3),
		RunE: a.action(func(ctx context.Context, args []string) error { return a.addSchedule(ctx, &f, args) }),
	}
	fl := cmd.Flags()
	f.set = fl
	fl.StringVarP(&f.spec, "spec", "s", "", "when: a cron expression, @daily …, or @every 10m")
	fl.StringVarP(&f.zone, "zone", "z", "", "the time zone of the spec, such as Europe/Berlin (default: UTC)")
	fl.StringArrayVar(&f.times, "at", nil, "instead of a spec: at this time (2027-01-01T09:00:00Z, or 2027-01-01 09:00 for local time); give it again for more")
	fl.StringVar(&f.missed, "missed", string(holdfast.MissedOnce), "ticks that nobody submitted in time: once (one task for all), skip, all or bounded (the last --bound)")
	fl.IntVar(&f.bound, "bound", 0, "with --missed bounded: how many at most")
	fl.Var(&f.grace, "late", "how late a tick may be without counting as missed (default: 1m)")
	fl.StringVarP(&f.queue, "queue", "q", holdfast.DefaultQueue, "the queue that workers claim the tasks from")
	fl.StringVarP(&f.key, "key", "k", "", "a business key of the tasks; with --strategy reuse-live they do not overlap")
	fl.StringVar(&f.strategy, "strategy", "", "when the key is taken: reuse, reuse-live, reuse-succeeded, reject or replace (default: reuse)")
	fl.IntVarP(&f.priority, "priority", "p", 0, "higher runs first")
	fl.IntVar(&f.maxAttempts, "max-attempts", holdfast.DefaultMaxAttempts, "how often a task is started at most")
	fl.StringVar(&f.metadata, "metadata", "", "a JSON object of your own that travels with the tasks")
	fl.StringVar(&f.correlation, "correlation-id", "", "an id of another system, to find the tasks by")
	cmd.MarkFlagsMutuallyExclusive("spec", "at")
	cmd.MarkFlagsOneRequired("spec", "at")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) addSchedule(ctx context.Context, f *scheduleFlags, args []string) error {
	s := holdfast.Schedule{Name: args[0], Task: args[1], Spec: f.spec, Zone: f.zone, Missed: holdfast.MissedPolicy(strings.ToLower(f.missed)), Bound: f.bound, Grace: time.Duration(f.grace)}
	for _, text := range f.times {
		var at moment
		if err := at.Set(text); err != nil {
			return usagef("--at: %w", err)
		}
		s.Times = append(s.Times, time.Time(at))
	}
	var given bool
	for _, name := range []string{"key", "strategy"} {
		given = given || f.set.Changed(name)
	}
	options := []holdfast.SubmitOption{holdfast.Queue(f.queue), holdfast.Priority(f.priority), holdfast.MaxAttempts(f.maxAttempts)}
	if given {
		if f.key == "" {
			return usagef("--strategy decides what happens when a key is taken; give --key too")
		}
		options = append(options, holdfast.Key(f.key, holdfast.Strategy(f.strategy)))
	}
	if f.set.Changed("metadata") {
		options = append(options, holdfast.Metadata(json.RawMessage(f.metadata)))
	}
	if f.set.Changed("correlation-id") {
		options = append(options, holdfast.CorrelationID(f.correlation))
	}
	s.Options = options
	payload, err := a.payload(ctx, args[1:])
	if err != nil {
		return err
	}
	s.Payload = payload
	return a.withClient(ctx, false, func(c *holdfast.Client) error {
		info, err := c.PutSchedule(ctx, s)
		if err != nil {
			return err
		}
		return a.scheduleDone(s.Name, info)
	})
}

// scheduleDone says what has become of one schedule; info is nil when it was deleted.
func (a *app) scheduleDone(name string, info *holdfast.ScheduleInfo) error {
	if a.json {
		if info == nil {
			return a.stdout.document(map[string]string{"name": name, "deleted": name})
		}
		return a.stdout.document(info)
	}
	what := "deleted"
	switch {
	case info == nil:
	case !info.PausedAt.IsZero():
		what = "paused"
	case info.Next.IsZero():
		what = "no tick is left"
	default:
		what = "next " + a.ago(info.Next) + ", at " + info.Next.UTC().Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s\n", clean(name), what)
	return err
}

// scheduleChange is a command that does one thing to each schedule named, and stops at the first that
// it cannot.
func (a *app) scheduleChange(verb, short, long string, act func(context.Context, *holdfast.Client, string) (*holdfast.ScheduleInfo, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:     verb + " SCHEDULE…",
		Short:   short,
		Long:    short + ". " + long,
		Example: "  holdfast schedule " + verb + " nightly",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, true, func(c *holdfast.Client) error {
				for _, name := range args {
					info, err := act(ctx, c, name)
					if err != nil {
						return err
					}
					if err := a.scheduleDone(name, info); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) scheduleRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run SCHEDULE",
		Short:   "Submit a schedule's task now, beside its ticks",
		Long:    `Run submits the task at once and prints its id; a paused schedule can be run too. No tick moves.`,
		Example: `  holdfast wait $(holdfast schedule run nightly)`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, true, func(c *holdfast.Client) error {
				task, err := c.RunSchedule(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.stdout.document(task)
				}
				_, err = fmt.Fprintln(a.stdout, task.ID)
				return err
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}
