package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/eda94727/holdfast"
)

// runTwice gives the database a store whose every transaction of several statements is run, taken
// back, and run again: as after a transient failure, which a dialect may meet at any time.
func runTwice(db *Database) *Database {
	inner := db.Store
	now := func() time.Time {
		t, err := inner.Now(context.Background())
		if err != nil {
			panic(err)
		}
		return t
	}
	twice := *db
	twice.Store = holdfast.NewStore(again{inner.Dialect()}, holdfast.WithClock(now))
	return &twice
}

type again struct{ holdfast.Dialect }

var errTransient = errors.New("a transient failure")

func (d again) Atomic(ctx context.Context, op string, fn func(holdfast.Session) error) error {
	err := d.Dialect.Atomic(ctx, op, func(s holdfast.Session) error {
		if err := fn(s); err != nil {
			return err
		}
		return errTransient
	})
	if !errors.Is(err, errTransient) {
		return err
	}
	return d.Dialect.Atomic(ctx, op, fn)
}
