package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/outbox/control"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/plainfhir"
)

// runFlags are those of the owner of a queue.
type runFlags struct {
	*outboxFlags
	once, strict, manual bool
	parallel             int
	timeout, grace       duration
	pause                duration
	logFormat            string
	quiet                bool
	fhir, tokenFile      string
}

func (a *app) outboxRun(of *outboxFlags) *cobra.Command {
	f := runFlags{outboxFlags: of, parallel: 8, timeout: duration(time.Minute), grace: duration(5 * time.Second), pause: duration(5 * time.Minute)}
	cmd := &cobra.Command{
		Use:   "run --data DIR | --fhir URL",
		Short: "Own the queue and send what waits, until it is stopped",
		Long: `Run owns the queue: it sends what waits, at once when something is enqueued, and again after a pause that
grows with each failure. It follows records that move, and answers the other commands over a socket
beside the file. It makes the queue where there is none.

The application's folder, which "holdfast record init" makes, has the key and says where records live.
On SIGTERM or SIGINT nothing new is sent, and running requests may end within --grace. What was cut off is
sent again at the next start: the Host does it once.

With --fhir the writes go to an ordinary FHIR R4 server, with a weaker promise (package record/plainfhir):
nothing proves that a write was done, and an update whose answer was lost is settled by reading it back.
--token-file has a bearer token, and is read again for each write.

With --once it sends what can be sent now and ends: exit code 4 if an entry waits for somebody, 5 if some
wait for their Hosts.`,
		Example: `  holdfast outbox run --data app
  holdfast outbox run --data app --file /var/lib/app/app.db --log-format json
  holdfast outbox run --data app --once
  holdfast outbox run --file app.db --fhir https://fhir.example/r4 --token-file token`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.runOutbox(ctx, &f) }),
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.once, "once", false, "send what can be sent now, and end")
	fl.BoolVar(&f.strict, "strict", false, "one line for the whole file: nothing is sent before what was enqueued earlier is done, whichever record it is about")
	fl.BoolVar(&f.manual, "manual-moves", false, "do not follow records that move to another Host")
	fl.IntVar(&f.parallel, "parallel", f.parallel, "how many records are written to at once")
	fl.Var(&f.timeout, "timeout", "the deadline of one write")
	fl.Var(&f.grace, "grace", "how long running requests may go on once it shall stop")
	fl.Var(&f.pause, "pause-max", "the longest pause between two attempts, unless the Host asks for more")
	fl.StringVar(&f.fhir, "fhir", "", "the base URL of an ordinary FHIR server, in the place of --data")
	fl.StringVar(&f.tokenFile, "token-file", "", "with --fhir: a file with a bearer token")
	fl.StringVar(&f.logFormat, "log-format", "text", "the log on standard error: text or json")
	fl.BoolVar(&f.quiet, "quiet", false, "log warnings and errors only")
	a.jsonFlag(cmd)
	return cmd
}

func (f *runFlags) check() error {
	switch {
	case f.data == "" && f.fhir == "":
		return usagef(`--data is missing; name the application's folder, as "holdfast record init" makes it, or a FHIR server by --fhir`)
	case f.data != "" && f.fhir != "":
		return usagef("--data and --fhir exclude each other")
	case f.tokenFile != "" && f.fhir == "":
		return usagef("--token-file belongs to --fhir")
	case f.parallel < 1 || f.parallel > 1000:
		return usagef("--parallel is %d; use 1 to 1000", f.parallel)
	case f.timeout == 0 || f.grace == 0 || f.pause == 0:
		return usagef("--timeout, --grace and --pause-max are more than 0")
	}
	return nil
}

func (a *app) runOutbox(ctx context.Context, f *runFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	log, err := a.logger(f.logFormat, f.quiet)
	if err != nil {
		return err
	}
	path, err := f.path()
	if err != nil {
		return err
	}
	key, err := f.key()
	if err != nil {
		return err
	}
	b, k, err := a.ownQueue(ctx, f, path, key, log)
	if err != nil {
		return err
	}
	defer b.Close()
	if server, err := control.Start(b, path, control.Options{Log: log}); err != nil {
		log.Warn("other commands cannot reach this queue while it runs", "err", err)
	} else {
		defer server.Close()
	}
	defer logEvents(b, log)()
	if f.once {
		report, err := b.Flush(ctx)
		if err != nil {
			return err
		}
		return a.flushed(report)
	}
	a.sayOwned(path, k.Subject())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-a.hurry:
		return errors.New("stopped by a second signal; what was cut off is sent again at the next start")
	}
}

// ownQueue opens the file as its owner. A command that looks at it for a moment is waited for.
func (a *app) ownQueue(ctx context.Context, f *runFlags, path string, key []byte, log *slog.Logger) (*outbox.Outbox, outbox.Client, error) {
	o := outbox.Options{Key: key, Strict: f.strict, Parallel: f.parallel, RequestTimeout: time.Duration(f.timeout), ManualMoves: f.manual, Grace: time.Duration(f.grace), Log: log, NoReceipts: f.fhir != "",
		Retry: outbox.Backoff{First: min(time.Second, time.Duration(f.pause)), Most: time.Duration(f.pause)}}
	for began := time.Now(); ; {
		// Again each time: the owner before may have learned something.
		k, err := a.client(f, path, log)
		if err != nil {
			return nil, nil, err
		}
		b, err := outbox.Open(ctx, path, k, o)
		if err == nil {
			return b, k, nil
		}
		if !errors.Is(err, outbox.QueueInUse) || time.Since(began) > turn {
			return nil, nil, queueOpened(err)
		}
		if other, err := control.Dial(ctx, path); err == nil {
			other.Close() // an owner that stays
			return nil, nil, ownedError{path}
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// client is what sends: the application of the folder, or one that writes to an ordinary FHIR server.
func (a *app) client(f *runFlags, path string, log *slog.Logger) (outbox.Client, error) {
	if f.fhir == "" {
		return a.sendingClient(f.data, path, time.Duration(f.timeout), func(c *client.Config) { c.Log = log })
	}
	if err := record.CheckBaseURL(f.fhir); err != nil {
		return nil, usagef("--fhir: %v", err)
	}
	config := plainfhir.Config{Base: f.fhir, Timeout: time.Duration(f.timeout)}
	if f.tokenFile != "" {
		if _, err := readToken(f.tokenFile); err != nil {
			return nil, usageError{err}
		}
		if u, err := url.Parse(f.fhir); err != nil || u.Scheme != "https" && !loopback(u.Hostname()) {
			return nil, usagef("--token-file needs a server with https: over plain http everybody on the way reads the token")
		}
		config.Authorize = func(_ context.Context, header http.Header) error {
			token, err := readToken(f.tokenFile) // again: it may have been renewed
			if err == nil {
				header.Set("Authorization", "Bearer "+token)
			}
			return err
		}
	}
	return plainfhir.New(config)
}

func loopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// readToken reads a bearer token. Its errors do not quote it.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--token-file %s holds no bearer token: it is one word of ASCII", path)
	}
	return token, nil
}

// ownedError: somebody else owns the queue, and is at it.
type ownedError struct{ path string }

func (o ownedError) Error() string {
	return fmt.Sprintf("%s: another process owns %s and sends its writes already", outbox.QueueInUse, o.path)
}

func (o ownedError) Unwrap() error { return outbox.QueueInUse }

// logEvents logs what happens to entries, without their content.
func logEvents(b *outbox.Outbox, log *slog.Logger) (stop func()) {
	events, cancel := b.Events()
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case e := <-events:
				level := slog.LevelDebug
				switch e.State {
				case outbox.Conflicted, outbox.Rejected, outbox.Quarantined:
					level = slog.LevelWarn
				case outbox.Pending:
					if e.Code != "" {
						level = slog.LevelInfo
					}
				}
				log.Log(context.Background(), level, "write "+string(e.State), "operation", e.OperationID, "record", e.Patient, "code", string(e.Code))
			case <-ended:
				return
			}
		}
	}()
	return func() { cancel(); close(ended); <-done }
}

func (a *app) sayOwned(path, subject string) {
	if a.json {
		_ = a.stdout.document(struct { // a.stdout keeps its error
			File    string `json:"file"`
			Subject string `json:"subject"`
		}{path, subject})
		return
	}
	fmt.Fprintf(a.stdout, "queue %s, of %s\n", clean(path), subject)
}

// flushed prints what one flush did. What is left has an exit code.
func (a *app) flushed(r outbox.Report) error {
	type stopJSON struct {
		Patient   string       `json:"patient"`
		Operation string       `json:"operation_id"`
		State     outbox.State `json:"state"`
		Code      string       `json:"code"`
		Retry     int64        `json:"retry_after_ms,omitempty"`
	}
	if a.json {
		stops := make([]stopJSON, len(r.Stops))
		for i, s := range r.Stops {
			stops[i] = stopJSON{s.Patient, s.OperationID, s.State, string(s.Code), s.RetryAfter.Milliseconds()}
		}
		err := a.stdout.document(struct {
			Sent      int        `json:"sent"`
			Committed int        `json:"committed"`
			Stops     []stopJSON `json:"stops"`
		}{r.Sent, r.Committed, stops})
		if err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.stdout, "%d sent, %d committed\n", r.Sent, r.Committed)
		for _, s := range r.Stops {
			fmt.Fprintf(a.stdout, "%s  %s %s %s\n", s.Patient, s.OperationID, a.stdout.paint(stateStyle(s.State), string(s.State)), s.Code)
		}
	}
	blocked := 0
	for _, s := range r.Stops {
		if s.State != outbox.Pending && s.State != outbox.Submitted {
			blocked++
		}
	}
	switch {
	case blocked > 0:
		return exitError{exitState, fmt.Errorf("records that wait for somebody to decide: %d; \"holdfast outbox show OPERATION\" tells more, and retry, rebase, replace or discard settles it", blocked)}
	case len(r.Stops) > 0:
		return exitError{exitTimeout, fmt.Errorf("records that wait for their Hosts: %d; they are tried again at the next run", len(r.Stops))}
	}
	return nil
}
