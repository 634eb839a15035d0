package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// peer is one library on one database. A task carries one number and does nothing.
type peer interface {
	// Submit writes one task and returns when it is committed. Many goroutines call it at once.
	Submit(ctx context.Context, n int64) error
	// Fill writes many tasks, by the library's quickest means. It is not measured.
	Fill(ctx context.Context, numbers []int64) error
	// Work runs tasks, so many at once, until stop is called, which returns when the worker is gone.
	Work(ctx context.Context, concurrency int, run func(n int64)) (stop func(context.Context) error, err error)
	Close() error
}

// contender is a library with a database and settings: one row of a table.
type contender struct {
	library  string // as -peers has it
	db       string // "sqlite" or "postgres"
	settings string // what sets this row apart from the library's others; may be empty
	open     func(ctx context.Context, target string) (peer, error)

	// unsettled is SQL that counts the tasks that did not end well, or not yet. It is the harness that asks, on a connection
	// of its own, when all handlers have run.
	unsettled string
	// deaf says that its workers do not learn of tasks that another process submits, so that pickup is measured within one.
	deaf bool
}

func (c contender) name() string {
	if c.settings == "" {
		return c.library
	}
	return c.library + ", " + c.settings
}

// id names the contender for the processes that measure it.
func (c contender) id() string { return c.db + "/" + c.name() }

// contenders lists everything that is measured. The first of each database is what the others are compared with.
func contenders() []contender {
	return slices.Concat(holdfastContenders(), riverContenders(), goqiteContenders(), backliteContenders(), gueContenders())
}

// choose returns the contenders of these libraries (comma-separated; empty: all) on this database ("all": both).
func choose(libraries, db string) ([]contender, error) {
	all := contenders()
	known := map[string]bool{}
	for _, c := range all {
		known[c.library] = true
	}
	var wanted []string
	for _, name := range strings.FieldsFunc(libraries, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !known[name] {
			return nil, fmt.Errorf("-peers: there is no %q; write one or more of holdfast,river,goqite,backlite,gue", name)
		}
		wanted = append(wanted, name)
	}
	if db != "sqlite" && db != "postgres" && db != "all" {
		return nil, fmt.Errorf("-db: there is no %q; write sqlite, postgres or all", db)
	}
	var chosen []contender
	for _, c := range all {
		if (db == "all" || db == c.db) && (len(wanted) == 0 || slices.Contains(wanted, c.library)) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-peers %s: none of them is measured on %s", libraries, db)
	}
	return chosen, nil
}
