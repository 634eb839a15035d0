package main

import (
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

func TestSchedules(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	if r := call(t, "", "schedule", "list", db); r.code != 0 || r.out != "" || !strings.Contains(r.err, "no schedules") {
		t.Errorf("none: %+v", r)
	}
	if out := ok(t, "schedule", "add", db, "nightly", "backup", `{"disk": "sda"}`, "--spec", "30 4 * * *", "--zone", "Europe/Berlin", "--queue", "q",
		"--key", "backup", "--strategy", "reuse-live", "--priority", "2", "--max-attempts", "5", "--metadata", `{"own": 1}`, "--missed", "bounded", "--bound", "2", "--late", "5m"); !strings.Contains(out, "nightly  next in") {
		t.Errorf("add says %q", out)
	}
	s := task(t, ok(t, "schedule", "list", db, "--json"))
	for field, want := range map[string]any{"name": "nightly", "spec": "30 4 * * *", "zone": "Europe/Berlin", "task": "backup", "queue": "q", "missed": "bounded", "bound": 2.0, "grace_ms": 300000.0, "last_at_ms": nil, "paused_at_ms": nil} {
		if s[field] != want {
			t.Errorf("%s is %v, want %v", field, s[field], want)
		}
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if next := time.UnixMilli(int64(s["next_at_ms"].(float64))).In(zone); next.Hour() != 4 || next.Minute() != 30 || !next.After(time.Now()) {
		t.Errorf("the next tick is %v", next)
	}
	if out := ok(t, "schedule", "pause", db, "nightly"); !strings.Contains(out, "paused") {
		t.Errorf("pause says %q", out)
	}
	if out := ok(t, "schedule", "list", db); !strings.Contains(out, "paused") || !strings.Contains(out, "30 4 * * *") {
		t.Errorf("list:\n%s", out)
	}
	id := strings.TrimSpace(ok(t, "schedule", "run", db, "nightly"))
	got, err := client.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if tick, ok := holdfast.TickOf(got); !ok || !tick.Manual || got.Name != "backup" || got.Queue != "q" || got.MaxAttempts != 5 || got.Priority != 2 || !strings.Contains(string(got.Metadata), `"own":1`) {
		t.Errorf("run submitted %+v with %s", got, got.Metadata)
	}
	if again := strings.TrimSpace(ok(t, "schedule", "run", db, "nightly")); again != id {
		t.Errorf("another run is %s while %s is queued", again, id)
	}
	if out := ok(t, "schedule", "resume", db, "nightly"); !strings.Contains(out, "next in") {
		t.Errorf("resume says %q", out)
	}
	if out := ok(t, "schedule", "delete", db, "nightly"); !strings.Contains(out, "deleted") {
		t.Errorf("delete says %q", out)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"delete", "nightly"}, exitNotFound, "nightly"},
		{[]string{"pause", "nightly"}, exitNotFound, "schedule list"},
		{[]string{"run", "nightly"}, exitNotFound, "nightly"},
		{[]string{}, exitUsage, "list, add"},
		{[]string{"bogus"}, exitUsage, "bogus"},
		{[]string{"add", "a"}, exitUsage, "arg"},
		{[]string{"add", "a", "b"}, exitUsage, "spec"},
		{[]string{"add", "a", "b", "--spec", "61 * * * *"}, exitUsage, "minute"},
		{[]string{"add", "a", "b", "--spec", "@daily", "--at", "2030-01-01"}, exitUsage, "spec"},
		{[]string{"add", "a", "b", "--at", "noon"}, exitUsage, "noon"},
		{[]string{"add", "a", "b", "--spec", "@daily", "--zone", "Mars"}, exitUsage, "Mars"},
		{[]string{"add", "a", "b", "--spec", "@daily", "--missed", "never"}, exitUsage, "never"},
		{[]string{"add", "a", "b", "--spec", "@daily", "--missed", "bounded"}, exitUsage, "bound"},
		{[]string{"add", "a", "b", "--spec", "@daily", "--strategy", "reject"}, exitUsage, "--key"},
		{[]string{"add", "a", "b", "--spec", "@daily", "--metadata", "[]"}, exitUsage, "metadata"},
		{[]string{"add", "a", "b", "{", "--spec", "@daily"}, exitUsage, "payload"},
	} {
		if r := call(t, "", append([]string{"schedule", db}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("schedule %v: exit code %d, want %d: %s", c.args, r.code, c.code, r.err)
		}
	}
}

// A worker of the binary drives what was added, also while it runs.
func TestAWorkerDrivesSchedules(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	start(t, "worker", db, "job", "--exec", "cat", "--quiet")
	ok(t, "schedule", "add", db, "soon", "job", `{"a": 1}`, "--at", time.Now().Add(300*time.Millisecond).Format(time.RFC3339Nano))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		list, err := client.List(t.Context(), holdfast.Filter{Status: holdfast.Succeeded})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			if at, ok := holdfast.ScheduledAt(list[0]); !ok || at.IsZero() {
				t.Errorf("the task has no tick: %s", list[0].Metadata)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the tick did not come")
		}
	}
}
