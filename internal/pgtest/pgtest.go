// Package pgtest gives tests a real Postgres server.
//
// [DSN] and [Create] hand out empty databases of one server: the one that the environment variable HOLDFAST_TEST_POSTGRES
// names (a DSN whose role may create databases), else a private server that the first call of a process starts in a temporary
// folder from the installed binaries. [Start] starts a private server of its own for a test that stops, crashes or tunes it.
//
// Private servers never outlive the process that started them, however it ends: a small supervisor waits for the process to
// go, stops the server and removes its folder. Nothing has to be called for that, and no goroutine stays behind.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// envDSN names the server to use instead of a private one.
	envDSN = "HOLDFAST_TEST_POSTGRES"
	// envRequire set to 1 turns "skipped, because there is no Postgres" into a failure.
	envRequire = "HOLDFAST_REQUIRE_POSTGRES"

	// howToGet is the whole text of a skip, on one line.
	howToGet = "no Postgres here: install postgresql, or set " + envDSN + "=postgres://user:password@host/database"

	// patience bounds each create and drop of a database, connecting included.
	patience = time.Minute
)

// ErrUnavailable says that this machine has no Postgres to test with: [Create] found neither HOLDFAST_TEST_POSTGRES nor the
// server's binaries. Its text says how to get one.
var ErrUnavailable = errors.New(howToGet)

// shared is the private server behind DSN and Create. It is one for each process because starting one takes a second, and
// nobody has to stop it because its supervisor does.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// DSN creates an empty database for t and returns its DSN, a postgres:// URL unless HOLDFAST_TEST_POSTGRES is written as
// keywords and values. The database is dropped when t ends, whoever is still connected to it.
//
// Where there is no Postgres the test is skipped, or fails when HOLDFAST_REQUIRE_POSTGRES is 1. The test's log says which server
// it is.
func DSN(t testing.TB) string {
	t.Helper()
	dsn, server, drop, err := create(t.Context())
	if err != nil {
		giveUp(t, err)
	}
	t.Logf("pgtest: Postgres %s", server)
	t.Cleanup(func() {
		if err := drop(context.Background()); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return dsn
}

// Create is DSN for code that has no test at hand, such as TestMain: it creates an empty database and returns its DSN and the
// function that drops it. It returns [ErrUnavailable] where there is no Postgres. Both take a minute at most.
func Create(ctx context.Context) (dsn string, drop func(context.Context) error, err error) {
	dsn, _, drop, err = create(ctx)
	return dsn, drop, err
}

// create also tells the server's version, and where its programs or its name come from.
func create(ctx context.Context) (dsn, server string, drop func(context.Context) error, err error) {
	admin, source := os.Getenv(envDSN), envDSN
	if admin == "" {
		shared.once.Do(func() { shared.cluster, shared.err = New(Options{}) })
		if shared.err != nil {
			return "", "", nil, shared.err
		}
		admin, source = shared.cluster.DSN(), shared.cluster.bin
	}
	name := fmt.Sprintf("holdfast_test_%d_%s", os.Getpid(), randomHex(6))
	dsn, err = withDatabase(admin, name)
	if err != nil {
		return "", "", nil, err
	}
	// template0, because nobody can be connected to it: creating from template1 fails while anybody is.
	version, err := execute(ctx, admin, "create database "+name+" template template0")
	if err != nil {
		return "", "", nil, fmt.Errorf("create database %s: %w", name, err)
	}
	drop = func(ctx context.Context) error {
		if _, err := execute(ctx, admin, "drop database if exists "+name+" with (force)"); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	}
	return dsn, version + " from " + source, drop, nil
}

// giveUp ends the test for want of a server: skipped where there is none, failed where one is required or will not work.
func giveUp(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrUnavailable) && os.Getenv(envRequire) != "1" {
		t.Skip(err.Error())
	}
	t.Fatalf("pgtest: %v", err)
}

// execute runs one statement on a connection of its own, and tells the server's version. The names in it are ours, so nothing
// needs quoting.
func execute(ctx context.Context, dsn, statement string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	version = conn.PgConn().ParameterStatus("server_version")
	_, err = conn.Exec(ctx, statement)
	return version, errors.Join(err, conn.Close(ctx))
}

// withDatabase returns dsn with its database replaced. name consists of letters, digits and underscores.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil // of two equal keywords the last one counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		// url.Parse quotes its input, and with it the password.
		return "", fmt.Errorf("%s is no valid URL: write postgres://user:password@host/database", envDSN)
	}
	query := u.Query()
	query.Del("dbname") // would win over the path
	query.Del("database")
	u.Path, u.RawPath, u.RawQuery = "/"+name, "", query.Encode()
	return u.String(), nil
}

// randomHex returns n random bytes as text.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails, says its documentation
	return hex.EncodeToString(b)
}
