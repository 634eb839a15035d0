package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast/internal/sqltext"
)

// postgresWords are what the placeholders of schemas and statements mean here.
var postgresWords = map[string]string{
	"blob":       "bytea",
	"int":        "bigint",
	"rowid":      "bigint generated always as identity primary key",
	"norowid":    "",
	"lock":       "for update",
	"lockrecord": "for update of r",
}

// schemaLock keeps processes that make the same tables at once apart.
const schemaLock = 0x686f6c64 // "hold"

type postgresDB struct {
	pool  *pgxpool.Pool
	stmts *statements
}

func openPostgres(ctx context.Context, c Config) (*postgresDB, error) {
	stmts, err := loadStatements(c.SQL, sqltext.Dollar, postgresWords)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, errors.New("db: the Postgres URL cannot be read; wanted postgres://user@host:port/database") // the cause may hold the password
	}
	if c.Namespace != "" {
		config.ConnConfig.RuntimeParams["search_path"] = c.Namespace
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("db: open Postgres: %w", err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", schemaLock); err != nil {
			return err
		}
		schema := splitSchema(c.Schema, postgresWords)
		if c.Namespace != "" {
			schema = append([]string{"create schema if not exists " + pgx.Identifier{c.Namespace}.Sanitize()}, schema...)
		}
		for _, sql := range schema {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("db: create tables: %w", err)
	}
	return &postgresDB{pool, stmts}, nil
}

// write runs fn again where Postgres asks for it: a deadlock, or a
// serialization failure.
func (d *postgresDB) write(ctx context.Context, op string, fn func(Tx) error) error {
	for try := 0; ; try++ {
		err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return fn(&postgresTx{ctx, tx, d.stmts}) })
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "40001" && pg.Code != "40P01" || try == 9 {
			if pg != nil {
				return fmt.Errorf("db: %s: %w", op, err)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(try+1) * rand.N(10*time.Millisecond)):
		}
	}
}

func (d *postgresDB) writeSure(ctx context.Context, op string, fn func(Tx) error) error {
	return d.write(ctx, op, fn)
}

func (d *postgresDB) read(ctx context.Context, fn func(Tx) error) error {
	return pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return fn(&postgresTx{ctx, tx, d.stmts})
	})
}

func (d *postgresDB) ping(ctx context.Context) error { return d.pool.Ping(ctx) }

func (d *postgresDB) close() error {
	d.pool.Close()
	return nil
}

type postgresTx struct {
	ctx   context.Context
	tx    pgx.Tx
	stmts *statements
}

func (t *postgresTx) bind(name string, args Args) (string, []any, error) {
	s, err := t.stmts.get(name, args)
	if err != nil {
		return "", nil, err
	}
	values, err := values(name, s.params, args)
	return s.query.SQL, values, err
}

func values(name string, params []string, args Args) (list []any, err error) {
	list = make([]any, len(params))
	for i, param := range params {
		if list[i], err = value(param, args); err != nil {
			return nil, fmt.Errorf("db: %s: %w", name, err)
		}
	}
	return list, nil
}

func (t *postgresTx) Exec(name string, args Args) (int64, error) {
	sql, values, err := t.bind(name, args)
	if err != nil {
		return 0, err
	}
	tag, err := t.tx.Exec(t.ctx, sql, values...)
	if err != nil {
		return 0, postgresError(name, err)
	}
	return tag.RowsAffected(), nil
}

func (t *postgresTx) Query(name string, args Args, each func(Row) error) error {
	sql, values, err := t.bind(name, args)
	if err != nil {
		return err
	}
	return t.rows(name, sql, values, each)
}

// Adhoc leaves the statement to the driver's bounded cache.
func (t *postgresTx) Adhoc(sql string, args Args, each func(Row) error) error {
	text, params := t.stmts.adhoc(sql)
	values, err := values("adhoc", params, args)
	if err != nil {
		return err
	}
	return t.rows("adhoc", text, values, each)
}

func (t *postgresTx) rows(name, sql string, values []any, each func(Row) error) error {
	rows, err := t.tx.Query(t.ctx, sql, values...)
	if err != nil {
		return fmt.Errorf("db: %s: %w", name, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(postgresRow{rows}); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return postgresError(name, err)
	}
	return nil
}

func postgresError(name string, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" {
		return fmt.Errorf("%w: %s", ErrDuplicate, name)
	}
	return fmt.Errorf("db: %s: %w", name, err)
}

type postgresRow struct{ rows pgx.Rows }

func (r postgresRow) Scan(dst ...any) error {
	holders := make([]any, len(dst))
	for i, d := range dst {
		switch d.(type) {
		case *string:
			holders[i] = new(*string)
		case *int64, *int, *bool:
			holders[i] = new(*int64)
		case *[]byte:
			holders[i] = d
		default:
			return fmt.Errorf("db: cannot scan into %T", d)
		}
	}
	if err := r.rows.Scan(holders...); err != nil {
		return fmt.Errorf("db: scan: %w", err)
	}
	for i, d := range dst {
		switch h := holders[i].(type) {
		case **string:
			*d.(*string) = deref(*h)
		case **int64:
			n := deref(*h)
			switch d := d.(type) {
			case *int64:
				*d = n
			case *int:
				*d = int(n)
			case *bool:
				*d = n != 0
			}
		}
	}
	return nil
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
