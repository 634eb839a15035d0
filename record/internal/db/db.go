// Package db is the seam between the record protocol's services and their
// databases: SQLite in one file, with group commit, or Postgres by URL. A
// service writes its SQL once, in .sql files of a subset that both understand,
// and keeps all rules of the protocol above this package.
package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/internal/sqltext"
)

// ErrDuplicate is what a statement's error matches that broke a unique key.
var ErrDuplicate = errors.New("db: a row of this key exists")

// Args are a statement's parameters by name: string, int64, int, bool (as 0
// and 1), []byte or nil.
type Args map[string]any

// Row is one row of an answer. Scan takes *string, *int64, *int, *bool and
// *[]byte; NULL reads as the zero value. What it scans is the caller's to keep.
type Row interface {
	Scan(dst ...any) error
}

// Tx runs statements inside one transaction.
type Tx interface {
	// Exec runs a statement that returns no rows and tells how many it changed.
	Exec(name string, args Args) (int64, error)
	// Query runs a statement and calls each on every row.
	Query(name string, args Args, each func(Row) error) error
	// Adhoc runs a query that was made up for this one call, with :named
	// parameters. Only its shape may come from a user, never its text.
	Adhoc(sql string, args Args, each func(Row) error) error
}

// One scans the first row of a statement's answer and tells whether there was one.
func One(tx Tx, name string, args Args, dst ...any) (found bool, err error) {
	err = tx.Query(name, args, func(row Row) error {
		if found {
			return nil
		}
		found = true
		return row.Scan(dst...)
	})
	return found, err
}

// backend is a database.
type backend interface {
	write(ctx context.Context, op string, fn func(Tx) error) error
	writeSure(ctx context.Context, op string, fn func(Tx) error) error
	read(ctx context.Context, fn func(Tx) error) error
	ping(ctx context.Context) error
	close() error
}

// Config says how to open a service's database.
type Config struct {
	// URL is postgres://… or the path of a SQLite file.
	URL string
	// Schema is the SQL that makes the tables where they do not exist, and SQL
	// the folder sql of statements.
	Schema string
	SQL    fs.FS
	// Namespace keeps services apart in one Postgres database: the schema name.
	Namespace string
}

// DB is an open database.
type DB struct {
	backend
	dialect string
}

// IsPostgres reports whether a URL names a Postgres database.
func IsPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// Open opens the database and makes its tables where they do not exist.
func Open(ctx context.Context, c Config) (*DB, error) {
	if IsPostgres(c.URL) {
		b, err := openPostgres(ctx, c)
		if err != nil {
			return nil, err
		}
		return &DB{b, "postgres"}, nil
	}
	b, err := openSQLite(ctx, c)
	if err != nil {
		return nil, err
	}
	return &DB{b, "sqlite"}, nil
}

// Dialect is "sqlite" or "postgres".
func (d *DB) Dialect() string { return d.dialect }

// Write runs fn in one write transaction; its changes are on disk when Write
// returns. fn may run again after a transient failure, so it sets what it
// gives back anew each time. op names the work in errors.
func (d *DB) Write(ctx context.Context, op string, fn func(Tx) error) error {
	return d.write(ctx, op, fn)
}

// WriteSure is Write for an fn that fails before its first change or hardly
// ever: SQLite then need not be ready to take it back alone.
func (d *DB) WriteSure(ctx context.Context, op string, fn func(Tx) error) error {
	return d.writeSure(ctx, op, fn)
}

// Read runs fn on one snapshot of the database.
func (d *DB) Read(ctx context.Context, fn func(Tx) error) error { return d.read(ctx, fn) }

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.ping(ctx) }

// Close waits for running transactions and closes the database.
func (d *DB) Close() error { return d.close() }

// statements are a service's statements in one dialect's form.
type statements struct {
	texts map[string]*sqltext.Text
	style sqltext.Style
	mu    sync.RWMutex
	ready map[variant]*statement
}

type variant struct {
	name string
	mask uint
}

type statement struct {
	query  sqlitefile.Query
	params []string
}

func loadStatements(files fs.FS, style sqltext.Style, replace map[string]string) (*statements, error) {
	texts, err := sqltext.Load(files, "sql", replace)
	if err != nil {
		return nil, fmt.Errorf("db: load statements: %w", err)
	}
	return &statements{texts: texts, style: style, ready: map[variant]*statement{}}, nil
}

// get returns the variant of a statement in which exactly the optional
// parameters among args stand.
func (s *statements) get(name string, args Args) (*statement, error) {
	text := s.texts[name]
	if text == nil {
		return nil, fmt.Errorf("db: there is no statement %q", name)
	}
	key := variant{name: name}
	for i, optional := range text.Optional {
		if _, given := args[optional]; given {
			key.mask |= 1 << i
		}
	}
	s.mu.RLock()
	ready := s.ready[key]
	s.mu.RUnlock()
	if ready != nil {
		return ready, nil
	}
	sql, params := text.Render(s.style, key.mask)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready[key] == nil {
		s.ready[key] = &statement{sqlitefile.Query{Name: name, SQL: sql}, params}
	}
	return s.ready[key], nil
}

// adhoc renders a statement that stands in no file.
func (s *statements) adhoc(sql string) (text string, params []string) {
	return sqltext.Parse("adhoc", sql).Render(s.style, 0)
}

// value returns the argument of a parameter in one of the types that both
// drivers take.
func value(name string, args Args) (any, error) {
	v, ok := args[name]
	if !ok {
		return nil, fmt.Errorf("parameter %q is missing", name)
	}
	switch v := v.(type) {
	case nil, string, int64, []byte:
		return v, nil
	case int:
		return int64(v), nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	}
	return nil, fmt.Errorf("parameter %q has the type %T", name, v)
}

// splitSchema cuts a schema into statements; none of ours has a semicolon
// inside.
func splitSchema(schema string, replace map[string]string) []string {
	for old, new := range replace {
		schema = strings.ReplaceAll(schema, "{{"+old+"}}", new)
	}
	var result []string
	for _, one := range strings.Split(schema, ";") {
		if one = strings.TrimSpace(one); one != "" {
			result = append(result, one)
		}
	}
	return result
}
