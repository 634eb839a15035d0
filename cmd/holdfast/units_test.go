package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

var discard = slog.New(slog.DiscardHandler)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "2w": 14 * 24 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		var d duration
		if err := d.Set(text); err != nil || time.Duration(d) != want {
			t.Errorf("%s is %v, %v, not %v", text, time.Duration(d), err, want)
		}
		var again duration
		if want > 0 {
			if err := again.Set(d.String()); err != nil || again != d {
				t.Errorf("%s is shown as %s", text, d.String())
			}
		}
	}
	for _, text := range []string{"", "5", "d", "-1s", "1..5d", "1e9w", "999999999999w", "forever"} {
		var d duration
		if err := d.Set(text); err == nil {
			t.Errorf("%q is taken as %v", text, time.Duration(d))
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "65536": 65536, "64KiB": 65536, "2MiB": 2 << 20, "3K": 3072, "1024MiB": 1 << 30} {
		var n size
		if err := n.Set(text); err != nil || int(n) != want {
			t.Errorf("%s is %d, %v, not %d", text, int(n), err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "2GiB", "1025MiB", "9999999999999999999", "x"} {
		var n size
		if err := n.Set(text); err == nil {
			t.Errorf("%q is taken as %d", text, int(n))
		}
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-05-01T09:00:00Z":      time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC),
		"2026-05-01T09:00:00+02:00": time.Date(2026, 5, 1, 7, 0, 0, 0, time.UTC),
		"2026-05-01 09:00":          time.Date(2026, 5, 1, 9, 0, 0, 0, time.Local),
		"2026-05-01":                time.Date(2026, 5, 1, 0, 0, 0, 0, time.Local),
	} {
		var m moment
		if err := m.Set(text); err != nil || !time.Time(m).Equal(want) {
			t.Errorf("%s is %v, %v", text, time.Time(m), err)
		}
	}
	for _, text := range []string{"", "now", "09:00", "2026-13-01", "1796091898380"} {
		var m moment
		if err := m.Set(text); err == nil {
			t.Errorf("%q is taken as %v", text, time.Time(m))
		}
	}
}

func TestRelativeTimes(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	a := &app{now: func() time.Time { return now }}
	for d, want := range map[time.Duration]string{
		0: "now", -500 * time.Millisecond: "now", -3 * time.Second: "3s ago", -125 * time.Second: "2m ago", -26 * time.Hour: "26h ago", -50 * time.Hour: "2d ago", 90 * time.Second: "in 1m",
	} {
		if got := a.ago(now.Add(d)); got != want {
			t.Errorf("%v from now is %q, not %q", d, got, want)
		}
	}
	if got := a.ago(time.Time{}); got != "-" {
		t.Errorf("no time is %q", got)
	}
}

func TestHeadAndTailAreBounded(t *testing.T) {
	h := &head{limit: 10}
	l := &tail{limit: 10}
	for range 1000 {
		for _, w := range []interface{ Write([]byte) (int, error) }{h, l} {
			if n, err := w.Write([]byte("0123456")); n != 7 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	if string(h.b) != "0123456012" || !h.over {
		t.Errorf("the head is %q, %v", h.b, h.over)
	}
	if l.String() != "…"+"4560123456" || cap(l.b) > 200 {
		t.Errorf("the tail is %q in %d bytes", l.String(), cap(l.b))
	}
}

func TestCut(t *testing.T) {
	for in, want := range map[string]string{"short": "short", "0123456789": "0123456789", "01234567890": "012345678…", "日本語日本語": "日本語日…", "a\nb": `a\nb`} {
		if got := cut(in, 10); got != want {
			t.Errorf("%q is cut to %q, not %q", in, got, want)
		}
	}
}

func TestSchemes(t *testing.T) {
	for address, want := range map[string]string{
		"tasks.db": "sqlite tasks.db", "sqlite:tasks.db": "sqlite tasks.db", "sqlite:///var/tasks.db": "sqlite /var/tasks.db", "/a/b:c.db": "sqlite /a/b:c.db",
		`C:\tasks.db`: `sqlite C:\tasks.db`, "postgres://h/d": "postgres postgres://h/d", "postgresql://h/d": "postgres postgresql://h/d", "redis://h": "redis redis://h",
		"host=h dbname=d": "postgres host=h dbname=d", "dir/dbname=d.db": "sqlite dir/dbname=d.db",
	} {
		kind, rest := scheme(address)
		if got := kind + " " + rest; got != want {
			t.Errorf("%s is %q, not %q", address, got, want)
		}
	}
}

// Every command says what it does, shows an example, and has its place in help and in docs/cli.md.
func TestEveryCommandHasHelp(t *testing.T) {
	docs := readFile(t, "../../docs/cli.md")
	a := &app{}
	a.stdout, a.stderr = newOutput(nil), newOutput(nil)
	for _, cmd := range a.root().Commands() {
		name := cmd.Name()
		if cmd.Hidden {
			continue
		}
		if cmd.GroupID == "" || cmd.Short == "" || !strings.Contains(cmd.Example, "holdfast "+name) {
			t.Errorf("%s: group %q, short %q, example %q", name, cmd.GroupID, cmd.Short, cmd.Example)
		}
		if !strings.Contains(docs, "holdfast "+name) {
			t.Errorf("docs/cli.md does not mention %s", name)
		}
		for _, flag := range flagNames(cmd) {
			if !strings.Contains(docs, "--"+flag) {
				t.Errorf("docs/cli.md does not mention --%s of %s", flag, name)
			}
		}
		out := ok(t, name, "--help")
		if !strings.Contains(out, "Examples:") || !strings.Contains(out, "Usage:") {
			t.Errorf("help of %s is %s", name, out)
		}
	}
	if out := ok(t); !strings.Contains(out, "holdfast demo") || !strings.Contains(out, "Exit codes:") {
		t.Errorf("without arguments it prints %s", out)
	}
}
