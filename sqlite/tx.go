package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

// Tx lets the store work inside a transaction of the application's own, on a connection of any
// database/sql driver to the same file:
//
//	task, err := client.In(sqlite.Tx(tx)).Submit(ctx, "mail.send", mail)
//
// Begin such a transaction for writing at once (BEGIN IMMEDIATE; _txlock=immediate in most drivers'
// DSNs): SQLite cannot turn a transaction that has read into one that writes when somebody else has
// written meanwhile. Workers of every process are woken by the commit.
func Tx(tx *sql.Tx) holdfast.Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Session(d holdfast.Dialect) (holdfast.Session, error) {
	if d.Name() != "sqlite" {
		return nil, fmt.Errorf("holdfast: sqlite.Tx was given to a store on %s; use its own Tx", d.Name())
	}
	return t, nil
}

func (t sqlTx) Query(ctx context.Context, stmt holdfast.Statement, each func(int, *holdfast.Row) error, rows ...*holdfast.Row) error {
	return query(ctx, t, stmt, each, rows)
}

func (t sqlTx) Claim(ctx context.Context, c *holdfast.Claim) (*holdfast.Claimed, error) {
	return claiming.Claim(ctx, claimer{t}, c, &claiming.Turns{})
}

func (t sqlTx) run(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error {
	q := portable()[stmt].find(in)
	rows, err := t.tx.QueryContext(ctx, q.SQL, q.arguments(in)...)
	if err != nil {
		return fmt.Errorf("sqlite: %s in the application's transaction: %w", q.Name, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	dest := make([]any, len(names))
	for rows.Next() {
		a := next()
		for i, n := range names {
			field, _ := a.At(column(n))
			dest[i] = scanner{field}
		}
		if err := rows.Scan(dest...); err != nil {
			return fmt.Errorf("sqlite: %s: %w", q.Name, err)
		}
		if err := each(a); err != nil {
			return err
		}
	}
	// Read to the end, always: a statement that is left in the middle keeps its locks.
	return rows.Err()
}

func (t sqlTx) change(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row) (bool, error) {
	q := portable()[stmt].find(in)
	result, err := t.tx.ExecContext(ctx, q.SQL, q.arguments(in)...)
	if err != nil {
		return false, fmt.Errorf("sqlite: %s in the application's transaction: %w", q.Name, err)
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (q *statement) arguments(in *holdfast.Row) []any {
	args := make([]any, len(q.params))
	for i, p := range q.params {
		args[i] = argument(in.At(p))
	}
	return args
}

// argument is a value as every driver takes it.
func argument(field any, nullable bool) any {
	switch f := field.(type) {
	case *string:
		if nullable && *f == "" {
			return nil
		}
		return *f
	case *holdfast.Status:
		return string(*f)
	case *int:
		return int64(*f)
	case *int64:
		return *f
	case *bool:
		if *f {
			return int64(1)
		}
		return int64(0)
	case *json.RawMessage:
		if *f == nil {
			return nil
		}
		return string(*f)
	case **float64:
		if *f == nil {
			return nil
		}
		return **f
	case *time.Time:
		if nullable && f.IsZero() {
			return nil
		}
		return f.UnixMilli()
	case *[]string, *[]int64:
		list, _ := json.Marshal(f) // always can
		return string(list)
	}
	panic(fmt.Sprintf("sqlite: cannot bind %T", field))
}

// scanner fills a field from what a database/sql driver answers.
type scanner struct{ field any }

// Scan implements sql.Scanner.
func (s scanner) Scan(src any) error {
	var text string
	isNull := false
	switch v := src.(type) {
	case nil:
		isNull = true
	case string:
		text = v
	case []byte:
		text = string(v)
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		text = "0"
		if v {
			text = "1"
		}
	case time.Time:
		// A driver that guesses types from column names may do this to integers of its own accord.
		text = strconv.FormatInt(v.UnixMilli(), 10)
	default:
		return fmt.Errorf("unexpected %T", src)
	}
	var err error
	switch f := s.field.(type) {
	case *string:
		*f = text
	case *holdfast.Status:
		*f = status([]byte(text))
	case *int:
		*f, err = strconv.Atoi(text)
	case *int64:
		*f, err = strconv.ParseInt(text, 10, 64)
	case *bool:
		*f = text == "1"
	case *json.RawMessage:
		*f = nil
		if !isNull {
			*f = json.RawMessage(text)
		}
	case **float64:
		*f = nil
		if !isNull {
			var v float64
			v, err = strconv.ParseFloat(text, 64)
			*f = &v
		}
	case *time.Time:
		*f = time.Time{}
		if !isNull {
			var ms int64
			ms, err = strconv.ParseInt(text, 10, 64)
			*f = time.UnixMilli(ms)
		}
	default:
		return fmt.Errorf("cannot scan into %T", s.field)
	}
	return err
}
