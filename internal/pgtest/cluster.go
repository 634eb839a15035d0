package pgtest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// installed matches the folders in which Debian and its relatives keep the server's programs, outside of PATH.
const installed = "/usr/lib/postgresql/*/bin"

// Options of a private server. The zero value suits tests.
type Options struct {
	// Durable leaves the server's settings as they are installed, so that commits reach the disk: for benchmarks. Without it
	// fsync and full_page_writes are off. Nothing else differs; a commit is then still safe from the death of any process,
	// only not from the death of the machine.
	Durable bool

	// Settings are further lines for postgresql.conf and win over everything pgtest sets, except for where the server listens.
	Settings map[string]string
}

// Cluster is a private server. Its methods may be called from any goroutine.
type Cluster struct {
	root     string // the temporary folder; the server's socket lies in it
	port     int
	password string
	bin      string // where its programs are

	mu      sync.Mutex
	super   *supervisor
	running bool
}

// Start starts a private server that belongs to t: it is stopped, and its folder removed, when t ends.
//
// Where the server's binaries are not installed the test is skipped, even if HOLDFAST_TEST_POSTGRES is set, for that server
// must not be stopped; it fails instead when HOLDFAST_REQUIRE_POSTGRES is 1.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := New(o)
	if err != nil {
		if errors.Is(err, ErrUnavailable) {
			err = errNoBinaries
		}
		giveUp(t, err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	t.Logf("pgtest: Postgres %s from %s", c.Version(), c.bin)
	return c
}

// errNoBinaries is ErrUnavailable for tests that a server elsewhere does not help.
var errNoBinaries error = unavailable("no Postgres here that this test may stop: install postgresql")

// unavailable is an ErrUnavailable with a text of its own.
type unavailable string

func (u unavailable) Error() string        { return string(u) }
func (u unavailable) Is(target error) bool { return target == ErrUnavailable }

// Version returns the server's major version as its data folder names it, such as "17".
func (c *Cluster) Version() string {
	text, err := os.ReadFile(filepath.Join(c.root, "data", "PG_VERSION"))
	if err != nil {
		return "of an unknown version"
	}
	return strings.TrimSpace(string(text))
}

// DSN returns the URL of an empty database of this server, on 127.0.0.1 and with a password. It stays valid when the server
// is stopped and started again.
func (c *Cluster) DSN() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", c.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketDSN is DSN by way of the server's Unix socket, which asks for no password.
func (c *Cluster) SocketDSN() string {
	u := url.URL{
		Scheme:   "postgres",
		Path:     "/postgres",
		RawQuery: url.Values{"host": {c.root}, "port": {strconv.Itoa(c.port)}, "user": {"postgres"}}.Encode(),
	}
	return u.String()
}

// Stop shuts the server down in order: it ends all sessions (57P01) and writes everything down. It returns when the server is
// gone, and does nothing if it is already.
func (c *Cluster) Stop() error { return c.stop("fast") }

// Crash makes the server drop everything at once, as if its processes had been killed; the next start recovers from its log.
// It returns when the server is gone, and does nothing if it is already.
func (c *Cluster) Crash() error { return c.stop("immediate") }

func (c *Cluster) stop(mode string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		return nil
	}
	if err := c.super.order("stop " + mode); err != nil {
		return fmt.Errorf("stop the Postgres server in %s: %w", c.root, err)
	}
	c.running = false
	return nil
}

// Start starts a stopped server again, with the same data and DSN. It returns when the server accepts connections, and does
// nothing if it does already.
func (c *Cluster) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return nil
	}
	if err := c.super.order("start"); err != nil {
		return fmt.Errorf("start the Postgres server in %s: %w%s", c.root, err, c.logTail())
	}
	c.running = true
	return nil
}

// Restart is Stop and Start.
func (c *Cluster) Restart() error {
	if err := c.Stop(); err != nil {
		return err
	}
	return c.Start()
}

// LimitFiles lets no file of the server grow beyond that many bytes, a multiple of 512, from the next Start
// on, as if the disk were full; 0 takes the limit away. Files of the write-ahead log have 16 MiB, so with
// less the server does not run.
func (c *Cluster) LimitFiles(bytes int) error {
	blocks := "unlimited"
	if bytes > 0 {
		blocks = strconv.Itoa(bytes / 512)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.super.order("limit " + blocks)
}

// Close ends the server for good. It returns when the server and its folder are gone.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.super.dismiss()
	if _, err := os.Stat(c.root); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the Postgres server in %s did not stop, or its folder could not be removed", c.root)
	}
	return nil
}

// New is [Start] for programs that have no test at hand. It returns [ErrUnavailable] where the server's binaries are missing.
// The server is the caller's to Close; if that does not happen, it goes with the process.
func New(o Options) (*Cluster, error) {
	bin := findBinaries(os.Getenv("PATH"), installed)
	if bin == "" {
		return nil, ErrUnavailable
	}
	c := &Cluster{password: randomHex(16), bin: bin}
	var err error
	if c.root, c.super, err = supervise(bin, c.password); err != nil {
		return nil, fmt.Errorf("prepare a private Postgres server: %w", err)
	}
	if err := c.setUp(o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) setUp(o Options) error {
	if err := c.super.order("init"); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	conf := filepath.Join(c.root, "data", "postgresql.conf")
	original, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	// Between finding a free port and the server's taking it another process can be quicker.
	for attempt := 1; ; attempt++ {
		if c.port, err = freePort(); err != nil {
			return err
		}
		text := string(original) + c.settings(o)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil { // keeps its owner, for it is there
			return err
		}
		if err = c.Start(); err == nil {
			return nil
		}
		if attempt == 5 || !portTaken(c.port) {
			return err
		}
	}
}

// settings returns the lines for postgresql.conf; of two lines with the same name the later one counts.
func (c *Cluster) settings(o Options) string {
	var b strings.Builder
	line := func(name, value string) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	b.WriteString("\n")
	if !o.Durable {
		line("fsync", "off")
		line("full_page_writes", "off")
	}
	line("max_connections", "200") // packages' tests run in parallel and have pools
	for name, value := range o.Settings {
		line(name, value)
	}
	line("listen_addresses", "127.0.0.1")
	line("port", strconv.Itoa(c.port))
	line("unix_socket_directories", c.root)
	return b.String()
}

// logTail returns the end of the server's log, which says why it does not start.
func (c *Cluster) logTail() string {
	text, err := os.ReadFile(filepath.Join(c.root, "server.log"))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "; its log ends:\n" + string(text[max(0, len(text)-2000):])
}

// freePort returns a port of 127.0.0.1 on which nobody listens. It stays below the ports that systems hand out to outgoing
// connections: a client that keeps dialing a stopped server there would one day be connected to itself and hold the port.
func freePort() (int, error) {
	for range 100 {
		if port := 10000 + rand.IntN(20000); !portTaken(port) {
			return port, nil
		}
	}
	return 0, errors.New("found no free port on 127.0.0.1")
}

func portTaken(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return true
	}
	l.Close()
	return false
}

// findBinaries returns the first folder of path, and then the one of the newest version among those that pattern matches,
// that holds the programs a private server needs; "" if there is none.
func findBinaries(path, pattern string) string {
	versioned, _ := filepath.Glob(pattern) // fails on a malformed pattern only
	slices.SortFunc(versioned, func(a, b string) int { return versionIn(b) - versionIn(a) })
	for _, dir := range append(filepath.SplitList(path), versioned...) {
		if filepath.IsAbs(dir) && holdsBinaries(dir) {
			return dir
		}
	}
	return ""
}

// versionIn returns the major version in a path like /usr/lib/postgresql/15/bin; versions before 10 count as their first number.
func versionIn(dir string) int {
	major, _, _ := strings.Cut(filepath.Base(filepath.Dir(dir)), ".")
	version, _ := strconv.Atoi(major)
	return version
}

func holdsBinaries(dir string) bool {
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}
