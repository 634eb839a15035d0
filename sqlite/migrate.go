package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/sqlitefile"
)

// schemaVersion is the protocol's schema that this library makes.
const schemaVersion = 10

// migration is one row of the ledger and what it stands for. Those of the protocol carry the names
// that every library knows.
type migration struct{ name, file, text string }

// migrations bring a database of any older version up to date. The protocol's index steps have no
// text, because the first of ours makes all indexes anew in one go, in a database of any age.
var migrations = []migration{
	{name: "0001_init.sql", file: "tables"},
	{name: "0002_purge_index.sql"},
	{name: "0004_lease_index.sql"},
	// From here on, a lease is not null exactly while the task runs.
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

// leanIndexes is our own first row of the ledger.
const leanIndexes = "holdfast_0001_lean_indexes"

// migrate brings the file up to date. Any number of processes may do it at once: the check and the
// steps are one write transaction. A file that is up to date is only read.
func migrate(ctx context.Context, file *sqlitefile.File, now func() time.Time) error {
	var todo []migration
	err := file.Read(ctx, func(c *sqlitefile.Conn) (err error) {
		todo, err = pending(c)
		return err
	})
	if err != nil || len(todo) == 0 {
		return err
	}
	return file.Write(ctx, "migrate", func(c *sqlitefile.Conn) error {
		if err := c.Exec("create table if not exists cairnq_migrations (name text primary key, applied_at_ms integer not null)"); err != nil {
			return err
		}
		todo, err := pending(c)
		if err != nil || len(todo) == 0 {
			return err
		}
		newer, err := schemaOf(c)
		if err != nil {
			return err
		}
		for _, m := range todo {
			// A later release of another library may have given an index of this name a new shape.
			if m.name == leanIndexes && newer > schemaVersion {
				continue
			}
			if sql := m.sql(); sql != "" {
				if err := c.Exec(sql); err != nil {
					return fmt.Errorf("sqlite: migration %s: %w", m.name, err)
				}
			}
			if err := exec(c, "insert into cairnq_migrations (name, applied_at_ms) values (?1, ?2)", m.name, strconv.FormatInt(now().UnixMilli(), 10)); err != nil {
				return fmt.Errorf("sqlite: migration %s: %w", m.name, err)
			}
		}
		if newer >= schemaVersion {
			return nil
		}
		if err := exec(c, "insert into cairnq_meta (key, value) values ('protocol_version', '1') on conflict (key) do nothing"); err != nil {
			return err
		}
		return exec(c, "insert into cairnq_meta (key, value) values ('schema_version', ?1) on conflict (key) do update set value = excluded.value", strconv.Itoa(schemaVersion))
	})
}

// pending answers the migrations that the ledger lacks, after checking the protocol's version.
func pending(c *sqlitefile.Conn) ([]migration, error) {
	tables, err := column1(c, "select name from sqlite_schema where type = 'table' and name like 'cairnq%'")
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, t := range tables {
		has[t] = true
	}
	if has["cairnq_meta"] {
		version, err := column1(c, "select value from cairnq_meta where key = 'protocol_version'")
		if err != nil {
			return nil, err
		}
		if len(version) == 1 {
			if major, _, _ := strings.Cut(version[0], "."); major != "1" {
				return nil, &holdfast.ProtocolError{Version: version[0]}
			}
		}
	}
	if !has["cairnq_migrations"] {
		return migrations, nil
	}
	names, err := column1(c, "select name from cairnq_migrations")
	if err != nil {
		return nil, err
	}
	applied := map[string]bool{}
	for _, n := range names {
		applied[n] = true
	}
	newer, err := schemaOf(c)
	if err != nil {
		return nil, err
	}
	var todo []migration
	for _, m := range migrations {
		if !applied[m.name] && (m.name != leanIndexes || newer <= schemaVersion) {
			todo = append(todo, m)
		}
	}
	return todo, nil
}

// schemaOf reads the schema version, 0 where there is none.
func schemaOf(c *sqlitefile.Conn) (int, error) {
	has, err := column1(c, "select name from sqlite_schema where type = 'table' and name = 'cairnq_meta'")
	if err != nil || len(has) == 0 {
		return 0, err
	}
	v, err := column1(c, "select value from cairnq_meta where key = 'schema_version'")
	if err != nil || len(v) == 0 {
		return 0, err
	}
	n, err := strconv.Atoi(v[0])
	if err != nil {
		return 0, fmt.Errorf("%w: cairnq_meta says schema_version %q, which is no number", holdfast.ErrNotDatabase, v[0])
	}
	return n, nil
}

// column1 reads the first column of all rows.
func column1(c *sqlitefile.Conn, sql string) ([]string, error) {
	s, _, err := c.DB.Prepare(sql)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var out []string
	err = sqlitefile.Rows(s, func() error { out = append(out, s.ColumnText(0)); return nil })
	return out, err
}

// exec runs a statement once with text parameters; SQLite's columns give them their types.
func exec(c *sqlitefile.Conn, sql string, args ...string) error {
	s, _, err := c.DB.Prepare(sql)
	if err != nil {
		return err
	}
	defer s.Close()
	for i, a := range args {
		if err := s.BindText(i+1, a); err != nil {
			return err
		}
	}
	return sqlitefile.Rows(s, func() error { return nil })
}
