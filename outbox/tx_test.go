package outbox

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/eda94727/holdfast/record"
)

// shared are the driver's parameters of a connection beside the queue's.
const shared = "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(full)"

// application opens the application's own tables in a queue's file.
func application(t testing.TB, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", name)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec(`create table if not exists form (operation_id text, name text)`)
	must(t, err)
	return db
}

// save is what an application does: a form and its write, together.
func save(ctx context.Context, db *sql.DB, b *Outbox, i record.Intent, commit bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `insert into form values (?, 'x')`, i.OperationID); err != nil {
		return err
	}
	if _, err := b.EnqueueTx(ctx, tx, i); err != nil {
		return err
	}
	if !commit {
		return tx.Rollback()
	}
	return tx.Commit()
}

func TestEnqueueInTheApplicationsTransaction(t *testing.T) {
	for _, withKey := range []bool{false, true} {
		w := newWorld(t)
		ctx := context.Background()
		p := w.patient()
		k := w.client()
		b := w.open(k, func(o *Options) {
			if withKey {
				o.Key = testKey
			}
		})
		db := application(t, b.URI(shared))
		saved, undone := create(p), create(p)
		must(t, save(ctx, db, b, undone, false))
		if _, found, err := b.Route(ctx, p); found || err != nil {
			t.Error("what was rolled back has left a route")
		}
		must(t, save(ctx, db, b, saved, true))
		must(t, save(ctx, db, b, saved, true)) // the same again adds no entry
		other := create(p)
		other.OperationID = saved.OperationID
		other.Resource = []byte(`{"resourceType":"Observation"}`)
		wantCode(t, save(ctx, db, b, other, true), QueueOperationIDConflict)
		wantCode(t, save(ctx, db, b, record.Intent{Operation: record.CreateResource, Patient: "x"}, true), record.InvalidMessage)
		_, err := b.Entry(ctx, undone.OperationID)
		wantCode(t, err, UnknownQueueEntry)
		e := expect(t, b, saved.OperationID, Pending, "")
		next := enqueue(t, b, create(p))[0]
		if after := expect(t, b, next, Pending, ""); after.Sequence <= e.Sequence || e.Position != e.Sequence {
			t.Errorf("%+v, %+v", e, after)
		}
		must(t, flushAll(b))
		if seqs := w.done(k, p, saved.OperationID, next); seqs[0] != 2 || seqs[1] != 3 {
			t.Errorf("%v", seqs)
		}
		var forms int
		must(t, db.QueryRow(`select count(*) from form`).Scan(&forms))
		if forms != 2 {
			t.Errorf("%d forms", forms)
		}
		if v, err := b.Verify(ctx); err != nil || len(v.Problems) > 0 {
			t.Errorf("%+v, %v", v, err)
		}
	}
}

func TestATransactionOnAnotherFileIsRefused(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	b := w.open(k)
	elsewhere := application(t, "file:"+filepath.Join(t.TempDir(), "app.db")+"?"+shared)
	if err := save(ctx, elsewhere, b, create(p), true); err == nil {
		t.Error("a file without a queue was taken")
	}
	second, err := Open(ctx, filepath.Join(t.TempDir(), "second.db"), k, Options{})
	must(t, err)
	wantCode(t, save(ctx, application(t, second.URI(shared)), b, create(p), true), record.InvalidMessage)
	must(t, second.Close())
	if list, err := b.Entries(ctx, Filter{}); len(list) > 0 || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
}

// E3 holds there too.
func TestE3InATransaction(t *testing.T) {
	w := newWorld(t)
	f := &fake{subject: w.appKey.ID(), host: "one"}
	b := w.open(f)
	p := record.NewID()
	enqueue(t, b, create(p))
	f.mu.Lock()
	f.host = "two"
	f.mu.Unlock()
	wantCode(t, save(context.Background(), application(t, b.URI(shared)), b, create(p), true), QueueRouteUpdateRequired)
}

// Run finds what a transaction has committed, without being told. Both ways of
// enqueueing at once keep each lane's order.
func TestRunFindsWhatATransactionCommitted(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	b := w.open(k)
	db := application(t, b.URI(shared))
	running(t, b)
	until(t, b, enqueue(t, b, create(p))[0], Committed) // it runs, and has nothing to do
	alone := create(p)
	must(t, save(ctx, db, b, alone, true))
	until(t, b, alone.OperationID, Committed)
	var all sync.WaitGroup
	for _, add := range []func(record.Intent) error{
		func(i record.Intent) error { return save(ctx, db, b, i, true) },
		func(i record.Intent) error { _, err := b.Enqueue(ctx, i); return err },
	} {
		all.Go(func() {
			for range 30 {
				if err := add(create(p)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	list, err := b.Entries(ctx, Filter{})
	must(t, err)
	var ids []string
	for _, e := range list {
		until(t, b, e.OperationID, Committed)
		ids = append(ids, e.OperationID)
	}
	if seqs := w.done(k, p, ids...); len(ids) != 62 || !slices.IsSorted(seqs) {
		t.Errorf("%d: %v", len(ids), seqs)
	}
}

func TestAClosedQueueTakesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b, err := w.tryOpen(w.client())
	must(t, err)
	db := application(t, b.URI(shared))
	must(t, b.Close())
	if err := save(context.Background(), db, b, create(p), true); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := b.Enqueue(context.Background(), create(p)); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}
