package holdfast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Permanent marks a handler's error as one that no further attempt can mend: the task fails at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Snooze, returned by a handler, puts the task back for that long without spending an attempt.
func Snooze(d time.Duration) error { return &snoozeError{max(d, 0)} }

type snoozeError struct{ d time.Duration }

func (e *snoozeError) Error() string { return fmt.Sprintf("snoozed for %v", e.d) }

// Discard, returned by a handler, ends the task as canceled: there is nothing to do any more, and
// that is no failure.
func Discard(reason string) error { return &discardError{reason} }

type discardError struct{ reason string }

func (e *discardError) Error() string { return "discarded: " + e.reason }

// maxErrorText bounds the message and the details of a failure record.
const maxErrorText = 64 << 10

// failureOf makes the record of a handler's error.
func failureOf(err error) *Failure {
	var own *Failure
	if errors.As(err, &own) {
		f := *own
		if f.Code == "" {
			f.Code = CodeTaskError
		}
		var p *permanentError
		if errors.As(err, &p) {
			f.Retryable = false
		}
		return &f
	}
	f := &Failure{Type: typeName(err), Code: CodeHandlerError, Message: err.Error(), Retryable: true}
	var p *permanentError
	switch {
	case errors.As(err, &p):
		f.Type, f.Retryable = typeName(p.err), false
	case errors.Is(err, ErrAttemptTimeout):
		f.Code = CodeHandlerTimeout
	}
	return f
}

func typeName(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "DeadlineExceeded"
	}
	return fmt.Sprintf("%T", err)
}

// record encodes the failure. What cannot be kept is left out or cleaned: a failure record must
// never be the reason that a failure is not recorded.
func (f *Failure) record(check func(json.RawMessage) error) json.RawMessage {
	e := Failure{Type: shorten(f.Type), Code: shorten(f.Code), Message: shorten(f.Message), Retryable: f.Retryable}
	if len(f.Details) <= maxErrorText && checkJSON(f.Details) == nil && check(f.Details) == nil {
		e.Details = f.Details
	}
	raw, err := encode("error", &e, 0)
	if err != nil { // not possible for clean texts
		raw = json.RawMessage(`{"type":"Error","code":"handler_error","message":"the failure could not be recorded","retryable":true}`)
	}
	return raw
}

func shorten(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText] + "…"
	}
	return cleanText(s)
}
