package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

// querier is what pools, connections and transactions of pgx have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// session runs statements on a pool, where each call stands alone, or in a transaction.
type session struct {
	d *dialect
	q querier
}

// Query implements holdfast.Session. Many rows go in one round trip and stand or fall together.
func (s session) Query(ctx context.Context, stmt holdfast.Statement, each func(int, *holdfast.Row) error, rows ...*holdfast.Row) error {
	switch {
	case len(rows) == 0, stmt == holdfast.StmtDependPrepare: // its triggers are always there
		return nil
	case stmt == holdfast.StmtInsert && len(rows) > 1:
		return translate(string(stmt), s.d.insertAll(ctx, s, rows, each))
	case len(rows) == 1:
		one := s.d.sql.find(stmt, rows[0])
		answers, err := s.q.Query(ctx, one.sql, one.arguments(rows[0])...)
		if err != nil {
			return translate(one.name, err)
		}
		return translate(one.name, read(answers, into(stmt, rows[0]), func(a *holdfast.Row) error { return call(each, 0, a) }))
	}
	batch := &pgx.Batch{}
	for _, row := range rows {
		one := s.d.sql.find(stmt, row)
		batch.Queue(one.sql, one.arguments(row)...)
	}
	results := s.q.SendBatch(ctx, batch)
	for i, row := range rows {
		answers, err := results.Query()
		if err == nil {
			err = read(answers, into(stmt, row), func(a *holdfast.Row) error { return call(each, i, a) })
		}
		if err != nil {
			results.Close()
			return translate(string(stmt), err)
		}
	}
	return translate(string(stmt), results.Close())
}

func call(each func(int, *holdfast.Row) error, i int, a *holdfast.Row) error {
	if each == nil {
		return nil
	}
	return each(i, a)
}

// into gives the row that answers are scanned into: the parameters' own for an insert, which answers
// what the server has set.
func into(stmt holdfast.Statement, row *holdfast.Row) func() *holdfast.Row {
	if stmt == holdfast.StmtInsert {
		return claiming.Always(row)
	}
	return claiming.NewRow
}

// read scans all rows and closes them.
func read(rows pgx.Rows, next func() *holdfast.Row, each func(*holdfast.Row) error) error {
	defer rows.Close()
	var columns []holdfast.Column
	var scratch [32]byte
	for rows.Next() {
		fields := rows.FieldDescriptions()
		if columns == nil {
			columns = make([]holdfast.Column, len(fields))
			for i, f := range fields {
				columns[i] = column(f.Name)
			}
		}
		a := next()
		for i, raw := range rows.RawValues() {
			text, err := plain(&fields[i], raw, scratch[:0])
			if err == nil {
				field, _ := a.At(columns[i])
				err = scan(field, text)
			}
			if err != nil {
				return fmt.Errorf("column %s: %w", fields[i].Name, err)
			}
		}
		if each != nil {
			if err := each(a); err != nil {
				return err
			}
		}
	}
	return rows.Err()
}

// run runs one statement for claiming in steps.
func (s session) run(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error {
	one := s.d.sql.find(stmt, in)
	answers, err := s.q.Query(ctx, one.sql, one.arguments(in)...)
	if err != nil {
		return translate(one.name, err)
	}
	return translate(one.name, read(answers, next, each))
}

func (s session) clock(ctx context.Context) (int64, error) {
	var a holdfast.Row
	err := s.run(ctx, stmtClock, &holdfast.Row{}, claiming.Always(&a), nil)
	return a.Now, err
}
