package processtest

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"
	"go.uber.org/goleak"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
)

// process is what a worker process of the tests is told, in an environment variable.
type process struct {
	Dialect     string
	DSN         string
	ID          string
	Concurrency int
	Lease       time.Duration
	Grace       time.Duration
	PlainLease  bool
	Lines       bool // it is no worker, but does what work does
}

const processVariable = "HOLDFAST_TEST_PROCESS"

func TestMain(m *testing.M) {
	if text := os.Getenv(processVariable); text != "" {
		var p process
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			panic(err)
		}
		if err := p.main(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	close(hearing)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// main is the worker process: it tells its parent on standard output what happens, a line each. It
// ends by SIGTERM, and when its parent is gone.
func (p *process) main() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	store, err := openers[p.Dialect](ctx, p.DSN)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(what string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(append([]any{what}, args...)...)
	}
	if p.Lines {
		return work(ctx, store)
	}
	w := holdfast.NewWorker(store, holdfast.WorkerConfig{
		ID: p.ID, Concurrency: p.Concurrency, Lease: p.Lease, Grace: p.Grace, PlainLease: p.PlainLease,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		OnEvent: func(e holdfast.Event) {
			switch e.Kind {
			case holdfast.TaskSettled:
				say("settled", e.Task.ID, e.Status)
			case holdfast.TaskLost:
				say("lost", e.Task.ID)
			}
		},
	})
	handlers(w, say)
	if err := w.Run(ctx); err != nil {
		return err
	}
	say("stopped")
	return store.Close()
}

// hearing ends the deaf handlers, once all tests are over.
var hearing = make(chan struct{})

// handlers are those of all workers here: quick ones, slow ones that listen to their context, ones
// that hold on until it ends, and deaf ones.
func handlers(w *holdfast.Worker, say func(what string, args ...any)) {
	wait := func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for name, fn := range map[string]func(context.Context) error{
		"quick": func(context.Context) error { return nil },
		"slow":  func(ctx context.Context) error { return wait(ctx, 30*time.Millisecond) },
		"hold":  func(ctx context.Context) error { return wait(ctx, time.Hour) },
		"deaf":  func(context.Context) error { <-hearing; return nil },
	} {
		w.Handle(name, func(ctx context.Context, run *holdfast.Run) (any, error) {
			say("started", run.Task().ID, run.Attempt())
			if err := fn(ctx); err != nil {
				say("ended", run.Task().ID, strings.ReplaceAll(err.Error(), " ", "_"))
				return nil, err
			}
			return run.Task().ID, nil
		})
	}
}

// openers open stores, by dialect.
var openers = map[string]func(ctx context.Context, dsn string) (*holdfast.Store, error){
	"sqlite": func(ctx context.Context, dsn string) (*holdfast.Store, error) { return sqlite.Open(ctx, dsn) },
	"postgres": func(ctx context.Context, dsn string) (*holdfast.Store, error) {
		return postgres.Open(ctx, dsn, postgres.WithLogger(slog.New(slog.DiscardHandler)))
	},
}

// database is one that a test may fill.
type database struct {
	name string
	dsn  string
	// limit is how long it may take until the tasks of a process that was killed are claimed again.
	limit time.Duration
}

func (d *database) open(t testing.TB) *holdfast.Store {
	t.Helper()
	store, err := openers[d.name](context.Background(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// sql opens the database as another program would.
func (d *database) sql(t testing.TB) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", d.dsn
	if d.name == "sqlite" {
		driver, dsn = "sqlite3", "file:"+d.dsn+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// databases makes one of each dialect.
var databases = map[string]func(t testing.TB) *database{
	"sqlite": func(t testing.TB) *database {
		return &database{name: "sqlite", dsn: filepath.Join(t.TempDir(), "tasks.db"), limit: time.Second}
	},
	"postgres": func(t testing.TB) *database {
		return &database{name: "postgres", dsn: pgtest.DSN(t), limit: 5 * time.Second}
	},
}

// onEach runs the test on an empty database of each dialect.
func onEach(t *testing.T, fn func(t *testing.T, d *database)) {
	for name, make := range databases {
		t.Run(name, func(t *testing.T) { fn(t, make(t)) })
	}
}

// child is a worker process.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed at its end
	err   error         // of its end

	mu    sync.Mutex
	lines [][]string
	news  chan struct{} // closed and replaced with each line
}

// start starts a worker process on the database. It is killed at the test's end.
func (d *database) start(t testing.TB, p process) *child {
	t.Helper()
	p.Dialect, p.DSN = d.name, d.dsn
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(os.Args[0]), done: make(chan struct{}), news: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	log := &capture{}
	c.cmd.Stderr = log
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.mu.Lock()
			c.lines = append(c.lines, strings.Fields(s.Text()))
			close(c.news)
			c.news = make(chan struct{})
			c.mu.Unlock()
		}
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("process %s:\n%s", p.ID, log)
		}
	})
	return c
}

// kill is kill -9.
func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.done
}

// atLeast waits for n lines of any kind.
func (c *child) atLeast(n int) {
	timeout := time.After(time.Minute)
	for {
		c.mu.Lock()
		got, news := len(c.lines), c.news
		c.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-news:
		case <-c.done:
			c.t.Errorf("the process ended (%v) after %d of %d lines", c.err, got, n)
			return
		case <-timeout:
			c.t.Errorf("%d of %d lines came", got, n)
			return
		}
	}
}

// all answers the second words of the lines that begin with what, once there are n.
func (c *child) all(what string, n int) []string {
	c.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		var found []string
		c.mu.Lock()
		for _, l := range c.lines {
			if l[0] == what && len(l) > 1 {
				found = append(found, l[1])
			}
		}
		news := c.news
		c.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-news:
		case <-c.done:
			c.t.Fatalf("the process ended (%v) after %d of %d lines %q", c.err, len(found), n, what)
		case <-timeout:
			c.t.Fatalf("%d of %d lines %q came", len(found), n, what)
		}
	}
}

// local starts a worker in this process that tells what it does like a process does.
type local struct {
	*holdfast.Worker
	starts chan string // ids of tasks
	ends   chan string
	warned *capture
}

func startLocal(t testing.TB, store *holdfast.Store, config holdfast.WorkerConfig) *local {
	t.Helper()
	l := &local{starts: make(chan string, 1000), ends: make(chan string, 1000), warned: &capture{}}
	config.Log = slog.New(slog.NewTextHandler(l.warned, nil))
	l.Worker = holdfast.NewWorker(store, config)
	handlers(l.Worker, func(what string, args ...any) {
		switch what {
		case "started":
			l.starts <- args[0].(string)
		case "ended":
			l.ends <- args[1].(string)
		}
	})
	if err := l.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.stop(t, 2*time.Second)
		if t.Failed() {
			t.Logf("worker %s:\n%s", l.ID(), l.warned.String())
		}
	})
	return l
}

func (l *local) stop(t testing.TB, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		t.Error(err)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// capture keeps a log.
type capture struct {
	mu sync.Mutex
	b  strings.Builder
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(p)
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.String()
}

// next answers the next value of a channel.
func next[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing happened for 30 s")
		panic("unreachable")
	}
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func submit(t testing.TB, client *holdfast.Client, name string, options ...holdfast.SubmitOption) *holdfast.Task {
	t.Helper()
	task, err := client.Submit(deadline(t), name, nil, options...)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func get(t testing.TB, client *holdfast.Client, id string) *holdfast.Task {
	t.Helper()
	task, err := client.Get(deadline(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// workers lists the registry by id.
func workers(t testing.TB, client *holdfast.Client) map[string]*holdfast.WorkerInfo {
	t.Helper()
	list, err := client.Workers(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]*holdfast.WorkerInfo{}
	for _, w := range list {
		byID[w.ID] = w
	}
	return byID
}

// invalidField is the field that the error complains about.
func invalidField(err error) string {
	var bad *holdfast.InvalidError
	if errors.As(err, &bad) {
		return bad.Field
	}
	return ""
}
