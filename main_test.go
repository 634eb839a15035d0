package holdfast_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: neither handlers and loops of workers, nor what stores run.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
