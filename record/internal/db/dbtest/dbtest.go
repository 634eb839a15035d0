// Package dbtest gives tests a real SQLite file and a real Postgres server.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Each runs the test once on a fresh SQLite file and once on a fresh Postgres
// database. The server is the package's own, started at the first use: its
// binaries are looked for in HOLDFAST_PG_BIN, then where Debian puts them.
func Each(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t)) })
}

// SQLite returns the path of a file that does not exist yet.
func SQLite(t testing.TB) string { return filepath.Join(t.TempDir(), "records.db") }

var (
	server struct {
		once sync.Once
		dir  string
		port int
		cmd  *exec.Cmd
		err  error
	}
	databases atomic.Int64
)

// Main runs a package's tests and stops the server that they may have started.
// Call it from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if server.cmd != nil {
		server.cmd.Process.Signal(syscall.SIGINT) // fast shutdown
		server.cmd.Wait()
	}
	if server.dir != "" {
		os.RemoveAll(server.dir)
	}
	os.Exit(code)
}

// Postgres returns the URL of a new, empty database.
func Postgres(t testing.TB) string {
	t.Helper()
	server.once.Do(func() { server.err = start() })
	if server.err != nil {
		t.Fatalf("start Postgres: %v", server.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url("postgres"))
	if err != nil {
		t.Fatalf("connect to Postgres: %v", err)
	}
	defer conn.Close(ctx)
	name := fmt.Sprintf("test%d", databases.Add(1))
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		t.Fatalf("create database: %v", err)
	}
	return url(name)
}

func url(database string) string {
	return fmt.Sprintf("postgres://holdfast@127.0.0.1:%d/%s", server.port, database)
}

func start() error {
	bin, err := binaries()
	if err != nil {
		return err
	}
	if server.dir, err = os.MkdirTemp("", "pg"); err != nil {
		return err
	}
	// Postgres refuses to run as root.
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		other, err := user.Lookup("postgres")
		if err != nil {
			if other, err = user.Lookup("nobody"); err != nil {
				return err
			}
		}
		uid, _ := strconv.Atoi(other.Uid)
		gid, _ := strconv.Atoi(other.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(server.dir, uid, gid); err != nil {
			return err
		}
	}
	attr.Pdeathsig = syscall.SIGINT
	data := filepath.Join(server.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "holdfast", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr, initdb.Dir = attr, server.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server.port = listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	server.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(server.port), "-h", "127.0.0.1", "-k", server.dir, "-c", "fsync=off", "-c", "max_connections=200")
	server.cmd.SysProcAttr, server.cmd.Dir = attr, server.dir
	if err := server.cmd.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		conn, err := pgx.Connect(context.Background(), url("postgres"))
		if err == nil {
			return conn.Close(context.Background())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not answer: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func binaries() (string, error) {
	if dir := os.Getenv("HOLDFAST_PG_BIN"); dir != "" {
		return dir, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Sort(found)
	if len(found) == 0 {
		return "", errors.New("no server binaries in /usr/lib/postgresql; install the package postgresql, or set HOLDFAST_PG_BIN")
	}
	return found[len(found)-1], nil
}
