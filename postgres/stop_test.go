package postgres_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
)

// slow passes connections on to a server. While its lock is held the server's answers stay on the way.
type slow struct {
	dsn     string
	answers sync.RWMutex
}

func newSlow(t *testing.T, dsn string) *slow {
	t.Helper()
	s := &slow{}
	s.dsn = pgtest.Proxy(t, dsn, func(client io.Writer, server io.Reader) {
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			s.answers.RLock()
			_, err = client.Write(b[:n])
			s.answers.RUnlock()
			if err != nil {
				return
			}
		}
	})
	return s
}

// TestStopWaitsForItsClaim: a worker is stopped while the answer to a claim is on its way. What was
// claimed is handed back.
func TestStopWaitsForItsClaim(t *testing.T) {
	dsn := pgtest.DSN(t)
	way := newSlow(t, dsn)
	store := openAt(t, way.dsn, postgres.WithoutListen())
	ctx := t.Context()
	other := connect(t, dsn)
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Lease: time.Hour, Heartbeat: time.Minute, Poll: 10 * time.Millisecond})
	worker.Handle("n", func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
	if err := worker.Start(ctx); err != nil {
		t.Fatal(err)
	}
	state := func() (status string, attempt int) {
		t.Helper()
		if err := other.QueryRow(ctx, "select status, attempt from cairnq_tasks where id = 'task_1'").Scan(&status, &attempt); err != nil {
			t.Fatal(err)
		}
		return status, attempt
	}
	claimed := false
	for try := 0; !claimed; try++ {
		// The answer that is held back may be one that says that there is nothing. Then it is tried again, soon
		// enough for the worker's session to live on, and once the worker is at work again.
		if _, err := other.Exec(ctx, `delete from cairnq_tasks`); err != nil {
			t.Fatal(err)
		}
		way.answers.Lock()
		if _, err := other.Exec(ctx, `insert into cairnq_tasks (id, name, status, payload, run_at_ms, created_at_ms, updated_at_ms) values ('task_1', 'n', 'queued', '{}', 1, 1, 1)`); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(300 * time.Millisecond); !claimed && time.Now().Before(end); {
			status, _ := state()
			claimed = status == "running"
		}
		if !claimed {
			way.answers.Unlock()
			if try > 100 {
				t.Fatal("the task is never claimed while answers are held back")
			}
			for end := time.Now().Add(30 * time.Second); ; {
				if status, _ := state(); status == "succeeded" {
					break
				} else if time.Now().After(end) {
					t.Fatalf("the task is still %s, though answers arrive", status)
				}
			}
		}
	}
	stopped := make(chan error, 1)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	go func() { stopped <- worker.Stop(short) }()
	<-short.Done()
	select {
	case <-stopped:
		t.Error("the worker did not wait for its claim")
	case <-time.After(100 * time.Millisecond):
	}
	way.answers.Unlock()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if status, attempt := state(); status != "queued" || attempt != 0 {
		t.Errorf("the task is %s with attempt %d, want it queued as if nobody had claimed it", status, attempt)
	}
}
