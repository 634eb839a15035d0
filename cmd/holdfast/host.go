package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/host"
	"github.com/eda94727/holdfast/record/serve"
	"github.com/eda94727/holdfast/sqlite"
)

// hostFlags are those of the command that serves.
type hostFlags struct {
	serviceFlags
	trust     trustFlags
	rate      float64
	maxBody   size
	maxAtOnce int
	timeout   duration
	validator string
}

func (a *app) hostCommand() *cobra.Command {
	f := hostFlags{maxBody: 1 << 20, timeout: duration(30 * time.Second), rate: 500, maxAtOnce: 512}
	cmd := &cobra.Command{
		Use:     "host --data DIR",
		GroupID: groupRecords,
		Short:   "Run a Host of patients' records, and administer it",
		Long: `Host serves the records in a folder: FHIR R4 over HTTPS, with writes that are done once and answered
with signed receipts. The first start makes everything in the folder: the Host's key (host.key, its
identity: keep a copy safe), the database (host.db, or --db postgres://…), and a self-signed TLS
certificate unless one is given. It prints the Host's id and URL when it listens. Flags are kept in
the folder (host.json), so that the next start needs --data only; a Postgres URL is not kept: give
it by --db or HOLDFAST_HOST_DB each time.

With a Directory (--directory) records are published there and can move between Hosts; "holdfast
record move" drives that. The Directory's operator must admit the Host first ("holdfast directory
admit"). The commands below administer the Host of a folder, whether it runs or not.

On SIGTERM or SIGINT it takes no more requests, lets running ones finish within --grace, and ends.
/healthz tells that it lives, /readyz that its database answers.`,
		Example: `  holdfast host --data /var/lib/holdfast
  holdfast host --data /var/lib/holdfast --listen 0.0.0.0:443 --url https://host.example --tls-cert host.crt --tls-key host.key
  holdfast host --data a --directory directory-pin.json --ca directory/tls.crt
  holdfast host create --data a
  holdfast host grant --data a RECORD CLIENT --scope 'patient/*.cruds'`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ []string) error { return a.serveHost(ctx, &f) }),
	}
	dataFlag(cmd, &f.data, "the Host's folder")
	f.serviceFlags.add(cmd, hostKind)
	f.trust.add(cmd)
	fl := cmd.Flags()
	fl.Float64Var(&f.rate, "rate", f.rate, "how many requests a second each application may make on average; twice that at once; below 0 is no limit")
	fl.Var(&f.maxBody, "max-body", "how large a request may be, such as 1MiB")
	fl.IntVar(&f.maxAtOnce, "max-requests", f.maxAtOnce, "how many requests are worked on at once")
	fl.Var(&f.timeout, "timeout", "the deadline of one request")
	fl.StringVar(&f.validator, "validator", "", "the URL of an external validator that is asked before each write is committed; '' for none any more")
	a.jsonFlag(cmd)
	cmd.AddCommand(a.hostAdmin(&f.data)...)
	return cmd
}

// heapRoom is allocated and never touched, so it is no memory of the machine.
// Go collects garbage when the heap has doubled; a Host's is so small that this
// would be dozens of times a second. With this counted in, it grows by about 64
// MB first, however large it is otherwise.
const heapRoom = 32 << 20

func (a *app) serveHost(ctx context.Context, f *hostFlags) error {
	if err := needData(f.data, "a folder for the Host; it is made if need be"); err != nil {
		return err
	}
	log, err := a.logger(f.logFormat, f.quiet)
	if err != nil {
		return err
	}
	var s settings
	known, err := readSettings(filepath.Join(f.data, hostKind.file), &s)
	if err != nil {
		return err
	}
	if err := s.keepFlags(f.set, "rate", "max-body", "max-requests", "timeout", "validator", "grace"); err != nil {
		return err
	}
	if f.maxAtOnce < 1 {
		return usagef("--max-requests is %d; use 1 or more", f.maxAtOnce)
	}
	lastURL := s.URL
	address, err := a.databaseURL(hostKind, &s, known)
	if err != nil {
		return err
	}
	defer f.closeListener()
	if err := f.resolve(hostKind, &s); err != nil {
		return err
	}
	unlock, err := lockFolder(f.data, "a Host runs on "+f.data+" already")
	if err != nil {
		return err
	}
	defer unlock()
	room := make([]byte, heapRoom)
	defer runtime.KeepAlive(room)
	cert, err := s.certificate(f.data)
	if err != nil {
		return err
	}
	config, err := hostConfig(f.data, s, address)
	if err != nil {
		return err
	}
	pin, client, err := f.trust.load(f.data)
	if err != nil {
		return err
	}
	if pin != nil {
		config.Directory = &host.Directory{Pin: *pin, TrustFile: host.TrustIn(f.data), HTTP: client}
	}
	config.Log, config.Rate, config.Burst = log, f.rate, max(1, int(2*f.rate))
	config.MaxBody, config.MaxConcurrent, config.Timeout = int64(f.maxBody), f.maxAtOnce, time.Duration(f.timeout)
	if f.validator != "" {
		if err := record.CheckBaseURL(f.validator); err != nil {
			return usagef("--validator: %v", err)
		}
		config.Validator = host.HTTPValidator{URL: f.validator, Client: client}
	}
	h, err := host.Open(ctx, config)
	if err != nil {
		return opened(hostKind, address, err)
	}
	defer h.Close()
	if known && lastURL != s.URL {
		if some, err := h.Records(ctx, "", 1); err != nil {
			return err
		} else if len(some) > 0 {
			return usagef("--url is %s, and the Host has records that are known to be at %s; move them to another Host instead", s.URL, lastURL)
		}
	}
	if err := writeSettings(filepath.Join(f.data, hostKind.file), s); err != nil {
		return err
	}
	if pin != nil {
		if err := f.trust.keepPin(f.data, pin); err != nil {
			return err
		}
		stop, err := a.driveMoves(ctx, h, f.data, address, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	return a.runServer(ctx, serve.Options{Addr: s.Listen, Listener: f.listener, Handler: h.Handler(), Certificate: cert, Grace: time.Duration(f.grace), Log: log,
		Started: func(at net.Addr) { a.sayServing(hostKind, f.data, s, h.ID(), at) }})
}

// sayServing tells on standard output that the service is there, and how to reach it.
func (a *app) sayServing(kind serviceKind, data string, s settings, id string, at net.Addr) {
	cert := ""
	if !s.NoTLS {
		cert = s.Cert
		if cert == "" {
			cert = filepath.Join(data, "tls.crt")
		}
	}
	if a.json {
		_ = a.stdout.document(struct { // a.stdout keeps its error
			ID     string `json:"id,omitempty"`
			URL    string `json:"url"`
			Listen string `json:"listen"`
			Cert   string `json:"certificate,omitempty"`
		}{id, s.URL, at.String(), cert})
		return
	}
	fmt.Fprintf(a.stdout, "%s at %s, listening on %s\n", kind.noun, clean(s.URL), at)
	if id != "" {
		fmt.Fprintf(a.stdout, "id %s\n", id)
	}
	if cert != "" {
		fmt.Fprintf(a.stdout, "certificate %s\n", clean(cert))
	}
}

// hostConfig is what a folder says about its Host.
func hostConfig(data string, s settings, address string) (host.Config, error) {
	c, err := host.InDir(data)
	if err != nil {
		return c, err
	}
	c.URL = s.URL
	if address != "" {
		c.Database = address
	}
	return c, nil
}

// withHost opens the Host of a folder for one act of administration. The process that serves the
// folder may run beside it, so what it has verified of the Directory is left alone.
func (a *app) withHost(ctx context.Context, data string, act func(*host.Host) error) error {
	s, err := loadService(hostKind, data)
	if err != nil {
		return err
	}
	address, err := a.databaseURL(hostKind, &s, true)
	if err != nil {
		return err
	}
	config, err := hostConfig(data, s, address)
	if err != nil {
		return err
	}
	pin, client, err := new(trustFlags).load(data)
	if err != nil {
		return err
	}
	if pin != nil {
		// Its own first contact: what it asks the Directory is checked from the first generation on.
		dir, err := os.MkdirTemp("", "holdfast-host-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		config.Directory = &host.Directory{Pin: *pin, TrustFile: host.TrustIn(dir), HTTP: client}
	}
	h, err := host.Open(ctx, config)
	if err != nil {
		return opened(hostKind, address, err)
	}
	defer h.Close()
	return act(h)
}

// tasksSchema holds the tasks of a Host that is on Postgres.
const tasksSchema = "holdfast_host_tasks"

// openTasks opens the store in which a Host's moves are tasks.
func openTasks(ctx context.Context, data, address string) (*holdfast.Store, error) {
	if address != "" {
		return postgres.Open(ctx, address, postgres.WithSchema(tasksSchema))
	}
	return sqlite.Open(ctx, filepath.Join(data, "tasks.db"))
}

// cancelMoveTask takes a move back, in the process that drives it.
func cancelMoveTask() holdfast.Definition[host.MoveInput, struct{}] {
	return holdfast.Define[host.MoveInput, struct{}]("record.move.cancel", holdfast.MaxAttempts(20))
}

// driveMoves has this process work on the moves that "holdfast record move" submits.
func (a *app) driveMoves(ctx context.Context, h *host.Host, data, address string, log *slog.Logger) (stop func(), err error) {
	store, err := openTasks(ctx, data, address)
	if err != nil {
		return nil, err
	}
	w := holdfast.NewWorker(store, holdfast.WorkerConfig{Concurrency: 8, Log: log})
	h.HandleMoves(w)
	cancelMoveTask().Handle(w, func(ctx context.Context, _ *holdfast.Run, in host.MoveInput) (struct{}, error) {
		err := h.CancelMove(ctx, in.Record)
		if code := record.CodeOf(err); err != nil && (code.Class() == record.Rejected || code == record.RecordMoved) {
			err = holdfast.Permanent(err)
		}
		return struct{}{}, err
	}, holdfast.RetryBackoff(holdfast.Exponential(200*time.Millisecond, 5*time.Second)))
	if err := w.Start(ctx); err != nil {
		store.Close()
		return nil, err
	}
	return func() {
		// A move that is stopped stands where it is on disk; its task is handed back.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			log.Warn("a move was interrupted; it goes on at the next start", "error", err)
		}
		store.Close()
	}, nil
}
