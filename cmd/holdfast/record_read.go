package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
)

// resourceArg takes Type/id apart.
func resourceArg(arg string) (resourceType, id string, err error) {
	resourceType, id, ok := strings.Cut(arg, "/")
	if !ok || resourceType == "" || !record.IsResourceID(id) {
		return "", "", usagef("%.100q is no resource; use Type/id, such as Observation/0199c0de-0000-7000-8000-000000000003", arg)
	}
	return resourceType, id, nil
}

// content prints a resource on one line, with every number and string as it was written.
func (a *app) content(raw []byte) error {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := a.stdout.Write(b.Bytes())
	return err
}

func (a *app) recordRead(f *recordFlags) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use:   "read RECORD TYPE/ID",
		Short: "Print a resource",
		Long: `Read prints the current version of a resource, or the one that --version names, as the Host sent it: every
value is byte for byte as it was written, with id and meta in front. The resource's meta.versionId is what an update or a deletion is based on.`,
		Example: `  holdfast record read --data app "$record" Patient/"$record"
  holdfast record read --data app "$record" Observation/0199c0de-0000-7000-8000-000000000003 --version 1 | jq .valueQuantity`,
		Args: cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			resourceType, id, err := resourceArg(args[1])
			if err != nil {
				return err
			}
			if version < 0 {
				return usagef("--version is %d; versions count from 1", version)
			}
			return a.withRecords(ctx, f, func(k *client.Client) error {
				var r client.Resource
				if version > 0 {
					r, err = k.ReadVersion(ctx, args[0], resourceType, id, version)
				} else {
					r, err = k.Read(ctx, args[0], resourceType, id)
				}
				if err != nil {
					return err
				}
				if a.json {
					return a.content(r.Content)
				}
				_, err = a.stdout.Write(append(bytes.TrimRight(r.Content, "\n"), '\n'))
				return err
			})
		}),
	}
	cmd.Flags().Int64Var(&version, "version", 0, "this version (default: the newest)")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) recordSearch(f *recordFlags) *cobra.Command {
	limit := 100
	cmd := &cobra.Command{
		Use:   "search RECORD TYPE [NAME=VALUE…]",
		Short: "Search a record's resources",
		Long: `Search lists the resources of a type that match all parameters: category, code, date (with prefixes such
as ge and lt), status, identifier, _id, _lastUpdated and R4's own names. Without parameters it lists
them all. TYPE everything is every resource of the record. --json prints the resources, one a line.`,
		Example: `  holdfast record search --data app "$record" Observation category=laboratory date=ge2026-01-01
  holdfast record search --data app "$record" everything --limit 0 --json >record.ndjson`,
		Args: cobra.MinimumNArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if limit < 0 {
				return usagef("--limit is %d; use 1 or more, or 0 for all", limit)
			}
			query := url.Values{}
			for _, arg := range args[2:] {
				name, value, ok := strings.Cut(arg, "=")
				if !ok || name == "" {
					return usagef("%.100q is no search parameter; use NAME=VALUE, such as category=laboratory", arg)
				}
				query.Add(name, value)
			}
			if args[1] == "everything" && len(query) > 0 {
				return usagef("everything takes no parameters; name a type to search")
			}
			return a.withRecords(ctx, f, func(k *client.Client) error {
				found := k.Search(ctx, args[0], args[1], query)
				if args[1] == "everything" {
					found = k.Everything(ctx, args[0])
				}
				return a.resources(found, limit)
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many, 0 for all")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) resources(found iter.Seq2[client.Resource, error], limit int) error {
	var rows [][]cell
	n := 0
	for r, err := range found {
		if err != nil {
			return err
		}
		if limit > 0 && n == limit {
			fmt.Fprintf(a.stderr, "there are more; --limit %d ended the list\n", limit)
			break
		}
		n++
		if a.json {
			if err := a.content(r.Content); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []cell{{text: r.Type + "/" + r.ID}, {text: fmt.Sprint(r.Version), right: true}, {text: about(r.Content)}})
	}
	switch {
	case n == 0:
		fmt.Fprintln(a.stderr, "no resources")
	case !a.json:
		a.stdout.table([]string{"RESOURCE", "VERSION", "WHAT"}, rows)
	}
	return nil
}

// about says in a few words what a resource is about, as far as it has one of the usual elements.
func about(content []byte) string {
	type concept struct {
		Text   string `json:"text"`
		Coding []struct {
			Code    string `json:"code"`
			Display string `json:"display"`
		} `json:"coding"`
	}
	var v struct {
		Status     string          `json:"status"`
		Code       concept         `json:"code"`
		Vaccine    concept         `json:"vaccineCode"`
		Medication concept         `json:"medicationCodeableConcept"`
		Type       concept         `json:"type"`
		Name       json.RawMessage `json:"name"`
	}
	if err := json.Unmarshal(content, &v); err != nil {
		return "" // an element of another shape; the resource itself is one "record read" away
	}
	var words []string
	for _, c := range []concept{v.Code, v.Vaccine, v.Medication, v.Type} {
		switch {
		case c.Text != "":
			words = append(words, c.Text)
		case len(c.Coding) > 0 && c.Coding[0].Display != "":
			words = append(words, c.Coding[0].Display)
		case len(c.Coding) > 0:
			words = append(words, c.Coding[0].Code)
		}
	}
	if v.Status != "" {
		words = append(words, v.Status)
	}
	return cut(strings.Join(words, ", "), 60)
}

func (a *app) recordHistory(f *recordFlags) *cobra.Command {
	limit := 100
	cmd := &cobra.Command{
		Use:   "history RECORD TYPE/ID",
		Short: "List a resource's versions",
		Long: `History lists the versions of a resource, newest first, its deletions among them. --json prints each with
its content.`,
		Example: `  holdfast record history --data app "$record" Patient/"$record"
  holdfast record history --data app "$record" Patient/"$record" --json | jq .resource.name`,
		Args: cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			resourceType, id, err := resourceArg(args[1])
			if err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit is %d; use 1 or more, or 0 for all", limit)
			}
			return a.withRecords(ctx, f, func(k *client.Client) error {
				return a.versions(k.History(ctx, args[0], resourceType, id), limit)
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many, 0 for all")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) versions(found iter.Seq2[client.Version, error], limit int) error {
	var rows [][]cell
	n := 0
	for v, err := range found {
		if err != nil {
			return err
		}
		if limit > 0 && n == limit {
			fmt.Fprintf(a.stderr, "there are more; --limit %d ended the list\n", limit)
			break
		}
		n++
		if a.json {
			head, err := json.Marshal(struct {
				Version int64  `json:"version"`
				Deleted bool   `json:"deleted"`
				Updated *int64 `json:"updated_ms"`
			}{v.Version, v.Deleted, epochMillis(v.Updated)})
			if err != nil {
				return err
			}
			// The content goes in as it stands: json.Marshal would write its strings anew.
			line := append(bytes.TrimSuffix(head, []byte("}")), `,"resource":`...)
			if v.Content == nil {
				line = append(line, "null}"...)
			} else {
				line = append(append(line, v.Content...), '}')
			}
			if err := a.content(line); err != nil {
				return err
			}
			continue
		}
		what := cell{text: about(v.Content)}
		if v.Deleted {
			what = cell{text: "deleted", style: yellow}
		}
		rows = append(rows, []cell{{text: fmt.Sprint(v.Version), right: true}, {text: v.Updated.Local().Format("2006-01-02 15:04:05.000")}, what})
	}
	if !a.json {
		a.stdout.table([]string{"VERSION", "COMMITTED", "WHAT"}, rows)
	}
	return nil
}
