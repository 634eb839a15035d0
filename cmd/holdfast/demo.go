package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// demoLimit bounds the whole demo: something that hangs becomes an error that says what.
const demoLimit = 90 * time.Second

// The acts of the demo.
const (
	demoTasksAct   = "tasks"
	demoRecordsAct = "records"
)

func (a *app) demoCommand() *cobra.Command {
	only := ""
	cmd := &cobra.Command{
		Use:     "demo",
		GroupID: groupStart,
		Short:   "See tasks and writes run, fail, be retried, and survive a kill -9",
		Long: `Demo has two acts, which need nothing and leave nothing behind. Together they take about 15 seconds.

tasks: it submits tasks, runs them, retries one that fails, kills a worker process in the middle of a
task and shows another worker taking it over. The tasks are in a temporary SQLite file; with --db in that
database, on a queue of its own that it removes at the end.

records: it starts a Directory and two Hosts of patients' records as processes, writes while the Host is
down, kills it in the middle of the delivery, meets a conflict, and moves a record to the other Host, with
every write done once; then it asks the Hosts whether that is true.`,
		Example: `  holdfast demo
  holdfast demo --only records
  holdfast demo --only tasks --db postgres://postgres@localhost/postgres`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error {
			if only != "" && only != demoTasksAct && only != demoRecordsAct {
				return usagef("--only is %q; use %s or %s", only, demoTasksAct, demoRecordsAct)
			}
			if only == demoRecordsAct && a.db.url != "" {
				return usagef("--db is for the act %s; the records are in a temporary folder", demoTasksAct)
			}
			ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("the demo did not end within %v", demoLimit))
			defer cancel()
			return a.demo(ctx, only)
		}),
	}
	cmd.Flags().StringVar(&only, "only", "", "one act: tasks or records")
	a.jsonFlag(cmd)
	cmd.AddCommand(a.demoWorkerCommand(), a.demoServiceCommand())
	return cmd
}

func (a *app) demo(ctx context.Context, only string) error {
	var report struct {
		Tasks   *tasksReport   `json:"tasks,omitempty"`
		Records *recordsReport `json:"records,omitempty"`
	}
	db := "tasks.db"
	if a.db.url != "" {
		db = clean(a.db.String())
	}
	if only != demoRecordsAct {
		r, err := a.tasksAct(ctx)
		if err != nil {
			return err
		}
		report.Tasks = &r
	}
	if only != demoTasksAct {
		r, err := a.recordsAct(ctx)
		if err != nil {
			return err
		}
		report.Records = &r
	}
	if a.json {
		return a.stdout.document(report)
	}
	a.say(bold, "Try next")
	a.say(plain, "   go install ./cmd/holdfast               # from the clone, for the command \"holdfast\"")
	if report.Tasks != nil {
		a.say(plain, `   export HOLDFAST_DB=%s
   holdfast submit greet '{"name": "Ada"}'
   holdfast worker greet --exec 'cat'      # runs it; Ctrl-C ends the worker
   holdfast list`, db)
	}
	if report.Records != nil {
		a.say(plain, `   holdfast host --data host               # a Host of your own; docs/cli.md goes on from there
   holdfast help outbox                    # the queue of writes, from the command line`)
	}
	a.say(plain, "   holdfast help                           # everything else; the README shows the Go library")
	return nil
}

// say prints a line for people.
func (a *app) say(s style, format string, args ...any) {
	if !a.json {
		fmt.Fprintln(a.stdout, a.stdout.paint(s, fmt.Sprintf(format, args...)))
	}
}

// millis is a duration as people say it.
func millis(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

// child is a process of the demo's own.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	errors *tail
	first  *firstLine
	ended  chan struct{}
}

// startChild runs this program again. The child ends by itself when the demo is gone, since its
// standard input ends then.
func startChild(env []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = env
	c := &child{cmd: cmd, errors: &tail{limit: stderrTail}, first: &firstLine{done: make(chan struct{})}, ended: make(chan struct{})}
	cmd.Stderr, cmd.Stdout = c.errors, c.first
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("a process of the demo's did not start: %w", err)
	}
	go func() {
		_ = cmd.Wait() // it is going to be killed
		close(c.ended)
	}()
	return c, nil
}

func (c *child) end() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
	c.stdin.Close()
}

// untilGone ends a context when the demo, at the other end of the standard input, is gone.
func (a *app) untilGone(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { _, _ = io.Copy(io.Discard, a.stdin); cancel() }()
	return ctx, cancel
}

// firstLine keeps the first line of an output.
type firstLine struct {
	mu   sync.Mutex
	b    []byte
	done chan struct{}
}

func (f *firstLine) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.IndexByte(f.b, '\n') < 0 {
		if f.b = append(f.b, p...); bytes.IndexByte(f.b, '\n') >= 0 {
			close(f.done)
		}
	}
	return len(p), nil
}

// line is the line, once done is closed.
func (f *firstLine) line() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	line, _, _ := bytes.Cut(f.b, []byte("\n"))
	return line
}
