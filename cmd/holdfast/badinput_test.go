package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestBadInputIsRefusedByName(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		args []string
		code int
		says string // part of what standard error names
	}{
		{[]string{"bogus"}, exitUsage, `"bogus"`},
		{[]string{"list", "--bogus"}, exitUsage, "--bogus"},
		{[]string{"list", "extra"}, exitUsage, "extra"},
		{[]string{"submit"}, exitUsage, "arg"},
		{[]string{"submit", "a", "{}", "c"}, exitUsage, "arg"},
		{[]string{"submit", ""}, exitUsage, "name"},
		{[]string{"submit", long}, exitUsage, "256 bytes"},
		{[]string{"submit", "a\xff"}, exitUsage, "UTF-8"},
		{[]string{"submit", "a", "{"}, exitUsage, "payload"},
		{[]string{"submit", "a", "NaN"}, exitUsage, "payload"},
		{[]string{"submit", "a", ""}, exitUsage, "payload"},
		{[]string{"submit", "a", "{}", "--metadata", "x"}, exitUsage, "metadata"},
		{[]string{"submit", "a", "{}", "--queue", ""}, exitUsage, "queue"},
		{[]string{"submit", "a", "{}", "--queue", long}, exitUsage, "queue"},
		{[]string{"submit", "a", "{}", "--key", ""}, exitUsage, "key"},
		{[]string{"submit", "a", "{}", "--correlation-id", ""}, exitUsage, "correlation_id"},
		{[]string{"submit", "a", "{}", "--key", "k", "--strategy", "steal"}, exitUsage, "steal"},
		{[]string{"submit", "a", "{}", "--strategy", "reject"}, exitUsage, "--key"},
		{[]string{"submit", "a", "{}", "--priority", "3000000000"}, exitUsage, "priority"},
		{[]string{"submit", "a", "{}", "--priority", "high"}, exitUsage, "--priority"},
		{[]string{"submit", "a", "{}", "--max-attempts", "0"}, exitUsage, "max_attempts"},
		{[]string{"submit", "a", "{}", "--max-attempts", "-1"}, exitUsage, "max_attempts"},
		{[]string{"submit", "a", "{}", "--max-attempts", "3000000000"}, exitUsage, "max_attempts"},
		{[]string{"submit", "a", "{}", "--delay", "-1s"}, exitUsage, "negative"},
		{[]string{"submit", "a", "{}", "--delay", "soon"}, exitUsage, "soon"},
		{[]string{"submit", "a", "{}", "--delay", "40000d"}, exitUsage, "100 years"},
		{[]string{"submit", "a", "{}", "--at", "tomorrow"}, exitUsage, "tomorrow"},
		{[]string{"submit", "a", "{}", "--at", "2100-01-01", "--delay", "1s"}, exitUsage, "delay"},
		{[]string{"submit", "a", "{}", "--parent", "task_none"}, exitNotFound, "--parent"},
		{[]string{"submit", "a", "{}", "--timeout", "1s"}, exitUsage, "--wait"},
		{[]string{"submit", "a", "{}", "--lines"}, exitUsage, "--lines"},
		{[]string{"get"}, exitUsage, "--key"},
		{[]string{"get", "a", "b"}, exitUsage, "arg"},
		{[]string{"get", "a", "--key", "k"}, exitUsage, "not both"},
		{[]string{"get", "task_none"}, exitNotFound, "task_none"},
		{[]string{"get", "--key", "none"}, exitNotFound, `"none"`},
		{[]string{"list", "--status", "done"}, exitUsage, `"done"`},
		{[]string{"list", "--limit", "0"}, exitUsage, "--limit"},
		{[]string{"list", "--limit", "-1"}, exitUsage, "--limit"},
		{[]string{"list", "--offset", "-1"}, exitUsage, "offset"},
		{[]string{"list", "--after", "x"}, exitUsage, "after"},
		{[]string{"list", "--after", "task_none"}, exitNotFound, "--after"},
		{[]string{"wait"}, exitUsage, "--key"},
		{[]string{"wait", "task_none"}, exitNotFound, "task_none"},
		{[]string{"watch", "task_none"}, exitNotFound, "task_none"},
		{[]string{"cancel"}, exitUsage, "--key"},
		{[]string{"cancel", "task_none"}, exitNotFound, "task_none"},
		{[]string{"retry", "--key", "none"}, exitNotFound, "none"},
		{[]string{"purge"}, exitUsage, "older-than"},
		{[]string{"purge", "--older-than", "-1d"}, exitUsage, "negative"},
		{[]string{"purge", "--older-than", "1d", "--status", "running"}, exitUsage, "running"},
		{[]string{"purge", "--older-than", "1d", "--status", "bogus"}, exitUsage, "bogus"},
		{[]string{"purge", "--older-than", "1d", "--limit", "-5"}, exitUsage, "--limit"},
		{[]string{"worker", "--exec", "true"}, exitUsage, "arg"},
		{[]string{"worker", "a"}, exitUsage, "exec"},
		{[]string{"worker", "a", "--exec", ""}, exitUsage, "--exec"},
		{[]string{"worker", "a", "a", "--exec", "true"}, exitUsage, "twice"},
		{[]string{"worker", long, "--exec", "true"}, exitUsage, "no task name"},
		{[]string{"worker", "", "--exec", "true"}, exitUsage, "no task name"},
		{[]string{"worker", "a", "--exec", "true", "--concurrency", "-1"}, exitUsage, "concurrency"},
		{[]string{"worker", "a", "--exec", "true", "--lease", "1ms"}, exitUsage, "lease"},
		{[]string{"worker", "a", "--exec", "true", "--heartbeat", "20s"}, exitUsage, "heartbeat"},
		{[]string{"worker", "a", "--exec", "true", "--queue", ""}, exitUsage, "queue"},
		{[]string{"worker", "a", "--exec", "true", "--output", "xml"}, exitUsage, "xml"},
		{[]string{"worker", "a", "--exec", "true", "--max-output", "much"}, exitUsage, "much"},
		{[]string{"worker", "a", "--exec", "true", "--log-format", "xml"}, exitUsage, "xml"},
		{[]string{"migrate", "--synchronous", "off"}, exitUsage, "off"},
		{[]string{"migrate", "--schema", "s"}, exitUsage, "--schema"},
		{[]string{"demo", "extra"}, exitUsage, "extra"},
		{[]string{"demo", "--only", "third"}, exitUsage, "third"},
		{[]string{"demo", "--only", "records"}, exitUsage, "--db"},
	} {
		db := newDB(t)
		ok(t, db, "migrate")
		r := call(t, "", append([]string{db}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%.80q: exit code %d (want %d), says %q (want %q in it)", c.args, r.code, c.code, r.err, c.says)
		}
		if r.out != "" {
			t.Errorf("%.80q prints %q beside its error", c.args, r.out)
		}
		if left := ok(t, db, "list", "--json"); left != "" {
			t.Errorf("%.80q left something behind: %s", c.args, left)
		}
	}
}

func TestDatabaseTroubleHasACodeOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	content := []byte(strings.Repeat("this is no database\n", 100))
	if err := os.WriteFile(text, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"list"}, exitUsage, "HOLDFAST_DB"},
		{[]string{"list", "--db", filepath.Join(dir, "none.db")}, exitDatabase, "no such file"},
		{[]string{"submit", "x", "--db", filepath.Join(dir, "none", "tasks.db")}, exitDatabase, "folder"},
		{[]string{"submit", "x", "--db", dir}, exitDatabase, "directory"},
		{[]string{"submit", "x", "--db", text}, exitDatabase, "not a database"},
		{[]string{"submit", "x", "--db", ":memory:"}, exitUsage, "memory"},
		{[]string{"submit", "x", "--db", "sqlite:"}, exitUsage, "no file"},
		{[]string{"submit", "x", "--db", "mysql://u@h/d"}, exitUsage, "mysql"},
		{[]string{"list", "--db", "postgres://u@h/d", "--synchronous", "full"}, exitUsage, "--synchronous"},
	} {
		r := call(t, "", c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d (want %d), says %q (want %q in it)", c.args, r.code, c.code, r.err, c.says)
		}
	}
	if now, err := os.ReadFile(text); err != nil || !bytes.Equal(now, content) {
		t.Error("a file that is no database was changed")
	}
	if _, err := os.Stat(filepath.Join(dir, "none.db")); err == nil {
		t.Error("list created a database")
	}
}

func TestPasswordsAreNeverShown(t *testing.T) {
	for _, dsn := range []string{
		"postgres://user:se%2Fcret@127.0.0.1:1/db?connect_timeout=1",
		"postgresql://user:se%2Fcret@127.0.0.1:1/db?sslmode=bogus",
		"postgres://127.0.0.1:1/db?user=u&password=se%2Fcret&connect_timeout=1",
		"postgres://user:se%2Fcret@[broken/db",
		"postgres:/user:se%2Fcret@127.0.0.1:1/db?connect_timeout=1",
		"postgres://user:se%2Fcret@127.0.0.1:port/db",
		"host=127.0.0.1 port=1 user=u password=se%2Fcret dbname=d connect_timeout=1",
		"host=127.0.0.1 port=1 user=u password='se/cret' dbname=d connect_timeout=1",
		"user=u password=se/cret port=none",
		"mysql://user:se%2Fcret@127.0.0.1/db",
	} {
		for _, args := range [][]string{{"list"}, {"submit", "x"}, {"migrate", "--json"}, {"demo"}, {"worker", "x", "--exec", "true"}} {
			r := call(t, "", append(args, "--db", dsn)...)
			if r.code != exitDatabase && r.code != exitUsage {
				t.Errorf("%v on %s: exit code %d, %s", args, dsn, r.code, r.err)
			}
			for _, secret := range []string{"se%2Fcret", "se/cret"} {
				if strings.Contains(r.out+r.err, secret) {
					t.Errorf("%v on %s shows the password: %s%s", args, dsn, r.out, r.err)
				}
			}
		}
	}
}

func TestAnOutputThatFailsIsAFailure(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // /dev/full is Linux's own; the code under test is the same everywhere
	}
	db := newDB(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"submit", "x"}, {"submit", "x", "--json"}, {"list"}, {"list", "--json"}, {"stats"}, {"version"}} {
		var errs bytes.Buffer
		if code := run(t.Context(), append([]string{db}, args...), strings.NewReader(""), full, &errs); code != exitFailed || !strings.Contains(errs.String(), "no space") {
			t.Errorf("%v: exit code %d, %s", args, code, &errs)
		}
	}
}

// Reading standard input must not keep a program that shall end.
func TestSubmitEndsWhileItsInputIsOpen(t *testing.T) {
	in, far, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer far.Close() // till then: a file that nobody has is closed by the garbage collector, and the input ends
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	var out, errs bytes.Buffer
	if code := run(ctx, []string{newDB(t), "submit", "x", "-"}, in, &out, &errs); code != exitFailed {
		t.Errorf("exit code %d, %s", code, &errs)
	}
}
