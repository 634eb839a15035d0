package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/eda94727/holdfast"
)

func TestQueuesArePausedAndLimited(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	if r := call(t, "", "queue", "list", db); r.code != 0 || !strings.Contains(r.err, "nothing is paused or limited") {
		t.Errorf("none: %+v", r)
	}
	ok(t, "queue", "pause", db, "mail", "print")
	ok(t, "queue", "limit", db, "mail", "--rate", "100", "--per", "1m", "--burst", "10")
	ok(t, "queue", "limit", db, "resize", "--name", "--concurrency", "2")
	limits, err := client.Limits(t.Context())
	if err != nil || len(limits) != 3 {
		t.Fatalf("%+v, %v", limits, err)
	}
	out := ok(t, "queue", "list", db)
	for _, part := range []string{"mail", "print", "resize", "100 in 1m0s, 10 at once", "since"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing:\n%s", part, out)
		}
	}
	var first limitDocument
	line, _, _ := strings.Cut(ok(t, "queue", "list", db, "--json"), "\n")
	if err := json.Unmarshal([]byte(line), &first); err != nil || first.Kind != holdfast.LimitQueue || first.Name != "mail" || first.Rate != 100 || first.PerMS != 60_000 || first.PausedAtMS == nil {
		t.Errorf("%+v, %v", first, err)
	}
	// A paused queue keeps its tasks, and a drain says that it is still at work.
	if _, err := client.Submit(t.Context(), "job", nil, holdfast.Queue("mail")); err != nil {
		t.Fatal(err)
	}
	if r := call(t, "", "queue", "drain", db, "mail", "--timeout", "10ms"); r.code != exitTimeout || !strings.Contains(r.err, "still at work") {
		t.Errorf("drain: %+v", r)
	}
	ok(t, "queue", "drain", db, "print")
	ok(t, "queue", "resume", db, "mail", "print")
	ok(t, "queue", "limit", db, "mail", "--none")
	ok(t, "queue", "limit", db, "resize", "--name", "--none")
	if limits, err := client.Limits(t.Context()); err != nil || len(limits) != 0 {
		t.Errorf("left: %+v, %v", limits, err)
	}
	for _, args := range [][]string{{"limit", "mail"}, {"limit", "mail", "--none", "--rate", "1"}, {"limit", "mail", "--concurrency", "-1"}, {"pause"}, {}} {
		if r := call(t, "", append(append([]string{"queue"}, args...), db)...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
