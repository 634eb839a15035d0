package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

// Tx lets the store work inside a transaction of the application's own:
//
//	task, err := client.In(postgres.Tx(tx)).Submit(ctx, "mail.send", mail)
//
// Workers are told by the commit.
func Tx(tx pgx.Tx) holdfast.Tx { return pgxTx{tx} }

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) Session(d holdfast.Dialect) (holdfast.Session, error) {
	own, ok := d.(*dialect)
	if !ok {
		return nil, wrongDialect("Tx", d)
	}
	return session{own, t.tx}, nil
}

// SQLTx is Tx for a transaction of database/sql, with any Postgres driver.
func SQLTx(tx *sql.Tx) holdfast.Tx { return sqlTx{tx: tx} }

func wrongDialect(name string, d holdfast.Dialect) error {
	return fmt.Errorf("holdfast: postgres.%s was given to a store on %s; use its own Tx", name, d.Name())
}

type sqlTx struct {
	tx *sql.Tx
	d  *dialect
}

func (t sqlTx) Session(d holdfast.Dialect) (holdfast.Session, error) {
	own, ok := d.(*dialect)
	if !ok {
		return nil, wrongDialect("SQLTx", d)
	}
	return sqlTx{t.tx, own}, nil
}

func (t sqlTx) Query(ctx context.Context, stmt holdfast.Statement, each func(int, *holdfast.Row) error, rows ...*holdfast.Row) error {
	if stmt == holdfast.StmtDependPrepare {
		return nil // its triggers are always there
	}
	for i, row := range rows {
		if err := t.Run(ctx, stmt, row, into(stmt, row), func(a *holdfast.Row) error { return call(each, i, a) }); err != nil {
			return err
		}
	}
	return nil
}

func (t sqlTx) Claim(ctx context.Context, c *holdfast.Claim) (*holdfast.Claimed, error) {
	return claiming.Claim(ctx, t, c, t.d.turns)
}

// Run implements claiming.Runner.
func (t sqlTx) Run(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error {
	one := t.d.sql.find(stmt, in)
	rows, err := t.tx.QueryContext(ctx, one.sql, one.arguments(in)...)
	if err != nil {
		return translate(one.name, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return translate(one.name, err)
	}
	dest := make([]any, len(names))
	for rows.Next() {
		a := next()
		for i, n := range names {
			field, _ := a.At(column(n))
			dest[i] = scanner{field}
		}
		if err := rows.Scan(dest...); err != nil {
			return fmt.Errorf("postgres: %s: %w", one.name, err)
		}
		if each != nil {
			if err := each(a); err != nil {
				return err
			}
		}
	}
	return translate(one.name, rows.Err())
}

// Take implements claiming.Runner.
func (t sqlTx) Take(ctx context.Context, c *holdfast.Claim, now int64, list []claiming.Candidate) (tasks []*holdfast.Task, err error) {
	in := &holdfast.Row{Lease: c.Lease.Milliseconds()}
	in.WorkerID = c.WorkerID
	for _, one := range list {
		in.IDs = append(in.IDs, one.ID)
	}
	err = t.Run(ctx, stmtClaimTake, in, claiming.NewRow, func(a *holdfast.Row) error {
		tasks = append(tasks, &a.Task)
		return nil
	})
	return tasks, err
}

// Now implements claiming.Runner.
func (t sqlTx) Now(ctx context.Context, _ *holdfast.Claim) (int64, error) {
	var a holdfast.Row
	err := t.Run(ctx, stmtClock, &holdfast.Row{}, claiming.Always(&a), nil)
	return a.Now, err
}

// scanner fills a field from what a database/sql driver answers.
type scanner struct{ field any }

// Scan implements sql.Scanner.
func (s scanner) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		return scan(s.field, nil)
	case []byte:
		return scan(s.field, v)
	case string:
		return scan(s.field, []byte(v))
	case int64:
		return scan(s.field, strconv.AppendInt(nil, v, 10))
	case float64:
		return scan(s.field, strconv.AppendFloat(nil, v, 'g', -1, 64))
	case bool:
		return scan(s.field, strconv.AppendBool(nil, v))
	case time.Time:
		return scan(s.field, strconv.AppendInt(nil, v.UnixMilli(), 10))
	}
	return fmt.Errorf("unexpected %T", src)
}
