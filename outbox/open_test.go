package outbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
)

func TestO1TheFirstOpenStoresTheOwner(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	b, err := w.tryOpen(k)
	must(t, err)
	must(t, b.Close())
	must(t, b.Close()) // again is nothing
	if number(t, w.path, "select count(*) from owner where application = '"+w.appKey.ID()+"'") != 1 {
		t.Error("the owner is not the application")
	}
	w.open(k) // the same subject may open again
}

func TestO2AnotherSubjectIsRefused(t *testing.T) {
	w := newWorld(t)
	b, err := w.tryOpen(w.client())
	must(t, err)
	must(t, b.Close())
	other := w.client(func(c *client.Config) { c.Key, c.StateDir = record.NewKey(), t.TempDir() })
	_, err = w.tryOpen(other)
	wantCode(t, err, WrongQueueOwner)
	w.open(w.client()) // the refused one has closed the file and let go of the lock
}

func TestO3SubmittedBecomesPending(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	b, err := w.tryOpen(k)
	must(t, err)
	states := []State{Pending, Submitted, Committed, Conflicted, Rejected, Discarded, Quarantined}
	var ids []string
	for range states {
		ids = append(ids, enqueue(t, b, create(p))...)
	}
	must(t, b.Close())
	for i, s := range states {
		execSQL(t, w.path, "update queue set "+setState(s)+", error = 'kept' where operation_id = '"+ids[i]+"'")
	}
	b = w.open(k)
	for i, s := range states {
		want := s
		if s == Submitted {
			want = Pending
		}
		e := expect(t, b, ids[i], want, "kept")
		if e.Unsure != (s == Submitted) {
			t.Errorf("%s: unsure is %v", s, e.Unsure)
		}
	}
}

func TestO4EveryLaneHasARoute(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p, q := w.patient(), w.patient()
	k := w.client()
	_, err := k.Locate(ctx, p)
	must(t, err)
	b, err := w.tryOpen(k)
	must(t, err)
	enqueue(t, b, create(p), create(q))
	must(t, b.Close())
	// One without a route, and one with a route that is not the client's.
	execSQL(t, w.path, `delete from queue_routes where patient = '`+p+`'; update queue_routes set host = 'x', generation = 7, address = 'y' where patient = '`+q+`'`)
	b = w.open(k)
	r, found, err := b.Route(ctx, p)
	if want := (Route{p, w.a.host.ID(), 1, w.directory.Address(p)}); err != nil || !found || r != want {
		t.Errorf("the route is %+v %v %v, want %+v", r, found, err, want)
	}
	if _, err := b.Enqueue(ctx, create(q)); !errors.Is(err, QueueRouteUpdateRequired) {
		t.Errorf("%v", err)
	}
	if r, _, err := b.Route(ctx, q); err != nil || r != (Route{q, "x", 7, "y"}) {
		t.Errorf("the existing route was changed: %+v %v", r, err)
	}
}

func TestO5OneOwnerProcess(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	w.open(k)
	_, err := w.tryOpen(k)
	wantCode(t, err, QueueInUse)
	// By another name.
	link := filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(w.path, link))
	_, err = Open(context.Background(), link, k, Options{})
	wantCode(t, err, QueueInUse)
	// Others may share the file itself.
	execSQL(t, w.path, "create table forms (id integer primary key)")
	// From another process, and after its death: TestO5TheLockDiesWithItsProcess.
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	k := w.client()
	ctx := context.Background()
	if _, err := Open(ctx, filepath.Join(t.TempDir(), "none", "q.db"), k, Options{}); err == nil || !strings.Contains(err.Error(), "folder must exist") {
		t.Errorf("%v", err)
	}
	if _, err := Open(ctx, w.path, nil, Options{}); err == nil {
		t.Error("no client passes")
	}
	text := filepath.Join(t.TempDir(), "text.db")
	must(t, os.WriteFile(text, []byte(strings.Repeat("no database\n", 100)), 0o600))
	for range 2 { // the lock is given back
		if _, err := Open(ctx, text, k, Options{}); err == nil || errors.Is(err, QueueInUse) {
			t.Errorf("%v", err)
		}
	}
	b, err := w.tryOpen(k)
	must(t, err)
	must(t, b.Close())
	if _, err := b.Enqueue(ctx, create(record.NewID())); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := b.Flush(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := b.Run(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	execSQL(t, w.path, "update queue_format set version = 2")
	if _, err := w.tryOpen(k); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("%v", err)
	}
}
