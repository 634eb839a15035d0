package processtest

import (
	"context"
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
)

// admin is a connection beside the workers'; to another database of the server if one is given.
func admin(t testing.TB, dsn, other string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if other != "" {
		config.Database = other
	}
	conn, err := pgx.ConnectConfig(deadline(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// cut ends the session of a worker, and answers the token of its row before.
func cut(t testing.TB, conn *pgx.Conn, id string) (token string) {
	t.Helper()
	err := conn.QueryRow(deadline(t), `with holder as materialized (
			select w.token, l.pid from holdfast_workers w join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1
				and (l.classid::bigint << 32) | l.objid::bigint = hashtextextended(w.id, w.tableoid::bigint)
			where w.id = $1)
		select token from holder where pg_terminate_backend(pid)`, id).Scan(&token)
	if err != nil {
		t.Fatalf("the session of %s: %v", id, err)
	}
	return token
}

// renewed waits until the worker's row has another token.
func renewed(t testing.TB, conn *pgx.Conn, id, token string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var now string
		err := conn.QueryRow(deadline(t), "select token from holdfast_workers where id = $1", id).Scan(&now)
		if err == nil && now != token {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the session of %s did not come back: %v", id, err)
		}
	}
}

// buried kills a worker process and waits until it has been taken over: since then, whoever looks has
// looked for longer than the grace.
func buried(t testing.TB, d *database, client *holdfast.Client, p *child, id string) {
	t.Helper()
	p.kill()
	dead(t, client, id)
}

// A worker whose session is cut, however often, gets it back and loses nothing.
func TestSessionComesBack(t *testing.T) {
	d := databases["postgres"](t)
	client := holdfast.NewClient(d.open(t))
	conn := admin(t, d.dsn, "")
	w := startLocal(t, d.open(t), holdfast.WorkerConfig{})
	task := submit(t, client, "hold")
	next(t, w.starts)
	victim := d.start(t, process{ID: "victim"})
	for workers(t, client)["victim"] == nil {
		time.Sleep(10 * time.Millisecond)
	}
	heir := startLocal(t, d.open(t), holdfast.WorkerConfig{Queues: []string{"other"}}) // looks, claims nothing
	// For longer than the grace, the session is cut as soon as it is back, so most looks find the lock
	// free; but the token is another each time.
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		renewed(t, conn, w.ID(), cut(t, conn, w.ID()))
	}
	renewed(t, conn, w.ID(), cut(t, conn, w.ID()))
	buried(t, d, client, victim, "victim")
	if task := get(t, client, task.ID); task.Status != holdfast.Running || task.WorkerID != w.ID() || task.Attempt != 1 {
		t.Errorf("%+v", task)
	}
	select {
	case why := <-w.ends:
		t.Errorf("the handler ended: %s", why)
	default:
	}
	if info := workers(t, client)[w.ID()]; info == nil || info.State != holdfast.WorkerRunning || !info.FastRecovery {
		t.Errorf("%+v", info)
	}
	_ = heir
}

// A worker that cannot get its session back treats its leases as lost before anybody takes them, and
// works again when it can.
func TestSessionIsLost(t *testing.T) {
	d := databases["postgres"](t)
	client := holdfast.NewClient(d.open(t))
	config, err := pgx.ParseConfig(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	outside := admin(t, d.dsn, "postgres")
	inside := admin(t, d.dsn, "")
	allow := func(yes string) {
		t.Helper()
		if _, err := outside.Exec(context.Background(), "alter database "+pgx.Identifier{config.Database}.Sanitize()+" allow_connections "+yes); err != nil {
			t.Fatal(err)
		}
	}
	w := startLocal(t, d.open(t), holdfast.WorkerConfig{})
	task := submit(t, client, "hold")
	next(t, w.starts)
	heir := startLocal(t, d.open(t), holdfast.WorkerConfig{})
	allow("false")
	defer allow("true")
	cut(t, inside, w.ID())
	began := time.Now()
	var ended, taken time.Time
	for ended.IsZero() || taken.IsZero() {
		select {
		case why := <-w.ends:
			ended = time.Now()
			if !strings.Contains(why, "lease") {
				t.Errorf("the handler ended by %s", why)
			}
			t.Logf("let go after %v", time.Since(began))
		case <-heir.starts:
			taken = time.Now()
			t.Logf("taken after %v", time.Since(began))
		case id := <-w.starts:
			t.Fatalf("the worker claimed %s while others might take it", id)
		case <-time.After(30 * time.Second):
			t.Fatal("nothing happened")
		}
	}
	if !ended.Before(taken) {
		t.Errorf("let go %v after it was taken", ended.Sub(taken))
	}
	if task := get(t, client, task.ID); task.WorkerID != heir.ID() || task.Attempt != 2 {
		t.Errorf("%+v", task)
	}
	allow("true")
	heir.stop(t, 100*time.Millisecond)
	if id := next(t, w.starts); id != task.ID {
		t.Errorf("back at work with %s", id)
	}
	if info := workers(t, client)[w.ID()]; info == nil || info.State != holdfast.WorkerRunning || info.Running != 1 {
		t.Errorf("%+v", info)
	}
}

// The server starts again while workers run: each gets its session back, or lets go before another
// worker has the task. Never do two run it.
func TestServerRestart(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration
	}{{"short", 0}, {"longer than the leases hold", 4 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			cluster := pgtest.Start(t, pgtest.Options{})
			d := &database{name: "postgres", dsn: cluster.DSN()}
			client := holdfast.NewClient(d.open(t))
			ws := [2]*local{}
			running := map[string]int{}
			for i := range ws {
				ws[i] = startLocal(t, d.open(t), holdfast.WorkerConfig{Concurrency: 2})
			}
			const tasks = 4
			for range tasks {
				submit(t, client, "hold")
			}
			starts := 0
			event := func() {
				t.Helper()
				select {
				case id := <-ws[0].starts:
					running[id]++
				case id := <-ws[1].starts:
					running[id]++
				case <-time.After(60 * time.Second):
					t.Fatalf("nothing happened after %d starts", starts)
				}
				starts++
			}
			for range tasks {
				event()
			}
			if err := cluster.Stop(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.pause) // the outage itself, not a wait for something
			if err := cluster.Start(); err != nil {
				t.Fatal(err)
			}
			// Those that let go are started again; the others were never disturbed.
			for len(ws[0].ends)+len(ws[1].ends) > starts-tasks {
				event()
			}
			lost := len(ws[0].ends) + len(ws[1].ends)
			if c.pause > 0 && lost == 0 {
				t.Error("nobody let go")
			}
			t.Logf("%d of %d tasks were started again", lost, tasks)
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				list, err := client.Workers(deadline(t))
				ok := err == nil && len(list) == 2
				for _, w := range list {
					ok = ok && w.State == holdfast.WorkerRunning && w.FastRecovery && w.Running == 2
				}
				if ok {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%v, %v", list, err)
				}
			}
			for _, w := range ws {
				w.stop(t, 100*time.Millisecond)
			}
		})
	}
}

// Through a pooler, a worker has plain leases and says so once.
func TestPooler(t *testing.T) {
	d := databases["postgres"](t)
	var pooling atomic.Bool
	pooling.Store(true)
	behind := &database{name: "postgres", dsn: pooler(t, d.dsn, &pooling)}
	client := holdfast.NewClient(d.open(t))
	w := startLocal(t, behind.open(t), holdfast.WorkerConfig{})
	submit(t, client, "hold")
	next(t, w.starts)
	if info := workers(t, client)[w.ID()]; info == nil || info.FastRecovery || info.State != holdfast.WorkerRunning {
		t.Errorf("%+v", info)
	}
	if n := strings.Count(w.warned.String(), "no fast recovery"); n != 1 {
		t.Errorf("said %d times:\n%s", n, w.warned.String())
	}
}

// A worker whose way to the database leads through a pooler from now on goes on with plain leases.
func TestPoolerComesInBetween(t *testing.T) {
	d := databases["postgres"](t)
	var pooling atomic.Bool
	behind := &database{name: "postgres", dsn: pooler(t, d.dsn, &pooling)}
	client := holdfast.NewClient(d.open(t))
	w := startLocal(t, behind.open(t), holdfast.WorkerConfig{Heartbeat: time.Second})
	task := submit(t, client, "hold")
	next(t, w.starts)
	if info := workers(t, client)[w.ID()]; info == nil || !info.FastRecovery || info.State != holdfast.WorkerRunning {
		t.Fatalf("%+v", info)
	}
	pooling.Store(true)
	cut(t, admin(t, d.dsn, ""), w.ID())
	if why := next(t, w.ends); !strings.Contains(why, "lease") {
		t.Errorf("the handler ended by %s", why)
	}
	if id := next(t, w.starts); id != task.ID {
		t.Errorf("went on with %s", id)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		info := workers(t, client)[w.ID()]
		if info != nil && info.State == holdfast.WorkerRunning && !info.FastRecovery && info.Running == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", info)
		}
	}
}

// pooler passes connections on and, while it is told to, does to them what PgBouncer and its kind do: the client is told a
// process number (BackendKeyData, "K") that is not the one of a process of the server.
func pooler(t *testing.T, dsn string, pooling *atomic.Bool) string {
	t.Helper()
	return pgtest.Proxy(t, dsn, func(client io.Writer, server io.Reader) {
		head := make([]byte, 5)
		for {
			if _, err := io.ReadFull(server, head); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
			if _, err := io.ReadFull(server, body); err != nil {
				return
			}
			if head[0] == 'K' && pooling.Load() {
				binary.BigEndian.PutUint32(body, 1<<30+7)
			}
			if _, err := client.Write(append(head[:5:5], body...)); err != nil {
				return
			}
		}
	})
}
