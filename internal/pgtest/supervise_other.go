//go:build !unix

package pgtest

// supervisor exists on Unix only. Elsewhere the tests use the server that HOLDFAST_TEST_POSTGRES names.
type supervisor struct{}

func supervise(string, string) (string, *supervisor, error) { return "", nil, ErrUnavailable }

func (*supervisor) order(string) error { return ErrUnavailable }

func (*supervisor) dismiss() {}
