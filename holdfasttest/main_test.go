package holdfasttest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine behind: neither those of workers, nor those of stores.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
