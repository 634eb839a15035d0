package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/outbox/control"
	"github.com/eda94727/holdfast/record"
)

// intentFlags say which write is meant.
type intentFlags struct {
	operation string
	lab       bool
	version   int64
	name      string
	gone      string
}

func (f *intentFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.lab, "lab", false, "a laboratory result: the Host refuses what does not say so")
	fl.Int64Var(&f.version, "version", 0, "an update, of the version that was read; also of --rename and --delete")
	fl.StringVar(&f.name, "rename", "", "change the Patient's name to this, in the place of a file")
	fl.StringVar(&f.gone, "delete", "", "delete this resource, TYPE/ID, in the place of a file")
	fl.StringVar(&f.operation, "operation", "", "the operation id, a UUIDv7 (default: a new one)")
}

// intent makes the write; file is the resource's, "" where there is none.
func (f *intentFlags) intent(ctx context.Context, a *app, file string) (i record.Intent, err error) {
	named := 0
	for _, given := range []bool{file != "", f.name != "", f.gone != ""} {
		if given {
			named++
		}
	}
	switch {
	case named != 1:
		return i, usagef("say what is written: a file with the resource, or --rename, or --delete")
	case f.lab && (file == "" || f.version != 0):
		return i, usagef("--lab goes with a file and without --version: a laboratory result is created")
	case file == "" && f.version == 0:
		return i, usagef("--version is missing: the version that was read")
	case f.version < 0:
		return i, usagef("--version is %d; versions are 1 or more", f.version)
	}
	i.OperationID, i.BaseVersion = f.operation, f.version
	switch {
	case f.gone != "":
		i.Operation = record.DeleteResource
		i.ResourceType, i.ResourceID, err = resourceArg(f.gone)
	case f.name != "":
		i.Operation = record.UpdateDemographics
		i.Resource, err = json.Marshal(map[string]string{"name": f.name})
	default:
		i.Operation = record.CreateResource
		if f.version > 0 {
			i.Operation = record.UpdateResource
		}
		if f.lab {
			i.Operation = record.CreateLab
		}
		if i.Resource, err = a.readInput(ctx, file); err == nil {
			if err = record.CheckJSON(i.Resource, record.Limits{Bytes: maxResource}); err != nil {
				err = fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return i, err
}

func (a *app) outboxEnqueue(f *outboxFlags) *cobra.Command {
	var what intentFlags
	cmd := &cobra.Command{
		Use:   "enqueue RECORD [FILE|-]",
		Short: "Put a write into the queue",
		Long: `Enqueue puts a write into the queue and prints its operation id. When it has ended, the write is on disk,
and its owner sends it, now or when the Host can be reached. Enqueued again with the same --operation, it
is there once.

A file is created as a resource, or with --version updated. With --data, a queue that is not there yet is
made, for the application of that folder.`,
		Example: `  holdfast outbox enqueue --data app "$record" observation.json --lab
  holdfast outbox enqueue --file app.db "$record" observation.json --version 3
  holdfast outbox enqueue --file app.db "$record" --rename 'Ada Lovelace' --version 1`,
		Args: cobra.RangeArgs(1, 2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			i, err := what.intent(ctx, a, argument(args, 1))
			if err != nil {
				return err
			}
			if i.Patient = args[0]; i.OperationID == "" {
				i.OperationID = record.NewID()
			}
			if err := i.Check(record.Limits{Bytes: maxResource}); err != nil {
				return err
			}
			return a.withQueue(ctx, f, false, true, func(q control.Queue) error {
				id, err := q.Enqueue(ctx, i)
				if err != nil {
					return err
				}
				return a.operation(id)
			})
		}),
	}
	what.add(cmd)
	a.jsonFlag(cmd)
	return cmd
}

func argument(args []string, n int) string {
	if n < len(args) {
		return args[n]
	}
	return ""
}

// operation prints an operation id.
func (a *app) operation(id string) error {
	if a.json {
		return a.stdout.document(map[string]string{"operation_id": id})
	}
	fmt.Fprintln(a.stdout, id)
	return nil
}

// each does something to entries one after the other: one that cannot be done does not keep the others
// from it. The error is the first one's.
func (a *app) each(ids []string, done string, act func(id string) error) error {
	var first error
	for _, id := range ids {
		switch err := act(id); {
		case err == nil && a.json:
			if err := a.operation(id); err != nil {
				return err
			}
		case err == nil:
			fmt.Fprintf(a.stdout, "%s %s\n", id, done)
		case len(ids) == 1:
			return err
		default:
			if errors.Is(err, context.Canceled) {
				return err
			}
			fmt.Fprintf(a.stderr, "holdfast: %s: %s\n", clean(id), clean(err.Error()))
			if first == nil {
				first = err
			}
		}
	}
	if first != nil {
		return fmt.Errorf("not all of them: %w", first)
	}
	return nil
}

func checkOperations(ids []string) error {
	for _, id := range ids {
		if err := checkOperation(id); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) outboxRetry(f *outboxFlags) *cobra.Command {
	var (
		why           changeFlags
		all           bool
		states        []string
		patient, code string
	)
	cmd := &cobra.Command{
		Use:   "retry OPERATION…",
		Short: "Send rejected or conflicted entries again, as they are",
		Long: `Retry makes rejected or conflicted entries pending again, when what they failed for is gone: a grant was
given, say. With --all, every rejected entry (or those of --state, --record and --code).`,
		Example: `  holdfast outbox retry --file app.db "$operation" --reason 'the grant was missing'
  holdfast outbox retry --file app.db --all --code insufficient_scope --reason 'the grant was missing'`,
		RunE: a.action(func(ctx context.Context, args []string) error {
			ch, err := why.check()
			if err != nil {
				return err
			}
			filter := outbox.Filter{States: []outbox.State{outbox.Rejected}, Patient: patient, Limit: 1000}
			if len(states) > 0 {
				if filter.States, err = parseStates(states); err != nil {
					return err
				}
			}
			for _, s := range filter.States {
				if s != outbox.Rejected && s != outbox.Conflicted {
					return usagef("--state %s: only rejected and conflicted entries can be tried again", s)
				}
			}
			switch {
			case all && len(args) > 0, !all && len(args) == 0:
				return usagef("name entries by their operation ids, or use --all")
			case !all && (len(states) > 0 || patient != "" || code != ""):
				return usagef("--state, --record and --code belong to --all")
			}
			if patient != "" {
				if err := record.CheckID("record", patient); err != nil {
					return err
				}
			}
			if err := checkOperations(args); err != nil {
				return err
			}
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				if !all {
					return a.each(args, "is pending", func(id string) error { return q.Retry(ctx, id, ch) })
				}
				return a.retryAllEntries(ctx, q, filter, record.Code(code), ch)
			})
		}),
	}
	why.add(cmd, false)
	fl := cmd.Flags()
	fl.BoolVar(&all, "all", false, "every rejected entry")
	fl.StringArrayVarP(&states, "state", "s", nil, "with --all: entries in this state, rejected or conflicted; again for more")
	fl.StringVar(&patient, "record", "", "with --all: entries of this record")
	fl.StringVar(&code, "code", "", "with --all: entries that failed with this code")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) retryAllEntries(ctx context.Context, q control.Queue, f outbox.Filter, code record.Code, ch outbox.Change) error {
	n := 0
	for {
		list, err := q.Entries(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range list {
			f.After = e.Sequence
			if code != "" && e.Code != code {
				continue
			}
			err := q.Retry(ctx, e.OperationID, ch)
			if errors.Is(err, outbox.QueueStateConflict) || errors.Is(err, outbox.UnknownQueueEntry) {
				continue // somebody was faster
			}
			if err != nil {
				return fmt.Errorf("after %d entries: %w", n, err)
			}
			n++
		}
		if len(list) < f.Limit {
			break
		}
	}
	if a.json {
		return a.stdout.document(map[string]int{"retried": n})
	}
	fmt.Fprintf(a.stdout, "%d entries are pending again\n", n)
	return nil
}

func (a *app) outboxRebase(f *outboxFlags) *cobra.Command {
	var (
		why     changeFlags
		version int64
	)
	cmd := &cobra.Command{
		Use:   "rebase OPERATION --version N",
		Short: "Base a conflicted write on the version that there is now",
		Long: `Rebase puts the same write, based on another version of its resource, in an entry's place, and prints the
new operation id: after somebody has looked at that version and still wants the write.`,
		Example: `  holdfast record read --data app "$record" Observation/0199c0de-0000-7000-8000-000000000003
  holdfast outbox rebase --file app.db "$operation" --version 4 --reason 'both changes are wanted'`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			ch, err := why.check()
			if err != nil {
				return err
			}
			if version < 1 {
				return usagef("--version is %d; give the version that was read, 1 or more", version)
			}
			if err := checkOperation(args[0]); err != nil {
				return err
			}
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				id, err := q.Rebase(ctx, args[0], version, ch)
				if err != nil {
					return err
				}
				return a.operation(id)
			})
		}),
	}
	why.add(cmd, true)
	cmd.Flags().Int64Var(&version, "version", 0, "the version that the write is based on now")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) outboxReplace(f *outboxFlags) *cobra.Command {
	var (
		why  changeFlags
		what intentFlags
	)
	cmd := &cobra.Command{
		Use:   "replace OPERATION [FILE|-]",
		Short: "Put another write in an entry's place",
		Long: `Replace puts another write to the same record in an entry's place, and prints its operation id. The entry
itself is discarded. The write is named as in "holdfast outbox enqueue".`,
		Example: `  holdfast outbox replace --file app.db "$operation" corrected.json --reason 'the status was wrong'`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			ch, err := why.check()
			if err != nil {
				return err
			}
			if err := checkOperation(args[0]); err != nil {
				return err
			}
			i, err := what.intent(ctx, a, argument(args, 1))
			if err != nil {
				return err
			}
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				e, err := q.Entry(ctx, args[0])
				if err != nil {
					return err
				}
				i.Patient = e.Patient
				id, err := q.Replace(ctx, args[0], i, ch)
				if err != nil {
					return err
				}
				return a.operation(id)
			})
		}),
	}
	why.add(cmd, true)
	what.add(cmd)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) outboxDiscard(f *outboxFlags) *cobra.Command {
	var why changeFlags
	cmd := &cobra.Command{
		Use:   "discard OPERATION…",
		Short: "Give entries up",
		Long: `Discard gives entries up: they are never sent, and the entries behind them go on. An entry whose outcome
is not known may have been done by the Host already; it is refused unless --accept-unknown says that this
does not matter.`,
		Example: `  holdfast outbox discard --file app.db "$operation" --reason 'entered for the wrong patient'`,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			ch, err := why.check()
			if err != nil {
				return err
			}
			if err := checkOperations(args); err != nil {
				return err
			}
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				return a.each(args, "is discarded", func(id string) error { return q.Discard(ctx, id, ch) })
			})
		}),
	}
	why.add(cmd, true)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) outboxFollow(f *outboxFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "follow RECORD",
		Short: "Send a record's writes to the Host where it lives now",
		Long: `Follow asks the Directory where a record lives, and has its writes sent there from then on. An owner does
this by itself when a Host says that the record has moved, unless it runs with --manual-moves. Where
nobody owns the queue, --data names the application's folder.`,
		Example: `  holdfast outbox follow --file app.db "$record"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := record.CheckID("record", args[0]); err != nil {
				return err
			}
			return a.withQueue(ctx, f, false, true, func(q control.Queue) error {
				if _, direct := q.(*outbox.Outbox); direct && f.data == "" {
					return usagef("nobody owns the queue now; name the application's folder by --data, for its key and its Directory")
				}
				return q.Follow(ctx, args[0])
			})
		}),
	}
}

func (a *app) outboxPrune(f *outboxFlags) *cobra.Command {
	var age duration
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE",
		Short: "Delete what was done long ago",
		Long: `Prune deletes entries that are committed or discarded and have not changed for so long. Their operation
ids stay known, so that none of them can be enqueued and done a second time.`,
		Example: `  holdfast outbox prune --file app.db --older-than 90d`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				n, err := q.Prune(ctx, a.now().Add(-time.Duration(age)))
				if err != nil {
					return err
				}
				if a.json {
					return a.stdout.document(map[string]int64{"deleted": n})
				}
				fmt.Fprintf(a.stdout, "%d entries deleted\n", n)
				return nil
			})
		}),
	}
	cmd.Flags().Var(&age, "older-than", "how long ago they were done, such as 90d")
	if err := cmd.MarkFlagRequired("older-than"); err != nil {
		panic(err) // the flag stands above
	}
	a.jsonFlag(cmd)
	return cmd
}
