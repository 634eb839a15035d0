package outbox

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
)

// moved is a world with a queue whose patient's record has just moved to Host b,
// one write done before and one waiting.
func moved(t *testing.T) (w *world, k *client.Client, b *Outbox, p, waiting, document, address string) {
	t.Helper()
	w = newWorld(t)
	p = w.patient()
	k = w.client()
	b = w.open(k, manual)
	enqueue(t, b, create(p))
	flushed(t, b)
	waiting = enqueue(t, b, create(p))[0]
	w.move(p)
	document, address = w.document(k, p)
	return w, k, b, p, waiting, document, address
}

func TestM1NoRoute(t *testing.T) {
	// queue_worker_busy: TestF1OneAtATime.
	_, _, b, _, _, document, address := moved(t)
	wantCode(t, b.FollowMigration(context.Background(), record.NewID(), document, address), UnknownQueueRoute)
	wantCode(t, b.FollowMigration(context.Background(), "x", document, address), record.InvalidMessage)
}

func TestM2TheDocumentIsVerified(t *testing.T) {
	w, k, b, p, _, document, address := moved(t)
	ctx := context.Background()
	wantCode(t, b.FollowMigration(ctx, p, "x", address), record.InvalidDiscovery)
	// The route's generation is the floor, also where the client's own is lower.
	execSQL(t, w.path, "update queue_routes set generation = 3")
	wantCode(t, b.FollowMigration(ctx, p, document, address), record.StaleDiscoveryGeneration)
	if l, _ := k.Location(p); l.Generation != 1 {
		t.Errorf("the client follows a document that was refused: %+v", l)
	}
	if r, _, _ := b.Route(ctx, p); r.Host != w.a.host.ID() {
		t.Errorf("%+v", r)
	}
}

func TestM3AnotherRecordOrAddress(t *testing.T) {
	w, k, b, p, _, document, address := moved(t)
	ctx := context.Background()
	q := w.patient()
	enqueue(t, b, create(q))
	otherDocument, otherAddress := w.document(k, q)
	wantCode(t, b.FollowMigration(ctx, p, otherDocument, otherAddress), record.WrongDiscoveryPatient)
	wantCode(t, b.FollowMigration(ctx, p, otherDocument, address), record.WrongDiscoveryPatient)
	wantCode(t, b.FollowMigration(ctx, p, document, otherAddress), record.WrongDiscoveryPatient)
	wantCode(t, b.FollowMigration(ctx, q, document, address), record.WrongDiscoveryPatient) // q's route has no address yet
	if r, _, _ := b.Route(ctx, p); r.Host != w.a.host.ID() || r.Generation != 1 || r.Address != address {
		t.Errorf("%+v", r)
	}
}

func TestM4GenerationsRise(t *testing.T) {
	w, _, b, p, _, document, address := moved(t)
	ctx := context.Background()
	set := func(host, generation string) {
		execSQL(t, w.path, "update queue_routes set host = '"+host+"', generation = "+generation)
	}
	set(w.a.host.ID(), "2") // another Host of the same generation
	wantCode(t, b.FollowMigration(ctx, p, document, address), record.StaleDiscoveryGeneration)
	for _, allowed := range [][2]string{{w.b.host.ID(), "2"}, {w.a.host.ID(), "1"}, {w.a.host.ID(), "null"}} {
		set(allowed[0], allowed[1])
		must(t, b.FollowMigration(ctx, p, document, address))
		if r, _, _ := b.Route(ctx, p); r != (Route{p, w.b.host.ID(), 2, address}) {
			t.Errorf("%+v", r)
		}
	}
}

// A client that cannot save its state changes no route; then it can.
func TestM5TheClientsStateIsSavedFirst(t *testing.T) {
	// Killed between the two: TestCrash8To10AroundFollowMigration.
	w, _, b, p, waiting, document, address := moved(t)
	ctx := context.Background()
	aside := w.state + "-aside"
	must(t, os.Rename(w.state, aside))
	if err := b.FollowMigration(ctx, p, document, address); err == nil {
		t.Error("the state was not saved, and nobody says so")
	}
	if r, _, _ := b.Route(ctx, p); r.Host != w.a.host.ID() {
		t.Errorf("%+v", r)
	}
	flushed(t, b)
	expect(t, b, waiting, Pending, record.RecordMoved)
	must(t, os.Rename(aside, w.state))
	must(t, b.FollowMigration(ctx, p, document, address))
	flushed(t, b)
	expect(t, b, waiting, Committed, "")
	if _, err := os.Stat(filepath.Join(w.state, "trust.json")); err != nil {
		t.Error(err)
	}
}

func TestM6EntriesGoToTheNewHostUnchanged(t *testing.T) {
	w, k, b, p, waiting, document, address := moved(t)
	ctx := context.Background()
	before, err := b.Entry(ctx, waiting)
	must(t, err)
	flushed(t, b)
	expect(t, b, waiting, Pending, record.RecordMoved)
	must(t, b.FollowMigration(ctx, p, document, address))
	after := expect(t, b, waiting, Pending, record.RecordMoved)
	if string(after.IntentJSON) != string(before.IntentJSON) || after.Sequence != before.Sequence {
		t.Error("the entry was changed")
	}
	was := w.a.writes.Load()
	var body string
	w.b.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
		body = r.Header.Get("Content-Digest")
		h.ServeHTTP(rw, r)
	})
	flushed(t, b)
	e := expect(t, b, waiting, Committed, "")
	receipt, err := record.VerifyReceipt(e.Result.Receipt, w.b.host.ID())
	if err != nil || receipt.Seq != 3 || body != record.ContentDigest(observation(p)) {
		t.Errorf("%+v %v %s", receipt, err, body)
	}
	if w.a.writes.Load() != was {
		t.Error("the old Host got something")
	}
	w.done(k, p, waiting)
}

// Without ManualMoves a flush follows by itself, and a lane that cannot be followed
// waits.
func TestAFlushFollowsByItself(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p, q := w.patient(), w.patient()
	k := w.client()
	b := w.open(k)
	enqueue(t, b, create(p), create(q))
	flushed(t, b)
	w.move(p)
	ids := enqueue(t, b, create(p), create(p), create(q))
	if r := flushed(t, b); r.Committed != 3 || r.Sent != 4 {
		t.Errorf("%+v", r)
	}
	if r, _, _ := b.Route(ctx, p); r.Host != w.b.host.ID() || r.Generation != 2 {
		t.Errorf("%+v", r)
	}
	w.done(k, p, ids[0], ids[1])
	// The client knows already (it read something, say), and the route does not.
	w.move(q)
	_, err := k.Locate(ctx, q)
	must(t, err)
	execSQL(t, w.path, "update queue set "+setState(Pending)+" where operation_id = '"+ids[2]+"'")
	if r := flushed(t, b); r.Committed != 1 || r.Sent != 1 {
		t.Errorf("%+v", r)
	}
	// A Host that says moved while the Directory knows nothing of it is not obeyed.
	id := enqueue(t, b, create(p))[0]
	w.b.code(record.RecordMoved, "Link", `<`+w.dirServer.URL+`>; rel="describedby"`)
	if r := flushed(t, b); r.Sent != 2 || len(r.Stops) != 1 {
		t.Errorf("%+v", r)
	}
	expect(t, b, id, Pending, record.RecordMoved)
	// The Directory cannot be asked.
	w.dirServer.Close()
	r := flushed(t, b)
	if len(r.Stops) != 1 || !strings.Contains(string(r.Stops[0].Code), "moved") {
		t.Errorf("%+v", r)
	}
}
