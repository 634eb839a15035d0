package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
)

var (
	errNoDatabase = errors.New("no database is named")
	errNoFile     = errors.New("there is no such file")
)

// database is what the flags say about where the tasks are.
type database struct {
	url         string
	schema      string
	synchronous string
	log         *slog.Logger // for what nobody asked for, such as a connection that was lost; may be nil
}

const (
	envDatabase = "HOLDFAST_DB"
	envSchema   = "HOLDFAST_SCHEMA"
)

func (d *database) flags(f *pflag.FlagSet) {
	f.StringVar(&d.url, "db", "", "the database: tasks.db, sqlite:tasks.db or postgres://… (default: $HOLDFAST_DB)")
	f.StringVar(&d.schema, "schema", "", "Postgres: the schema of the tables (default: $HOLDFAST_SCHEMA, or the connection's search_path)")
	f.StringVar(&d.synchronous, "synchronous", "", "SQLite: full (each commit is on disk) or normal (a power cut may take the newest) (default: full)")
}

// address is what was named, by flag or by environment.
func (d *database) address() string { return cmp.Or(d.url, os.Getenv(envDatabase)) }

func (d *database) schemaName() string { return cmp.Or(d.schema, os.Getenv(envSchema)) }

// keywords is how libpq's other form of address begins: host=localhost dbname=app.
var keywords = regexp.MustCompile(`(^|\s)(host|hostaddr|dbname|user|service|port)\s*=`)

// scheme takes the kind of database off the address.
func scheme(address string) (kind, rest string) {
	if keywords.MatchString(address) && !strings.Contains(address, "://") {
		return "postgres", address
	}
	switch head, tail, ok := strings.Cut(address, ":"); {
	case !ok:
		return "sqlite", address
	case head == "sqlite":
		return "sqlite", strings.TrimPrefix(tail, "//")
	case head == "postgres", head == "postgresql":
		return "postgres", address
	case strings.HasPrefix(tail, "//"):
		return head, address
	}
	return "sqlite", address // a file with a colon in its name, a drive letter
}

// openStore opens the database that the flags name. Commands that only look at tasks pass
// mustExist, so that a mistyped path is an error and not a new, empty database.
func openStore(ctx context.Context, d *database, mustExist bool) (*holdfast.Store, error) {
	address := d.address()
	if address == "" {
		return nil, usageError{errNoDatabase}
	}
	kind, rest := scheme(address)
	switch kind {
	case "sqlite":
		return openSQLite(ctx, d, rest, mustExist)
	case "postgres":
		return openPostgres(ctx, d, rest)
	}
	return nil, usagef("--db begins with %q, which is no kind of database that holdfast knows; use a file name, sqlite:… or postgres://…", kind+"://")
}

func openSQLite(ctx context.Context, d *database, path string, mustExist bool) (*holdfast.Store, error) {
	var options []sqlite.Option
	switch strings.ToLower(d.synchronous) {
	case "", "full":
	case "normal":
		options = append(options, sqlite.WithSynchronous(sqlite.Normal))
	default:
		return nil, usagef("--synchronous is %q; use full or normal", d.synchronous)
	}
	switch {
	case d.schema != "":
		return nil, usagef("--schema is for Postgres; a SQLite file has none")
	case path == sqlite.Memory:
		return nil, usagef("a database in memory would end with this command; name a file")
	case path == "":
		return nil, usagef("--db names no file; use for example sqlite:tasks.db")
	}
	if mustExist {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, exitError{exitDatabase, fmt.Errorf("%s: %w", path, errNoFile)}
		}
	}
	return sqlite.Open(ctx, path, options...)
}

func openPostgres(ctx context.Context, d *database, url string) (*holdfast.Store, error) {
	if d.synchronous != "" {
		return nil, usagef("--synchronous is for SQLite; on Postgres, set synchronous_commit for the role or the database")
	}
	log := d.log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	options := []postgres.Option{postgres.WithLogger(log)}
	if s := d.schemaName(); s != "" {
		options = append(options, postgres.WithSchema(s))
	}
	return postgres.Open(ctx, url, options...)
}

// redact takes the password of the address out of a text that is going to be shown.
func (d *database) redact(text string) string {
	for _, secret := range secrets(d.address()) {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	return text
}

var keywordPassword = regexp.MustCompile(`password\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]+)`)

// secrets answers the password in an address, in every form in which an error may quote it.
func secrets(address string) (found []string) {
	add := func(s string) {
		if s != "" {
			found = append(found, s, url.QueryEscape(s), url.PathEscape(s))
		}
	}
	if kind, _ := scheme(address); kind == "sqlite" {
		return nil
	}
	if u, err := url.Parse(address); err == nil {
		if p, ok := u.User.Password(); ok {
			add(p)
		}
		add(u.Query().Get("password"))
		add(u.Query().Get("sslpassword"))
	}
	for _, m := range keywordPassword.FindAllStringSubmatch(address, -1) {
		add(m[1])
		add(strings.Trim(m[1], "'"))
	}
	// The text itself too: a URL that cannot be parsed may be quoted as it is.
	_, rest, _ := strings.Cut(address, ":")
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		if _, p, ok := strings.Cut(rest[:i], ":"); ok {
			add(p)
		}
	}
	return found
}

// String is the address without its password, for people.
func (d *database) String() string {
	address := d.address()
	if u, err := url.Parse(address); err == nil && u.User != nil {
		return d.redact(u.Redacted())
	}
	return d.redact(address)
}

// environment hands the database on to commands that a worker runs, so that they can call holdfast.
func (d *database) environment() []string {
	env := []string{envDatabase + "=" + d.address()}
	if s := d.schemaName(); s != "" {
		env = append(env, envSchema+"="+s)
	}
	return env
}
