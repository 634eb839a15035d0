package record

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is a failure that the protocol has a code for. Use errors.Is with a
// [Code] to ask for the code, errors.As with *Error for the rest.
type Error struct {
	// Code is the protocol's word for the failure.
	Code Code
	// Field names the part of the input that is wrong: a header, a parameter,
	// or a FHIR path such as Observation.component[1].code. It may be empty.
	Field string
	// Rule is the name of the rule that was broken, such as obs-6 or
	// Observation.status (required binding). It may be empty.
	Rule string
	// Detail says in a sentence what is wrong and what would be right. It
	// never holds secrets or a resource's content beyond a short value.
	Detail string
	// Shape is true where the input's form is wrong, not a rule about its
	// meaning: the Host then answers 400 where the code's own status is 422.
	Shape bool
	// RetryAfter is how long to wait before the same request; 0 if unknown.
	RetryAfter time.Duration
	// Address is the Directory's address of the record (record_moved).
	Address string
	// Err is the cause, if there is one.
	Err error
}

// Error returns the code, the field, the rule and the detail on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	if e.Rule != "" {
		b.WriteString(" [" + e.Rule + "]")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is this error's [Code].
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Status returns the HTTP status of the answer that carries this error.
func (e *Error) Status() int {
	info, _ := e.Code.Info()
	switch {
	case info.Status == 0:
		return http.StatusInternalServerError
	case e.Shape && info.Status == http.StatusUnprocessableEntity:
		return http.StatusBadRequest
	}
	return info.Status
}

// CodeOf returns the code of err: that of the first *[Error] or [Code] in its
// chain, or "" where there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var c Code
	if errors.As(err, &c) {
		return c
	}
	return ""
}

// failf makes an error with a formatted detail.
func failf(code Code, field, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Detail: fmt.Sprintf(format, args...)}
}
