package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
	"github.com/eda94727/holdfast/internal/sqlitefile"
)

// runner runs one statement: natively, or through database/sql. Answers are scanned into the row
// that next gives, and handed to each.
type runner interface {
	run(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error
	// change runs a statement that answers no rows, and tells whether it changed any.
	change(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row) (bool, error)
}

// query runs stmt for each of rows. A statement that carries SQLite's row number as a hint is run
// again without it when nothing was found: VACUUM may have renumbered the rows.
func query(ctx context.Context, r runner, stmt holdfast.Statement, each func(int, *holdfast.Row) error, rows []*holdfast.Row) error {
	if stmt == holdfast.StmtLockKey {
		return nil
	}
	if stmt == holdfast.StmtDependPrepare {
		for _, trigger := range dependTriggers {
			if _, err := r.change(ctx, trigger, &holdfast.Row{}); err != nil {
				return err
			}
		}
		return nil
	}
	for i, row := range rows {
		if stmt == holdfast.StmtComplete && row.Hinted() {
			done, err := r.change(ctx, stmtCompletePlain, row)
			if err != nil {
				return err
			}
			if done {
				if each != nil {
					a := claiming.NewRow()
					a.ID, a.Status = row.ID, holdfast.Succeeded
					if err := each(i, a); err != nil {
						return err
					}
				}
				continue
			}
		}
		answers := 0
		one := func(a *holdfast.Row) error {
			answers++
			if each == nil {
				return nil
			}
			return each(i, a)
		}
		if err := r.run(ctx, stmt, row, claiming.NewRow, one); err != nil {
			return err
		}
		if answers == 0 && row.Hinted() {
			plain := *row
			plain.DropHint()
			if err := r.run(ctx, stmt, &plain, claiming.NewRow, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// native runs statements on a connection of ours.
type native struct{ c *sqlitefile.Conn }

func (n native) Query(ctx context.Context, stmt holdfast.Statement, each func(int, *holdfast.Row) error, rows ...*holdfast.Row) error {
	if stmt == holdfast.StmtInsert {
		return n.insert(rows)
	}
	return query(ctx, n, stmt, each, rows)
}

func (n native) Claim(ctx context.Context, c *holdfast.Claim) (*holdfast.Claimed, error) {
	return claiming.Claim(ctx, claimer{n}, c, &claiming.Turns{})
}

func (n native) change(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row) (bool, error) {
	err := n.run(ctx, stmt, in, nil, nil)
	return n.c.Changes() > 0, err
}

func (n native) run(_ context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error {
	q := statements()[stmt].find(in)
	s, err := n.c.Stmt(&q.Query)
	if err != nil {
		return err
	}
	for i, p := range q.params {
		field, nullable := in.At(p)
		if err := bind(s, i+1, field, nullable); err != nil {
			return err
		}
	}
	columns := q.columns.Load()
	if columns == nil {
		list := make([]holdfast.Column, s.ColumnCount())
		for i := range list {
			list[i] = column(s.ColumnName(i))
		}
		columns = &list
		q.columns.Store(columns)
	}
	if len(*columns) == 0 {
		return s.Exec()
	}
	return sqlitefile.Rows(s, func() error {
		a := next()
		for i, c := range *columns {
			field, _ := a.At(c)
			scan(s, i, field)
		}
		return each(a)
	})
}

// insert inserts the tasks, up to 16 small ones in a statement: opening the cursors of a table and all
// its indexes costs about as much as an insert does.
func (n native) insert(tasks []*holdfast.Row) error {
	for len(tasks) > 0 {
		together := 1
		for together < len(tasks) && together < 1<<(len(inserts())-1) && small(tasks[0]) && small(tasks[together]) {
			together++
		}
		size := bits.Len(uint(together)) - 1
		if err := insert(n.c, inserts()[size], tasks[:1<<size]); err != nil {
			return err
		}
		tasks = tasks[1<<size:]
	}
	return nil
}

// small tells whether a task may share a statement: SQLite holds what is bound to it until it is bound
// again.
func small(t *holdfast.Row) bool { return len(t.Payload)+len(t.Metadata) <= 4096 }

func insert(c *sqlitefile.Conn, q *statement, tasks []*holdfast.Row) error {
	s, err := c.Stmt(&q.Query)
	if err != nil {
		return err
	}
	i := 0
	for _, t := range tasks {
		for _, p := range q.params {
			i++
			field, nullable := t.At(p)
			if err := bind(s, i, field, nullable); err != nil {
				return err
			}
		}
	}
	return s.Exec()
}

// insertItems is insert for the tasks of several callers.
func insertItems(c *sqlitefile.Conn, items []any) error {
	var tasks [16]*holdfast.Row
	for i, t := range items {
		tasks[i] = t.(*holdfast.Row)
	}
	return native{c}.insert(tasks[:len(items)])
}

func bind(s *sqlite3.Stmt, i int, field any, nullable bool) error {
	switch f := field.(type) {
	case *string:
		if nullable && *f == "" {
			return s.BindNull(i)
		}
		return s.BindText(i, *f)
	case *holdfast.Status:
		return s.BindText(i, string(*f))
	case *int:
		return s.BindInt64(i, int64(*f))
	case *int64:
		return s.BindInt64(i, *f)
	case *bool:
		return s.BindBool(i, *f)
	case *json.RawMessage:
		if *f == nil {
			return s.BindNull(i)
		}
		return s.BindRawText(i, *f)
	case **float64:
		if *f == nil {
			return s.BindNull(i)
		}
		return s.BindFloat(i, **f)
	case *time.Time:
		if nullable && f.IsZero() {
			return s.BindNull(i)
		}
		return s.BindInt64(i, f.UnixMilli())
	case *[]string, *[]int64:
		list, err := json.Marshal(f)
		if err != nil {
			return err
		}
		return s.BindRawText(i, list)
	}
	panic(fmt.Sprintf("sqlite: cannot bind %T", field))
}

func scan(s *sqlite3.Stmt, i int, field any) {
	switch f := field.(type) {
	case *string:
		// Equal names come in crowds; a row that is scanned again keeps the string it has.
		if raw := s.ColumnRawText(i); string(raw) != *f {
			*f = string(raw)
		}
	case *holdfast.Status:
		*f = status(s.ColumnRawText(i))
	case *int:
		*f = s.ColumnInt(i)
	case *int64:
		*f = s.ColumnInt64(i)
	case *bool:
		*f = s.ColumnBool(i)
	case *json.RawMessage:
		*f = nil
		if s.ColumnType(i) != sqlite3.NULL {
			*f = append(json.RawMessage{}, s.ColumnRawText(i)...)
		}
	case **float64:
		*f = nil
		if s.ColumnType(i) != sqlite3.NULL {
			v := s.ColumnFloat(i)
			*f = &v
		}
	case *time.Time:
		*f = time.Time{}
		if s.ColumnType(i) != sqlite3.NULL {
			*f = time.UnixMilli(s.ColumnInt64(i))
		}
	default:
		panic(fmt.Sprintf("sqlite: cannot scan %T", field))
	}
}

// status answers the constant for a known status, so that no text is kept for it.
func status(raw []byte) holdfast.Status {
	for _, s := range [...]holdfast.Status{holdfast.Queued, holdfast.Running, holdfast.Succeeded, holdfast.Failed, holdfast.Canceled} {
		if string(raw) == string(s) {
			return s
		}
	}
	return holdfast.Status(strings.Clone(string(raw)))
}
