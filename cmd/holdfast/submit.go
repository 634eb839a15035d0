package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/eda94727/holdfast"
)

type submitFlags struct {
	set *pflag.FlagSet // to tell 0 from not given

	queue, key, strategy, metadata, correlation, parent string
	priority, maxAttempts                               int
	delay, timeout                                      duration
	at                                                  moment
	lines, wait                                         bool
	after, afterFinished                                []string
	keepWaiting                                         bool
}

func (a *app) submitCommand() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:     "submit NAME [JSON|-]",
		GroupID: groupTasks,
		Short:   "Submit a task",
		Long: `Submit makes a task of that name and prints its id. The payload is JSON, or - to read it from
standard input; {} if there is none. The task is safe in the database when the id is printed.

With --lines, each line of standard input is the payload of one task, and an id is printed for each.
They are written in groups of 1,000; a bad line is refused together with its group, and named.`,
		Example: `  holdfast submit greet '{"name": "Ada"}'
  holdfast submit report.daily - <report.json --queue reports --max-attempts 5
  holdfast submit invoice.send '{"id": 7}' --key invoice:7 --strategy reuse-succeeded
  holdfast submit cleanup --delay 1h30m
  holdfast submit math.add '{"A": 2, "B": 3}' --wait --timeout 30s
  holdfast submit image.resize --lines - <paths.ndjson`,
		Args: cobra.RangeArgs(1, 2),
		RunE: a.action(func(ctx context.Context, args []string) error { return a.submit(ctx, &f, args) }),
	}
	fl := cmd.Flags()
	f.set = fl
	fl.StringVarP(&f.queue, "queue", "q", holdfast.DefaultQueue, "the queue that workers claim it from")
	fl.StringVarP(&f.key, "key", "k", "", "a business key: at most one current task stands under it")
	fl.StringVar(&f.strategy, "strategy", "", "when the key is taken: reuse, reuse-live, reuse-succeeded, reject or replace (default: reuse)")
	fl.IntVarP(&f.priority, "priority", "p", 0, "higher runs first")
	fl.Var(&f.delay, "delay", "do not start before this long from now")
	fl.Var(&f.at, "at", "do not start before this time (2026-05-01T09:00:00Z, or 2026-05-01 09:00 for local time)")
	fl.IntVar(&f.maxAttempts, "max-attempts", holdfast.DefaultMaxAttempts, "how often it is started at most")
	fl.StringVar(&f.metadata, "metadata", "", "JSON of your own that travels with the task")
	fl.StringVar(&f.correlation, "correlation-id", "", "an id of another system, to find the task by")
	fl.StringVar(&f.parent, "parent", "", "the id of the task in whose tree it belongs")
	fl.StringSliceVar(&f.after, "after", nil, "wait until this task has succeeded; its failure cancels this one (again for more)")
	fl.StringSliceVar(&f.afterFinished, "after-finished", nil, "wait until this task has ended in any way (again for more)")
	fl.BoolVar(&f.keepWaiting, "keep-waiting", false, "with --after: wait on when such a task fails, so that its retry can still release this one")
	fl.BoolVar(&f.lines, "lines", false, "each line of standard input is the payload of one task")
	fl.BoolVar(&f.wait, "wait", false, "wait for the task's end and print its result, as \"holdfast wait\" does")
	fl.Var(&f.timeout, "timeout", "with --wait: for how long (default: for ever)")
	cmd.MarkFlagsMutuallyExclusive("delay", "at")
	cmd.MarkFlagsMutuallyExclusive("lines", "wait")
	cmd.MarkFlagsMutuallyExclusive("lines", "key")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) submit(ctx context.Context, f *submitFlags, args []string) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	switch {
	case f.lines && len(args) == 2 && args[1] != "-":
		return usagef("with --lines the payloads come from standard input; leave the JSON out, or give -")
	case f.set.Changed("timeout") && !f.wait:
		return usagef("--timeout is for --wait; without it submit does not wait")
	}
	var payload json.RawMessage
	if !f.lines {
		if payload, err = a.payload(ctx, args); err != nil {
			return err
		}
	}
	store, err := openStore(ctx, &a.db, false)
	if err != nil {
		return err
	}
	defer store.Close()
	client := holdfast.NewClient(store)
	if f.parent != "" {
		parent, err := client.Get(ctx, f.parent)
		if err != nil {
			return fmt.Errorf("--parent: %w", err)
		}
		options = append(options, holdfast.Parent(parent))
	}
	if f.lines {
		return a.submitLines(ctx, client, args[0], options)
	}
	task, err := client.Submit(ctx, args[0], payload, options...)
	if err != nil {
		return err
	}
	if f.wait {
		return a.await(ctx, time.Duration(f.timeout), func(ctx context.Context) (*holdfast.Task, error) { return client.Wait(ctx, task.ID) })
	}
	if a.json {
		return a.stdout.document(task)
	}
	fmt.Fprintln(a.stdout, task.ID)
	if a.stdout.terminal {
		what := fmt.Sprintf("%s on queue %s", task.Status, clean(task.Queue))
		if task.Reused {
			what = fmt.Sprintf("the key's task of %s, %s", a.ago(task.CreatedAt), task.Status)
		} else if task.Waiting() {
			what += ", waits for other tasks"
		} else if task.RunAt.After(a.now()) {
			what += ", to start " + a.ago(task.RunAt)
		}
		fmt.Fprintln(a.stderr, a.stderr.paint(dim, what))
	}
	return nil
}

func (f *submitFlags) options() ([]holdfast.SubmitOption, error) {
	options := []holdfast.SubmitOption{holdfast.Queue(f.queue), holdfast.Priority(f.priority), holdfast.MaxAttempts(f.maxAttempts), holdfast.Delay(time.Duration(f.delay))}
	switch given := f.set.Changed; {
	case given("key"):
		options = append(options, holdfast.Key(f.key, holdfast.Strategy(f.strategy)))
	case given("strategy"):
		return nil, usagef("--strategy decides what happens when a key is taken; give --key too")
	}
	if len(f.after)+len(f.afterFinished) > 0 {
		options = append(options, holdfast.After(f.after...), holdfast.AfterFinished(f.afterFinished...))
	}
	if f.keepWaiting {
		options = append(options, holdfast.KeepWaiting())
	}
	if f.set.Changed("at") {
		options = append(options, holdfast.At(time.Time(f.at)))
	}
	if f.set.Changed("metadata") {
		options = append(options, holdfast.Metadata(json.RawMessage(f.metadata)))
	}
	if f.set.Changed("correlation-id") {
		options = append(options, holdfast.CorrelationID(f.correlation))
	}
	return options, nil
}

// payload is the second argument, or standard input.
func (a *app) payload(ctx context.Context, args []string) (json.RawMessage, error) {
	switch {
	case len(args) < 2:
		return json.RawMessage("{}"), nil
	case args[1] != "-":
		return json.RawMessage(args[1]), nil
	}
	b, err := a.readAll(ctx, holdfast.DefaultPayloadLimit)
	return json.RawMessage(bytes.TrimSpace(b)), err
}

const (
	linesGroup = 1000
	linesBytes = 8 << 20 // a group ends early here, so that large payloads are not all in memory
)

func (a *app) submitLines(ctx context.Context, client *holdfast.Client, name string, options []holdfast.SubmitOption) error {
	in := bufio.NewReaderSize(a.stdin, 64<<10)
	var (
		items []holdfast.Item
		first int // line number of items[0], from 1
		size  int
	)
	flush := func() error {
		if len(items) == 0 {
			return nil
		}
		tasks, err := client.SubmitMany(ctx, items)
		if err != nil {
			return fmt.Errorf("lines %d to %d were not submitted (those before were): %w", first, first+len(items)-1, err)
		}
		for _, t := range tasks {
			if a.json {
				if err := a.stdout.document(t); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintln(a.stdout, t.ID)
		}
		items, size = nil, 0
		return a.stdout.err
	}
	for n := 1; ; n++ {
		line, err := readLine(in, holdfast.DefaultPayloadLimit)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", n, err)
		}
		end := err != nil
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if !json.Valid(line) {
				return usagef("line %d is not JSON; lines before %d were submitted, this and later ones were not", n, max(first, n-len(items)))
			}
			if len(items) == 0 {
				first = n
			}
			items = append(items, holdfast.NewItem(name, json.RawMessage(line), options...))
			size += len(line)
		}
		if end || len(items) == linesGroup || size > linesBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// readLine reads one line of at most limit bytes; io.EOF comes with the last.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > limit+1 {
			return nil, usagef("has more than %d bytes, the limit of a payload", limit)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
