package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/eda94727/holdfast"
)

func TestBulkCommands(t *testing.T) {
	db := newDB(t)
	for range 7 {
		ok(t, db, "submit", "a")
		ok(t, db, "submit", "b", "--queue", "other")
	}
	if out := ok(t, db, "cancel", "--all", "--queue", "other", "--step", "2"); out != "7 tasks canceled\n" {
		t.Errorf("cancel says %q", out)
	}
	if out := ok(t, db, "retry", "--all", "--status", "canceled", "--name", "b", "--json"); strings.TrimSpace(out) != `{"retried":7,"skipped":0}` {
		t.Errorf("retry says %q", out)
	}
	if out := ok(t, db, "cancel", "--all"); out != "14 tasks canceled\n" {
		t.Errorf("cancel says %q", out)
	}
	for _, args := range [][]string{
		{"retry", "--queue", "other"},
		{"retry", "--all", "task_x"},
		{"cancel", "--all", "--key", "k"},
		{"retry", "--all", "--status", "running"},
		{"cancel", "--all", "--step", "-1"},
		{"cancel", "--all", "--cursor", "x"},
	} {
		if r := call(t, "", append([]string{db}, args...)...); r.code != exitUsage || r.err == "" {
			t.Errorf("%v: code %d, %s", args, r.code, r.err)
		}
	}
}

func TestTreeAndDependenciesOnTheCommandLine(t *testing.T) {
	db := newDB(t)
	root := strings.TrimSpace(ok(t, db, "submit", "root"))
	a := strings.TrimSpace(ok(t, db, "submit", "a", "--parent", root))
	b := strings.TrimSpace(ok(t, db, "submit", "b", "--parent", root, "--after", a, "--after-finished", root))
	want := fmt.Sprintf("%s  root  queued\n├─ %s  a  queued\n└─ %s  b  queued, waits for others\n", root, a, b)
	if out := ok(t, db, "tree", b); out != want {
		t.Errorf("drawn as\n%swant\n%s", out, want)
	}
	if out := ok(t, db, "list", "--name", "b"); !strings.Contains(out, "waits for other tasks") {
		t.Errorf("list does not say that it waits:\n%s", out)
	}
	out := ok(t, db, "get", b)
	for _, text := range []string{"waits for", a + "  a  to succeed, queued", root + "  root  to end, queued"} {
		if !strings.Contains(out, text) {
			t.Errorf("get does not say %q:\n%s", text, out)
		}
	}
	if out := ok(t, db, "get", a); !strings.Contains(out, b+"  b  queued") {
		t.Errorf("get does not say who waits:\n%s", out)
	}
	if out := ok(t, db, "tree", root, "--cancel"); !strings.HasPrefix(out, "3 tasks canceled, 0 asked to stop\n") && !strings.HasPrefix(out, "2 tasks canceled, 0 asked to stop\n") {
		t.Errorf("tree --cancel says\n%s", out)
	}
	var tree treeNode
	if err := json.Unmarshal([]byte(ok(t, db, "tree", root, "--json")), &tree); err != nil || len(tree.Children) != 2 || tree.Status != holdfast.Canceled || tree.Children[1].ID != b {
		t.Errorf("%+v, %v", tree, err)
	}
}

func TestRedriveCommand(t *testing.T) {
	db := newDB(t)
	id := strings.TrimSpace(ok(t, db, "submit", "a", `{"n": 1}`))
	ok(t, db, "cancel", id)
	if r := call(t, "", db, "redrive", id, "{"); r.code != exitUsage {
		t.Errorf("half an object: %d %s", r.code, r.err)
	}
	r := call(t, ` {"n": 2} `, db, "redrive", id, "-")
	if r.code != 0 || r.out != id+"  queued\n" {
		t.Errorf("%+v", r)
	}
	if p := getTask(t, db, id)["payload"]; fmt.Sprint(p) != "map[n:2]" {
		t.Errorf("the payload is %v", p)
	}
	if r := call(t, "", db, "redrive", id, "{}"); r.code == 0 {
		t.Error("a queued task was redriven")
	}
}
