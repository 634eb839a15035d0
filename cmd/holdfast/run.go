package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

// app is one run of the program: what every command shares.
type app struct {
	stdin  io.Reader
	stdout *output
	stderr *output
	now    func() time.Time

	db   database
	json bool

	acting bool          // a command has begun: errors before are the command line's
	hurry  chan struct{} // closed by the second signal
}

// commands lists every command. To add one, write a function of this shape in a file of its own and
// name it here; its GroupID says where help shows it.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.demoCommand(),
		a.submitCommand(),
		a.getCommand(),
		a.listCommand(),
		a.waitCommand(),
		a.watchCommand(),
		a.cancelCommand(),
		a.retryCommand(),
		a.redriveCommand(),
		a.treeCommand(),
		a.purgeCommand(),
		a.scheduleCommand(),
		a.statsCommand(),
		a.workerCommand(),
		a.guardCommand(),
		a.workersCommand(),
		a.queueCommand(),
		a.hostCommand(),
		a.directoryCommand(),
		a.recordCommand(),
		a.outboxCommand(),
		a.migrateCommand(),
		a.versionCommand(),
	}
}

// The groups of help, in its order.
const (
	groupStart    = "start"
	groupTasks    = "tasks"
	groupWorkers  = "workers"
	groupRecords  = "records"
	groupDatabase = "database"
)

// run is the program: it answers the exit code. A first SIGINT, SIGTERM or SIGHUP ends the context
// that commands work under, a second one tells them to be quick.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: newOutput(stdout), stderr: newOutput(stderr), now: time.Now, hurry: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.listen(cancel)()

	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	// A command that was interrupted says so, whatever its error made of the context's end. Any other
	// error, such as a worker's that could not hand its tasks back, stays.
	var s interrupted
	if errors.As(context.Cause(ctx), &s) && !errors.As(err, &s) && (errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrWaitTimeout)) {
		err = s
	}
	if err == nil && a.stdout.err != nil {
		err = fmt.Errorf("the output could not be written: %w", a.stdout.err)
	}
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	if !a.acting {
		code = exitUsage
	}
	a.report(err, code)
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Durable tasks in the database that you already have",
		Long: `holdfast submits tasks to a SQLite file or a Postgres database, runs them, and looks after them.

A task that was submitted is not lost: when the process that runs it dies, another takes it over.
Programs in Go use the library; programs in Python and TypeScript share the same tables (CairnQ
protocol 1); a shell script becomes a worker by "holdfast worker NAME --exec COMMAND".

Every command for tasks but demo needs a database: --db, or the variable HOLDFAST_DB. "holdfast host",
"holdfast directory" and "holdfast record" keep patients' records, each in a folder: --data. "holdfast
outbox" sends writes to them that wait in a file: --file.` + exitHelp,
		Example: `  holdfast demo
  export HOLDFAST_DB=tasks.db
  holdfast submit greet '{"name": "Ada"}'
  holdfast worker greet --exec 'jq "{hello: .name}"'`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddGroup(
		&cobra.Group{ID: groupStart, Title: "Start here:"},
		&cobra.Group{ID: groupTasks, Title: "Tasks:"},
		&cobra.Group{ID: groupWorkers, Title: "Workers:"},
		&cobra.Group{ID: groupRecords, Title: "Patients' records:"},
		&cobra.Group{ID: groupDatabase, Title: "Database:"},
	)
	a.db.flags(root.PersistentFlags())
	root.AddCommand(a.commands()...)
	return root
}

// action makes a command's RunE. Errors of the command line (unknown flags, wrong arguments) come
// before it, and are told from the command's own by that.
func (a *app) action(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.acting = true
		return fn(cmd.Context(), args)
	}
}

// jsonFlag gives a command the flag for machines.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON for machines, one document a line")
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "interrupted: " + i.signal.String() }

// listen turns signals into the end of the context, then into hurry.
func (a *app) listen(cancel context.CancelCauseFunc) (stop func()) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup stays nohup
		signals = append(signals, syscall.SIGHUP)
	}
	c := make(chan os.Signal, 4)
	signal.Notify(c, signals...)
	end := make(chan struct{})
	go func() {
		select {
		case s := <-c:
			cancel(interrupted{s})
		case <-end:
			return
		}
		select {
		case <-c:
			close(a.hurry)
		case <-end:
		}
	}()
	return func() { signal.Stop(c); close(end) }
}

// report says what went wrong and what to do about it.
func (a *app) report(err error, code int) {
	text := strings.TrimPrefix(err.Error(), "holdfast: ")
	fmt.Fprintf(a.stderr, "holdfast: %s\n", a.db.redact(cleanLines(text)))
	hint := remedy(err)
	if !a.acting {
		hint = `see "holdfast help", or "holdfast help COMMAND"`
	}
	if hint != "" {
		fmt.Fprintf(a.stderr, "  %s\n", hint)
	}
}
