package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/host"
)

// hostAdmin are the commands that administer the Host of a folder.
func (a *app) hostAdmin(data *string) []*cobra.Command {
	return []*cobra.Command{
		a.hostInfo(data), a.hostCreate(data), a.hostRecords(data), a.hostGrant(data), a.hostRevoke(data), a.hostGrants(data),
		a.hostClients(data), a.hostTokens(data), a.hostAudit(data), a.hostExpect(data), a.hostPurge(data),
	}
}

// epochMillis is a time for JSON: epoch milliseconds, null for none.
func epochMillis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixMilli()
	return &n
}

func (a *app) hostInfo(data *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Print the Host's id and URL",
		Long: `Info prints what others must know of the Host: its id, for the Directory's operator who admits it, and
with its URL for those who move a record here.`,
		Example: `  holdfast host info --data /var/lib/holdfast
  holdfast directory admit --data dir "$(holdfast host info --data a --json | jq -r .id)"`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error {
				ref := h.Ref()
				if a.json {
					return a.stdout.document(ref)
				}
				fmt.Fprintf(a.stdout, "id         %s\nurl        %s\nfhir base  %s\n", ref.ID, clean(ref.Issuer), clean(ref.FHIRBase))
				return nil
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// recordJSON is a record for machines.
type recordJSON struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Address string `json:"address"`
	Writes  int64  `json:"writes"`
	Created *int64 `json:"created_ms"`
}

func toRecordJSON(r host.Record) recordJSON {
	return recordJSON{r.ID, r.State, r.Address, r.Writes, epochMillis(r.Created)}
}

func (a *app) hostCreate(data *string) *cobra.Command {
	var id, patient string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a record, and publish it in the Directory",
		Long: `Create makes a record with its Patient and prints its id, which is the Patient's too. Where the Host has
a Directory, the record is published there; if that fails, call it again with --id: it goes on where
it stopped. A Patient that is given must carry the record's id.`,
		Example: `  holdfast host create --data a
  holdfast host create --data a --id 0199c0de-0000-7000-8000-000000000001 --patient patient.json`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			n := host.NewRecord{ID: id}
			if patient != "" {
				if id == "" {
					return usagef("--patient needs --id: the Patient's id is the record's")
				}
				var err error
				if n.Patient, err = a.readInput(ctx, patient); err != nil {
					return err
				}
			}
			return a.withHost(ctx, *data, func(h *host.Host) error {
				r, err := h.CreateRecord(ctx, n)
				if err != nil {
					return err
				}
				if a.json {
					return a.stdout.document(toRecordJSON(r))
				}
				fmt.Fprintln(a.stdout, r.ID)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "the record's id, a UUIDv7 (default: a new one)")
	cmd.Flags().StringVar(&patient, "patient", "", "the Patient, a file with a FHIR resource, or - for standard input (default: a Patient that says nothing yet)")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) hostRecords(data *string) *cobra.Command {
	var after string
	limit := 100
	cmd := &cobra.Command{
		Use:     "records",
		Short:   "List the Host's records",
		Long:    `Records lists the records by id, also those that have moved away or are on the way.`,
		Example: `  holdfast host records --data a --json | jq -r 'select(.state == "active").id'`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withHost(ctx, *data, func(h *host.Host) error {
				list, err := h.Records(ctx, after, limit)
				if err != nil {
					return err
				}
				return listed(a, list, "no records", []string{"RECORD", "STATE", "WRITES", "CREATED", "ADDRESS"}, toRecordJSON, func(r host.Record) []cell {
					return []cell{{text: r.ID}, {text: r.State}, {text: fmt.Sprint(r.Writes), right: true}, {text: a.ago(r.Created)}, {text: cut(r.Address, 100)}}
				})
			})
		}),
	}
	cmd.Flags().StringVar(&after, "after", "", "go on after this id")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many")
	a.jsonFlag(cmd)
	return cmd
}

func checkLimit(n int) error {
	if n < 1 || n > 10_000 {
		return usagef("--limit is %d; use 1 to 10000", n)
	}
	return nil
}

// listed prints a list for machines or for people.
func listed[T, J any](a *app, list []T, none string, head []string, toJSON func(T) J, row func(T) []cell) error {
	if a.json {
		for _, v := range list {
			if err := a.stdout.document(toJSON(v)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		fmt.Fprintln(a.stderr, none)
		return nil
	}
	rows := make([][]cell, len(list))
	for i, v := range list {
		rows[i] = row(v)
	}
	a.stdout.table(head, rows)
	return nil
}

func (a *app) hostGrant(data *string) *cobra.Command {
	var (
		g     host.Grant
		until moment
	)
	cmd := &cobra.Command{
		Use:   "grant RECORD CLIENT --scope SCOPE",
		Short: "Let an application do something with a record",
		Long: `Grant lets an application, named by its id, do what the SMART v2 scopes say with one record, and prints
the grant's id. With --representative the application acts on that person's or clinic's authority, and
must name it when it asks for a token. Scopes are like patient/Observation.cruds (create, read, update,
delete, search) or patient/*.rs.`,
		Example: `  holdfast host grant --data a "$record" "$client" --scope 'patient/*.cruds'
  holdfast host grant --data a "$record" "$client" --scope 'patient/Observation.rs patient/Patient.r' --until 2027-01-01`,
		Args: cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			g.Record, g.Client, g.Until = args[0], args[1], time.Time(until)
			if err := record.CheckID("record", g.Record); err != nil {
				return err
			}
			if g.Scope == "" {
				return usagef("--scope is missing; use for example --scope 'patient/*.cruds'")
			}
			return a.withHost(ctx, *data, func(h *host.Host) error {
				id, err := h.Grant(ctx, g)
				if err != nil {
					return err
				}
				if a.json {
					g.ID = id
					return a.stdout.document(toGrantJSON(g, true))
				}
				fmt.Fprintln(a.stdout, id)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&g.Scope, "scope", "", "SMART v2 scopes, separated by spaces")
	cmd.Flags().StringVar(&g.Representative, "representative", "", "on whose authority the application acts")
	cmd.Flags().Var(&until, "until", "when the grant ends by itself, such as 2027-01-01 (default: never)")
	a.jsonFlag(cmd)
	return cmd
}

type grantJSON struct {
	ID             string `json:"id"`
	Record         string `json:"record"`
	Client         string `json:"client"`
	Representative string `json:"representative,omitempty"`
	Scope          string `json:"scope"`
	Active         bool   `json:"active"`
	Until          *int64 `json:"until_ms"`
	Revoked        *int64 `json:"revoked_ms"`
	Created        *int64 `json:"created_ms"`
}

func toGrantJSON(g host.Grant, active bool) grantJSON {
	return grantJSON{g.ID, g.Record, g.Client, g.Representative, g.Scope, active, epochMillis(g.Until), epochMillis(g.Revoked), epochMillis(g.Created)}
}

func (a *app) hostGrants(data *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "grants RECORD",
		Short:   "List the grants for a record",
		Long:    `Grants lists who may do what with a record, also the grants that have ended.`,
		Example: `  holdfast host grants --data a "$record" --json | jq 'select(.active)'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error {
				if _, err := h.Record(ctx, args[0]); err != nil {
					return err
				}
				list, err := h.Grants(ctx, args[0])
				if err != nil {
					return err
				}
				return listed(a, list, "no grants", []string{"GRANT", "CLIENT", "SCOPE", "REPRESENTATIVE", "STATE"},
					func(g host.Grant) grantJSON { return toGrantJSON(g, g.Active(a.now())) },
					func(g host.Grant) []cell {
						state := cell{text: "stands", style: green}
						switch {
						case !g.Revoked.IsZero():
							state = cell{text: "revoked " + a.ago(g.Revoked), style: dim}
						case !g.Until.IsZero() && g.Active(a.now()):
							state.text = "ends " + a.ago(g.Until)
						case !g.Until.IsZero():
							state = cell{text: "ended " + a.ago(g.Until), style: dim}
						}
						return []cell{{text: g.ID}, {text: g.Client}, {text: cut(g.Scope, 60)}, {text: cut(g.Representative, 40)}, state}
					})
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) hostRevoke(data *string) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke GRANT",
		Short:   "End a grant, and every token that rests on it, at once",
		Long:    `Revoke ends a grant. Running Hosts read grants anew at each request, so it holds from the next one on.`,
		Example: `  holdfast host revoke --data a 0199c0de-0000-7000-8000-000000000002`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error { return h.Revoke(ctx, args[0]) })
		}),
	}
}

func (a *app) hostClients(data *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "clients",
		Short:   "List the applications, add or disable one",
		Long:    `Clients lists the applications that the Host knows: those that were added, or hold or held a grant.`,
		Example: `  holdfast host clients --data a`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error {
				list, err := h.Clients(ctx)
				if err != nil {
					return err
				}
				type clientJSON struct {
					ID       string `json:"id"`
					Name     string `json:"name"`
					Disabled bool   `json:"disabled"`
					Created  *int64 `json:"created_ms"`
				}
				return listed(a, list, "no applications", []string{"CLIENT", "NAME", "STATE", "ADDED"},
					func(c host.Client) clientJSON { return clientJSON{c.ID, c.Name, c.Disabled, epochMillis(c.Created)} },
					func(c host.Client) []cell {
						state := cell{text: "enabled", style: green}
						if c.Disabled {
							state = cell{text: "disabled", style: red}
						}
						return []cell{{text: c.ID}, {text: cut(c.Name, 40)}, state, {text: a.ago(c.Created)}}
					})
			})
		}),
	}
	a.jsonFlag(cmd)
	var name string
	add := &cobra.Command{
		Use:     "add CLIENT",
		Short:   "Make an application known, or let a disabled one in again",
		Long:    `Add makes an application known under a name for people. It may do nothing without a grant.`,
		Example: `  holdfast host clients add --data a "$client" --name 'Laboratory'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error { return h.AddClient(ctx, args[0], name) })
		}),
	}
	add.Flags().StringVar(&name, "name", "", "a name for people")
	disable := &cobra.Command{
		Use:     "disable CLIENT",
		Short:   "End everything that an application may do, at once",
		Long:    `Disable keeps an application out, whatever grants and tokens it has. "clients add" lets it in again.`,
		Example: `  holdfast host clients disable --data a "$client"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error { return h.DisableClient(ctx, args[0]) })
		}),
	}
	cmd.AddCommand(add, disable)
	return cmd
}

func (a *app) hostTokens(data *string) *cobra.Command {
	var after string
	limit := 100
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "List the access tokens that can be used, end one",
		Long: `Tokens lists the access tokens whose time is not over (they live at most 15 minutes): for which record,
which application holds them, and what they allow. The tokens themselves are not kept. One that got
into wrong hands is ended by its jti; to end all that an application has, revoke its grants.`,
		Example: `  holdfast host tokens --data a
  holdfast host tokens revoke --data a "$jti"`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withHost(ctx, *data, func(h *host.Host) error {
				list, err := h.Tokens(ctx, after, limit)
				if err != nil {
					return err
				}
				type tokenJSON struct {
					ID      string `json:"jti"`
					Record  string `json:"record"`
					Client  string `json:"client"`
					Actor   string `json:"actor,omitempty"`
					Grant   string `json:"grant"`
					Scope   string `json:"scope"`
					Issued  *int64 `json:"issued_ms"`
					Expires *int64 `json:"expires_ms"`
					Revoked bool   `json:"revoked"`
				}
				return listed(a, list, "no tokens", []string{"JTI", "STATE", "RECORD", "CLIENT", "SCOPE", "ACTOR"},
					func(t host.IssuedToken) tokenJSON {
						return tokenJSON{t.ID, t.Record, t.Client, t.Actor, t.Grant, t.Scope, epochMillis(t.Issued), epochMillis(t.Expires), t.Revoked}
					},
					func(t host.IssuedToken) []cell {
						state := cell{text: "ends " + a.ago(t.Expires), style: green}
						if t.Revoked {
							state = cell{text: "revoked", style: red}
						}
						return []cell{{text: t.ID}, state, {text: t.Record}, {text: t.Client}, {text: cut(t.Scope, 60)}, {text: cut(t.Actor, 40)}}
					})
			})
		}),
	}
	cmd.Flags().StringVar(&after, "after", "", "go on after this jti")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many")
	a.jsonFlag(cmd)
	cmd.AddCommand(&cobra.Command{
		Use:     "revoke JTI",
		Short:   "End one token by its jti",
		Long:    `Revoke ends the token whose claim jti that is. It holds from the next request on.`,
		Example: `  holdfast host tokens revoke --data a "$jti"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error { return h.RevokeToken(ctx, args[0]) })
		}),
	})
	return cmd
}

func (a *app) hostAudit(data *string) *cobra.Command {
	var after int64
	limit := 100
	cmd := &cobra.Command{
		Use:   "audit RECORD",
		Short: "Show who did what to a record",
		Long: `Audit prints the reads, writes and refusals of a record, oldest first: when, by which application, for
whom, what, and how it ended. For the next page, --after takes the number of the last line.`,
		Example: `  holdfast host audit --data a "$record"
  holdfast host audit --data a "$record" --json | jq -r 'select(.outcome != "ok")'`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return a.withHost(ctx, *data, func(h *host.Host) error {
				if _, err := h.Record(ctx, args[0]); err != nil {
					return err
				}
				list, err := h.Audit(ctx, args[0], after, limit)
				if err != nil {
					return err
				}
				type auditJSON struct {
					ID        int64  `json:"id"`
					At        *int64 `json:"at_ms"`
					Record    string `json:"record"`
					Client    string `json:"client"`
					Actor     string `json:"actor,omitempty"`
					Action    string `json:"action"`
					Target    string `json:"target"`
					Operation string `json:"operation_id,omitempty"`
					Outcome   string `json:"outcome"`
				}
				return listed(a, list, "no lines", []string{"LINE", "AT", "ACTION", "TARGET", "OUTCOME", "CLIENT", "ACTOR"},
					func(e host.AuditEntry) auditJSON {
						return auditJSON{e.ID, epochMillis(e.At), e.Record, e.Client, e.Actor, e.Action, e.Target, e.Operation, e.Outcome}
					},
					func(e host.AuditEntry) []cell {
						outcome := cell{text: e.Outcome, style: red}
						if e.Outcome == "ok" || e.Outcome == "replayed" {
							outcome.style = green
						}
						return []cell{{text: fmt.Sprint(e.ID), right: true}, {text: e.At.Local().Format("2006-01-02 15:04:05.000")}, {text: e.Action}, {text: cut(e.Target, 60)},
							outcome, {text: e.Client}, {text: cut(e.Actor, 40)}}
					})
			})
		}),
	}
	cmd.Flags().Int64Var(&after, "after", 0, "go on after this line")
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) hostExpect(data *string) *cobra.Command {
	return &cobra.Command{
		Use:   "expect RECORD",
		Short: "Let a record move here from another Host",
		Long: `Expect lets this Host take a record that "holdfast record move" sends. It is the receiving operator's
word: a Host takes nothing that it does not expect. The Host needs a Directory.`,
		Example: `  holdfast host expect --data b "$record"
  holdfast record move --data a "$record" --to https://b.example --to-id "$(holdfast host info --data b --json | jq -r .id)"`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error { return h.Expect(ctx, args[0]) })
		}),
	}
}

func (a *app) hostPurge(data *string) *cobra.Command {
	return &cobra.Command{
		Use:   "purge RECORD",
		Short: "Delete what is left here of a record that has moved away",
		Long: `Purge deletes the versions, receipts and search index of a record that lives on another Host now, and
prints how many versions it has deleted. This Host still answers record_moved for it, and keeps its
audit. Interrupted, it goes on when it is called again. A record that lives here, or whose move has
not ended, is refused.`,
		Example: `  holdfast host records --data a --json | jq -r 'select(.state == "moved").id'
  holdfast host purge --data a "$record"`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withHost(ctx, *data, func(h *host.Host) error {
				n, err := h.Purge(ctx, args[0])
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stdout, "%d versions deleted\n", n)
				return nil
			})
		}),
	}
}
