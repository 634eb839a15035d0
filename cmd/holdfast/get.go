package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) getCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:     "get ID | get --key KEY",
		GroupID: groupTasks,
		Short:   "Show one task",
		Example: `  holdfast get task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM
  holdfast get --key invoice:7 --json | jq .result`,
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
			task, err := get(ctx, holdfast.NewClient(store), id, key)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.stdout.document(task)
			}
			a.show(task)
			return a.showLinks(ctx, holdfast.NewClient(store), task.ID)
		}),
	}
	cmd.Flags().StringVarP(&key, "key", "k", "", "the task that stands under this key now")
	a.jsonFlag(cmd)
	return cmd
}

func get(ctx context.Context, client *holdfast.Client, id, key string) (*holdfast.Task, error) {
	if key != "" {
		return client.GetByKey(ctx, key)
	}
	return client.Get(ctx, id)
}

// show prints everything about a task, for people.
func (a *app) show(t *holdfast.Task) {
	line := func(label, text string) {
		if text != "" && text != "-" {
			fmt.Fprintf(a.stdout, "%s %s\n", a.stdout.paint(dim, fmt.Sprintf("%-12s", label)), text)
		}
	}
	progress := ""
	if t.Progress != nil {
		progress = fmt.Sprintf("%.0f %%", *t.Progress*100)
	}
	if t.Message != "" {
		progress = strings.TrimSpace(progress + "  " + clean(t.Message))
	}
	line("id", clean(t.ID))
	line("name", clean(t.Name))
	line("queue", clean(t.Queue))
	status := a.stdout.paint(statusStyle(t.Status), string(t.Status))
	if t.Status == holdfast.Running && !t.CancelRequestedAt.IsZero() {
		status += ", asked to stop " + a.ago(t.CancelRequestedAt)
	}
	line("status", status)
	line("attempt", fmt.Sprintf("%d of %d", t.Attempt, t.MaxAttempts))
	if t.Priority != 0 {
		line("priority", fmt.Sprint(t.Priority))
	}
	line("progress", progress)
	line("created", a.moment(t.CreatedAt))
	if t.Status == holdfast.Queued && !t.Waiting() {
		line("starts", a.moment(t.RunAt))
	}
	line("ended", a.moment(t.CompletedAt))
	line("lease until", a.moment(t.LeaseUntil))
	line("worker", clean(t.WorkerID))
	line("parent", clean(t.ParentID))
	if t.RootID != t.ID {
		line("root", clean(t.RootID))
	}
	line("correlation", clean(t.CorrelationID))
	line("payload", pretty(t.Payload))
	if m := pretty(t.Metadata); m != "{}" {
		line("metadata", m)
	}
	line("result", pretty(t.Result))
	if f := t.Failure(); f != nil {
		again := "retryable"
		if !f.Retryable {
			again = "not retryable"
		}
		line("failure", a.stdout.paint(red, cleanLines(f.Message)))
		line("", fmt.Sprintf("code %s, type %s, %s", clean(f.Code), clean(f.Type), again))
		for _, d := range details(f.Details) {
			line("", d)
		}
	}
}

// details are the members of a failure's details; texts of several lines stand by themselves.
func details(raw json.RawMessage) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || len(members) == 0 {
		if len(raw) == 0 || string(raw) == "null" || string(raw) == "{}" {
			return nil
		}
		return []string{pretty(raw)}
	}
	var out []string
	for _, name := range sortedKeys(members) {
		text := pretty(members[name])
		var s string
		if json.Unmarshal(members[name], &s) == nil {
			text = cleanLines(strings.TrimRight(s, "\n"))
		}
		if strings.Contains(text, "\n") {
			text = "\n" + text
		}
		out = append(out, clean(name)+": "+text)
	}
	return out
}

// pretty is JSON on one line if it is short, indented otherwise.
func pretty(raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return cleanLines(string(raw))
	}
	if b.Len() > 80 {
		b.Reset()
		if json.Indent(&b, raw, strings.Repeat(" ", 13), "  ") != nil {
			return cleanLines(string(raw))
		}
	}
	return cleanLines(b.String())
}

type listFlags struct {
	status, queue, name, root, correlation, after string
	limit, offset                                 int
}

func (a *app) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		GroupID: groupTasks,
		Short:   "List tasks, newest first",
		Long: `List shows tasks, newest first. --after continues where another list ended: give it the id of that
list's last task. Unlike --offset, it neither skips nor repeats tasks when others come and go meanwhile.`,
		Example: `  holdfast list --status failed
  holdfast list --queue reports --limit 20
  holdfast list --limit 20 --after task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM
  holdfast list --root task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM --json | jq -r .status`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.list(ctx, &f) }),
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.status, "status", "s", "", "only queued, running, succeeded, failed or canceled ones")
	fl.StringVarP(&f.queue, "queue", "q", "", "only this queue")
	fl.StringVarP(&f.name, "name", "n", "", "only tasks of this name")
	fl.StringVar(&f.root, "root", "", "only the tree of this task")
	fl.StringVar(&f.correlation, "correlation-id", "", "only this correlation id")
	fl.IntVarP(&f.limit, "limit", "l", holdfast.DefaultListLimit, "how many")
	fl.IntVar(&f.offset, "offset", 0, "skip that many")
	fl.StringVar(&f.after, "after", "", "continue after this task: an id, or the cursor that list printed")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) list(ctx context.Context, f *listFlags) error {
	if f.limit < 1 {
		return usagef("--limit is %d; give at least 1", f.limit)
	}
	store, err := openStore(ctx, &a.db, true)
	if err != nil {
		return err
	}
	defer store.Close()
	client := holdfast.NewClient(store)
	filter := holdfast.Filter{Status: toStatus(f.status), Queue: f.queue, Name: f.name, RootID: f.root, CorrelationID: f.correlation, Limit: f.limit, Offset: f.offset, After: f.after}
	if strings.HasPrefix(f.after, "task_") {
		last, err := client.Get(ctx, f.after)
		if err != nil {
			return fmt.Errorf("--after: %w", err)
		}
		filter.After = last.Cursor()
	}
	tasks, err := client.List(ctx, filter)
	if err != nil {
		return err
	}
	if a.json {
		for _, t := range tasks {
			if err := a.stdout.document(t); err != nil {
				return err
			}
		}
		return nil
	}
	if len(tasks) == 0 {
		fmt.Fprintln(a.stderr, "no tasks")
		return nil
	}
	rows := make([][]cell, len(tasks))
	for i, t := range tasks {
		rows[i] = []cell{
			{text: t.ID}, {text: cut(t.Name, 32)}, {text: cut(t.Queue, 20)}, {text: string(t.Status), style: statusStyle(t.Status)},
			{text: fmt.Sprintf("%d/%d", t.Attempt, t.MaxAttempts)}, {text: a.ago(t.CreatedAt)}, {text: cut(a.note(t), 60)},
		}
	}
	a.stdout.table([]string{"ID", "NAME", "QUEUE", "STATUS", "ATTEMPT", "CREATED", "NOTE"}, rows)
	if len(tasks) == f.limit {
		fmt.Fprintln(a.stderr, a.stderr.paint(dim, "older ones: --after "+tasks[len(tasks)-1].Cursor()))
	}
	return nil
}

// note is the one thing about a task that its status does not say.
func (a *app) note(t *holdfast.Task) string {
	failure := ""
	if f := t.Failure(); f != nil {
		failure, _, _ = strings.Cut(f.Message, "\n")
	}
	switch {
	case t.Waiting():
		return "waits for other tasks"
	case t.Status == holdfast.Queued && t.RunAt.After(a.now()):
		if failure != "" {
			return "again " + a.ago(t.RunAt) + ": " + failure
		}
		return "starts " + a.ago(t.RunAt)
	case t.Status == holdfast.Running && !t.CancelRequestedAt.IsZero():
		return "asked to stop"
	case t.Status == holdfast.Running && t.LeaseUntil.Before(a.now()):
		return "its worker gave no sign of life; the lease ended " + a.ago(t.LeaseUntil)
	case t.Status == holdfast.Running && t.Progress != nil:
		return strings.TrimSpace(fmt.Sprintf("%.0f %% %s", *t.Progress*100, t.Message))
	case t.Status == holdfast.Succeeded:
		return string(t.Result[:min(len(t.Result), 200)])
	}
	return failure
}
