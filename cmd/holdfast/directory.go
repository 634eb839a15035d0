package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory/service"
	"github.com/eda94727/holdfast/record/serve"
)

type directoryFlags struct {
	serviceFlags
	keys, threshold int
	lifetime        duration
}

func (a *app) directoryCommand() *cobra.Command {
	f := directoryFlags{keys: 1, lifetime: duration(7 * 24 * time.Hour)}
	cmd := &cobra.Command{
		Use:     "directory --data DIR",
		GroupID: groupRecords,
		Short:   "Run a Directory, which says on which Host a record lives",
		Long: `Directory serves signed answers to one question: where does a record live now? The first start makes
everything in the folder: its keys (directory-1.key and so on: keep copies safe), the database
(directory.db, or --db postgres://…), and a self-signed TLS certificate unless one is given. Flags are
kept in the folder (directory.json), so that the next start needs --data only; a Postgres URL is not
kept: give it by --db or HOLDFAST_DIRECTORY_DB each time.

Hosts and applications pin the Directory's keys: give them the output of "holdfast directory keys" on
a way that they trust. Hosts publish only once they are admitted. Its URL is part of every record's
address and never changes.

On SIGTERM or SIGINT it takes no more requests, lets running ones finish within --grace, and ends.`,
		Example: `  holdfast directory --data /var/lib/directory --listen 0.0.0.0:443 --url https://directory.example
  holdfast directory keys --data /var/lib/directory >directory-pin.json
  holdfast directory admit --data /var/lib/directory HOST --name 'Clinic North'`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.serveDirectory(ctx, &f) }),
	}
	dataFlag(cmd, &f.data, "the Directory's folder")
	f.serviceFlags.add(cmd, directoryKind)
	fl := cmd.Flags()
	fl.IntVar(&f.keys, "keys", f.keys, "how many keys sign each document, 1 to 16; fixed by the first start")
	fl.IntVar(&f.threshold, "threshold", 0, "how many of the keys clients must find (default: all)")
	fl.Var(&f.lifetime, "lifetime", "how long a signed document is valid; it is signed again after half of that")
	a.jsonFlag(cmd)
	cmd.AddCommand(a.directoryKeys(&f.data), a.directoryHosts(&f.data), a.directoryAdmit(&f.data), a.directoryRemove(&f.data), a.directoryLog(&f.data))
	return cmd
}

func (a *app) serveDirectory(ctx context.Context, f *directoryFlags) error {
	if err := needData(f.data, "a folder for the Directory; it is made if need be"); err != nil {
		return err
	}
	log, err := a.logger(f.logFormat, f.quiet)
	if err != nil {
		return err
	}
	var s settings
	known, err := readSettings(filepath.Join(f.data, directoryKind.file), &s)
	if err != nil {
		return err
	}
	last := s
	if err := s.keepFlags(f.set, "lifetime", "grace"); err != nil {
		return err
	}
	address, err := a.databaseURL(directoryKind, &s, known)
	if err != nil {
		return err
	}
	defer f.closeListener()
	if err := f.resolve(directoryKind, &s); err != nil {
		return err
	}
	if !known || f.set.Changed("keys") {
		s.Keys = f.keys
	}
	if !known || f.set.Changed("threshold") {
		s.Threshold = f.threshold
	}
	switch {
	case known && s.URL != last.URL:
		return usagef("--url is %s, and this Directory is %s for ever: its records' addresses begin with it; use another folder for another Directory", s.URL, last.URL)
	case known && s.Keys != last.Keys:
		return usagef("--keys is %d, and this Directory has %d, which its clients have pinned; use another folder for another Directory", s.Keys, last.Keys)
	case s.Keys < 1 || s.Keys > 16:
		return usagef("--keys is %d; use 1 to 16", s.Keys)
	case s.Threshold < 0 || s.Threshold > s.Keys:
		return usagef("--threshold is %d of %d keys; use 1 to %d, or leave it out for all", s.Threshold, s.Keys, s.Keys)
	case time.Duration(f.lifetime) < time.Minute:
		return usagef("--lifetime is %s; use a minute or more", f.lifetime.String())
	}
	unlock, err := lockFolder(f.data, "a Directory runs on "+f.data+" already")
	if err != nil {
		return err
	}
	defer unlock()
	cert, err := s.certificate(f.data)
	if err != nil {
		return err
	}
	config, err := directoryConfig(f.data, s, address)
	if err != nil {
		return err
	}
	config.Lifetime, config.Log = time.Duration(f.lifetime), log
	d, err := service.Open(ctx, config)
	if err != nil {
		return opened(directoryKind, address, err)
	}
	defer d.Close()
	if err := writeSettings(filepath.Join(f.data, directoryKind.file), s); err != nil {
		return err
	}
	return a.runServer(ctx, serve.Options{Addr: s.Listen, Listener: f.listener, Handler: d.Handler(), Certificate: cert, Grace: time.Duration(f.grace), Log: log,
		Started: func(at net.Addr) { a.sayServing(directoryKind, f.data, s, "", at) }})
}

func directoryConfig(data string, s settings, address string) (service.Config, error) {
	c, err := service.InDir(data, s.Keys)
	if err != nil {
		return c, err
	}
	c.URL, c.Threshold = s.URL, s.Threshold
	if address != "" {
		c.Database = address
	}
	return c, nil
}

// withDirectory opens the Directory of a folder for one act of administration.
func (a *app) withDirectory(ctx context.Context, data string, act func(*service.Service) error) error {
	s, err := loadService(directoryKind, data)
	if err != nil {
		return err
	}
	address, err := a.databaseURL(directoryKind, &s, true)
	if err != nil {
		return err
	}
	config, err := directoryConfig(data, s, address)
	if err != nil {
		return err
	}
	d, err := service.Open(ctx, config)
	if err != nil {
		return opened(directoryKind, address, err)
	}
	defer d.Close()
	return act(d)
}

func (a *app) directoryKeys(data *string) *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "Print what Hosts and applications pin: the URL and the public keys",
		Long: `Keys prints the Directory's URL, its public keys and their threshold as JSON, for --directory of
"holdfast host" and "holdfast record init". Whoever can change this file on its way can tell its
reader where records live: hand it over on a way that is trusted.`,
		Example: `  holdfast directory keys --data /var/lib/directory >directory-pin.json`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withDirectory(ctx, *data, func(d *service.Service) error { return a.stdout.document(d.Pin()) })
		}),
	}
}

func (a *app) directoryHosts(data *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hosts",
		Short:   "List the Hosts that may publish",
		Long:    `Hosts lists the Hosts that were admitted.`,
		Example: `  holdfast directory hosts --data /var/lib/directory`,
		Args:    cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			return a.withDirectory(ctx, *data, func(d *service.Service) error {
				list, err := d.Hosts(ctx)
				if err != nil {
					return err
				}
				type hostJSON struct {
					ID       string `json:"id"`
					Name     string `json:"name"`
					Admitted *int64 `json:"admitted_ms"`
				}
				return listed(a, list, "no hosts", []string{"HOST", "NAME", "ADMITTED"},
					func(h service.Host) hostJSON { return hostJSON{h.ID, h.Name, epochMillis(h.Admitted)} },
					func(h service.Host) []cell {
						return []cell{{text: h.ID}, {text: cut(h.Name, 60)}, {text: a.ago(h.Admitted)}}
					})
			})
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) directoryAdmit(data *string) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "admit HOST",
		Short:   "Let a Host publish",
		Long:    `Admit lets a Host, named by its id, publish the records that it makes or receives.`,
		Example: `  holdfast directory admit --data /var/lib/directory "$host" --name 'Clinic North'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withDirectory(ctx, *data, func(d *service.Service) error { return d.AdmitHost(ctx, args[0], name) })
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "a name for people")
	return cmd
}

func (a *app) directoryRemove(data *string) *cobra.Command {
	return &cobra.Command{
		Use:     "remove HOST",
		Short:   "Take the right to publish from a Host",
		Long:    `Remove keeps a Host from publishing or receiving records. The records that it has stay where they are.`,
		Example: `  holdfast directory remove --data /var/lib/directory "$host"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			return a.withDirectory(ctx, *data, func(d *service.Service) error { return d.RemoveHost(ctx, args[0]) })
		}),
	}
}

func (a *app) directoryLog(data *string) *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:   "log RECORD",
		Short: "Show on which Hosts a record has lived",
		Long: `Log prints the generations of a record, oldest first, after checking their signatures: which Host, why,
and when it was signed last.`,
		Example: `  holdfast directory log --data /var/lib/directory "$record"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := record.CheckID("record", args[0]); err != nil {
				return err
			}
			return a.withDirectory(ctx, *data, func(d *service.Service) error {
				var list []record.Location
				for next := after; ; {
					page, err := d.Log(ctx, args[0], next)
					if err != nil {
						return err
					}
					for _, document := range page {
						l, err := record.VerifyLocation(document, d.Quorum())
						if err != nil {
							return fmt.Errorf("generation %d is not what the Directory signed: %w", next+1, err)
						}
						next = l.Generation
						list = append(list, l)
					}
					if len(page) == 0 {
						break
					}
				}
				if len(list) == 0 && after == 0 {
					return &record.Error{Code: record.NotFound, Field: "record", Detail: "nobody has published this record"}
				}
				return listed(a, list, "no generations", []string{"GENERATION", "HOST", "URL", "REASON", "SIGNED"},
					func(l record.Location) record.Location { return l },
					func(l record.Location) []cell {
						return []cell{{text: fmt.Sprint(l.Generation), right: true}, {text: l.Host.ID}, {text: cut(l.Host.Issuer, 60)}, {text: cut(l.Reason, 40)}, {text: a.ago(time.Unix(l.IssuedAt, 0))}}
					})
			})
		}),
	}
	cmd.Flags().Int64Var(&after, "after", 0, "only the generations above this one")
	a.jsonFlag(cmd)
	return cmd
}
