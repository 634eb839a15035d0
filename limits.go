package holdfast

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits, the same on every database. A longer queue name could not be sent by Postgres' NOTIFY.
const (
	// MaxNameBytes bounds queue, name, key and the ids that a submitter gives, in bytes.
	MaxNameBytes = 255
	// DefaultPayloadLimit bounds payload, metadata and result, in bytes of JSON, unless the client or
	// worker says otherwise.
	DefaultPayloadLimit = 16 << 20
	// MaxDelay bounds delays and leases.
	MaxDelay = 100 * 365 * 24 * time.Hour
)

func checkText(field, s string, required bool) error {
	switch {
	case s == "" && required:
		return invalid(field, s, "is empty; give it a name")
	case len(s) > MaxNameBytes:
		return invalid(field, s, fmt.Sprintf("has %d bytes; the limit is %d", len(s), MaxNameBytes))
	case !utf8.ValidString(s):
		return invalid(field, s, "is not valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		return invalid(field, s, "contains a NUL character, which Postgres cannot store")
	}
	return nil
}

func checkInt32(field string, v int) error {
	if v > math.MaxInt32 || v < math.MinInt32 {
		return invalid(field, v, "does not fit in 32 bits, the width of the column on Postgres")
	}
	return nil
}

func checkDuration(field string, d time.Duration) error {
	switch {
	case d < 0:
		return invalid(field, d, "is negative; use 0 for now")
	case d > MaxDelay:
		return invalid(field, d, "is longer than 100 years")
	}
	return nil
}

func checkLease(d time.Duration) error {
	if d < time.Millisecond {
		return invalid("lease", d, "is below a millisecond")
	}
	return checkDuration("lease", d)
}

// checkSet checks every text of a list and leaves out what is in it twice.
func checkSet(field string, list []string) ([]string, error) {
	twice := false
	for i, s := range list {
		if err := checkText(field, s, true); err != nil {
			return nil, err
		}
		twice = twice || slices.Contains(list[:i], s)
	}
	if twice {
		list = slices.Clone(list)
		slices.Sort(list)
		list = slices.Compact(list)
	}
	return list, nil
}

func checkLimit(field string, n int) error {
	if n < 0 {
		return invalid(field, n, "is negative")
	}
	return nil
}

func sizeOf(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.4g KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
