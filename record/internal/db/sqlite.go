package db

import (
	"context"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/internal/sqltext"
)

// sqliteWords are what the placeholders of schemas and statements mean here.
var sqliteWords = map[string]string{
	"blob":       "blob",
	"int":        "integer",
	"rowid":      "integer primary key",
	"norowid":    "without rowid",
	"lock":       "",
	"lockrecord": "",
}

type sqliteDB struct {
	file  *sqlitefile.File
	stmts *statements
}

func openSQLite(ctx context.Context, c Config) (*sqliteDB, error) {
	stmts, err := loadStatements(c.SQL, sqltext.Numbered, sqliteWords)
	if err != nil {
		return nil, err
	}
	file, err := sqlitefile.Open(ctx, c.URL, sqlitefile.Options{Readers: 8})
	if err != nil {
		return nil, err
	}
	err = file.Write(ctx, "create tables", func(conn *sqlitefile.Conn) error {
		for _, sql := range splitSchema(c.Schema, sqliteWords) {
			if err := conn.Exec(sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		file.Close()
		return nil, err
	}
	return &sqliteDB{file, stmts}, nil
}

func (d *sqliteDB) write(ctx context.Context, op string, fn func(Tx) error) error {
	return d.file.Write(ctx, op, func(conn *sqlitefile.Conn) error { return fn(&sqliteTx{conn, d.stmts}) })
}

func (d *sqliteDB) writeSure(ctx context.Context, op string, fn func(Tx) error) error {
	return d.file.WriteSure(ctx, op, func(conn *sqlitefile.Conn) error { return fn(&sqliteTx{conn, d.stmts}) })
}

func (d *sqliteDB) read(ctx context.Context, fn func(Tx) error) error {
	return d.file.Read(ctx, func(conn *sqlitefile.Conn) error {
		if conn.DB.GetAutocommit() { // in memory a read runs inside the writer's transaction
			if err := conn.Begin(); err != nil {
				return err
			}
		}
		return fn(&sqliteTx{conn, d.stmts})
	})
}

func (d *sqliteDB) ping(ctx context.Context) error {
	return d.file.Read(ctx, func(conn *sqlitefile.Conn) error { return conn.Exec("select 1") })
}

func (d *sqliteDB) close() error { return d.file.Close() }

type sqliteTx struct {
	conn  *sqlitefile.Conn
	stmts *statements
}

func (t *sqliteTx) prepare(name string, args Args) (*sqlite3.Stmt, error) {
	s, err := t.stmts.get(name, args)
	if err != nil {
		return nil, err
	}
	stmt, err := t.conn.Stmt(&s.query)
	if err != nil {
		return nil, fmt.Errorf("db: prepare %s: %w", name, err)
	}
	return stmt, bind(stmt, name, s.params, args)
}

func bind(stmt *sqlite3.Stmt, name string, params []string, args Args) error {
	for i, param := range params {
		v, err := value(param, args)
		if err != nil {
			return fmt.Errorf("db: %s: %w", name, err)
		}
		switch v := v.(type) {
		case nil:
			err = stmt.BindNull(i + 1)
		case string:
			err = stmt.BindText(i+1, v)
		case int64:
			err = stmt.BindInt64(i+1, v)
		case []byte:
			if v == nil {
				err = stmt.BindNull(i + 1)
			} else {
				err = stmt.BindBlob(i+1, v)
			}
		}
		if err != nil {
			return fmt.Errorf("db: bind %s of %s: %w", param, name, err)
		}
	}
	return nil
}

func (t *sqliteTx) Exec(name string, args Args) (int64, error) {
	stmt, err := t.prepare(name, args)
	if err != nil {
		return 0, err
	}
	if err := sqlitefile.Rows(stmt, func() error { return nil }); err != nil {
		return 0, sqliteError(name, err)
	}
	return t.conn.Changes(), nil
}

func (t *sqliteTx) Query(name string, args Args, each func(Row) error) error {
	stmt, err := t.prepare(name, args)
	if err != nil {
		return err
	}
	return sqliteError(name, sqlitefile.Rows(stmt, func() error { return each(sqliteRow{stmt}) }))
}

func sqliteError(name string, err error) error {
	if sqlitefile.IsConstraint(err) {
		return fmt.Errorf("%w: %s", ErrDuplicate, name)
	}
	return err
}

// Adhoc prepares the statement for this one use: what a user's search makes up
// must not fill the connection's memory.
func (t *sqliteTx) Adhoc(sql string, args Args, each func(Row) error) error {
	text, params := t.stmts.adhoc(sql)
	stmt, _, err := t.conn.DB.Prepare(text)
	if err != nil {
		return fmt.Errorf("db: prepare: %w", err)
	}
	defer stmt.Close()
	if err := bind(stmt, "adhoc", params, args); err != nil {
		return err
	}
	return sqlitefile.Rows(stmt, func() error { return each(sqliteRow{stmt}) })
}

type sqliteRow struct{ stmt *sqlite3.Stmt }

func (r sqliteRow) Scan(dst ...any) error {
	for i, d := range dst {
		switch d := d.(type) {
		case *string:
			*d = r.stmt.ColumnText(i)
		case *int64:
			*d = r.stmt.ColumnInt64(i)
		case *int:
			*d = int(r.stmt.ColumnInt64(i))
		case *bool:
			*d = r.stmt.ColumnInt64(i) != 0
		case *[]byte:
			*d = r.stmt.ColumnBlob(i, nil)
		default:
			return fmt.Errorf("db: cannot scan into %T", d)
		}
	}
	return nil
}
