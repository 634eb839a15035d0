package sqlitefile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// insertAll is a Joint that inserts its items as keys, and tells how many it was given each time.
func insertAll(t *testing.T, sizes *[]int) *Joint {
	return &Joint{Run: func(c *Conn, items []any) error {
		*sizes = append(*sizes, len(items))
		if n := len(items); n < 1 || n > maxJoint || n&(n-1) != 0 {
			t.Errorf("%d items at once", n)
		}
		var rows []string
		for _, k := range items {
			rows = append(rows, fmt.Sprintf("(%d, 'joint')", k))
		}
		return c.Exec("insert into t values " + strings.Join(rows, ", "))
	}}
}

func TestJointWritesShareStatements(t *testing.T) {
	f := openTest(t, Options{})
	var sizes, others []int
	j, second := insertAll(t, &sizes), insertAll(t, &others)
	release, errs, wait := gather(t, f, t.Context(), 40, func(i int) error {
		switch {
		case i == 23:
			return f.WriteSure(t.Context(), "alone", insert(i))
		case i >= 37:
			return f.WriteJoint(t.Context(), "another", second, i)
		}
		return f.WriteJoint(t.Context(), "joint", j, i)
	})
	release()
	wait()
	must(t, errors.Join(errs...))
	// 0 to 22, then 24 to 36, then 37 to 39.
	if got, want := fmt.Sprint(sizes, others), "[16 4 2 1 8 4 1] [2 1]"; got != want {
		t.Errorf("statements of %s items, want %s", got, want)
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != 40 {
		t.Errorf("%d rows, want 40", got)
	}
}

func TestJointWriteThatFailsFailsOnlyItsCaller(t *testing.T) {
	f := openTest(t, Options{})
	execSQL(t, f, "insert into t values (1003, 'there already')")
	var sizes []int
	j := insertAll(t, &sizes)
	release, errs, wait := gather(t, f, t.Context(), 11, func(i int) error {
		if i == 3 {
			return f.WriteJoint(t.Context(), "duplicate", j, 1003)
		}
		return f.WriteJoint(t.Context(), "joint", j, i)
	})
	release()
	wait()
	for i, err := range errs {
		if i == 3 && (!IsConstraint(err) || !strings.Contains(err.Error(), "duplicate")) || i != 3 && err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if got, want := fmt.Sprint(sizes), "[8 1 1 1 1 1 1 1 1 2 1]"; got != want {
		t.Errorf("statements of %s items, want %s", got, want)
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t where k < 11"); got != 10 {
		t.Errorf("%d good rows, want 10", got)
	}
}

// The statement may take back the whole transaction, with what others did in it.
func TestJointWriteThatEndsTheTransaction(t *testing.T) {
	f := openTest(t, Options{})
	var sizes []int
	plain := insertAll(t, &sizes)
	j := &Joint{Run: func(c *Conn, items []any) error {
		for _, k := range items {
			if k == 5 {
				must(t, c.Exec("ROLLBACK")) // as SQLite does by itself
				return c.Exec("insert into nowhere values (1)")
			}
		}
		return plain.Run(c, items)
	}}
	release, errs, wait := gather(t, f, t.Context(), 9, func(i int) error {
		if i == 0 {
			return f.WriteSure(t.Context(), "before", insert(i))
		}
		return f.WriteJoint(t.Context(), "joint", j, i)
	})
	release()
	wait()
	for i, err := range errs {
		if (err != nil) != (i == 5) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if got := number(t, other(t, f.Path()), "select count(*) from t"); got != 8 {
		t.Errorf("%d rows, want 8", got)
	}
}
