package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/eda94727/holdfast"
)

func TestWorkersAreListed(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	if r := call(t, "", "workers", db); r.code != 0 || r.out != "" || !strings.Contains(r.err, "no workers") {
		t.Errorf("none: %+v", r)
	}
	p := start(t, "worker", db, "job", "other", "--exec", "sleep 60", "--id", "w-1", "--concurrency", "3", "--queue", "a", "--queue", "b", "--quiet")
	task, err := client.Submit(t.Context(), "job", nil, holdfast.Queue("a"))
	if err != nil {
		t.Fatal(err)
	}
	untilStatus(t, client, task.ID, holdfast.Running)
	var w struct {
		ID, State, Host string
		PID             int
		Queues, Names   []string
		Concurrency     int
		Fast            bool `json:"fast_recovery"`
		Running         int
		Since           int64 `json:"since_ms"`
		Tasks           []struct{ ID, Name string }
	}
	if err := json.Unmarshal([]byte(ok(t, "workers", db, "--json")), &w); err != nil {
		t.Fatal(err)
	}
	if w.ID != "w-1" || w.State != "running" || w.PID != p.cmd.Process.Pid || w.Host == "" || strings.Join(w.Queues, " ") != "a b" || strings.Join(w.Names, " ") != "job other" ||
		w.Concurrency != 3 || !w.Fast || w.Running != 1 || w.Since == 0 || len(w.Tasks) != 1 || w.Tasks[0].ID != task.ID || w.Tasks[0].Name != "job" {
		t.Errorf("%+v", w)
	}
	for _, part := range []string{"w-1", "running", "a,b", "job,other", "fast"} {
		if out := ok(t, "workers", db); !strings.Contains(out, part) {
			t.Errorf("%q is missing:\n%s", part, out)
		}
	}
	p.cmd.Process.Kill()
	<-p.ended
	if out := ok(t, "workers", db); !strings.Contains(out, "gone") { // nobody is there to take over
		t.Errorf("after its death:\n%s", out)
	}
}
