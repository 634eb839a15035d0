package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
)

// applicationFile has what an application's folder knows beside keys and pins.
const applicationFile = "application.json"

// application is how an application finds records: by the Directory whose pin the folder keeps, or
// always at one Host.
type application struct {
	Host  *record.HostRef `json:"host,omitempty"`
	Actor string          `json:"actor,omitempty"`
}

// recordFlags are those of all commands of an application.
type recordFlags struct {
	data    string
	timeout duration
}

func (a *app) recordCommand() *cobra.Command {
	f := recordFlags{timeout: duration(20 * time.Second)}
	cmd := &cobra.Command{
		Use:     "record",
		GroupID: groupRecords,
		Short:   "Read patients' records and write to them, and move them between Hosts",
		Long: `These commands are an application: they find a record's Host by the Directory, prove that they hold the
application's key, and believe a write only with the Host's signed receipt in hand. --data names the
application's folder, which "holdfast record init" makes: its key (app.key, its identity: keep it to
yourself), what it pins, and what it has verified. One command at a time uses a folder; others wait.

A write has an operation id. Sent again with the same id (--operation), however often, it is done once
and answers with the first result: so a write that was cut off is simply sent again.

"holdfast record move" is for a Host's operator, and takes the Host's folder.`,
		Example: `  holdfast record init --data app --directory directory-pin.json
  holdfast record create --data app "$record" observation.json
  holdfast record read --data app "$record" Observation/0199c0de-0000-7000-8000-000000000003
  holdfast record search --data app "$record" Observation category=laboratory date=ge2026-01-01
  holdfast record move --data host-a "$record" --to https://b.example --to-id "$id"`,
		Args: cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			return usagef(`say what to do with records: init, where, read, search, history, create, update, rename, delete, receipt or move; "holdfast help record" tells more`)
		}),
	}
	dataFlag(cmd, &f.data, "the application's folder (of move: the Host's)")
	cmd.PersistentFlags().Var(&f.timeout, "timeout", "the deadline of one request")
	cmd.AddCommand(a.recordInit(&f), a.recordWhere(&f), a.recordRead(&f), a.recordSearch(&f), a.recordHistory(&f),
		a.recordCreate(&f), a.recordUpdate(&f), a.recordRename(&f), a.recordDelete(&f), a.recordReceipt(&f), a.recordMove(&f.data))
	return cmd
}

func (a *app) recordInit(f *recordFlags) *cobra.Command {
	var (
		trust           trustFlags
		hostURL, hostID string
		actor           string
	)
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make an application's folder with its key, and print its id",
		Long: `Init makes the application's key, where there is none, and keeps which Directory to ask (--directory), or
the one Host that has all its records (--host and --host-id). It prints the application's id, for the
Hosts' operators who grant. Calling it again changes what is given and keeps the rest.`,
		Example: `  holdfast record init --data app --directory directory-pin.json --ca directory/tls.crt --ca a/tls.crt
  holdfast record init --data app --host https://host.example --host-id "$id"`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			if err := needData(f.data, "a folder for the application; it is made if need be"); err != nil {
				return err
			}
			if (hostURL == "") != (hostID == "") {
				return usagef("--host and --host-id belong together")
			}
			if hostURL != "" && trust.pin != "" {
				return usagef("give --directory or --host, not both")
			}
			unlock, err := waitFolder(ctx, f.data)
			if err != nil {
				return err
			}
			defer unlock()
			config, err := client.InDir(f.data)
			if err != nil {
				return err
			}
			var known application
			path := filepath.Join(f.data, applicationFile)
			if _, err := readSettings(path, &known); err != nil {
				return err
			}
			if hostURL != "" {
				ref := hostRef(hostURL, hostID)
				if err := ref.Check(); err != nil {
					return err
				}
				known.Host = &ref
			}
			if actor != "" {
				known.Actor = actor
			}
			pin, _, err := trust.load(f.data)
			if err != nil {
				return err
			}
			if trust.pin != "" {
				known.Host = nil
			}
			if known.Host == nil && pin == nil {
				return usagef("say where records live: --directory FILE, or --host URL with --host-id ID")
			}
			config.Host = known.Host
			if pin != nil {
				config.Pin = *pin
			}
			k, err := client.New(config) // an older folder of another Directory is refused here
			if err != nil {
				return err
			}
			defer k.Close()
			if pin != nil {
				if err := trust.keepPin(f.data, pin); err != nil {
					return err
				}
			}
			if err := writeSettings(path, known); err != nil {
				return err
			}
			if a.json {
				return a.stdout.document(map[string]string{"id": k.Subject()})
			}
			fmt.Fprintln(a.stdout, k.Subject())
			return nil
		}),
	}
	trust.add(cmd)
	cmd.Flags().StringVar(&hostURL, "host", "", "the URL of the one Host that has all records, for a world without a Directory")
	cmd.Flags().StringVar(&hostID, "host-id", "", "that Host's id")
	cmd.Flags().StringVar(&actor, "actor", "", "on whose authority the application acts, as in the grants; kept in the folder")
	a.jsonFlag(cmd)
	return cmd
}

// hostRef is a Host by its URL: docs/records.md, "Talking to a Host".
func hostRef(url, id string) record.HostRef {
	return record.HostRef{ID: id, FHIRBase: url + "/fhir", Issuer: url}
}

// withRecords opens the client of an application's folder.
func (a *app) withRecords(ctx context.Context, f *recordFlags, act func(*client.Client) error) error {
	if err := needData(f.data, "the application's folder"); err != nil {
		return err
	}
	var known application
	path := filepath.Join(f.data, applicationFile)
	found, err := readSettings(path, &known)
	if err != nil {
		return err
	}
	if _, keyErr := os.Stat(filepath.Join(f.data, "app.key")); !found || keyErr != nil {
		return exitError{exitNotFound, fmt.Errorf("there is no application in %s; \"holdfast record init --data %s\" makes one", f.data, f.data)}
	}
	unlock, err := waitFolder(ctx, f.data)
	if err != nil {
		return err
	}
	defer unlock()
	config, err := client.InDir(f.data)
	if err != nil {
		return err
	}
	pin, http, err := new(trustFlags).load(f.data)
	if err != nil {
		return err
	}
	if pin == nil && known.Host == nil {
		return exitError{exitNotFound, errors.New("the folder has no " + pinFile + ": call \"holdfast record init\" with --directory")}
	}
	if pin != nil {
		config.Pin = *pin
	}
	config.Host, config.Actor, config.FollowMoves, config.HTTP, config.Timeout = known.Host, known.Actor, true, http, time.Duration(f.timeout)
	k, err := client.New(config)
	if err != nil {
		return err
	}
	defer k.Close()
	return act(k)
}

func (a *app) recordWhere(f *recordFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "where RECORD",
		Short: "Ask the Directory where a record lives",
		Long: `Where asks the Directory, checks its answer against everything that was verified before, and prints the
Host's id and URL.`,
		Example: `  holdfast record where --data app "$record"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withRecords(ctx, f, func(k *client.Client) error {
				l, err := k.Locate(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.stdout.document(struct {
						Record     string         `json:"record"`
						Host       record.HostRef `json:"host"`
						Generation int64          `json:"generation,omitempty"`
						Address    string         `json:"address,omitempty"`
					}{l.Record, l.Host, l.Generation, l.Address})
				}
				fmt.Fprintf(a.stdout, "%s at %s", l.Host.ID, clean(l.Host.Issuer))
				if l.Generation > 0 {
					fmt.Fprintf(a.stdout, ", generation %d", l.Generation)
				}
				fmt.Fprintln(a.stdout)
				return nil
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}
