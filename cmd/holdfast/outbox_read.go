package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/outbox/control"
	"github.com/eda94727/holdfast/record"
)

// entryJSON is an entry for machines.
type entryJSON struct {
	Sequence   int64            `json:"sequence"`
	Operation  string           `json:"operation_id"`
	Patient    string           `json:"patient"`
	Kind       record.Operation `json:"operation"`
	State      outbox.State     `json:"state"`
	Code       record.Code      `json:"code,omitempty"`
	Detail     string           `json:"detail,omitempty"`
	Attempts   int64            `json:"attempts"`
	Unsure     bool             `json:"unsure"`
	Position   int64            `json:"position"`
	ReplacedBy string           `json:"replaced_by,omitempty"`
	Result     *record.Result   `json:"result,omitempty"`
	Created    *int64           `json:"created_ms"`
	Changed    *int64           `json:"changed_ms"`
	// Intent is what is written: only with --content.
	Intent any `json:"intent,omitempty"`
}

// toEntryJSON hides the content unless it was asked for, wherever the entry comes from.
func toEntryJSON(e outbox.Entry, content bool) entryJSON {
	if !content {
		e = control.Redact(e)
	}
	j := entryJSON{Sequence: e.Sequence, Operation: e.OperationID, Patient: e.Patient, Kind: e.Operation, State: e.State, Code: e.Code, Detail: e.Detail, Attempts: e.Attempts,
		Unsure: e.Unsure, Position: e.Position, ReplacedBy: e.ReplacedBy, Result: e.Result, Created: epochMillis(e.Created), Changed: epochMillis(e.Changed)}
	switch {
	case len(e.IntentJSON) == 0:
	case json.Valid(e.IntentJSON):
		j.Intent = json.RawMessage(e.IntentJSON)
	default: // somebody edited the file
		j.Intent = string(e.IntentJSON)
	}
	return j
}

func stateStyle(s outbox.State) style {
	switch s {
	case outbox.Submitted:
		return cyan
	case outbox.Committed:
		return green
	case outbox.Rejected, outbox.Quarantined:
		return red
	case outbox.Conflicted:
		return yellow
	case outbox.Discarded:
		return dim
	}
	return plain
}

var (
	openStates = []outbox.State{outbox.Pending, outbox.Submitted, outbox.Conflicted, outbox.Rejected, outbox.Quarantined}
	everyState = append(openStates[:len(openStates):len(openStates)], outbox.Committed, outbox.Discarded)
)

// parseStates reads the names of states.
func parseStates(names []string) (states []outbox.State, err error) {
	for _, n := range names {
		s := outbox.State(strings.ToLower(n))
		found := false
		for _, known := range everyState {
			found = found || s == known
		}
		if !found {
			return nil, usagef("--state %q is no state; use pending, submitted, committed, conflicted, rejected, discarded or quarantined", n)
		}
		states = append(states, s)
	}
	return states, nil
}

func (a *app) outboxList(f *outboxFlags) *cobra.Command {
	var (
		filter              = outbox.Filter{Limit: 100}
		states              []string
		all, heads, content bool
		afterRecord         string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the entries that are not done yet, or others",
		Long: `List shows, in the order in which they were enqueued, the entries that are neither committed nor
discarded, or those of the states that --state names, or all. --heads shows for each patient the one entry
that the others wait for. For the next page, --after takes the last sequence (of --heads: the last record).`,
		Example: `  holdfast outbox list --file app.db
  holdfast outbox list --file app.db --state conflicted --state rejected --json | jq -r .operation_id
  holdfast outbox list --file app.db --heads`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) (err error) {
			if err := checkLimit(filter.Limit); err != nil {
				return err
			}
			if filter.States, err = parseStates(states); err != nil {
				return err
			}
			switch {
			case all && len(states) > 0:
				return usagef("--all and --state exclude each other")
			case heads && (all || len(states) > 0 || filter.Patient != "" || filter.After != 0 || content):
				return usagef("--heads goes with --after-record, --limit and --json only")
			case afterRecord != "" && !heads:
				return usagef("--after-record belongs to --heads; the next page of other lists begins --after a sequence")
			case content && !a.json:
				return usagef(`--content needs --json here; "holdfast outbox show OPERATION --content" shows one entry`)
			case filter.After < 0:
				return usagef("--after is %d; use the sequence of the last entry seen", filter.After)
			case !all && len(states) == 0:
				filter.States = openStates
			}
			for _, id := range []struct{ flag, id string }{{"record", filter.Patient}, {"after-record", afterRecord}} {
				if id.id != "" {
					if err := record.CheckID(id.flag, id.id); err != nil {
						return err
					}
				}
			}
			return a.withQueue(ctx, f, content, false, func(q control.Queue) error {
				if heads {
					list, err := q.Heads(ctx, afterRecord, filter.Limit)
					if err != nil {
						return err
					}
					return a.entries(list, content)
				}
				return a.listEntries(ctx, q, filter, content)
			})
		}),
	}
	fl := cmd.Flags()
	fl.StringArrayVarP(&states, "state", "s", nil, "entries in this state; again for more")
	fl.BoolVar(&all, "all", false, "entries in every state")
	fl.StringVar(&filter.Patient, "record", "", "entries of this record")
	fl.Int64Var(&filter.After, "after", 0, "go on after this sequence")
	fl.StringVar(&afterRecord, "after-record", "", "with --heads: go on after this record")
	fl.IntVar(&filter.Limit, "limit", filter.Limit, "at most so many")
	fl.BoolVar(&heads, "heads", false, "for each record the entry that its others wait for")
	fl.BoolVar(&content, "content", false, "with --json: also what is written, which is patients' data")
	a.jsonFlag(cmd)
	return cmd
}

// listEntries prints as many entries as were asked for; those with content in small pages, which are
// printed as they come.
func (a *app) listEntries(ctx context.Context, q control.Queue, f outbox.Filter, content bool) error {
	step := 1000
	if content {
		step = 16
	}
	var all []outbox.Entry
	for left := f.Limit; left > 0; {
		f.Limit = min(left, step)
		list, err := q.Entries(ctx, f)
		if err != nil {
			return err
		}
		if content {
			if err := a.entries(list, true); err != nil {
				return err
			}
		} else {
			all = append(all, list...)
		}
		if len(list) < f.Limit {
			break
		}
		left -= len(list)
		f.After = list[len(list)-1].Sequence
	}
	if content {
		return nil
	}
	return a.entries(all, false)
}

func (a *app) entries(list []outbox.Entry, content bool) error {
	return listed(a, list, "no entries", []string{"SEQ", "STATE", "WRITE", "RECORD", "OPERATION", "TRIES", "CODE", "AGE"},
		func(e outbox.Entry) entryJSON { return toEntryJSON(e, content) },
		func(e outbox.Entry) []cell {
			return []cell{{text: fmt.Sprint(e.Sequence), right: true}, {text: string(e.State), style: stateStyle(e.State)}, {text: cut(string(e.Operation), 30)}, {text: cut(e.Patient, 40)}, {text: cut(e.OperationID, 40)},
				{text: fmt.Sprint(e.Attempts), right: true}, {text: cut(dash(string(e.Code)), 40)}, {text: a.ago(e.Created)}}
		})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) outboxShow(f *outboxFlags) *cobra.Command {
	content := false
	cmd := &cobra.Command{
		Use:   "show OPERATION",
		Short: "Show one entry, what became of it and who changed it",
		Long: `Show prints an entry by its operation id. What is written, and the Host's words about it, are patients'
data: --content shows them.`,
		Example: `  holdfast outbox show --file app.db 0199c0de-0000-7000-8000-000000000001 --content`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := checkOperation(args[0]); err != nil {
				return err
			}
			return a.withQueue(ctx, f, content, false, func(q control.Queue) error {
				e, err := q.Entry(ctx, args[0])
				if err != nil {
					return err
				}
				lines, err := q.Audit(ctx, args[0], 0, 1000)
				if err != nil {
					return err
				}
				return a.showEntry(e, lines, content)
			})
		}),
	}
	cmd.Flags().BoolVar(&content, "content", false, "also what is written, which is patients' data")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) showEntry(e outbox.Entry, lines []outbox.AuditLine, content bool) error {
	if a.json {
		history := make([]auditJSON, len(lines))
		for i, l := range lines {
			history[i] = toAuditJSON(l)
		}
		return a.stdout.document(struct {
			entryJSON
			Changes []auditJSON `json:"changes"`
		}{toEntryJSON(e, content), history})
	}
	line := func(name, text string) {
		fmt.Fprintf(a.stdout, "%s  %s\n", a.stdout.paint(dim, fmt.Sprintf("%-9s", name)), clean(text))
	}
	line("operation", e.OperationID)
	fmt.Fprintf(a.stdout, "%s  %s\n", a.stdout.paint(dim, "state    "), a.stdout.paint(stateStyle(e.State), clean(string(e.State))))
	line("write", string(e.Operation))
	line("record", e.Patient)
	place := fmt.Sprint(e.Sequence)
	if e.Position != e.Sequence {
		place += fmt.Sprintf(", in the place of %d", e.Position)
	}
	line("sequence", place)
	line("attempts", fmt.Sprint(e.Attempts))
	if e.Code != "" {
		meaning := ""
		if info, known := e.Code.Info(); known {
			meaning = ": " + info.Meaning
		}
		line("code", string(e.Code)+meaning)
	}
	if e.Detail != "" {
		if !content {
			e.Detail = "not shown; --content shows it"
		}
		line("detail", e.Detail)
	}
	if e.Unsure && e.State != outbox.Committed {
		line("outcome", "not known: the Host may have done it; the next attempt tells")
	}
	if r := e.Result; r != nil {
		line("result", fmt.Sprintf("%s/%s version %d", r.Type, r.ID, r.Version))
	}
	if e.ReplacedBy != "" {
		line("replaced", "by "+e.ReplacedBy)
	}
	line("enqueued", a.moment(e.Created))
	line("changed", a.moment(e.Changed))
	for _, l := range lines {
		line("by hand", a.auditText(l))
	}
	if !content {
		line("content", "not shown; --content shows it")
		return nil
	}
	fmt.Fprintf(a.stdout, "%s\n%s\n", a.stdout.paint(dim, "content"), cleanLines(string(e.IntentJSON)))
	return nil
}

func (a *app) outboxSummary(f *outboxFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "summary",
		Short: "Count what is not done yet",
		Long: `Summary counts the entries that are not done yet, by state, with the age of the oldest. Pending and
submitted ones go on by themselves; conflicted, rejected and quarantined ones wait for somebody.`,
		Example: `  holdfast outbox summary --file app.db --json | jq .blocked`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				sum, err := q.Summary(ctx)
				if err != nil {
					return err
				}
				return a.summary(sum)
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) summary(sum outbox.Summary) error {
	type depthJSON struct {
		Count  int64  `json:"count"`
		Oldest *int64 `json:"oldest_ms"`
	}
	if a.json {
		states := map[outbox.State]depthJSON{}
		for s, d := range sum.Open {
			states[s] = depthJSON{d.Count, epochMillis(d.Oldest)}
		}
		return a.stdout.document(struct {
			Waiting int64                      `json:"waiting"`
			Blocked int64                      `json:"blocked"`
			States  map[outbox.State]depthJSON `json:"states"`
		}{sum.Waiting(), sum.Blocked(), states})
	}
	var rows [][]cell
	for _, s := range openStates {
		if d, some := sum.Open[s]; some {
			rows = append(rows, []cell{{text: string(s), style: stateStyle(s)}, {text: fmt.Sprint(d.Count), right: true}, {text: a.ago(d.Oldest)}})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.stdout, "nothing waits")
		return nil
	}
	a.stdout.table([]string{"STATE", "ENTRIES", "OLDEST"}, rows)
	return nil
}

// auditJSON is a change by hand for machines.
type auditJSON struct {
	ID         int64        `json:"id"`
	Time       *int64       `json:"at_ms"`
	Operation  string       `json:"operation_id"`
	Action     string       `json:"action"`
	Reason     string       `json:"reason"`
	By         string       `json:"by"`
	State      outbox.State `json:"state_before"`
	Code       string       `json:"code_before,omitempty"`
	ReplacedBy string       `json:"replaced_by,omitempty"`
}

func toAuditJSON(l outbox.AuditLine) auditJSON {
	return auditJSON{l.ID, epochMillis(l.Time), l.OperationID, l.Action, l.Reason, l.By, l.State, l.Code, l.ReplacedBy}
}

func (a *app) auditText(l outbox.AuditLine) string {
	text := fmt.Sprintf("%s by %s %s: %s", l.Action, dash(l.By), a.ago(l.Time), l.Reason)
	if l.ReplacedBy != "" {
		text += " (now " + l.ReplacedBy + ")"
	}
	return text
}

func (a *app) outboxAudit(f *outboxFlags) *cobra.Command {
	var (
		after int64
		limit = 100
	)
	cmd := &cobra.Command{
		Use:   "audit [OPERATION]",
		Short: "Show who changed entries by hand, and why",
		Long: `Audit shows retries, rebases, replacements and discards, oldest first, of all entries or of one. For the
next page, --after takes the last line's number.`,
		Example: `  holdfast outbox audit --file app.db
  holdfast outbox audit --file app.db "$operation" --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			operation := ""
			if len(args) == 1 {
				if operation = args[0]; checkOperation(operation) != nil {
					return checkOperation(operation)
				}
			}
			if limit < 1 || limit > 1000 {
				return usagef("--limit is %d; use 1 to 1000", limit)
			}
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				lines, err := q.Audit(ctx, operation, after, limit)
				if err != nil {
					return err
				}
				return listed(a, lines, "nothing was changed by hand", []string{"LINE", "WHEN", "ACTION", "OPERATION", "STATE BEFORE", "BY", "REASON"}, toAuditJSON, func(l outbox.AuditLine) []cell {
					return []cell{{text: fmt.Sprint(l.ID), right: true}, {text: a.ago(l.Time)}, {text: l.Action}, {text: cut(l.OperationID, 40)}, {text: string(l.State)}, {text: cut(dash(l.By), 30)}, {text: cut(l.Reason, 80)}}
				})
			})
		}),
	}
	cmd.Flags().Int64Var(&after, "after", 0, "go on after this line")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) outboxVerify(f *outboxFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the file is what was written",
		Long: `Verify reads the whole file and reports entries that are not what was enqueued, or are set aside
already. It changes nothing; the exit code is 1 if something is wrong. With a key (--key-file) every
change by somebody without it is found; without one, only what contradicts itself.`,
		Example: `  holdfast outbox verify --file app.db --key-file queue.key`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withQueue(ctx, f, false, false, func(q control.Queue) error {
				began := time.Now()
				v, err := q.Verify(ctx)
				if err != nil {
					return err
				}
				return a.verification(v, time.Since(began))
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) verification(v outbox.Verification, took time.Duration) error {
	type problemJSON struct {
		Sequence    int64        `json:"sequence,omitempty"`
		OperationID string       `json:"operation_id,omitempty"`
		Patient     string       `json:"patient,omitempty"`
		State       outbox.State `json:"state,omitempty"`
		What        string       `json:"what"`
	}
	if a.json {
		problems := make([]problemJSON, len(v.Problems))
		for i, p := range v.Problems {
			problems[i] = problemJSON(p)
		}
		err := a.stdout.document(struct {
			Checked       int64         `json:"checked"`
			Authenticated bool          `json:"authenticated"`
			Problems      []problemJSON `json:"problems"`
			More          bool          `json:"more"`
		}{v.Checked, v.Authenticated, problems, v.More})
		if err != nil {
			return err
		}
	} else {
		for _, p := range v.Problems {
			fmt.Fprintf(a.stdout, "%s %s: %s\n", dash(p.OperationID), p.State, clean(p.What))
		}
		with := "without a key, so that only what contradicts itself is found"
		if v.Authenticated {
			with = "with the key"
		}
		fmt.Fprintf(a.stdout, "%d entries and changes checked in %s, %s\n", v.Checked, millis(took), with)
	}
	switch n := len(v.Problems); {
	case v.More:
		return fmt.Errorf("more than %d things in the file are not as they were written", n)
	case n > 0:
		return fmt.Errorf("%d in the file not as it was written; \"holdfast outbox replace\" or \"discard\" settles an entry", n)
	}
	return nil
}
