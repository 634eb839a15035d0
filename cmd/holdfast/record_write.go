package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
)

// maxResource bounds a resource that is read from a file; Hosts take 1 MiB unless told otherwise.
const maxResource = 16 << 20

// readInput reads a file, or standard input for "-".
func (a *app) readInput(ctx context.Context, name string) ([]byte, error) {
	if name == "-" {
		return a.readAll(ctx, maxResource)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxResource+1))
	if err == nil && len(b) > maxResource {
		err = usagef("%s has more than %d bytes, the limit of a resource", name, maxResource)
	}
	return b, err
}

// writeError is a write that failed, with the operation id to send it again.
type writeError struct {
	operation string
	error
}

func (w writeError) Unwrap() error { return w.error }

// write sends an intent and prints what became of it.
func (a *app) write(ctx context.Context, f *recordFlags, i record.Intent) error {
	i.OperationID = cmp.Or(i.OperationID, record.NewID())
	limits := record.Limits{Bytes: maxResource}
	if err := i.Check(limits); err != nil {
		return err
	}
	return a.withRecords(ctx, f, func(k *client.Client) error {
		result, err := k.Write(ctx, i)
		if err != nil {
			return writeError{i.OperationID, err}
		}
		if a.json {
			return a.stdout.document(struct {
				Operation string `json:"operation_id"`
				record.Result
			}{i.OperationID, result})
		}
		again := ""
		if result.Replayed {
			again = ", done before"
		}
		fmt.Fprintf(a.stdout, "%s/%s version %d%s\n", result.Type, result.ID, result.Version, again)
		return nil
	})
}

// writeFlags gives a command the flags of all writes.
func (a *app) writeFlags(cmd *cobra.Command, i *record.Intent, based bool) {
	cmd.Flags().StringVar(&i.OperationID, "operation", "", "the operation id, a UUIDv7: the same again is done once (default: a new one)")
	if based {
		cmd.Flags().Int64Var(&i.BaseVersion, "version", 0, "the version that the write is based on: meta.versionId of what was read")
		if err := cmd.MarkFlagRequired("version"); err != nil {
			panic(err) // the flag stands above
		}
	}
	a.jsonFlag(cmd)
}

func (a *app) recordCreate(f *recordFlags) *cobra.Command {
	i := record.Intent{Operation: record.CreateResource}
	lab := false
	cmd := &cobra.Command{
		Use:   "create RECORD FILE|-",
		Short: "Create a resource",
		Long: `Create sends a FHIR resource and prints its type, id and version. Every value of the resource is kept byte
for byte. It may bring an id of its own, a UUIDv7; otherwise the Host makes one. With --lab it must be an
Observation of the category laboratory.`,
		Example: `  holdfast record create --data app "$record" observation.json --lab
  jq '.subject.reference = "Patient/'"$record"'"' template.json | holdfast record create --data app "$record" -`,
		Args: cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) (err error) {
			if lab {
				i.Operation = record.CreateLab
			}
			i.Patient = args[0]
			if i.Resource, err = a.readInput(ctx, args[1]); err != nil {
				return err
			}
			return a.write(ctx, f, i)
		}),
	}
	cmd.Flags().BoolVar(&lab, "lab", false, "a laboratory result: the Host refuses what does not say so")
	a.writeFlags(cmd, &i, false)
	return cmd
}

func (a *app) recordUpdate(f *recordFlags) *cobra.Command {
	i := record.Intent{Operation: record.UpdateResource}
	cmd := &cobra.Command{
		Use:   "update RECORD FILE|- --version N",
		Short: "Write a new version of a resource",
		Long: `Update replaces a resource; its type and id stand inside the resource. --version is the version that was
read before: if there is a newer one, nothing is written and the exit code is 4.`,
		Example: `  holdfast record update --data app "$record" observation.json --version 3`,
		Args:    cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) (err error) {
			i.Patient = args[0]
			if i.Resource, err = a.readInput(ctx, args[1]); err != nil {
				return err
			}
			return a.write(ctx, f, i)
		}),
	}
	a.writeFlags(cmd, &i, true)
	return cmd
}

func (a *app) recordRename(f *recordFlags) *cobra.Command {
	i := record.Intent{Operation: record.UpdateDemographics}
	cmd := &cobra.Command{
		Use:     "rename RECORD NAME --version N",
		Short:   "Change the Patient's name",
		Long:    `Rename sets the Patient's name and leaves everything else as it is.`,
		Example: `  holdfast record rename --data app "$record" 'Ada Lovelace' --version 1`,
		Args:    cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) (err error) {
			i.Patient = args[0]
			if i.Resource, err = json.Marshal(map[string]string{"name": args[1]}); err != nil {
				return err
			}
			return a.write(ctx, f, i)
		}),
	}
	a.writeFlags(cmd, &i, true)
	return cmd
}

func (a *app) recordDelete(f *recordFlags) *cobra.Command {
	i := record.Intent{Operation: record.DeleteResource}
	cmd := &cobra.Command{
		Use:   "delete RECORD TYPE/ID --version N",
		Short: "Delete a resource",
		Long: `Delete writes a version that says that the resource is deleted; the versions before stay readable by
their numbers.`,
		Example: `  holdfast record delete --data app "$record" Observation/0199c0de-0000-7000-8000-000000000003 --version 3`,
		Args:    cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) (err error) {
			i.Patient = args[0]
			if i.ResourceType, i.ResourceID, err = resourceArg(args[1]); err != nil {
				return err
			}
			return a.write(ctx, f, i)
		}),
	}
	a.writeFlags(cmd, &i, true)
	return cmd
}

func (a *app) recordReceipt(f *recordFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "receipt RECORD OPERATION",
		Short: "Look up what became of a write",
		Long: `Receipt asks the record's Host for the signed receipt of an operation of this application, checks it and
prints what it says. The exit code is 3 if the operation has not succeeded.`,
		Example: `  holdfast record receipt --data app "$record" "$operation"`,
		Args:    cobra.ExactArgs(2),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withRecords(ctx, f, func(k *client.Client) error {
				r, err := k.Receipt(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				if a.json {
					return a.stdout.document(r)
				}
				fmt.Fprintf(a.stdout, "%s %s/%s version %d, write %d of the record\nby %s at %s\n", r.Method, r.Type, r.ID, r.Version, r.Seq, r.Host, a.moment(time.Unix(r.IssuedAt, 0)))
				return nil
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}
