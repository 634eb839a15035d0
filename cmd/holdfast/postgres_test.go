package main

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

// The commands do on Postgres what they do on SQLite.
func TestTheCommandsOnPostgres(t *testing.T) {
	dsn := pgtest.DSN(t)
	t.Setenv(envDatabase, dsn)
	if out := ok(t, "migrate", "--json"); task(t, out)["dialect"] != "postgres" || task(t, out)["schema_version"] != "10" {
		t.Errorf("migrate prints %s", out)
	}
	id := strings.TrimSpace(ok(t, "submit", "job", `{"n": 9007199254740993}`, "--key", "k"))
	if again := strings.TrimSpace(ok(t, "submit", "job", "--key", "k")); again != id {
		t.Errorf("the key gives %s and %s", id, again)
	}
	start(t, "worker", "job", "--exec", "cat")
	if out := ok(t, "wait", "--key", "k", "--timeout", "30s"); !strings.Contains(out, "9007199254740993") {
		t.Errorf("wait prints %s", out)
	}
	if got := task(t, ok(t, "stats", "--json")); got["succeeded"] != 1.0 {
		t.Errorf("stats are %v", got)
	}
	if got := task(t, ok(t, "list", "--status", "succeeded", "--json")); got["id"] != id {
		t.Errorf("list shows %v", got)
	}
	if r := call(t, "", "cancel", id); r.code != exitState {
		t.Errorf("cancel of an ended task: %+v", r)
	}
	if r := call(t, "", "get", "task_none"); r.code != exitNotFound {
		t.Errorf("get of no task: %+v", r)
	}
	if out := ok(t, "purge", "--older-than", "0s"); out != "1 tasks deleted\n" {
		t.Errorf("purge prints %s", out)
	}
	if r := call(t, "", "submit", "job", `{"text": "\u0000"}`); r.code != exitUsage || !strings.Contains(r.err, "payload") {
		t.Errorf("a text that Postgres cannot keep: %+v", r)
	}
}

func TestTheDemoOnPostgres(t *testing.T) {
	dsn := pgtest.DSN(t)
	p := start(t, "demo", "--db", dsn)
	if code := p.wait(t, 60*time.Second); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	checkDemo(t, p.out.String())
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if secret, set := u.User.Password(); set && strings.Contains(p.out.String()+p.err.String(), secret) {
		t.Error("it shows the password")
	}
	store, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if stats, err := holdfast.NewClient(store).Stats(t.Context(), ""); err != nil || len(stats) != 0 {
		t.Errorf("it leaves %+v, %v", stats, err)
	}
}

func TestSchemasAreApart(t *testing.T) {
	db := "--db=" + pgtest.DSN(t)
	ok(t, db, "submit", "x", "--schema", "one")
	ok(t, db, "migrate", "--schema", "two")
	if out := ok(t, db, "list", "--schema", "two", "--json"); out != "" {
		t.Errorf("schema two holds %s", out)
	}
	t.Setenv(envSchema, "one")
	if out := ok(t, db, "list", "--json"); task(t, out)["name"] != "x" {
		t.Errorf("schema one holds %s", out)
	}
	// Without a schema it would come to stand beside the other two.
	t.Setenv(envSchema, "")
	if r := call(t, "", db, "migrate"); r.code != exitDatabase || !strings.Contains(r.err, "schema") {
		t.Errorf("a second installation: %+v", r)
	}
}

func TestAWrongPasswordIsNotShown(t *testing.T) {
	u, err := url.Parse(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("holdfast_nobody", "s3cr3t/word")
	r := call(t, "", "list", "--db", u.String())
	if r.code != exitDatabase || strings.Contains(r.err, "s3cr3t") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}
