package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

func TestASubmittedTaskIsThereWithAllItsOptions(t *testing.T) {
	db := newDB(t)
	parent := strings.TrimSpace(ok(t, db, "submit", "parent"))
	id := strings.TrimSpace(ok(t, db, "submit", "mail.send", `{"n": 9007199254740993}`, "--queue", "mails", "--key", "mail:1", "--strategy", "reject",
		"--priority", "7", "--delay", "1h", "--max-attempts", "5", "--metadata", `{"by": "test"}`, "--correlation-id", "c-1", "--parent", parent))
	got := open(t, db)
	task, err := got.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if task.Name != "mail.send" || task.Queue != "mails" || task.Priority != 7 || task.MaxAttempts != 5 || task.CorrelationID != "c-1" ||
		task.ParentID != parent || task.RootID != parent || task.Status != holdfast.Queued {
		t.Errorf("the task is %+v", task)
	}
	if string(task.Payload) != `{"n": 9007199254740993}` || string(task.Metadata) != `{"by": "test"}` {
		t.Errorf("payload %s, metadata %s", task.Payload, task.Metadata)
	}
	if d := task.RunAt.Sub(task.CreatedAt); d != time.Hour {
		t.Errorf("it is delayed by %v, not 1h", d)
	}
	if byKey, err := got.GetByKey(t.Context(), "mail:1"); err != nil || byKey.ID != id {
		t.Errorf("under the key stands %v, %v", byKey, err)
	}
}

func TestSubmitReadsStandardInput(t *testing.T) {
	db := newDB(t)
	r := call(t, "\n {\"a\": [1, 2]} \n", db, "submit", "x", "-", "--json")
	if r.code != 0 {
		t.Fatal(r)
	}
	if b, _ := json.Marshal(task(t, r.out)["payload"]); string(b) != `{"a":[1,2]}` {
		t.Errorf("the payload is %s", b)
	}
	big := `"` + strings.Repeat("x", holdfast.DefaultPayloadLimit) + `"`
	if r := call(t, big, db, "submit", "x", "-"); r.code != exitUsage || !strings.Contains(r.err, "limit of a payload") {
		t.Errorf("a payload beyond the limit: %d %s", r.code, r.err)
	}
}

func TestSubmitAtATime(t *testing.T) {
	db := newDB(t)
	id := strings.TrimSpace(ok(t, db, "submit", "x", "--at", "2100-01-02T03:04:05Z"))
	task, err := open(t, db).Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	// The option is a distance from now, so the last milliseconds are the test's own.
	if d := task.RunAt.Sub(time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)).Abs(); d > 5*time.Second {
		t.Errorf("it runs at %v", task.RunAt)
	}
}

func TestSubmitLines(t *testing.T) {
	db := newDB(t)
	var in strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&in, "{\"n\": %d}\n\n", i)
	}
	r := call(t, in.String(), db, "submit", "x", "--lines", "--queue", "many")
	if n := strings.Count(r.out, "task_"); r.code != 0 || n != 2500 {
		t.Fatalf("exit code %d, %d ids, %s", r.code, n, r.err)
	}
	first := getTask(t, db, strings.Fields(r.out)[0])
	if n := first["payload"].(map[string]any)["n"]; n != 0.0 || first["queue"] != "many" {
		t.Errorf("the first is %v", first)
	}

	r = call(t, "{\"n\": 1}\n{\"n\": \n", db, "submit", "y", "--lines")
	if r.code != exitUsage || !strings.Contains(r.err, "line 2 ") {
		t.Errorf("a bad line: %d %s", r.code, r.err)
	}
	if out := ok(t, db, "list", "--name", "y", "--json"); out != "" {
		t.Errorf("a line before the bad one was submitted: %s", out)
	}
}

func TestAKeyIsReusedUnlessToldOtherwise(t *testing.T) {
	db := newDB(t)
	a := ok(t, db, "submit", "x", "--key", "k")
	if b := ok(t, db, "submit", "x", "--key", "k"); a != b {
		t.Errorf("%s and %s", a, b)
	}
	for key, reused := range map[string]bool{"k": true, "new": false} {
		var task struct {
			ID     string `json:"id"`
			Reused bool   `json:"reused"`
		}
		if err := json.Unmarshal([]byte(ok(t, db, "submit", "x", "--key", key, "--json")), &task); err != nil || task.Reused != reused || reused != (task.ID == strings.TrimSpace(a)) {
			t.Errorf("key %s: %+v, %v", key, task, err)
		}
	}
	r := call(t, "", db, "submit", "x", "--key", "k", "--strategy", "reject")
	if r.code != exitState || !strings.Contains(r.err, `key "k" belongs to `+strings.TrimSpace(a)) || !strings.Contains(r.err, "--strategy") {
		t.Errorf("reject: %d %s", r.code, r.err)
	}
	if b := ok(t, db, "submit", "x", "--key", "k", "--strategy", "replace"); a == b {
		t.Error("replace made no new task")
	}
	if s := getTask(t, db, strings.TrimSpace(a))["status"]; s != "canceled" {
		t.Errorf("the replaced task is %v", s)
	}
}

func TestJSONIsTheTasksOwn(t *testing.T) {
	db := newDB(t)
	id := strings.TrimSpace(ok(t, db, "submit", "x", `{"a": 1}`, "--key", "k"))
	stored, err := open(t, db).Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"get", id}, {"get", "--key", "k"}, {"list"}} {
		if got := ok(t, append(append([]string{db}, args...), "--json")...); got != string(want)+"\n" {
			t.Errorf("%v prints\n%s, not\n%s", args, got, want)
		}
	}
}

func TestGetShowsEverythingForPeople(t *testing.T) {
	db := newDB(t)
	id := strings.TrimSpace(ok(t, db, "submit", "x", `{"a": 1}`, "--correlation-id", "c-9", "--priority", "3", "--metadata", `{"m": 2}`, "--delay", "90m"))
	out := ok(t, db, "get", id)
	for _, want := range []string{id, "queued", "0 of 3", `{"a":1}`, `{"m":2}`, "c-9", "priority     3", "(in 1h)"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func TestListFiltersAndPages(t *testing.T) {
	db := newDB(t)
	var ids []string
	for i := range 7 {
		ids = append(ids, strings.TrimSpace(ok(t, db, "submit", "page", fmt.Sprint(i), "--queue", "q", "--correlation-id", "c")))
	}
	ok(t, db, "submit", "other")
	ok(t, db, "cancel", ids[3])
	count := func(args ...string) int {
		return strings.Count(ok(t, append([]string{db, "list", "--json"}, args...)...), "\n")
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{8, nil}, {7, []string{"--queue", "q"}}, {7, []string{"-n", "page"}}, {1, []string{"-s", "canceled"}}, {1, []string{"-s", "CANCELED"}}, {7, []string{"--correlation-id", "c"}},
		{0, []string{"--root", ids[0], "--status", "failed"}}, {1, []string{"--root", ids[0]}}, {2, []string{"--limit", "2"}}, {3, []string{"--offset", "5"}},
	} {
		if n := count(c.args...); n != c.want {
			t.Errorf("list %v shows %d tasks, not %d", c.args, n, c.want)
		}
	}
	// By cursor, and by the id of a page's last task: all of them, once each, newest first.
	for _, by := range []string{"cursor", "id"} {
		var seen []string
		after := ""
		for {
			args := []string{db, "list", "--queue", "q", "--limit", "3", "--json"}
			if after != "" {
				args = append(args, "--after", after)
			}
			out := strings.TrimSpace(ok(t, args...))
			if out == "" {
				break
			}
			for _, line := range strings.Split(out, "\n") {
				m := task(t, line)
				seen = append([]string{m["id"].(string)}, seen...)
				after = m["id"].(string)
				if by == "cursor" {
					after = fmt.Sprintf("%d.%s", int64(m["created_at_ms"].(float64)), m["id"])
				}
			}
		}
		if strings.Join(seen, " ") != strings.Join(ids, " ") {
			t.Errorf("pages by %s show %v, not %v", by, seen, ids)
		}
	}
	if r := call(t, "", db, "list", "--limit", "3"); !strings.Contains(r.err, "--after ") {
		t.Errorf("a full page does not say how to go on: %s", r.err)
	}
}

// What anybody put into a name or a message must not reach a terminal as a command.
func TestOutputHasNoControlCharacters(t *testing.T) {
	db := newDB(t)
	name := "evil\x1b[2J\u202Ename"
	id := strings.TrimSpace(ok(t, db, "submit", name, `{"text": "\u001b[31m"}`, "--queue", "q\x07", "--correlation-id", "c\r"))
	for _, args := range [][]string{{"list"}, {"get", id}, {"stats"}} {
		out := ok(t, append([]string{db}, args...)...)
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && r < ' ' || r == '\u202E' }); i >= 0 {
			t.Errorf("%v prints a control character: %q", args, out)
		}
	}
	if out := ok(t, db, "list"); !strings.Contains(out, `evil\x1b[2J\u202ename`) {
		t.Errorf("the name is not readable any more: %s", out)
	}
}

func TestTablesAreAligned(t *testing.T) {
	db := newDB(t)
	ok(t, db, "submit", "short")
	ok(t, db, "submit", "a.much.longer.name")
	ok(t, db, "submit", "größer 日本")
	lines := strings.Split(strings.TrimSpace(ok(t, db, "list")), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	want := strings.Index(lines[0], "QUEUE")
	for _, l := range lines[1:] {
		before, _, _ := strings.Cut(l, "default")
		column := len([]rune(before))
		if strings.Contains(before, "日本") {
			column += 2 // each of the two is two columns wide
		}
		if column != want {
			t.Errorf("the queues are not in one column:\n%s", strings.Join(lines, "\n"))
		}
	}
}

func TestCancelRetryPurgeStats(t *testing.T) {
	db := newDB(t)
	a := strings.TrimSpace(ok(t, db, "submit", "x", "--key", "k"))
	b := strings.TrimSpace(ok(t, db, "submit", "x"))
	if out := ok(t, db, "cancel", "--key", "k"); !strings.Contains(out, a+"  canceled") {
		t.Errorf("cancel prints %q", out)
	}
	// One of two cannot be canceled: the other is, and the exit code tells.
	r := call(t, "", db, "cancel", a, b)
	if r.code != exitState || !strings.Contains(r.out, b+"  canceled") || !strings.Contains(r.err, "it is canceled") || !strings.Contains(r.err, "1 of 2") {
		t.Errorf("cancel of two: %+v", r)
	}
	if got := task(t, ok(t, db, "retry", b, "--json"))["status"]; got != "queued" {
		t.Errorf("retry makes it %v", got)
	}
	if r := call(t, "", db, "retry", b); r.code != exitState {
		t.Errorf("retry of a queued task: %+v", r)
	}
	if got := task(t, ok(t, db, "stats", "--json")); got["queued"] != 1.0 || got["canceled"] != 1.0 || got["queue"] != "default" {
		t.Errorf("stats are %v", got)
	}
	if got := task(t, ok(t, db, "stats", "--queue", "empty", "--json")); got["queued"] != 0.0 || got["queue"] != "empty" {
		t.Errorf("stats of an empty queue are %v", got)
	}
	for _, c := range []struct {
		args []string
		want float64
	}{
		{[]string{"--older-than", "1d"}, 0}, {[]string{"--older-than", "0s", "--status", "failed"}, 0}, {[]string{"--older-than", "0s", "--queue", "other"}, 0},
		{[]string{"--older-than", "0s"}, 1}, {[]string{"--older-than", "0s"}, 0},
	} {
		out := ok(t, append([]string{db, "purge", "--json"}, c.args...)...)
		if got := task(t, out)["deleted"]; got != c.want {
			t.Errorf("purge %v deletes %v, not %v", c.args, got, c.want)
		}
	}
	if r := call(t, "", db, "get", a); r.code != exitNotFound || !strings.Contains(r.err, "holdfast list") {
		t.Errorf("get of a purged task: %+v", r)
	}
}

func TestPurgeDeletesInSteps(t *testing.T) {
	db := newDB(t)
	in := strings.Repeat("{}\n", 2300)
	r := call(t, in, db, "submit", "x", "--lines")
	if r.code != 0 {
		t.Fatal(r.err)
	}
	ok(t, append([]string{db, "cancel"}, strings.Fields(r.out)...)...)
	eventually(t, "the clock has moved on", func() bool {
		return task(t, ok(t, db, "purge", "--older-than", "0s", "--limit", "1200", "--json"))["deleted"] == 1200.0
	})
	if out := ok(t, db, "purge", "--older-than", "0s"); out != "1100 tasks deleted\n" {
		t.Errorf("the rest: %s", out)
	}
}

func TestWaitTellsTheEndByItsExitCode(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	w := holdfast.NewWorker(client.Store(), holdfast.WorkerConfig{Log: discard})
	w.Handle("good", func(context.Context, *holdfast.Run) (any, error) { return map[string]int{"n": 42}, nil })
	w.Handle("bad", func(context.Context, *holdfast.Run) (any, error) {
		return nil, holdfast.Permanent(fmt.Errorf("no such invoice"))
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop(context.Background()) })

	if out := ok(t, db, "submit", "good", "--wait", "--timeout", "20s"); out != "{\"n\":42}\n" {
		t.Errorf("submit --wait prints %q", out)
	}
	id := strings.TrimSpace(ok(t, db, "submit", "good", "--key", "g"))
	if out := ok(t, db, "wait", id); out != "{\"n\":42}\n" {
		t.Errorf("wait prints %q", out)
	}
	if out := ok(t, db, "wait", "--key", "g", "--json"); task(t, out)["status"] != "succeeded" {
		t.Errorf("wait --json prints %q", out)
	}
	id = strings.TrimSpace(ok(t, db, "submit", "bad"))
	if r := call(t, "", db, "wait", id); r.code != exitTaskFailed || r.out != "" || !strings.Contains(r.err, "no such invoice") || !strings.Contains(r.err, "holdfast retry") {
		t.Errorf("wait for a failed task: %+v", r)
	}
	if r := call(t, "", db, "watch", id, "--json"); r.code != exitTaskFailed || task(t, r.out)["status"] != "failed" {
		t.Errorf("watch of a failed task: %+v", r)
	}
	id = strings.TrimSpace(ok(t, db, "submit", "never", "--delay", "1h"))
	if r := call(t, "", db, "wait", id, "--timeout", "50ms"); r.code != exitTimeout || !strings.Contains(r.err, "it waits until") {
		t.Errorf("wait that times out: %+v", r)
	}
	ok(t, db, "cancel", id)
	if r := call(t, "", db, "wait", id); r.code != exitTaskFailed || !strings.Contains(r.err, "canceled") {
		t.Errorf("wait for a canceled task: %+v", r)
	}
}

func TestWatchPrintsEachStep(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	step := make(chan struct{})
	w := holdfast.NewWorker(client.Store(), holdfast.WorkerConfig{Log: discard})
	w.Handle("steps", func(ctx context.Context, run *holdfast.Run) (any, error) {
		if err := run.Progress(ctx, 0.25, "a quarter"); err != nil {
			return nil, err
		}
		<-step
		return "done", nil
	})
	id := strings.TrimSpace(ok(t, db, "submit", "steps"))
	p := start(t, db, "watch", id)
	eventually(t, "watch shows the queued task", func() bool { return strings.Contains(p.out.String(), "queued") })
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop(context.Background()) })
	eventually(t, "watch shows the progress", func() bool { return strings.Contains(p.out.String(), "25 %  a quarter") })
	close(step)
	if code := p.wait(t, 20*time.Second); code != 0 || !strings.Contains(p.out.String(), `succeeded  attempt 1 of 3  "done"`) {
		t.Errorf("exit code %d, output %s", code, p.out)
	}
}

func TestTheDatabaseMayComeFromTheEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env.db")
	t.Setenv(envDatabase, "sqlite:"+path)
	ok(t, "submit", "x")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	// The flag wins.
	other := newDB(t)
	if out := ok(t, other, "migrate", "--json"); task(t, out)["protocol_version"] != "1" || task(t, out)["dialect"] != "sqlite" {
		t.Errorf("migrate prints %s", out)
	}
	if out := ok(t, other, "list", "--json"); out != "" {
		t.Errorf("the flag's database holds %s", out)
	}
}
