package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast"
)

// schemaVersion is the protocol's schema that this library makes.
const schemaVersion = 10

// leanIndexes is our own row of the ledger: it makes all indexes anew in one go, which is why the
// protocol's own index steps have no text.
const leanIndexes = "holdfast_0001_lean_indexes"

// migration is one row of the ledger and what it stands for. Those of the protocol carry the names
// that every library knows; file names one of ours, text is SQL itself.
type migration struct{ name, file, text string }

var migrations = []migration{
	{name: "0001_init.sql", file: "tables"},
	{name: "0002_purge_index.sql"},
	{name: "0003_notify.sql"}, // see holdfast_0007_notify
	{name: "0004_lease_index.sql"},
	{name: "0005_clear_terminal_lease.sql", text: "update cairnq_tasks set lease_until_ms = null where status <> 'running' and lease_until_ms is not null"},
	{name: "0006_claim_name_index.sql"},
	{name: "0007_purge_status_index.sql"},
	{name: "0008_claim_due_index.sql"},
	{name: "0009_purge_queue_index.sql"},
	{name: "0010_drop_status_index.sql", text: "drop index if exists cairnq_tasks_status_idx"},
	{name: leanIndexes, file: "indexes"},
	{name: "holdfast_0002_history", file: "history"},
	{name: "holdfast_0003_limits", file: "limits"},
	{name: "holdfast_0004_schedules", file: "schedules"},
	{name: "holdfast_0005_dependencies", file: "dependencies"},
	{name: "holdfast_0006_workers", file: "workers"},
	{name: "holdfast_0007_notify", file: "notify"}, // the protocol's trigger, cheaper; also where another library has made it
}

func (m migration) sql() string {
	if m.file == "" {
		return m.text
	}
	b, err := files.ReadFile("schema/" + m.file + ".sql")
	if err != nil {
		panic(err) // the files are embedded
	}
	return string(b)
}

// migrate brings the database up to date. Any number of processes may do it at once: the check and
// the steps are one transaction under the ledger's lock.
func migrate(ctx context.Context, pool *pgxpool.Pool, schema string) (err error) {
	for range tries {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return migrateIn(ctx, tx, schema) })
		// Two that create the ledger itself at once collide in the catalog, once.
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "23505" && e.Code != "42P07" && e.Code != "42P06" && !isTransient(err) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func migrateIn(ctx context.Context, tx pgx.Tx, schema string) error {
	if schema != "" {
		quoted := pgx.Identifier{schema}.Sanitize()
		var there bool
		if err := tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1::text)", schema).Scan(&there); err != nil {
			return err
		}
		if !there {
			if _, err := tx.Exec(ctx, "create schema if not exists "+quoted); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "set local search_path to "+quoted); err != nil {
			return err
		}
	} else if err := guard(ctx, tx); err != nil {
		return err
	}
	todo, err := pending(ctx, tx)
	if err != nil || len(todo) == 0 {
		return err
	}
	if _, err := tx.Exec(ctx, "create table if not exists cairnq_migrations (name text primary key, applied_at_ms bigint not null)"); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "lock table cairnq_migrations in exclusive mode"); err != nil {
		return err
	}
	if todo, err = pending(ctx, tx); err != nil || len(todo) == 0 {
		return err
	}
	version, err := schemaOf(ctx, tx)
	if err != nil {
		return err
	}
	for _, m := range todo {
		if sql := m.sql(); sql != "" {
			// Without parameters the simple protocol is used, which takes several statements.
			if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
		}
		if _, err := tx.Exec(ctx, "insert into cairnq_migrations (name, applied_at_ms) values ($1::text, "+serverClock+")", m.name); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	if version >= schemaVersion {
		return nil
	}
	_, err = tx.Conn().PgConn().Exec(ctx, `insert into cairnq_meta (key, value) values ('protocol_version', '1') on conflict (key) do nothing;
		insert into cairnq_meta (key, value) values ('schema_version', '`+strconv.Itoa(schemaVersion)+`') on conflict (key) do update set value = excluded.value`).ReadAll()
	return err
}

// guard refuses to make a second installation by accident: two programs with one DSN and different
// search_paths would otherwise work side by side without ever meeting.
func guard(ctx context.Context, tx pgx.Tx) error {
	var visible bool
	var current *string
	if err := tx.QueryRow(ctx, "select to_regclass('cairnq_tasks') is not null, current_schema()::text").Scan(&visible, &current); err != nil || visible {
		return err
	}
	if current == nil {
		return fmt.Errorf("%w: the search_path names no schema that exists; create one, or give one with WithSchema", holdfast.ErrUnavailable)
	}
	rows, err := tx.Query(ctx, "select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relname = 'cairnq_tasks' and c.relkind in ('r', 'p') order by 1")
	if err != nil {
		return err
	}
	others, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("%w: the search_path leads to schema %q, which has no tasks, while schema %q has; name the one you mean with the schema option",
		ErrSecondInstallation, *current, strings.Join(others, `", "`))
}

// pending answers the migrations that the ledger lacks, after checking the protocol's version.
func pending(ctx context.Context, tx pgx.Tx) ([]migration, error) {
	var meta, ledger bool
	if err := tx.QueryRow(ctx, "select to_regclass('cairnq_meta') is not null, to_regclass('cairnq_migrations') is not null").Scan(&meta, &ledger); err != nil {
		return nil, err
	}
	if meta {
		var version string
		err := tx.QueryRow(ctx, "select value from cairnq_meta where key = 'protocol_version'").Scan(&version)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		if major, _, _ := strings.Cut(version, "."); err == nil && major != "1" {
			return nil, &holdfast.ProtocolError{Version: version}
		}
	}
	if !ledger {
		return migrations, nil
	}
	rows, err := tx.Query(ctx, "select name from cairnq_migrations")
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	applied := map[string]bool{}
	for _, n := range names {
		applied[n] = true
	}
	version, err := schemaOf(ctx, tx)
	if err != nil {
		return nil, err
	}
	var todo []migration
	for _, m := range migrations {
		// A later release of another library may have given an index of this name a new shape.
		if !applied[m.name] && (m.name != leanIndexes || version <= schemaVersion) {
			todo = append(todo, m)
		}
	}
	return todo, nil
}

// schemaOf reads the schema version, 0 where there is none.
func schemaOf(ctx context.Context, tx pgx.Tx) (int, error) {
	var there bool
	if err := tx.QueryRow(ctx, "select to_regclass('cairnq_meta') is not null").Scan(&there); err != nil || !there {
		return 0, err
	}
	var v string
	switch err := tx.QueryRow(ctx, "select value from cairnq_meta where key = 'schema_version'").Scan(&v); {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, err
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, fmt.Errorf("%w: cairnq_meta says schema_version %q, which is no number", holdfast.ErrNotDatabase, v)
	}
	return n, nil
}
