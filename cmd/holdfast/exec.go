package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eda94727/holdfast"
)

// What a command's standard output is.
const (
	outputJSON = "json"
	outputText = "text"
	outputNone = "none"
)

// Exit codes of commands with a meaning of their own, from sysexits.h.
const (
	exitPermanent = 65 // EX_DATAERR: another attempt cannot help
	exitNotNow    = 75 // EX_TEMPFAIL: try again later, this was no attempt
)

const (
	// stderrTail is how much of the end of a command's standard error is kept.
	stderrTail = 8 << 10
	// pipeDelay is how long the output of a command that has ended is still read when something it
	// started keeps it open.
	pipeDelay = 2 * time.Second
)

// executor is a task handler that runs a shell command.
type executor struct {
	command   string
	output    string
	maxOutput int
	killAfter time.Duration
	snooze    time.Duration
	stopAfter time.Duration // like killAfter, when the worker stops: there is less time
	env       []string
	guard     *guard

	mu      sync.Mutex
	running map[*exec.Cmd]struct{}
	killed  bool // by killAll: what ends now is handed back
	all     sync.WaitGroup
}

func newExecutor(command, output string, maxOutput int, killAfter, snooze, grace time.Duration) *executor {
	return &executor{
		command: command, output: output, maxOutput: maxOutput, killAfter: killAfter, snooze: snooze,
		// Worker.Stop ends the handlers min(2 s, a quarter of the grace) before its deadline; a command
		// must be gone before its task is handed back, or it would run twice.
		stopAfter: min(killAfter, min(2*time.Second, grace/4)*3/4),
		running:   map[*exec.Cmd]struct{}{},
	}
}

// run is one attempt.
func (x *executor) run(ctx context.Context, run *holdfast.Run) (any, error) {
	t := run.Task()
	cmd := shell(x.command)
	cmd.Env = append(append(os.Environ(), x.env...), variables(t)...)
	cmd.Stdin = bytes.NewReader(t.Payload)
	stdout := &head{limit: x.maxOutput}
	stderr := &tail{limit: stderrTail}
	if x.output != outputNone {
		cmd.Stdout = stdout
	}
	cmd.Stderr = stderr
	cmd.WaitDelay = pipeDelay
	err := x.execute(ctx, cmd)
	if x.wasKilled() {
		return nil, holdfast.Snooze(0) // the worker ends at once: somebody else's turn
	}
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return nil, cause
	}
	if err != nil {
		return nil, x.failure(err, stderr)
	}
	return x.result(stdout)
}

// execute starts the command, waits for it, and ends it when ctx ends.
func (x *executor) execute(ctx context.Context, cmd *exec.Cmd) error {
	x.all.Add(1)
	defer x.all.Done()
	x.mu.Lock()
	if x.killed {
		x.mu.Unlock()
		return errors.New("the worker is stopping")
	}
	err := cmd.Start()
	if err == nil {
		x.running[cmd] = struct{}{}
		x.guard.watch(cmd.Process.Pid)
	}
	x.mu.Unlock()
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		terminate(cmd)
		grace := x.killAfter
		if errors.Is(context.Cause(ctx), holdfast.ErrWorkerStopping) {
			grace = x.stopAfter
		}
		select {
		case <-ended:
		case <-time.After(grace):
		}
		kill(cmd) // also what the command has left behind in its group
	})
	err = cmd.Wait()
	x.mu.Lock()
	delete(x.running, cmd)
	x.mu.Unlock()
	close(ended)
	ending.Wait()
	x.guard.forget(cmd.Process.Pid)
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it exited with 0; something that it started holds its output open
	}
	return err
}

// killAll ends every command at once; those that would start do not.
func (x *executor) killAll() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.killed = true
	for cmd := range x.running {
		kill(cmd)
	}
}

func (x *executor) wasKilled() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.killed
}

// wait waits for all commands, but not for long.
func (x *executor) wait(limit time.Duration) {
	done := make(chan struct{})
	go func() { x.all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// variables tell a command which task it runs.
func variables(t *holdfast.Task) []string {
	return []string{
		"HOLDFAST_TASK_ID=" + t.ID,
		"HOLDFAST_TASK_NAME=" + t.Name,
		"HOLDFAST_QUEUE=" + t.Queue,
		"HOLDFAST_ATTEMPT=" + strconv.Itoa(t.Attempt),
		"HOLDFAST_MAX_ATTEMPTS=" + strconv.Itoa(t.MaxAttempts),
		"HOLDFAST_ROOT_ID=" + t.RootID,
		"HOLDFAST_CORRELATION_ID=" + t.CorrelationID,
		"HOLDFAST_METADATA=" + metadata(t),
	}
}

// metadata is the task's metadata if it fits an environment; Linux allows 128 KiB for a variable.
func metadata(t *holdfast.Task) string {
	if len(t.Metadata) > 64<<10 {
		return "{}"
	}
	return string(t.Metadata)
}

// result makes the task's result of standard output.
func (x *executor) result(out *head) (any, error) {
	if x.output == outputNone {
		return nil, nil
	}
	if out.over {
		return nil, unserializable(fmt.Sprintf("the command wrote more than %d bytes to standard output, the limit; raise --max-output, or write elsewhere and print a reference", x.maxOutput))
	}
	if x.output == outputText {
		return strings.TrimRight(string(bytes.ToValidUTF8(out.b, []byte("\uFFFD"))), "\r\n"), nil
	}
	raw := bytes.TrimSpace(out.b)
	if len(raw) == 0 {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, unserializable("the command's standard output is not one JSON value; print JSON, or give the worker --output text or --output none. It begins: " + cut(string(raw[:min(len(raw), 400)]), 100))
	}
	return json.RawMessage(raw), nil
}

func unserializable(message string) error {
	return &holdfast.Failure{Type: "InvalidOutput", Code: holdfast.CodeUnserializableResult, Message: message}
}

// failure makes the task's failure of how the command ended.
func (x *executor) failure(err error, stderr *tail) error {
	code := -1
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if code == exitNotNow {
		return holdfast.Snooze(x.snooze)
	}
	text := strings.ToValidUTF8(stderr.String(), "\uFFFD")
	message := "the command could not be run: " + err.Error()
	if exit != nil {
		message = "the command ended with " + exit.ProcessState.String()
		if last := lastLine(text); last != "" {
			message += ": " + last
		}
	}
	raw, _ := json.Marshal(struct {
		ExitCode int    `json:"exit_code"`
		Stderr   string `json:"stderr"`
	}{code, strings.ReplaceAll(text, "\x00", "\uFFFD")}) // numbers and texts always can
	return &holdfast.Failure{Type: "CommandFailed", Code: holdfast.CodeTaskError, Message: message, Retryable: code != exitPermanent, Details: raw}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return cut(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]), 200)
}

// head keeps the beginning of a stream and swallows the rest, so that its writer never blocks.
type head struct {
	limit int
	b     []byte
	over  bool
}

func (h *head) Write(p []byte) (int, error) {
	keep := min(len(p), h.limit-len(h.b))
	h.b = append(h.b, p[:keep]...)
	h.over = h.over || keep < len(p)
	return len(p), nil
}

// tail keeps the end of a stream.
type tail struct {
	limit int
	b     []byte
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*t.limit {
		t.b = append(t.b[:0], t.b[len(t.b)-t.limit:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string {
	b := t.b
	if len(b) > t.limit {
		b = b[len(b)-t.limit:]
	}
	if t.cut || len(b) < len(t.b) {
		return "…" + string(b)
	}
	return string(b)
}

var _ io.Writer = (*tail)(nil)
