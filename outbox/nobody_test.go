package outbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/eda94727/holdfast/record"
)

// Without a client a queue can be looked after: everything but sending.
func TestAQueueIsLookedAfterWithoutItsApplication(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	k := w.client()
	p := w.patient()
	_, err := k.Locate(ctx, p)
	must(t, err)
	b, err := w.tryOpen(k)
	must(t, err)
	ids := enqueue(t, b, create(p), create(p))
	must(t, b.Close())

	b, err = Open(ctx, w.path, nil, Options{})
	must(t, err)
	route, found, err := b.Route(ctx, p)
	if err != nil || !found || route.Host != w.a.host.ID() {
		t.Errorf("the route is %+v, %v", route, err)
	}
	if _, err := b.Flush(ctx); !errors.Is(err, QueueHasNoClient) {
		t.Errorf("a flush: %v", err)
	}
	if err := b.Run(ctx); !errors.Is(err, QueueHasNoClient) {
		t.Errorf("a run: %v", err)
	}
	wantCode(t, b.FollowMigration(ctx, p, "x", "https://x.example"), record.InvalidDiscovery)
	must(t, b.Discard(ctx, ids[0], Change{Reason: "a test"}))
	next, err := b.Replace(ctx, ids[1], create(p), Change{Reason: "a test"})
	must(t, err)
	more := enqueue(t, b, create(p), create(w.patient()))
	must(t, b.Close())

	b = w.open(k)
	report, err := b.Flush(ctx)
	if err != nil || report.Committed != 3 || len(report.Stops) > 0 {
		t.Errorf("the flush: %+v, %v", report, err)
	}
	for _, id := range append(more, next) {
		expect(t, b, id, Committed, "")
	}
}

func TestWithoutAClientNoQueueIsMade(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	path := filepath.Join(dir, "none.db")
	_, err := Open(ctx, path, nil, Options{})
	wantCode(t, err, UnknownQueue)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	path = filepath.Join(dir, "other.db")
	execSQL(t, path, "create table other (x)")
	_, err = Open(ctx, path, nil, Options{})
	wantCode(t, err, UnknownQueue)
	if number(t, path, "select count(*) from sqlite_schema where name = 'other' or name like '%queue%' or name = 'owner'") != 1 {
		t.Error("another program's file has tables of a queue")
	}
}
