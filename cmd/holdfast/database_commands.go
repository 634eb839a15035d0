package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "migrate",
		GroupID: groupDatabase,
		Short:   "Create the tables, or bring them up to date",
		Long: `Migrate creates the database's tables where they are missing and brings older ones up to date. Programs
that open the database do the same by themselves; migrate is for those who want to do it beforehand, and
to see which version is there. It changes nothing when there is nothing to do.`,
		Example: `  holdfast migrate --db tasks.db
  holdfast migrate --db postgres://app@db.example/app --schema tasks`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.migrate(ctx) }),
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) migrate(ctx context.Context) error {
	store, err := openStore(ctx, &a.db, false)
	if err != nil {
		return err
	}
	defer store.Close()
	protocol, err := store.ProtocolVersion(ctx)
	if err != nil {
		return err
	}
	schema, err := store.Meta(ctx, "schema_version")
	if err != nil {
		return err
	}
	if a.json {
		return a.stdout.document(struct {
			Database string `json:"database"`
			Dialect  string `json:"dialect"`
			Protocol string `json:"protocol_version"`
			Schema   string `json:"schema_version"`
		}{a.db.String(), store.Dialect().Name(), protocol, schema})
	}
	fmt.Fprintf(a.stdout, "%s is ready: %s, protocol %s, schema %s\n", clean(a.db.String()), store.Dialect().Name(), protocol, schema)
	return nil
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		GroupID: groupDatabase,
		Short:   "Print the version",
		Example: `  holdfast version
  holdfast version --json | jq -r .version`,
		Args: cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			v := build()
			if a.json {
				return a.stdout.document(v)
			}
			fmt.Fprintf(a.stdout, "holdfast %s (%s), task protocol %s, %s %s\n", v.Version, v.Revision, v.Protocol, v.Go, v.Platform)
			return nil
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Protocol string `json:"protocol"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// build reads what the Go toolchain stamped into the program.
func build() buildInfo {
	v := buildInfo{Version: "(devel)", Revision: "unknown revision", Protocol: "1", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}
