package holdfast

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

func mustSpec(t testing.TB, spec, zone string) ticks {
	t.Helper()
	parsed, _, _, err := parseSpec(spec, zone, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// Ticks about the days on which clocks jump, in local time with the offset.
func TestTicksWhereClocksJump(t *testing.T) {
	for _, c := range []struct {
		name, spec, zone, after string
		want                    []string
	}{
		{"a time that does not exist is the moment of the jump", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"several that do not exist are one", "0,15,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"with the one that stands there anyway", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"a time that comes twice is a tick once", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"and asked between the two", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:45:00+02:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		{"and asked in the second pass", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:15:00+01:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		{"the end of what comes twice comes once", "0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"}},
		{"every hour goes on in the hour that comes again", "0 * * * *", "Europe/Berlin", "2026-10-25T01:00:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"every half hour goes on too", "*/30 * * * *", "Europe/Berlin", "2026-10-25T01:45:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"every half hour where an hour is left out", "*/30 * * * *", "Europe/Berlin", "2026-03-29T01:15:00+01:00",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"}},
		{"@hourly goes on too", "@hourly", "America/New_York", "2026-11-01T00:30:00-04:00",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"}},
		{"all hours written out are every hour", "0 0-23 * * *", "Europe/Berlin", "2026-10-25T01:00:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"}},
		{"every second goes on too", "59 59 * * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00",
			[]string{"2026-10-25T02:59:59+02:00", "2026-10-25T02:59:59+01:00"}},
		{"every other hour is times of the day", "0 */2 * * *", "Europe/Berlin", "2026-10-25T00:00:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00"}},
		{"minutes of one hour are times of the day", "*/30 2 * * *", "Europe/Berlin", "2026-10-25T00:00:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"}},
		{"a time that comes twice, with seconds", "0 30 1 * * *", "Europe/London", "2026-10-24T12:00:00+01:00",
			[]string{"2026-10-25T01:30:00+01:00", "2026-10-26T01:30:00+00:00"}},
		{"@every goes on through an hour that comes again", "@every 30m", "Europe/Berlin", "2026-10-25T00:15:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"}},
		{"every hour where one is left out", "0 * * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		{"New York, spring", "15 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:15:00-04:00"}},
		{"New York, autumn", "15 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			[]string{"2026-11-01T01:15:00-04:00", "2026-11-02T01:15:00-05:00"}},
		{"half an hour is left out", "10 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:10:00+11:00"}},
		{"half an hour comes again", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00+11:00",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		{"a day that does not exist", "0 9 * * *", "Pacific/Apia", "2011-12-29T08:00:00-10:00",
			[]string{"2011-12-29T09:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"}},
		{"a weekday that does not exist", "0 9 * * FRI", "Pacific/Apia", "2011-12-24T08:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2012-01-06T09:00:00+14:00"}},
		{"midnight that does not exist", "0 0 * * *", "America/Sao_Paulo", "2017-10-14T12:00:00-03:00",
			[]string{"2017-10-15T01:00:00-02:00", "2017-10-16T00:00:00-02:00"}},
		{"@daily where midnight does not exist", "@daily", "America/Sao_Paulo", "2017-10-14T12:00:00-03:00",
			[]string{"2017-10-15T01:00:00-02:00"}},
		{"Ramadan begins", "30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00:00+01:00",
			[]string{"2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00+00:00"}},
		{"Ramadan ends", "30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00:00+00:00",
			[]string{"2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"}},
		{"with seconds", "30 59 1 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T01:59:30+01:00", "2026-03-30T01:59:30+02:00"}},
		{"a 29 February beyond 2100", "0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"both days given mean either", "0 0 13 * FRI", "UTC", "2026-11-06T00:00:00Z", []string{"2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"}},
		{"@every knows no zone", "@every 12h", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"2026-03-29T12:00:00Z", "2026-03-30T00:00:00Z"}},
		{"fixed times in any order", "@at 2026-05-01T00:00:00+02:00 2026-01-01T00:00:00Z 2026-01-01T00:00:00Z", "", "2025-01-01T00:00:00Z",
			[]string{"2026-01-01T00:00:00Z", "2026-05-01T00:00:00+02:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := mustSpec(t, c.spec, c.zone)
			at, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range c.want {
				want, err := time.Parse(time.RFC3339, text)
				if err != nil {
					t.Fatal(err)
				}
				if at = spec.next(at); !at.Equal(want) {
					t.Fatalf("tick %d is %s, want %s", i, at.In(want.Location()).Format(time.RFC3339), text)
				}
			}
		})
	}
}

func TestFixedTimesEnd(t *testing.T) {
	if at := mustSpec(t, "@at 2026-01-01T00:00:00Z", "").next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); !at.IsZero() {
		t.Errorf("a tick after the last: %v", at)
	}
}

// slowTicks walks through the days minute by minute and looks at the wall: another way to the ticks.
func slowTicks(start, end time.Time, loc *time.Location, hourly bool, matches func(wall time.Time) bool) (list []time.Time) {
	high := onWallOf(start.In(loc))
	for t := start.Add(time.Minute); !t.After(end); t = t.Add(time.Minute) {
		wall := onWallOf(t.In(loc))
		switch {
		case wall.After(high):
			tick := false
			for w := high.Add(time.Minute); !w.After(wall); w = w.Add(time.Minute) {
				tick = tick || matches(w)
			}
			if tick {
				list = append(list, t)
			}
			high = wall
		case hourly && matches(wall):
			list = append(list, t)
		}
	}
	return list
}

func TestTicksEqualThoseFoundMinuteByMinute(t *testing.T) {
	moments := []struct{ zone, at string }{
		{"Europe/Berlin", "2026-03-29"}, {"Europe/Berlin", "2026-10-25"}, {"America/New_York", "2026-03-08"}, {"America/New_York", "2026-11-01"},
		{"Australia/Lord_Howe", "2026-04-05"}, {"Australia/Lord_Howe", "2026-10-04"}, {"Pacific/Apia", "2011-12-30"}, {"Africa/Casablanca", "2026-02-15"},
		{"Africa/Casablanca", "2026-03-22"}, {"America/Sao_Paulo", "2017-10-15"}, {"America/Sao_Paulo", "2018-02-18"}, {"Pacific/Kwajalein", "1969-09-30"},
		{"Pacific/Kwajalein", "1993-08-21"}, {"Asia/Kathmandu", "1986-01-01"}, {"UTC", "2026-01-01"},
	}
	subset := func(r *rapid.T, name string, low, high int) ([]int, string) {
		if rapid.Bool().Draw(r, name+" any") {
			return nil, "*"
		}
		list := rapid.SliceOfNDistinct(rapid.IntRange(low, high), 1, 4, rapid.ID).Draw(r, name)
		text := make([]string, len(list))
		for i, n := range list {
			text[i] = fmt.Sprint(n)
		}
		return list, strings.Join(text, ",")
	}
	rapid.Check(t, func(r *rapid.T) {
		m := rapid.SampledFrom(moments).Draw(r, "moment")
		loc, err := time.LoadLocation(m.zone)
		if err != nil {
			r.Fatal(err)
		}
		middle, err := time.Parse(time.DateOnly, m.at)
		if err != nil {
			r.Fatal(err)
		}
		minutes, minuteText := subset(r, "minute", 0, 59)
		hours, hourText := subset(r, "hour", 0, 23)
		doms, domText := subset(r, "day of month", 1, 31)
		dows, dowText := subset(r, "day of week", 0, 6)
		in := func(list []int, n int) bool { return list == nil || slices.Contains(list, n) }
		matches := func(w time.Time) bool {
			day := in(doms, w.Day()) && in(dows, int(w.Weekday()))
			if doms != nil && dows != nil {
				day = in(doms, w.Day()) || in(dows, int(w.Weekday()))
			}
			return in(minutes, w.Minute()) && in(hours, w.Hour()) && day
		}
		spec := mustSpec(t, fmt.Sprintf("%s %s %s * %s", minuteText, hourText, domText, dowText), m.zone)
		start := middle.Add(-time.Duration(rapid.IntRange(24*60, 72*60).Draw(r, "minutes before")) * time.Minute)
		// What came before the start counts too: the wall may have shown the times once already.
		early, end := start.Add(-50*time.Hour), middle.Add(60*time.Hour)
		want := slices.DeleteFunc(slowTicks(early, end, loc, hours == nil, matches), func(x time.Time) bool { return !x.After(start) })
		var got []time.Time
		for x := spec.next(start); !x.IsZero() && !x.After(end); x = spec.next(x) {
			got = append(got, x)
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			r.Fatalf("%d ticks, want %d:\n%v\n%v", len(got), len(want), got, want)
		}
		// And from anywhere between, the next one is the next one.
		from := start.Add(time.Duration(rapid.Int64Range(0, int64(end.Sub(start)/time.Second)).Draw(r, "from")) * time.Second)
		i := slices.IndexFunc(want, func(x time.Time) bool { return x.After(from) })
		if i >= 0 && !spec.next(from).Equal(want[i]) {
			r.Fatalf("after %v comes %v, want %v", from, spec.next(from), want[i])
		}
	})
}

func TestBadSpecsAreRefused(t *testing.T) {
	many := "@at" + strings.Repeat(" 2027-01-01T00:00:00Z", MaxScheduleTimes+1)
	for _, c := range []struct{ name, spec, zone, field, text string }{
		{"empty", "", "", "spec", "says no time"},
		{"zone alone", "CRON_TZ=Europe/Berlin", "", "spec", "says no time"},
		{"no zone after TZ", "TZ= * * * * *", "", "zone", "empty"},
		{"four fields", "* * * *", "", "spec", "4 fields"},
		{"seven fields", "* * * * * * *", "", "spec", "7 fields"},
		{"minute 60", "60 * * * *", "", "spec", "minute"},
		{"second 60", "60 * * * * *", "", "spec", "second"},
		{"hour 24", "0 24 * * *", "", "spec", "hour"},
		{"day 0", "0 0 0 * *", "", "spec", "day of month"},
		{"month 13", "0 0 1 13 *", "", "spec", "month"},
		{"weekday 8", "0 0 * * 8", "", "spec", "day of week"},
		{"word", "0 0 * * FOO", "", "spec", "day of week"},
		{"empty list", ", * * * *", "", "spec", "minute"},
		{"gap in a list", "1,,2 * * * *", "", "spec", "minute"},
		{"star to number", "*-5 * * * *", "", "spec", "minute"},
		{"step 0", "*/0 * * * *", "", "spec", "minute"},
		{"backwards", "30-10 * * * *", "", "spec", "minute"},
		{"never", "0 0 31 2 *", "", "spec", "never comes"},
		{"unknown word", "@fortnightly", "", "spec", "cannot be read"},
		{"@every without", "@every", "", "spec", "cannot be read"},
		{"@every nonsense", "@every soon", "", "spec", "duration"},
		{"@every too often", "@every 500ms", "", "spec", "every second"},
		{"@every negative", "@every -1h", "", "spec", "every second"},
		{"@at nothing", "@at", "", "times", "empty"},
		{"@at nonsense", "@at noon", "", "spec", "no time"},
		{"@at too many", many, "", "times", "more than 1000"},
		{"zone", "* * * * *", "Europe/Atlantis", "zone", "no time zone"},
		{"zone in the spec", "CRON_TZ=Mars/Base * * * * *", "", "zone", "no time zone"},
		{"Local", "* * * * *", "Local", "zone", "no time zone"},
		{"path", "* * * * *", "../etc/passwd", "zone", "no time zone"},
		{"two zones", "TZ=Europe/Berlin * * * * *", "Europe/Paris", "zone", "name the zone once"},
		{"huge", strings.Repeat("1,", 1<<16), "", "spec", "limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, err := parseSpec(c.spec, c.zone, time.Time{})
			var bad *InvalidError
			if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "such as") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzSpec(f *testing.F) {
	for _, s := range []string{"* * * * *", "TZ=", "CRON_TZ=UTC", "@every 1s", "@at 2027-01-01T00:00:00Z", "1-2/3,*/4 ? 1 JAN sun", ",", "*/99999999999999999999 * * * *"} {
		f.Add(s)
	}
	after := time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, spec string) {
		parsed, stored, zone, err := parseSpec(spec, "", after)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", spec, err)
			}
			return
		}
		n := parsed.next(after)
		if !n.IsZero() && !n.After(after) {
			t.Errorf("%q: %v is not after %v", spec, n, after)
		}
		again, text, z, err := parseSpec(stored, zone, after)
		if err != nil || text != stored || z != zone || !again.next(after).Equal(n) {
			t.Errorf("%q is stored as %q, which is read as another: %v", spec, stored, err)
		}
	})
}
