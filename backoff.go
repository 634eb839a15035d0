package holdfast

import (
	"math/rand/v2"
	"time"
)

// Backoff answers how long a task waits after its attempt-th attempt has failed with err. attempt
// counts from 1.
type Backoff func(attempt int, err error) time.Duration

// Exponential doubles a window from base to at most max, and draws the delay uniformly from its
// upper half, so that tasks that failed together do not come back together. The protocol's default
// is Exponential(time.Second, 30*time.Second).
func Exponential(base, max time.Duration) Backoff {
	return func(attempt int, _ error) time.Duration {
		window := base
		for i := 1; i < attempt && window < max; i++ {
			if window > max/2 {
				window = max // doubling might overflow
				break
			}
			window *= 2
		}
		window = min(window, max)
		if window < 2 {
			return window
		}
		return window/2 + rand.N(window/2)
	}
}
