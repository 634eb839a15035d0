//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
)

// A move outlasts the receiving Host's absence and the leaving Host's death, and can be taken back
// as long as it is not published.
func TestAMoveGoesOnAndCanBeTakenBack(t *testing.T) {
	t.Parallel()
	w := newRecordWorld(t, nil)
	rec, _ := w.newRecord()
	w.ok(w.record("create", rec, w.observation(rec, "", ""))...)
	w.host(w.b, "expect", rec)
	w.b.stop(t)

	p := start(t, w.moveArgs(w.a, w.b, rec)...)
	eventually(t, "the move fails, and is tried again", func() bool { return strings.Contains(p.out.String(), "transport_unavailable") })
	// The steps before it may have passed unseen: the next command sees that the record is frozen.
	if out := p.out.String(); !strings.Contains(out, "again") {
		t.Errorf("the progress is\n%s", out)
	}
	w.fails(exitState, "record_frozen", w.record("create", rec, w.observation(rec, "", ""))...)
	// Another command joins the same move; to another Host it is refused.
	other := *w.b
	other.URL = "https://c.example"
	w.fails(exitState, "on its way to another Host", w.moveArgs(w.a, &other, rec)...)
	p.signal(t, syscall.SIGINT)
	if code := p.wait(t, 30e9); code != exitSignal+int(syscall.SIGINT) || !strings.Contains(p.err.String(), "goes on without this command") {
		t.Errorf("exit code %d, %s", code, p.err)
	}
	if out := w.ok(w.moveArgs(w.a, nil, rec, "--cancel")...); !strings.Contains(out, "taken back") {
		t.Errorf("it prints %s", out)
	}
	w.ok(w.record("create", rec, w.observation(rec, "", ""))...)
	w.fails(exitTaskFailed, "not being moved", w.moveArgs(w.a, nil, rec, "--cancel")...)

	// Again: the leaving Host is killed in the middle, both come back, and the move ends by itself.
	if out := w.ok(w.moveArgs(w.a, w.b, rec, "--no-wait")...); !strings.HasPrefix(out, "task_") {
		t.Errorf("it prints %s", out)
	}
	eventually(t, "the record is frozen", func() bool { return task(t, w.host(w.a, "records", "--json"))["state"] == "frozen" })
	w.a.cmd.Process.Kill()
	<-w.a.ended
	if r := w.call(w.moveArgs(w.a, w.b, rec, "--no-wait", "--json")...); r.code != 0 {
		t.Errorf("the same move: %+v", r)
	}
	w.b = serveProcess(t, hostKind, w.b.folder)
	w.host(w.b, "expect", rec) // the cancel told it, or could not: it is expected anew
	w.a = serveProcess(t, hostKind, w.a.folder)
	w.ok(w.moveArgs(w.a, w.b, rec)...)
	if got := task(t, w.ok(w.record("where", rec, "--json")...)); got["host"].(map[string]any)["id"] != w.b.ID {
		t.Errorf("the record lives at %v", got)
	}
	if list := jsonLines(t, w.ok(w.record("search", rec, "Observation", "--json")...)); len(list) != 2 {
		t.Errorf("it has %d observations, not 2", len(list))
	}
	// A move that is published goes only forward.
	w.fails(exitTaskFailed, "", w.moveArgs(w.a, nil, rec, "--cancel")...)
}

// A Host that does not run keeps a move waiting, and the command says so.
func TestAMoveWaitsForItsHost(t *testing.T) {
	t.Parallel()
	w := newRecordWorld(t, nil)
	rec, _ := w.newRecord()
	w.host(w.b, "expect", rec)
	w.a.stop(t)
	p := start(t, w.moveArgs(w.a, w.b, rec)...)
	eventually(t, "it says that nobody works", func() bool { return strings.Contains(p.err.String(), "no Host works on") })
	w.a = serveProcess(t, hostKind, w.a.folder)
	if code := p.wait(t, 30e9); code != 0 || !strings.Contains(p.out.String(), "lives at "+w.b.URL) {
		t.Errorf("exit code %d, %s%s", code, p.out, p.err)
	}
}
