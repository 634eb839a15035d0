package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql's "pgx"
	_ "modernc.org/sqlite"             // database/sql's "sqlite"
)

// openSQLite opens the file for a peer that brings no driver, with what their documents ask for: WAL, patience with other
// writers and transactions that take the write lock at once. With synchronous NORMAL a commit does not wait for the disk.
func openSQLite(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // as River and goqite advise; 16 producers of backlite are mostly faster with it too
	var journal, synchronous string
	if err := db.QueryRowContext(ctx, "select * from pragma_journal_mode, pragma_synchronous").Scan(&journal, &synchronous); err != nil {
		db.Close()
		return nil, err
	}
	if journal != "wal" || synchronous != "1" {
		db.Close()
		return nil, fmt.Errorf("the file is in journal mode %s, synchronous %s: want wal, 1 (NORMAL)", journal, synchronous)
	}
	return db, nil
}

// openPool opens a pool of so many connections at most; 0 is pgx's default, 4 or the number of cores.
func openPool(ctx context.Context, dsn string, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if connections > 0 {
		config.MaxConns = connections
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// observe opens a connection of the harness's own.
func observe(db, target string) (*sql.DB, error) {
	if db == "sqlite" {
		return sql.Open("sqlite", "file:"+target+"?_pragma=busy_timeout(10000)")
	}
	return sql.Open("pgx", target)
}

func count(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// describePostgres says what of a server matters for the figures.
func describePostgres(ctx context.Context, dsn string) (text string, err error) {
	db, err := observe("postgres", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "select format('Postgres %s, fsync %s, synchronous_commit %s', split_part(current_setting('server_version'), ' ', 1), current_setting('fsync'), current_setting('synchronous_commit'))").Scan(&text)
	return text, err
}

// moduleFile reads a file of a peer's module: a schema that its package does not hand out.
func moduleFile(ctx context.Context, module, name string) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("where module %s is (run this in the folder bench): %w", module, err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), filepath.FromSlash(name)))
	return string(text), err
}

// hasTable reports whether the file has this table already: another process may have made it.
func hasTable(ctx context.Context, db *sql.DB, name string) (bool, error) {
	n := 0
	err := db.QueryRowContext(ctx, "select count(*) from sqlite_schema where type = 'table' and name = ?", name).Scan(&n)
	return n > 0, err
}
