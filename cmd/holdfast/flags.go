package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eda94727/holdfast"
)

// duration is a flag that takes days and weeks beside Go's units: 90s, 1h30m, 7d, 2w.
type duration time.Duration

var dayOrWeek = regexp.MustCompile(`([0-9.]+)(d|w)`)

func (d *duration) Set(s string) error {
	expanded := dayOrWeek.ReplaceAllStringFunc(s, func(part string) string {
		n, err := strconv.ParseFloat(part[:len(part)-1], 64)
		if err != nil {
			return part // time.ParseDuration will refuse it
		}
		hours := n * 24
		if part[len(part)-1] == 'w' {
			hours *= 7
		}
		if hours > float64(math.MaxInt64/int64(time.Hour)) {
			return part
		}
		return strconv.FormatFloat(hours, 'f', -1, 64) + "h"
	})
	v, err := time.ParseDuration(expanded)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no duration; use for example 500ms, 90s, 1h30m, 7d or 2w", s)
	case v < 0:
		return fmt.Errorf("%q is negative", s)
	}
	*d = duration(v)
	return nil
}

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	s := time.Duration(*d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
func (d *duration) Type() string { return "duration" }

// size is a flag in bytes: 4096, 64KiB, 16MiB.
type size int

func (n *size) Set(s string) error {
	text, unit := s, 1
	for _, u := range []struct {
		suffix string
		factor int
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"K", 1 << 10}, {"M", 1 << 20}} {
		if cutText, ok := strings.CutSuffix(s, u.suffix); ok {
			text, unit = cutText, u.factor
			break
		}
	}
	v, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || v < 1 || v > (1<<30)/unit {
		return fmt.Errorf("%q is no size between 1 byte and 1024MiB; use for example 65536, 64KiB or 16MiB", s)
	}
	*n = size(v * unit)
	return nil
}

func (n *size) String() string {
	switch {
	case *n > 0 && *n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", *n>>20)
	case *n > 0 && *n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", *n>>10)
	}
	return strconv.Itoa(int(*n))
}
func (n *size) Type() string { return "size" }

// moment is a flag that takes a time: RFC 3339, or a local date and time.
type moment time.Time

func (m *moment) Set(s string) error {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		*m = moment(t)
		return nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			*m = moment(t)
			return nil
		}
	}
	return fmt.Errorf("%q is no time; use 2026-05-01T09:00:00Z, or 2026-05-01 09:00 for local time", s)
}

func (m *moment) String() string {
	if time.Time(*m).IsZero() {
		return ""
	}
	return time.Time(*m).Format(time.RFC3339)
}
func (m *moment) Type() string { return "time" }

// one answers the task that is named by id or by --key, never by both.
func one(args []string, key string) (id string, err error) {
	switch {
	case len(args) > 0 && key != "":
		return "", usagef("give an id or --key, not both")
	case len(args) == 0 && key == "":
		return "", usagef("name a task: its id, or --key")
	case len(args) > 0:
		return args[0], nil
	}
	return "", nil
}

// readAll reads a bounded input, and stops waiting for it when ctx ends.
func (a *app) readAll(ctx context.Context, limit int) ([]byte, error) {
	type read struct {
		b   []byte
		err error
	}
	c := make(chan read, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(a.stdin, int64(limit)+1))
		c <- read{b, err}
	}()
	select {
	case r := <-c:
		if r.err == nil && len(r.b) > limit {
			r.err = usagef("standard input has more than %d bytes, the limit of a payload; keep large data elsewhere and pass a reference", limit)
		}
		return r.b, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func toStatus(s string) holdfast.Status { return holdfast.Status(strings.ToLower(s)) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
