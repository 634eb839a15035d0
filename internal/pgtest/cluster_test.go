package pgtest

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

func TestAServerThatGoesAwayAndComesBack(t *testing.T) {
	server := Start(t, Options{})
	dsn := server.DSN()
	conn := connect(t, dsn)
	run(t, conn, "create table kept (n int)")

	for name, end := range map[string]func() error{"stop": server.Stop, "crash": server.Crash} {
		before := ask(t, conn, "select count(*)::text from kept")
		run(t, conn, "insert into kept values (1)")
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := conn.Ping(t.Context())
		var told *pgconn.PgError
		if err == nil || name == "stop" && (!errors.As(err, &told) || told.Code != "57P01") {
			t.Errorf("%s: the session ended with %v", name, err)
		}
		if _, err := pgx.Connect(t.Context(), dsn); err == nil {
			t.Errorf("%s: the server still answers", name)
		}
		if err := end(); err != nil {
			t.Errorf("second %s: %v", name, err)
		}
		for range 2 {
			if err := server.Start(); err != nil {
				t.Fatalf("start after %s: %v", name, err)
			}
		}
		if server.DSN() != dsn {
			t.Errorf("%s: the DSN changed", name)
		}
		conn = connect(t, dsn)
		if after := ask(t, conn, "select count(*)::text from kept"); after == before {
			t.Errorf("%s: lost a committed row", name)
		}
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if n := ask(t, connect(t, server.SocketDSN()), "select count(*)::text from kept"); n != "2" {
		t.Errorf("%s rows by way of the socket, want 2", n)
	}
}

func TestSettings(t *testing.T) {
	quick := connect(t, Start(t, Options{Settings: map[string]string{"application_name": "it's", "port": "1"}}).DSN())
	durable := connect(t, Start(t, Options{Durable: true}).DSN())
	for _, c := range []struct {
		conn           *pgx.Conn
		query, setting string
	}{
		{quick, "show fsync", "off"},
		{quick, "show synchronous_commit", "on"},
		{quick, "show application_name", "it's"},
		{durable, "show fsync", "on"},
		{durable, "show full_page_writes", "on"},
		{durable, "show synchronous_commit", "on"},
	} {
		if got := ask(t, c.conn, c.query); got != c.setting {
			t.Errorf("%s: %s, want %s", c.query, got, c.setting)
		}
	}
}

func TestOnlyTheSocketGoesWithoutPassword(t *testing.T) {
	server := Start(t, Options{})
	connect(t, server.SocketDSN())
	_, err := pgx.Connect(t.Context(), strings.Replace(server.DSN(), server.password, "wrong", 1))
	var told *pgconn.PgError
	if !errors.As(err, &told) || told.Code != "28P01" {
		t.Errorf("a wrong password over TCP: %v", err)
	}
	if info, err := os.Stat(server.root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder is open to others: %v, %v", info.Mode(), err)
	}
}

func TestABadSettingTellsWhy(t *testing.T) {
	needBinaries(t)
	_, err := New(Options{Settings: map[string]string{"work_mem": "a lot"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "work_mem"`) {
		t.Errorf("got %v", err)
	}
}

func TestLeavesNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t)
	DSN(t)
	server := Start(t, Options{})
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
}
