//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// script writes a shell script and answers its path.
func script(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// attempt runs one task in a worker with that command and answers it once its first attempt is over.
func attempt(t *testing.T, command, payload string, flags ...string) *holdfast.Task {
	t.Helper()
	db := newDB(t)
	client := open(t, db)
	id := strings.TrimSpace(ok(t, db, "submit", "job", payload, "--metadata", `{"m":1}`, "--correlation-id", "corr"))
	start(t, append([]string{db, "worker", "job", "--exec", command}, flags...)...)
	var task *holdfast.Task
	eventually(t, "the attempt is over", func() bool {
		var err error
		if task, err = client.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return task.Status.Terminal() || task.Error != nil || task.Status == holdfast.Queued && task.RunAt.After(task.CreatedAt.Add(time.Second))
	})
	return task
}

func TestACommandGetsPayloadAndEnvironmentAndGivesTheResult(t *testing.T) {
	task := attempt(t, `printf '{"stdin": '; cat; printf ', "env": "%s %s %s %s %s %s", "metadata": %s, "db": "%s"}' `+
		`$HOLDFAST_TASK_ID $HOLDFAST_TASK_NAME $HOLDFAST_QUEUE $HOLDFAST_ATTEMPT $HOLDFAST_MAX_ATTEMPTS $HOLDFAST_CORRELATION_ID "$HOLDFAST_METADATA" "$HOLDFAST_DB"`, `{"n": 9007199254740993}`)
	var out struct {
		Stdin    json.RawMessage
		Env, DB  string
		Metadata json.RawMessage
	}
	if err := task.DecodeResult(&out); err != nil || task.Status != holdfast.Succeeded {
		t.Fatalf("%v, %s: %s", err, task.Status, task.Error)
	}
	if want := task.ID + " job default 1 3 corr"; out.Env != want {
		t.Errorf("the environment says %q, not %q", out.Env, want)
	}
	if string(out.Stdin) != `{"n": 9007199254740993}` || string(out.Metadata) != `{"m":1}` || !strings.HasSuffix(out.DB, "tasks.db") {
		t.Errorf("stdin %s, metadata %s, db %q", out.Stdin, out.Metadata, out.DB)
	}
}

func TestAnExitCodeDecides(t *testing.T) {
	for name, c := range map[string]struct {
		command   string
		flags     []string
		status    holdfast.Status
		attempts  int
		code      string // of the failure
		retryable bool
		says      string
		result    string
	}{
		"nothing is no result":    {command: "true", status: holdfast.Succeeded, attempts: 1},
		"JSON":                    {command: "echo ' [1, 2] '", status: holdfast.Succeeded, attempts: 1, result: "[1, 2]"},
		"text":                    {command: `printf 'two\n"lines"\n'`, flags: []string{"--output", "text"}, status: holdfast.Succeeded, attempts: 1, result: `"two\n\"lines\""`},
		"none":                    {command: "echo not json", flags: []string{"--output", "none"}, status: holdfast.Succeeded, attempts: 1},
		"a failure":               {command: "echo first >&2; echo the disk is gone >&2; exit 3", status: holdfast.Queued, attempts: 1, code: "task_error", retryable: true, says: "exit status 3: the disk is gone"},
		"for good":                {command: "echo bad data >&2; exit 65", status: holdfast.Failed, attempts: 1, code: "task_error", says: "exit status 65: bad data"},
		"not now":                 {command: "exit 75", flags: []string{"--snooze", "1h"}, status: holdfast.Queued, attempts: 0},
		"no such command":         {command: "/nonexistent/command", status: holdfast.Queued, attempts: 1, code: "task_error", retryable: true, says: "exit status 127"},
		"killed":                  {command: "kill -9 $$", status: holdfast.Queued, attempts: 1, code: "task_error", retryable: true, says: "signal: killed"},
		"no JSON":                 {command: "echo hello", status: holdfast.Failed, attempts: 1, code: "unserializable_result", says: "--output text"},
		"two values":              {command: "echo 1 2", status: holdfast.Failed, attempts: 1, code: "unserializable_result", says: "one JSON value"},
		"too much":                {command: "head -c 3000000 /dev/zero", flags: []string{"--max-output", "64KiB"}, status: holdfast.Failed, attempts: 1, code: "unserializable_result", says: "65536 bytes"},
		"bad bytes on stderr":     {command: `printf 'a\000b\377c' >&2; exit 1`, status: holdfast.Queued, attempts: 1, code: "task_error", retryable: true, says: "exit status 1: a"},
		"time is up":              {command: "sleep 600", flags: []string{"--timeout", "200ms"}, status: holdfast.Queued, attempts: 1, code: "handler_timeout", retryable: true, says: "200ms"},
		"payload is not read":     {command: "exec 0<&-; echo 1", status: holdfast.Succeeded, attempts: 1, result: "1"},
		"output is left open":     {command: "sleep 600 & echo 1", status: holdfast.Succeeded, attempts: 1, result: "1"},
		"arguments with newlines": {command: "echo 1 |\ncat", status: holdfast.Succeeded, attempts: 1, result: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := attempt(t, c.command, `"`+strings.Repeat("x", 200_000)+`"`, c.flags...)
			if task.Status != c.status || task.Attempt != c.attempts || string(task.Result) != c.result {
				t.Errorf("the task is %s after %d attempts, result %s, error %s", task.Status, task.Attempt, task.Result, task.Error)
			}
			f := task.Failure()
			if c.code == "" {
				if f != nil {
					t.Errorf("a failure: %s", task.Error)
				}
				return
			}
			if f == nil || f.Code != c.code || f.Retryable != c.retryable || !strings.Contains(f.Message, c.says) {
				t.Errorf("the failure is %s", task.Error)
			}
		})
	}
}

func TestTheEndOfStandardErrorIsKept(t *testing.T) {
	task := attempt(t, `i=0; while [ $i -lt 20000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 65`, "{}")
	var d struct {
		ExitCode int    `json:"exit_code"`
		Stderr   string `json:"stderr"`
	}
	if err := json.Unmarshal(task.Failure().Details, &d); err != nil {
		t.Fatal(err)
	}
	if d.ExitCode != 65 || !strings.HasPrefix(d.Stderr, "…") || !strings.HasSuffix(d.Stderr, "line 19998\nline 19999\n") || len(d.Stderr) > stderrTail+10 {
		t.Errorf("exit code %d, %d bytes: %.40q…", d.ExitCode, len(d.Stderr), d.Stderr)
	}
}

// started is a task whose command is known to run; mark is the file that the script writes to.
type started struct {
	db, id, mark string
	client       *holdfast.Client
	worker       *process
}

// begin runs a script that says "began" in its file, with $MARK naming the file.
func begin(t *testing.T, text string, flags ...string) *started {
	t.Helper()
	s := &started{db: newDB(t), mark: filepath.Join(t.TempDir(), "mark")}
	s.client = open(t, s.db)
	s.id = strings.TrimSpace(ok(t, s.db, "submit", "job"))
	t.Setenv("MARK", s.mark)
	s.worker = s.work(t, text, flags...)
	eventually(t, "the command runs", func() bool { return strings.Contains(s.marks(), "began") })
	return s
}

func (s *started) work(t *testing.T, text string, flags ...string) *process {
	return start(t, append([]string{s.db, "worker", "job", "--exec", script(t, text)}, flags...)...)
}

func (s *started) marks() string {
	b, _ := os.ReadFile(s.mark) // not there yet is empty
	return string(b)
}

const polite = `trap 'echo "got TERM" >>"$MARK"; exit 9' TERM
echo began $$ >>"$MARK"
while :; do sleep 0.02; done
`

const stubborn = `trap '' TERM
echo began $$ >>"$MARK"
while :; do sleep 0.02; done
`

// pid is the process that the script said it is.
func (s *started) pid(t *testing.T) int {
	t.Helper()
	fields := strings.Fields(s.marks())
	for i, f := range fields {
		if f == "began" && i+1 < len(fields) {
			n, err := strconv.Atoi(fields[i+1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no process in %q", s.marks())
	return 0
}

func (s *started) gone(t *testing.T) {
	t.Helper()
	pid := s.pid(t)
	eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		// An orphan that has ended stays in Linux' list until process 1 asks for it, which in a container may be never.
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z")
	})
}

func TestCancelReachesTheCommandAsSIGTERM(t *testing.T) {
	s := begin(t, polite, "--lease", "600ms")
	if out := ok(t, s.db, "cancel", s.id); !strings.Contains(out, "asked to stop") {
		t.Errorf("cancel prints %q", out)
	}
	task := untilStatus(t, s.client, s.id, holdfast.Canceled)
	if !strings.Contains(s.marks(), "got TERM") {
		t.Errorf("the command did not hear of it: %s, %q", task.Error, s.marks())
	}
	s.gone(t)
}

func TestACommandThatIgnoresSIGTERMIsKilled(t *testing.T) {
	s := begin(t, stubborn, "--lease", "600ms", "--kill-after", "100ms")
	ok(t, s.db, "cancel", s.id)
	untilStatus(t, s.client, s.id, holdfast.Canceled)
	s.gone(t)
}

// The whole process group gets the signals, not the shell alone.
func TestTheCommandsChildrenEndWithIt(t *testing.T) {
	s := begin(t, `sh -c 'echo began $$ >>"$MARK"; exec sleep 600' & wait`, "--lease", "600ms")
	ok(t, s.db, "cancel", s.id)
	untilStatus(t, s.client, s.id, holdfast.Canceled)
	s.gone(t)
}

func TestAWorkerThatShallStopLetsTheCommandFinish(t *testing.T) {
	s := begin(t, `echo began $$ >>"$MARK"
while [ ! -e "$MARK.go" ]; do sleep 0.02; done
echo '"finished"'`)
	s.worker.signal(t, syscall.SIGTERM)
	eventually(t, "the worker stops", func() bool { return strings.Contains(s.worker.err.String(), "stopping") })
	if err := os.WriteFile(s.mark+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := s.worker.wait(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if task := untilStatus(t, s.client, s.id, holdfast.Succeeded); string(task.Result) != `"finished"` {
		t.Errorf("the result is %s", task.Result)
	}
}

func TestWhatIsUnfinishedAfterTheGraceIsHandedBack(t *testing.T) {
	for name, text := range map[string]string{"polite": polite, "stubborn": stubborn} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, text, "--grace", "400ms")
			began := time.Now()
			s.worker.signal(t, syscall.SIGINT)
			if code := s.worker.wait(t, 20*time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if d := time.Since(began); d > 10*time.Second { // the grace is 30 s unless told
				t.Errorf("it took %v to stop within 400ms", d)
			}
			s.gone(t)
			task, err := s.client.Get(t.Context(), s.id)
			if err != nil || task.Status != holdfast.Queued || task.Attempt != 0 || task.Error != nil {
				t.Errorf("the task is %s, attempt %d, error %s, %v", task.Status, task.Attempt, task.Error, err)
			}
			// Another worker has it at once.
			s.work(t, "echo 2")
			if task := untilStatus(t, s.client, s.id, holdfast.Succeeded); task.Attempt != 1 {
				t.Errorf("it took %d attempts", task.Attempt)
			}
		})
	}
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	s := begin(t, stubborn, "--grace", "10m", "--kill-after", "10m")
	s.worker.signal(t, syscall.SIGTERM)
	eventually(t, "the worker stops", func() bool { return strings.Contains(s.worker.err.String(), "stopping") })
	s.worker.signal(t, syscall.SIGTERM)
	s.worker.wait(t, 20*time.Second)
	s.gone(t)
	task, err := s.client.Get(t.Context(), s.id)
	if err != nil || task.Status != holdfast.Queued || task.Attempt != 0 {
		t.Errorf("the task is %s, attempt %d, error %s, %v", task.Status, task.Attempt, task.Error, err)
	}
}

func TestAKilledWorkersTaskIsRunByAnother(t *testing.T) {
	s := begin(t, polite, "--lease", "1s")
	s.worker.signal(t, syscall.SIGKILL)
	s.worker.wait(t, 20*time.Second)
	s.gone(t) // its command too, so that the task is not done twice at once
	s.work(t, "echo $HOLDFAST_ATTEMPT")
	if task := untilStatus(t, s.client, s.id, holdfast.Succeeded); task.Attempt != 2 || string(task.Result) != "2" {
		t.Errorf("attempt %d, result %s", task.Attempt, task.Result)
	}
}

func TestACommandMaySubmitMoreTasks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	task := attempt(t, fmt.Sprintf(`printf '"%%s"' "$(%s submit next --parent $HOLDFAST_TASK_ID)"`, self), "{}")
	var id string
	if err := task.DecodeResult(&id); err != nil || !strings.HasPrefix(id, "task_") {
		t.Errorf("the result is %s, the failure %s", task.Result, task.Error)
	}
}

func TestOneWorkerRunsSeveralNamesAndQueuesAtOnce(t *testing.T) {
	db := newDB(t)
	client := open(t, db)
	var ids []string
	for _, n := range []string{"a", "b"} {
		for _, q := range []string{"one", "two"} {
			ids = append(ids, strings.TrimSpace(ok(t, db, "submit", n, "--queue", q)))
		}
	}
	other := strings.TrimSpace(ok(t, db, "submit", "c", "--queue", "one"))
	// Each waits until all four run, which they can only do at the same time.
	dir := t.TempDir()
	t.Setenv("DIR", dir)
	start(t, db, "worker", "a", "b", "--queue", "one", "--queue", "two", "--concurrency", "4", "--exec",
		`touch $DIR/$HOLDFAST_TASK_ID; while [ $(ls $DIR | wc -l) -lt 4 ]; do sleep 0.02; done; printf '"%s %s"' $HOLDFAST_TASK_NAME $HOLDFAST_QUEUE`)
	for _, id := range ids {
		task := untilStatus(t, client, id, holdfast.Succeeded)
		if want := strconv.Quote(task.Name + " " + task.Queue); string(task.Result) != want {
			t.Errorf("the result is %s, not %s", task.Result, want)
		}
	}
	if task, err := client.Get(t.Context(), other); err != nil || task.Status != holdfast.Queued {
		t.Errorf("the name without a handler is %v, %v", task, err)
	}
}

func TestWaitIsInterruptedBySignals(t *testing.T) {
	db := newDB(t)
	id := strings.TrimSpace(ok(t, db, "submit", "never"))
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) {
			continue // by nohup, and then by everything that it starts
		}
		p := start(t, db, "watch", id)
		eventually(t, "watch watches", func() bool { return strings.Contains(p.out.String(), "queued") })
		p.signal(t, s)
		if code := p.wait(t, 20*time.Second); code != exitSignal+int(s) {
			t.Errorf("%v: exit code %d", s, code)
		}
	}
}
