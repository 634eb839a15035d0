package holdfast

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// MaxScheduleTimes bounds the fixed times of one schedule.
	MaxScheduleTimes = 1000
	maxSpecBytes     = 64 << 10
	specExamples     = `; a spec is such as "30 4 * * *" (each day at 04:30), "CRON_TZ=Europe/Berlin 0 9 * * MON-FRI", "*/10 * * * * *" (each ten seconds), "@daily", "@every 10m" or "@at 2027-01-01T00:00:00Z"`
)

// ticks is a parsed spec: an endless or finite row of instants.
type ticks interface {
	// next answers the first tick after t, zero if there is none.
	next(t time.Time) time.Time
}

// parseSpec reads a spec and its zone. zone "" means the one in the spec's CRON_TZ= or TZ=, or UTC. The
// answers are both in the form in which they are stored; times count from anchor.
func parseSpec(spec, zone string, anchor time.Time) (ticks, string, string, error) {
	full := spec
	refuse := func(problem string) (ticks, string, string, error) {
		return nil, "", "", invalid("spec", full, problem+specExamples)
	}
	spec = strings.Join(strings.Fields(spec), " ")
	if len(spec) > maxSpecBytes {
		return refuse(fmt.Sprintf("has %d bytes; the limit is %d", len(spec), maxSpecBytes))
	}
	for _, prefix := range [...]string{"CRON_TZ=", "TZ="} {
		rest, found := strings.CutPrefix(spec, prefix)
		if !found {
			continue
		}
		inner, rest, _ := strings.Cut(rest, " ")
		if zone != "" && zone != inner {
			return nil, "", "", invalid("zone", zone, fmt.Sprintf("is not the %q of the spec; name the zone once, such as Zone: \"Europe/Berlin\"", inner))
		}
		if inner == "" {
			return nil, "", "", invalid("zone", inner, "is empty in the spec; write such as CRON_TZ=Europe/Berlin 0 9 * * *")
		}
		zone, spec = inner, rest
		break
	}
	if zone == "" {
		zone = "UTC"
	}
	if spec == "" {
		return refuse("says no time")
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, "", "", invalid("zone", zone, "is no time zone known here; use a name of the IANA database, such as Europe/Berlin (or import time/tzdata where the system has no zone files)")
	}
	if rest, ok := strings.CutPrefix(spec, "@every "); ok {
		d, err := time.ParseDuration(rest)
		switch {
		case err != nil:
			return refuse("has no valid duration after @every")
		case d < time.Second || d > MaxDelay || d%time.Millisecond != 0:
			return refuse("must be every second to every 100 years, in whole milliseconds")
		}
		return every{anchor, d}, spec, zone, nil
	}
	if rest, ok := strings.CutPrefix(spec, "@at"); ok {
		var list []time.Time
		for _, f := range strings.Fields(rest) {
			t, err := time.Parse(time.RFC3339, f)
			if err != nil {
				return refuse(fmt.Sprintf("has %.40q, which is no time", f))
			}
			list = append(list, t)
		}
		spec, err := timesSpec(list)
		if err != nil {
			return nil, "", "", err
		}
		for i := range list {
			list[i] = list[i].Truncate(time.Millisecond)
		}
		slices.SortFunc(list, time.Time.Compare)
		return fixed(list), spec, zone, nil
	}
	w, problem := parseCron(spec, loc)
	if problem != "" {
		return refuse(problem)
	}
	return w, spec, zone, nil
}

// timesSpec writes fixed times as a spec: sorted, each once, in UTC, to the millisecond.
func timesSpec(times []time.Time) (string, error) {
	switch {
	case len(times) == 0:
		return "", invalid("times", "", "are empty; give at least one, such as time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)")
	case len(times) > MaxScheduleTimes:
		return "", invalid("times", len(times), fmt.Sprintf("are more than %d; use a cron expression such as \"0 9 1 * *\", or several schedules", MaxScheduleTimes))
	}
	list := make([]time.Time, len(times))
	for i, t := range times {
		if y := t.UTC().Year(); y < 1 || y > 9999 || t.IsZero() {
			return "", invalid("times", t, "has a time outside of the years 1 to 9999; give such as time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)")
		}
		list[i] = t.UTC().Truncate(time.Millisecond)
	}
	slices.SortFunc(list, time.Time.Compare)
	var b strings.Builder
	b.WriteString("@at")
	for _, t := range slices.CompactFunc(list, time.Time.Equal) {
		b.WriteString(" " + t.Format(time.RFC3339Nano))
	}
	return b.String(), nil
}

// every is each d since the anchor, so that a restart does not shift it.
type every struct {
	anchor time.Time
	d      time.Duration
}

func (e every) next(t time.Time) time.Time {
	d := e.d.Milliseconds()
	n := max(0, t.UnixMilli()-e.anchor.UnixMilli()) / d
	return time.UnixMilli(e.anchor.UnixMilli() + (n+1)*d)
}

// fixed are instants in order.
type fixed []time.Time

func (f fixed) next(t time.Time) time.Time {
	for _, x := range f {
		if x.After(t) {
			return x
		}
	}
	return time.Time{}
}

// wall is a cron expression on the clock on the wall of a place.
type wall struct {
	spec   *cron.SpecSchedule // in UTC, whose clock never jumps; its answers are read as times on the wall
	loc    *time.Location
	hourly bool // it names every hour, so it means the passing of time more than a time of day
}

var (
	cronFields  = [...]string{"second", "minute", "hour", "day of month", "month", "day of week"}
	cronElement = regexp.MustCompile(`^(\*|\?|[0-9]+|[A-Za-z]{3})(-([0-9]+|[A-Za-z]{3}))?(/[0-9]+)?$`)
)

const allHours = 1<<24 - 1

// parseCron answers what is wrong with the expression, if anything. The parser is robfig/cron's; its
// own errors do not say which field they mean, and it reads some mistakes ("1,,2", "*-5") as something.
func parseCron(spec string, loc *time.Location) (wall, string) {
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	if !strings.HasPrefix(spec, "@") {
		fields := strings.Fields(spec)
		if len(fields) < 5 || len(fields) > 6 {
			return wall{}, fmt.Sprintf("has %d fields; give five (minute, hour, day of month, month, day of week), or six with seconds first", len(fields))
		}
		for i, f := range fields {
			name := cronFields[i+6-len(fields)]
			for _, e := range strings.Split(f, ",") {
				if !cronElement.MatchString(e) || strings.HasPrefix(e, "*-") || strings.HasPrefix(e, "?-") {
					return wall{}, fmt.Sprintf("has no valid %s: %.40q", name, f)
				}
			}
			one := cron.NewParser([...]cron.ParseOption{cron.Second, cron.Minute, cron.Hour, cron.Dom, cron.Month, cron.Dow}[i+6-len(fields)])
			if _, err := one.Parse(f); err != nil {
				return wall{}, fmt.Sprintf("has no valid %s: %v", name, err)
			}
		}
	}
	parsed, err := parser.Parse(spec)
	if err != nil {
		return wall{}, "cannot be read: " + err.Error()
	}
	s, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return wall{}, "cannot be read"
	}
	s.Location = time.UTC
	w := wall{s, loc, s.Hour&allHours == allHours}
	if w.onWall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return wall{}, "names a day that never comes"
	}
	return w, ""
}

// onWall answers the expression's next time after t, both as times on the wall. The parser's package
// looks five years ahead, too few for a 29 February about the year 2100.
func (w wall) onWall(t time.Time) time.Time {
	for range 3 {
		if n := w.spec.Next(t); !n.IsZero() {
			return n
		}
		t = t.AddDate(5, 0, 0)
	}
	return time.Time{}
}

// backward is how far a clock on the wall has ever been put back or forward at once, and a bit.
const backward = 25 * time.Hour

// next goes through the periods between two changes of the wall's clock. Where the clock jumps ahead,
// all ticks that it jumps over become one, at the moment of the jump. Where it is put back, the times
// that come again are no ticks again, unless the expression names every hour.
func (w wall) next(after time.Time) time.Time {
	after = after.UTC()
	at := after.Add(-backward)
	high := onWallOf(at.In(w.loc)) // the latest that the wall has shown so far
	for {
		local := at.In(w.loc)
		_, offset := local.Zone()
		shift := time.Duration(offset) * time.Second
		_, end := local.ZoneBounds()
		first := onWallOf(local)
		if first.After(high) && at.After(after) {
			// The wall went from high straight to first, at the instant at.
			if n := w.onWall(high.Add(-time.Nanosecond)); !n.IsZero() && !n.After(first) {
				return at
			}
		}
		if end.IsZero() || end.After(after) {
			from := first
			if !w.hourly && high.After(first) {
				from = high
			}
			from = from.Add(-time.Nanosecond)
			if seen := onWallOf(after.In(w.loc)); !at.After(after) && seen.After(from) {
				from = seen
			}
			n := w.onWall(from)
			if n.IsZero() {
				return n
			}
			if t := n.Add(-shift); end.IsZero() || t.Before(end) {
				return t
			}
		}
		if end.IsZero() {
			return time.Time{}
		}
		if last := onWallOf(end.UTC()).Add(shift); last.After(high) {
			high = last
		}
		at = end.UTC()
	}
}

// onWallOf reads a local time off the wall: the same digits, in UTC.
func onWallOf(t time.Time) time.Time {
	y, m, d := t.Date()
	h, mi, s := t.Clock()
	return time.Date(y, m, d, h, mi, s, t.Nanosecond(), time.UTC)
}
