package postgres_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/storetest"
)

// cutter passes connections on to a server, message by message, and cuts one when it is told to.
type cutter struct {
	mu    sync.Mutex
	armed bool
	left  int // messages of the server to pass on before the cut
	fired bool
}

// cutAfter lets n more messages of the server through and then cuts that connection.
func (c *cutter) cutAfter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.left, c.fired = true, n, false
}

// disarm tells whether a connection was cut.
func (c *cutter) disarm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	return c.fired
}

func (c *cutter) pass() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.armed:
		return true
	case c.left > 0:
		c.left--
		return true
	}
	c.armed, c.fired = false, true
	return false
}

// listen answers a DSN that leads to the same database through the cutter.
func (c *cutter) listen(t *testing.T, dsn string) string {
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
			if !c.pass() {
				return
			}
			if _, err := client.Write(append(head[:5:5], body...)); err != nil {
				return
			}
		}
	})
}

// TestConnectionIsCutInTheMiddle: each operation, with the connection cut before each of the server's
// messages. The error says that the database was unavailable, what the operation does is done or not done
// and never in part, and the next call works on a new connection.
func TestConnectionIsCutInTheMiddle(t *testing.T) {
	dsn := pgtest.Start(t, pgtest.Options{}).DSN()
	var c cutter
	store := openAt(t, c.listen(t, dsn), postgres.WithMaxConns(1), postgres.WithoutListen())
	direct := openAt(t, dsn, postgres.WithoutListen())
	db := openSQL(t, dsn)
	ctx := t.Context()

	// Each round has names of its own, and a task running and one queued.
	type round struct {
		id              string
		running, queued *holdfast.Task
	}
	count := func(query string, args ...any) (n int) {
		t.Helper()
		if err := db.QueryRowContext(ctx, fmt.Sprintf(query, args...)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	named := func(r round) int { return count("select count(*) from cairnq_tasks where name = '%s'", r.id) }
	status := func(task *holdfast.Task) holdfast.Status {
		now, err := direct.Get(ctx, task.ID)
		if err != nil {
			t.Fatal(err)
		}
		return now.Status
	}
	oneOf := func(n int, all ...int) error {
		for _, a := range all {
			if n == a {
				return nil
			}
		}
		return fmt.Errorf("%d, want one of %v", n, all)
	}
	value := json.RawMessage(`{"v":1}`)
	for _, op := range []struct {
		name string
		do   func(r round) error
		half func(r round) error // whether it was done in part
	}{
		{"submit", func(r round) error { return second(store.Submit(ctx, &holdfast.Submission{Name: r.id})) },
			func(r round) error { return oneOf(named(r), 0, 1) }},
		{"submit many", func(r round) error {
			return second(store.SubmitMany(ctx, []*holdfast.Submission{{Name: r.id}, {Name: r.id}, {Name: r.id}}))
		}, func(r round) error { return oneOf(named(r), 0, 3) }},
		{"submit with a key that replaces", func(r round) error {
			return second(store.SubmitMany(ctx, []*holdfast.Submission{{Name: r.id, Key: r.id, Strategy: holdfast.Replace}, {Name: r.id}}))
		}, func(r round) error {
			n := named(r)
			replaced := status(r.queued) == holdfast.Canceled
			moved := count("select count(*) from cairnq_task_keys where key = '%s' and task_id <> '%s'", r.id, r.queued.ID)
			if replaced != (n == 2) || moved*2 != n {
				return fmt.Errorf("%d new tasks, %d keys moved, the old one replaced: %v", n, moved, replaced)
			}
			return nil
		}},
		{"claim", func(r round) error {
			return second(store.Claim(ctx, holdfast.Claim{Queues: []string{r.id}, Draws: []holdfast.Draw{{AnyName: true, Limit: 9}}, WorkerID: "w", Lease: time.Hour}))
		}, nil},
		{"complete", func(r round) error { return second(store.Complete(ctx, r.running, value)) }, nil},
		{"succeed", func(r round) error { return second(store.Succeed(ctx, r.running, value)) }, nil},
		{"fail", func(r round) error { return second(store.Fail(ctx, r.running, value, false, 0)) },
			func(r round) error {
				// The history of attempts belongs to the failure.
				return oneOf(count("select count(*) from holdfast_attempts where task_id = '%s'", r.running.ID), map[bool]int{true: 1}[status(r.running) == holdfast.Failed])
			}},
		{"release", func(r round) error { return second(store.ReleaseMany(ctx, []*holdfast.Task{r.running, r.queued})) }, nil},
		{"heartbeat", func(r round) error { return second(store.Heartbeat(ctx, "w", time.Hour, r.running.ID)) }, nil},
		{"progress", func(r round) error { return store.Progress(ctx, r.running, nil, "half") }, nil},
		{"cancel", func(r round) error { return second(store.Cancel(ctx, r.queued.ID)) }, nil},
		{"cancel by key", func(r round) error { return second(store.CancelByKey(ctx, r.id)) }, nil},
		{"purge", func(r round) error { return second(store.Purge(ctx, holdfast.PurgeFilter{Queue: r.id})) }, nil},
		{"limit", func(r round) error {
			return store.SetLimit(ctx, holdfast.Limit{Kind: holdfast.LimitName, Name: r.id, Concurrency: 1})
		}, nil},
		{"list", func(r round) error { return second(store.List(ctx, holdfast.Filter{Queue: r.id})) }, nil},
		{"get by key", func(r round) error { return second(store.GetByKey(ctx, r.id)) }, nil},
	} {
		t.Run(op.name, func(t *testing.T) {
			for n := 0; ; n++ {
				r := round{id: fmt.Sprintf("%s %d", op.name, n)}
				tasks, err := direct.SubmitMany(ctx, []*holdfast.Submission{{Name: "running", Queue: r.id, Priority: 1}, {Name: "queued", Queue: r.id, Key: r.id}})
				if err != nil {
					t.Fatal(err)
				}
				got, err := direct.Claim(ctx, holdfast.Claim{Queues: []string{r.id}, Draws: []holdfast.Draw{{Names: []string{"running"}, Limit: 1}}, WorkerID: "w", Lease: time.Hour})
				if err != nil || len(got.Tasks) != 1 {
					t.Fatal(got, err)
				}
				r.running, r.queued = got.Tasks[0], tasks[1]
				works(t, ctx, store)
				c.cutAfter(n)
				err = op.do(r)
				cut := c.disarm()
				switch {
				case !cut && err != nil:
					t.Errorf("without a cut: %v", err)
				case cut && err != nil && !errors.Is(err, holdfast.ErrUnavailable):
					t.Errorf("cut before message %d: %v, want ErrUnavailable", n, err)
				}
				storetest.CheckInvariants(t, db)
				if op.half != nil {
					if err := op.half(r); err != nil {
						t.Errorf("cut before message %d: done in part: %v", n, err)
					}
				}
				if !cut {
					if n == 0 {
						t.Error("nothing was cut")
					}
					return
				}
			}
		})
	}
}

// works waits until the store has a connection again.
func works(t *testing.T, ctx context.Context, store *holdfast.Store) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		_, err := store.Now(ctx)
		switch {
		case err == nil:
			return
		case !errors.Is(err, holdfast.ErrUnavailable) || time.Now().After(end):
			t.Fatal(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
