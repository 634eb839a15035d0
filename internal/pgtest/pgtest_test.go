package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// connect returns a connection that closes with the test.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// ask returns the one text that a query yields.
func ask(t *testing.T, conn *pgx.Conn, query string, args ...any) string {
	t.Helper()
	var answer string
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

func run(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	var used []string
	for range 2 {
		t.Run("one", func(t *testing.T) {
			conn := connect(t, DSN(t))
			used = append(used, ask(t, conn, "select current_database()"))
			run(t, conn, "create table thing (id int)") // fails if the other one's is here
		})
	}
	conn := connect(t, DSN(t))
	for _, name := range used {
		if n := ask(t, conn, "select count(*)::text from pg_database where datname = $1", name); n != "0" {
			t.Errorf("database %s outlived its test", name)
		}
	}
}

func TestADatabaseGoesWhoeverIsConnected(t *testing.T) {
	needServer(t)
	dsn, drop, err := Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn)
	if err := drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a session in the dropped database lives on")
	}
}

// needServer skips or fails the test like DSN.
func needServer(t *testing.T) {
	t.Helper()
	DSN(t)
}

// needBinaries skips or fails the test like Start.
func needBinaries(t *testing.T) {
	t.Helper()
	if findBinaries(os.Getenv("PATH"), installed) == "" {
		giveUp(t, errNoBinaries)
	}
}

func TestUsesTheServerOfTheEnvironment(t *testing.T) {
	server := Start(t, Options{Settings: map[string]string{"cluster_name": "the chosen one"}})
	for name, admin := range map[string]string{
		"url":      server.DSN(),
		"query":    strings.Replace(server.DSN(), "/postgres?", "/?dbname=postgres&", 1),
		"socket":   server.SocketDSN(),
		"keywords": keywords(t, server.DSN()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(envDSN, admin)
			conn := connect(t, DSN(t))
			if got := ask(t, conn, "select current_setting('cluster_name')"); got != "the chosen one" {
				t.Errorf("connected to cluster %q", got)
			}
			if got := ask(t, conn, "select current_database()"); !strings.HasPrefix(got, "holdfast_test_") {
				t.Errorf("database is %s, not one of its own", got)
			}
		})
	}
}

func keywords(t *testing.T, dsn string) string {
	t.Helper()
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimSuffix(dsn, "/postgres?sslmode=disable"), "127.0.0.1:")
	return "host=127.0.0.1 port=" + port + " user=" + c.User + " password=" + c.Password + " dbname=" + c.Database
}

func TestAWrongEnvironmentFailsAndKeepsThePassword(t *testing.T) {
	for _, admin := range []string{
		"postgres://me:s3cret@127.0.0.1:1/x", // nobody listens there
		"postgres://me:s3cret@127.0.0.1:port/x",
		"host=127.0.0.1 port=1 user=me password=s3cret nonsense",
	} {
		t.Setenv(envDSN, admin)
		_, _, err := Create(t.Context())
		if err == nil {
			t.Fatalf("%s was accepted", admin)
		}
		if errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: a test would be skipped: %v", admin, err)
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

// verdict records how a test would have ended.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper()               {}
func (v *verdict) Skip(args ...any)      { v.skipped = args[0].(string); panic(v) }
func (v *verdict) Fatalf(string, ...any) { v.failed = "yes"; panic(v) }

func TestWithoutAServer(t *testing.T) {
	end := func(err error) (v verdict) {
		defer func() { recover() }()
		giveUp(&v, err)
		return v
	}
	for _, err := range []error{ErrUnavailable, errNoBinaries} {
		t.Setenv(envRequire, "")
		if v := end(err); v.failed != "" || !strings.Contains(v.skipped, "install postgresql") || strings.Contains(v.skipped, "\n") {
			t.Errorf("optional: skipped with %q, failed: %q", v.skipped, v.failed)
		}
		t.Setenv(envRequire, "1")
		if v := end(err); v.failed == "" || v.skipped != "" {
			t.Errorf("required: skipped with %q, failed: %q", v.skipped, v.failed)
		}
	}
	t.Setenv(envRequire, "")
	if v := end(errors.New("will not start")); v.failed == "" {
		t.Error("a server that is there and does not work must fail the test")
	}
}

func TestFindsTheNewestBinaries(t *testing.T) {
	install := func(dir string, mode os.FileMode) string {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	base := t.TempDir()
	pattern := filepath.Join(base, "*", "bin")
	onlyClient := filepath.Join(base, "client")
	if err := os.MkdirAll(onlyClient, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := findBinaries(onlyClient, pattern); got != "" {
		t.Errorf("found %q where there is nothing", got)
	}
	install(filepath.Join(base, "18", "bin"), 0o644) // not executable
	install(filepath.Join(base, "9.6", "bin"), 0o755)
	newest := install(filepath.Join(base, "17", "bin"), 0o755)
	if got := findBinaries(onlyClient, pattern); got != newest {
		t.Errorf("found %q, want %q", got, newest)
	}
	first := install(filepath.Join(base, "first"), 0o755)
	path := strings.Join([]string{onlyClient, first}, string(filepath.ListSeparator))
	if got := findBinaries(path, pattern); got != first {
		t.Errorf("found %q, want %q of the path", got, first)
	}
}
