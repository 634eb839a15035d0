package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// The program as people have it, not the test's.
func buildBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.exe") // Windows wants the ending, nobody else minds
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

func checkDemo(t *testing.T, out string) {
	t.Helper()
	for _, want := range []string{
		"2000 tasks submitted", "All of them ran in", `Attempt 1 failed: "the network is down"`, "Attempt 2 succeeded", "is at 50 %", "killed just now, by SIGKILL",
		"another worker had taken the task over", "attempt 2", "2002 tasks were submitted and 2002 succeeded", "None was lost", "Try next", "holdfast submit greet",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func TestDemo(t *testing.T) {
	program := buildBinary(t)
	tmp := t.TempDir()
	began := time.Now()
	none := filepath.Join(tmp, "none", "mine.db")
	p := startProgram(t, program, []string{"TMPDIR=" + tmp, "TMP=" + tmp, asBinary + "=", envDatabase + "=" + none, hostKind.env + "=" + none, directoryKind.env + "=" + none, envOutbox + "=" + none}, "demo")
	if code := p.wait(t, 90*time.Second); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, p.out, p.err)
	}
	t.Logf("both acts took %v", time.Since(began))
	checkDemo(t, p.out.String())
	for _, want := range []string{
		"120 writes enqueued", "transport_unavailable", "all 120 were delivered", "was killed by SIGKILL", "done once.", "conflicted, version_conflict", "rebased, it is version 3",
		"moved from A to B", "(generation 2)", "holdfast help outbox",
	} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, p.out)
		}
	}
	if p.err.String() != "" {
		t.Errorf("it complains: %s", p.err)
	}
	if strings.ContainsAny(p.out.String(), "\x1b\r") {
		t.Errorf("control characters without a terminal: %q", p.out)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

func TestDemoLeavesOthersTasksAlone(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	ok(t, db, "submit", "demo.square", `{"N": 1}`)
	p := start(t, db, "demo", "--only", "tasks")
	if code := p.wait(t, 60*time.Second); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if strings.Contains(p.out.String(), "Host") {
		t.Errorf("the other act was played too:\n%s", p.out)
	}
	checkDemo(t, p.out.String())
	stats, err := client.Stats(context.Background(), "")
	if err != nil || len(stats) != 1 || stats[0].Queue != "default" || stats[0].Queued != 1 || stats[0].Total() != 1 {
		t.Errorf("the database holds %+v, %v", stats, err)
	}
}

func TestAnInterruptedDemoLeavesNothing(t *testing.T) {
	if !onUnix {
		return // there is no interrupt to send
	}
	for _, until := range []string{"1. Many tasks", "is at 50 %"} {
		db := newDB(t)
		client := open(t, db)
		p := start(t, db, "demo")
		eventually(t, "the demo says "+until, func() bool { return strings.Contains(p.out.String(), until) })
		p.signal(t, os.Interrupt)
		if code := p.wait(t, 20*time.Second); code != exitSignal+2 {
			t.Errorf("exit code %d", code)
		}
		if stats, err := client.Stats(context.Background(), ""); err != nil || len(stats) != 0 {
			t.Errorf("interrupted after %q, it leaves %+v, %v", until, stats, err)
		}
	}
}

// The demo's worker process ends when the demo does, however that ends: the kernel closes the pipe.
func TestTheDemosWorkerEndsWithTheDemo(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	id := strings.TrimSpace(ok(t, db, "submit", "demo.report", `{"Pages": 10}`, "--queue", "stage"))
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startProgramOn(t, in, self, nil, db, "demo", "worker", "stage")
	in.Close()
	eventually(t, "it works", func() bool {
		task, err := client.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return task.Progress != nil && *task.Progress == 0.5
	})
	select {
	case <-p.ended:
		t.Fatal("it ended before the demo did")
	default:
	}
	hold.Close()
	if code := p.wait(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if task := untilStatus(t, client, id, holdfast.Queued); task.Attempt != 0 {
		t.Errorf("it spent an attempt: %d", task.Attempt)
	}
}

// The second act, by its numbers.
func TestDemoOfRecords(t *testing.T) {
	tmp := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, self, []string{"TMPDIR=" + tmp, "TMP=" + tmp}, "demo", "--only", "records", "--json")
	if code := p.wait(t, 90*time.Second); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, p.out, p.err)
	}
	var report struct{ Records recordsReport }
	if err := json.Unmarshal([]byte(p.out.String()), &report); err != nil || strings.Contains(p.out.String(), "tasks") {
		t.Fatalf("%v, it says %s", err, p.out)
	}
	r := report.Records
	if r.Operations < (demoOffline+demoKilled)*demoPatients+12 || r.Receipts != r.Operations || r.Writes != int64(r.Operations) || r.AtB < 10 {
		t.Errorf("the report is %+v", r)
	}
	t.Logf("%d operations in %d ms", r.Operations, r.TookMS)
	if p.err.String() != "" {
		t.Errorf("it complains: %s", p.err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// However the demo ends, its Hosts end too.
func TestTheDemosHostsEndWithTheDemo(t *testing.T) {
	if !onUnix {
		return // there is no interrupt to send
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []os.Signal{os.Interrupt, os.Kill} {
		tmp := t.TempDir()
		p := startProgram(t, self, []string{"TMPDIR=" + tmp}, "demo", "--only", "records")
		eventually(t, "the demo kills a Host", func() bool { return strings.Contains(p.out.String(), "5. The Host dies") })
		var addresses []string
		files, err := filepath.Glob(filepath.Join(tmp, "holdfast-demo-*", "*", "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			var s settings
			if name := filepath.Base(file); name == hostKind.file || name == directoryKind.file {
				if _, err := readSettings(file, &s); err != nil {
					t.Fatal(err)
				}
				addresses = append(addresses, s.Listen)
			}
		}
		if len(addresses) != 3 {
			t.Fatalf("the services are %v", addresses)
		}
		p.signal(t, end)
		code := p.wait(t, 20*time.Second)
		if end == os.Interrupt && code != exitSignal+2 {
			t.Errorf("exit code %d", code)
		}
		for _, address := range addresses {
			eventually(t, "nobody listens on "+address, func() bool {
				c, err := net.Dial("tcp", address)
				if err == nil {
					c.Close()
				}
				return err != nil
			})
		}
		if left, err := os.ReadDir(tmp); end == os.Interrupt && (err != nil || len(left) > 0) {
			t.Errorf("it leaves %v, %v", left, err)
		}
	}
}
