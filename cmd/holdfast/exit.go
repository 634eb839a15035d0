package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/record"
)

// The exit codes. docs/cli.md and help say the same.
const (
	exitOK         = 0
	exitFailed     = 1 // anything without a code of its own
	exitUsage      = 2 // a flag or an argument is wrong; nothing was done
	exitNotFound   = 3 // no such task, schedule, record, resource, queue or entry
	exitState      = 4 // not possible in the task's, record's or entry's state, or the key is taken
	exitTimeout    = 5 // the task has not ended in time, or writes still wait; they go on
	exitTaskFailed = 6 // the task that was waited for failed or was canceled
	exitDatabase   = 7 // the database is missing, unreachable, busy, full, read-only or something else; or a Host or Directory does not answer, or not as it must
	exitSignal     = 128
)

const exitHelp = `

Exit codes:
  0  done                                5  the task has not ended in time (it goes on)
  1  failed                              6  the task that was waited for failed or was canceled
  2  wrong flag or argument              7  the database is missing, unreachable, busy, full or read-only
  3  no such task                      130  interrupted (128 and the signal's number)
  4  not possible in the task's state`

// usageError is a mistake on the command line that only the command itself can see.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var (
		usage  usageError
		signal interrupted
		own    exitError
	)
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &signal):
		if s, ok := signal.signal.(syscall.Signal); ok {
			return exitSignal + int(s)
		}
		return exitSignal + int(syscall.SIGINT)
	case errors.As(err, &usage), is(holdfast.ErrInvalid, holdfast.ErrNotJSON):
		return exitUsage
	case is(holdfast.ErrNotFound, holdfast.ErrNoSchedule):
		return exitNotFound
	case record.CodeOf(err) != "":
		return recordExit(record.CodeOf(err))
	case is(holdfast.ErrState, holdfast.ErrAlreadyExists, holdfast.ErrQueueFull):
		return exitState
	case is(holdfast.ErrWaitTimeout, context.DeadlineExceeded):
		return exitTimeout
	case is(holdfast.ErrTaskFailed, holdfast.ErrTaskCanceled):
		return exitTaskFailed
	case is(holdfast.ErrBusy, holdfast.ErrReadOnly, holdfast.ErrFull, holdfast.ErrNotDatabase, holdfast.ErrUnavailable, holdfast.ErrProtocol, postgres.ErrSecondInstallation, os.ErrNotExist, os.ErrPermission):
		return exitDatabase
	}
	return exitFailed
}

// remedy says what to do about an error whose own text does not.
func remedy(err error) string {
	if hint := recordRemedy(err); hint != "" {
		return hint
	}
	for _, r := range []struct {
		err  error
		hint string
	}{
		{errNoDatabase, "set --db tasks.db, or HOLDFAST_DB=tasks.db; a Postgres URL works in the same place (postgres://user@host/name)"},
		{errNoFile, `check the path; "holdfast migrate" or the first "holdfast submit" creates a database`},
		{holdfast.ErrNotFound, `"holdfast list" shows the tasks that there are; ended ones may have been purged`},
		{holdfast.ErrNoSchedule, `"holdfast schedule list" shows the schedules that there are`},
		{holdfast.ErrAlreadyExists, "choose another --strategy to reuse or replace the task of the key"},
		{holdfast.ErrBusy, "try again, or look for a program that holds a transaction open"},
		{holdfast.ErrWaitTimeout, "the task goes on: wait again, with a longer --timeout"},
		{holdfast.ErrTaskFailed, `"holdfast get" shows the whole failure; "holdfast retry" queues the task again`},
		{holdfast.ErrTaskCanceled, `"holdfast retry" queues the task again`},
		{holdfast.ErrNotDatabase, "name another file; this one is left as it is"},
		{holdfast.ErrUnavailable, "check the address in --db or HOLDFAST_DB, and that the database is there and may be used"},
	} {
		if errors.Is(err, r.err) {
			return r.hint
		}
	}
	return ""
}
