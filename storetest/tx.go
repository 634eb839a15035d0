package storetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// TxDatabase is a fresh, empty task database that the application reaches with database/sql.
type TxDatabase struct {
	// Store is open on the database.
	Store *holdfast.Store
	// SQL is the application's own pool on the same database. Its transactions can write at once.
	SQL *sql.DB
	// In makes the application's transaction one that a store can work in.
	In func(*sql.Tx) holdfast.Tx
	// Begin begins transactions of another kind than database/sql's, for drivers with one of their own. It
	// takes the place of In, which may be nil then.
	Begin func(ctx context.Context) (*Transaction, error)
}

// Transaction is an open transaction of the application, of any kind.
type Transaction struct {
	// Tx is the transaction as a store takes it.
	Tx holdfast.Tx
	// Exec runs a statement of the application's own.
	Exec func(ctx context.Context, query string) error
	// Commit and Rollback end it. After either, Rollback may be called once more and its error is of no interest.
	Commit, Rollback func(ctx context.Context) error
}

// RunTx tests what a store does inside the application's own transactions: all of it is there after
// the commit, none of it after a rollback, and nobody is woken for nothing. open is called once for
// each test.
func RunTx(t *testing.T, open func(t testing.TB) *TxDatabase) {
	for _, r := range []struct {
		name string
		run  func(x *txTest)
	}{
		{"committed, all is there, with the application's rows", func(x *txTest) {
			x.exec("create table app (id text)")
			wakeups := x.listen()
			tx := x.begin()
			in, quiet := x.listening(tx)
			t, err := in.Submit(x.ctx, &holdfast.Submission{Name: "job", Key: "k", Payload: json.RawMessage(`{"n": 9007199254740993}`), CorrelationID: "c", Delay: time.Millisecond})
			x.must(err)
			many, err := in.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "a"}, {Name: "b", Key: "k", Strategy: holdfast.Replace}, {Name: "c", Key: "l"}})
			x.must(err)
			x.must(tx.Exec(x.ctx, "insert into app values ('"+t.ID+"')"))
			inside, err := in.Get(x.ctx, t.ID)
			x.must(err)
			is(x, "inside, the replaced task", inside.Status, holdfast.Canceled)
			errorIs(x, second(x.s.Get(x.ctx, t.ID)), holdfast.ErrNotFound)
			quiet()
			x.must(tx.Commit(x.ctx))
			x.woken(wakeups)
			same(x, "the task as read outside", x.get(t.ID), inside)
			is(x, "the key's task", x.keyed("k").ID, many[1].ID)
			is(x, "the application's rows", x.number("select count(*) from app join cairnq_tasks on cairnq_tasks.id = app.id"), 1)
			is(x, "the number of tasks", x.rows(), 4)
		}},
		{"rolled back, nothing is there, and nobody was woken", func(x *txTest) {
			was := x.submit(holdfast.Submission{Key: "k"})
			tx := x.begin()
			in, quiet := x.listening(tx)
			x.must(second(in.Submit(x.ctx, &holdfast.Submission{Name: "job"})))
			x.must(second(in.Submit(x.ctx, &holdfast.Submission{Name: "job", Key: "k", Strategy: holdfast.Replace})))
			x.must(second(in.SubmitMany(x.ctx, []*holdfast.Submission{{Name: "a"}, {Name: "b"}})))
			x.must(tx.Rollback(x.ctx))
			quiet()
			same(x, "the task that was there", x.get(was.ID), was)
			is(x, "the key's task", x.keyed("k").ID, was.ID)
			is(x, "the number of tasks", x.rows(), 1)
		}},
		{"a task is completed with the application's rows, or neither", func(x *txTest) {
			x.exec("create table app (id text)")
			for _, commit := range []bool{false, true} {
				t := x.running("w", holdfast.Submission{})
				tx := x.begin()
				x.must(tx.Exec(x.ctx, "insert into app values ('"+t.ID+"')"))
				status, err := x.s.In(tx.Tx).Complete(x.ctx, t, json.RawMessage(`{"done":true}`))
				x.must(err)
				is(x, "the status answered", status, holdfast.Succeeded)
				if !commit {
					x.must(tx.Rollback(x.ctx))
					same(x, "the task", x.get(t.ID), t)
					is(x, "the application's rows", x.number("select count(*) from app"), 0)
					x.must(second(x.s.Complete(x.ctx, t, nil))) // it is still the worker's
					continue
				}
				x.must(tx.Commit(x.ctx))
				x.statusIs(t.ID, holdfast.Succeeded)
				sameJSON(x, "the result", x.get(t.ID).Result, json.RawMessage(`{"done":true}`))
				is(x, "the application's rows", x.number("select count(*) from app"), 1)
			}
		}},
		{"a lost lease is told inside, and the transaction lives on", func(x *txTest) {
			t := x.running("w", holdfast.Submission{})
			x.must(second(x.s.Complete(x.ctx, t, nil)))
			tx := x.begin()
			in := x.s.In(tx.Tx)
			errorIs(x, second(in.Complete(x.ctx, t, nil)), holdfast.ErrLeaseLost)
			errorIs(x, in.Progress(x.ctx, t, nil, "m"), holdfast.ErrLeaseLost)
			x.must(second(in.Submit(x.ctx, &holdfast.Submission{Name: "job"})))
			x.must(tx.Commit(x.ctx))
			is(x, "the number of tasks", x.rows(), 2)
		}},
		{"what is refused inside is refused before anything is written", func(x *txTest) {
			x.submit(holdfast.Submission{Key: "k"})
			tx := x.begin()
			in := x.s.In(tx.Tx)
			refused(x, second(in.Submit(x.ctx, &holdfast.Submission{Name: "job", MaxAttempts: -1})), "max_attempts")
			errorIs(x, second(in.Submit(x.ctx, &holdfast.Submission{Name: "job", Payload: json.RawMessage(`{`)})), holdfast.ErrNotJSON)
			errorIs(x, second(in.Submit(x.ctx, &holdfast.Submission{Name: "job", Key: "k", Strategy: holdfast.Reject})), holdfast.ErrAlreadyExists)
			errorIs(x, second(in.Cancel(x.ctx, "task_none")), holdfast.ErrNotFound)
			x.must(second(in.Submit(x.ctx, &holdfast.Submission{Name: "job"})))
			x.must(tx.Commit(x.ctx))
			is(x, "the number of tasks", x.rows(), 2)
		}},
		{"every operation works inside", func(x *txTest) {
			tx := x.begin()
			in := x.s.In(tx.Tx)
			x.must(second(in.Submit(x.ctx, &holdfast.Submission{Name: "job", Key: "k", Priority: 2})))
			for _, n := range []string{"a", "b", "c", "d"} {
				x.must(second(in.Submit(x.ctx, &holdfast.Submission{Name: n})))
			}
			got, err := in.Claim(x.ctx, holdfast.Claim{Queues: []string{"default"}, WorkerID: "w", Lease: lease, Draws: []holdfast.Draw{{Names: []string{"job"}, Limit: 1}, {AnyName: true, Limit: 10}}})
			x.must(err)
			is(x, "claimed", len(got.Tasks), 5)
			byName := map[string]*holdfast.Task{}
			for _, t := range got.Tasks {
				byName[t.Name] = t
			}
			half := 0.5
			x.must(in.Progress(x.ctx, byName["job"], &half, "half"))
			held, err := in.Heartbeat(x.ctx, "w", 2*lease, byName["job"].ID, byName["a"].ID)
			x.must(err)
			is(x, "held", len(held), 2)
			is(x, "the answer to cancel", firstOf(in.CancelByKey(x.ctx, "k")).Status, holdfast.Running)
			x.settledAs(holdfast.Canceled)(in.Complete(x.ctx, byName["job"], json.RawMessage(`1`)))
			x.settledAs(holdfast.Succeeded)(in.Succeed(x.ctx, byName["a"], json.RawMessage(`[1]`)))
			x.settledAs(holdfast.Failed)(in.Fail(x.ctx, byName["b"], failure("boom"), false, 0))
			x.settledAs(holdfast.Queued)(in.Release(x.ctx, byName["c"], 0))
			n, err := in.ReleaseMany(x.ctx, []*holdfast.Task{byName["d"]})
			x.must(err)
			is(x, "released", n, 1)
			is(x, "the answer to retry", firstOf(in.RetryByKey(x.ctx, "k", true)).Status, holdfast.Queued)
			is(x, "the answer to retry", firstOf(in.Retry(x.ctx, byName["b"].ID, false)).Attempt, 1)
			is(x, "listed", len(firstOf(in.List(x.ctx, holdfast.Filter{Status: holdfast.Queued}))), 4)
			is(x, "the stats", firstOf(in.Stats(x.ctx, "default")), []holdfast.QueueStats{{Queue: "default", Queued: 4, Succeeded: 1}})
			is(x, "the room", firstOf(in.QueueDepth(x.ctx, "default", 10)), 6)
			is(x, "the status by key", firstOf(in.StatusByKey(x.ctx, "k")).Status, holdfast.Queued)
			is(x, "purged", len(firstOf(in.Purge(x.ctx, holdfast.PurgeFilter{OlderThan: time.Hour}))), 0)
			is(x, "the protocol", firstOf(in.ProtocolVersion(x.ctx)), "1")
			x.must(tx.Commit(x.ctx))
			is(x, "the number of tasks", x.rows(), 5)
			is(x, "queued", x.number("select count(*) from cairnq_tasks where status = 'queued'"), 4)
		}},
	} {
		t.Run(r.name, func(t *testing.T) {
			db := open(t)
			r.run(&txTest{test: begin(t, &Database{Store: db.Store, SQL: db.SQL}), db: db})
		})
	}
}

type txTest struct {
	*test
	db *TxDatabase
}

func (x *txTest) begin() *Transaction {
	x.Helper()
	tx, err := x.db.begin(x.ctx)
	x.must(err)
	x.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(x.ctx)) }) // after a failure; otherwise it has ended already
	return tx
}

func (db *TxDatabase) begin(ctx context.Context) (*Transaction, error) {
	if db.Begin != nil {
		return db.Begin(ctx)
	}
	tx, err := db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &Transaction{
		Tx:       db.In(tx),
		Exec:     func(ctx context.Context, query string) error { return second(tx.ExecContext(ctx, query)) },
		Commit:   func(context.Context) error { return tx.Commit() },
		Rollback: func(context.Context) error { return tx.Rollback() },
	}, nil
}

// listen subscribes to the default queue, as a waiting worker does.
func (x *txTest) listen() <-chan struct{} {
	l := x.s.Dialect().Hub().ListenQueues(holdfast.DefaultQueue)
	x.Cleanup(l.Close)
	wakeups := l.Arm()
	// A dialect may begin with a false alarm. One that does not has a moment to be silent.
	select {
	case <-wakeups:
	case <-time.After(time.Second):
	}
	return wakeups
}

// woken waits for the wake-up that the commit brings.
func (x *txTest) woken(wakeups <-chan struct{}) {
	x.Helper()
	select {
	case <-wakeups:
	case <-time.After(20 * time.Second):
		x.Fatal("nobody was woken by the commit")
	}
}

// listening answers the store inside the transaction, and a check that the store itself has woken
// nobody. It listens to a hub of its own, where the false alarms of watching the database do not come.
func (x *txTest) listening(tx *Transaction) (in *holdfast.Store, quiet func()) {
	hub := holdfast.NewHub(nil)
	l := hub.ListenQueues(holdfast.DefaultQueue)
	x.Cleanup(l.Close)
	store := holdfast.NewStore(ownHub{x.s.Dialect(), hub}, holdfast.WithClock(time.Now))
	return store.In(plainTx{tx.Tx, x.s.Dialect()}), func() {
		x.Helper()
		select {
		case <-l.Arm(): // the store wakes before it returns, so a signal would be here
			x.Fatal("somebody was woken and nothing was committed")
		default:
		}
	}
}

type ownHub struct {
	holdfast.Dialect
	hub *holdfast.Hub
}

func (d ownHub) Hub() *holdfast.Hub { return d.hub }

// plainTx gives the transaction the dialect that it knows.
type plainTx struct {
	holdfast.Tx
	dialect holdfast.Dialect
}

func (t plainTx) Session(holdfast.Dialect) (holdfast.Session, error) { return t.Tx.Session(t.dialect) }
