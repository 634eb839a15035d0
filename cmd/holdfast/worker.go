package main

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

type workerFlags struct {
	command                                       string
	queues                                        []string
	id, output, logFormat                         string
	concurrency                                   int
	lease, heartbeat, poll                        duration
	timeout, grace, killAfter, snooze, backoffMax duration
	maxOutput                                     size
	quiet                                         bool
}

func (a *app) workerCommand() *cobra.Command {
	f := workerFlags{
		lease: duration(30 * time.Second), poll: duration(500 * time.Millisecond), grace: duration(30 * time.Second), killAfter: duration(5 * time.Second),
		snooze: duration(30 * time.Second), backoffMax: duration(30 * time.Second), maxOutput: 1 << 20,
	}
	cmd := &cobra.Command{
		Use:     "worker NAME… --exec COMMAND",
		GroupID: groupWorkers,
		Short:   "Run tasks with a shell command",
		Long: `Worker claims tasks of these names and runs COMMAND in a shell for each attempt.

The command gets the payload on standard input, and in its environment HOLDFAST_TASK_ID,
HOLDFAST_TASK_NAME, HOLDFAST_QUEUE, HOLDFAST_ATTEMPT (from 1), HOLDFAST_MAX_ATTEMPTS, HOLDFAST_ROOT_ID,
HOLDFAST_CORRELATION_ID, HOLDFAST_METADATA, and HOLDFAST_DB, so that it can call holdfast itself. What it
writes to standard output is the task's result, one JSON value; nothing is no result. Its exit code decides:

   0    succeeded
  65    failed for good (EX_DATAERR): no further attempt
  75    not now (EX_TEMPFAIL): put back for --snooze, no attempt spent
  else  this attempt failed: the next comes after 1 s, then 2 s and so on up to --backoff-max

The end of what it wrote to standard error is kept with the failure ("holdfast get" shows it).

When the task is canceled, its time is up or its lease is lost, the command's process group gets SIGTERM,
and SIGKILL after --kill-after. On SIGTERM or SIGINT the worker claims no more and waits up to --grace for
the commands; then it ends them and hands their tasks back, no attempt spent. A second signal does so at once.`,
		Example: `  holdfast worker greet --exec 'jq "{hello: .name}"'
  holdfast worker report.daily report.weekly --queue reports --exec ./report.sh --concurrency 2
  holdfast worker video.encode --exec ./encode.sh --timeout 2h --lease 1m --kill-after 30s
  holdfast worker backup --exec 'tar czf /backup/$HOLDFAST_TASK_ID.tgz /srv && date' --output text`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error { return a.worker(ctx, &f, args) }),
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.command, "exec", "e", "", "the command, for the shell")
	fl.StringArrayVarP(&f.queues, "queue", "q", []string{holdfast.DefaultQueue}, "a queue to claim from; give it again for more")
	fl.IntVarP(&f.concurrency, "concurrency", "c", 0, "how many commands run at once (default: the number of CPUs)")
	fl.VarP(&f.timeout, "timeout", "t", "the time of one attempt; then it has failed, and is retried (default: unlimited)")
	fl.Var(&f.lease, "lease", "how long a task stays this worker's without a sign of life")
	fl.Var(&f.heartbeat, "heartbeat", "how often leases are extended, and cancels noticed (default: a third of the lease)")
	fl.Var(&f.poll, "poll", "how often to look for work when nothing wakes the worker")
	fl.Var(&f.grace, "grace", "how long commands may finish once the worker shall stop")
	fl.Var(&f.killAfter, "kill-after", "how long a command that got SIGTERM has before SIGKILL")
	fl.Var(&f.snooze, "snooze", "how long a task waits whose command exited with 75")
	fl.Var(&f.backoffMax, "backoff-max", "the longest wait between two attempts")
	fl.StringVar(&f.output, "output", outputJSON, "standard output is: json, text (the result is a JSON string) or none (not kept)")
	fl.Var(&f.maxOutput, "max-output", "the most that standard output may hold, such as 64KiB; more is a failure")
	fl.StringVar(&f.id, "id", "", "the worker's name in the task table (default: host, process and a random part)")
	fl.StringVar(&f.logFormat, "log-format", "text", "the log on standard error: text or json")
	fl.BoolVar(&f.quiet, "quiet", false, "log warnings and errors only")
	if err := cmd.MarkFlagRequired("exec"); err != nil {
		panic(err) // the flag stands above
	}
	return cmd
}

func (a *app) logger(format string, quiet bool) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if quiet {
		o.Level = slog.LevelWarn
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, o)), nil
	}
	return nil, usagef("--log-format is %q; use text or json", format)
}

func (a *app) worker(ctx context.Context, f *workerFlags, names []string) error {
	log, err := a.logger(f.logFormat, f.quiet)
	if err != nil {
		return err
	}
	if f.concurrency == 0 {
		f.concurrency = runtime.GOMAXPROCS(0)
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			return usagef("the name %q is given twice", n)
		}
		seen[n] = true
	}
	switch f.output {
	case outputJSON, outputText, outputNone:
	default:
		return usagef("--output is %q; use json, text or none", f.output)
	}
	if f.command == "" {
		return usagef("--exec is empty; give a command, such as --exec ./run.sh")
	}
	a.db.log = log
	store, err := openStore(ctx, &a.db, false)
	if err != nil {
		return err
	}
	defer store.Close()
	x := newExecutor(f.command, f.output, int(f.maxOutput), time.Duration(f.killAfter), time.Duration(f.snooze), time.Duration(f.grace))
	x.env = a.db.environment()
	if x.guard, err = startGuard(); err != nil {
		return err
	}
	defer x.guard.close()
	w := holdfast.NewWorker(store, holdfast.WorkerConfig{
		ID: f.id, Queues: f.queues, Concurrency: f.concurrency, Lease: time.Duration(f.lease), Heartbeat: time.Duration(f.heartbeat), Poll: time.Duration(f.poll),
		Backoff: holdfast.Exponential(time.Second, max(time.Second, time.Duration(f.backoffMax))), Log: log,
	})
	for _, n := range names {
		if err := checkName(n); err != nil {
			return err
		}
		w.Handle(n, x.run, holdfast.AttemptTimeout(time.Duration(f.timeout)))
	}
	schedules := holdfast.NewScheduler(store, holdfast.SchedulerConfig{Log: log})
	if err := schedules.Start(ctx); err != nil {
		return err
	}
	defer schedules.Stop()
	if err := w.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	schedules.Stop()
	return a.stopWorker(ctx, w, x, log, time.Duration(f.grace))
}

// checkName refuses what Worker.Handle would panic about.
func checkName(name string) error {
	if name == "" || len(name) > holdfast.MaxNameBytes || clean(name) != name {
		return usagef("%.40q is no task name; use 1 to %d bytes of text", name, holdfast.MaxNameBytes)
	}
	return nil
}

// quickStop is how long commands that were killed have to be buried once a second signal came.
const quickStop = time.Second

// stopWorker drains within the grace, or at once when a second signal comes.
func (a *app) stopWorker(ctx context.Context, w *holdfast.Worker, x *executor, log *slog.Logger, grace time.Duration) error {
	log.Info("holdfast: stopping; a second signal ends the commands at once", "cause", context.Cause(ctx), "grace", grace)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Stop(limited) }()
	var err error
	select {
	case err = <-done:
	case <-a.hurry:
		x.killAll()
		select {
		case err = <-done:
		case <-time.After(quickStop):
			cancel()
			err = <-done
		}
	}
	x.killAll() // whoever has ignored everything so far
	x.wait(quickStop)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}
