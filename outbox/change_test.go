package outbox

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

var because = Change{Reason: "the nurse has looked", By: "ada"}

func TestRetry(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	b := w.open(w.client())
	id := enqueue(t, b, create(p))[0]
	wantCode(t, b.Retry(ctx, id, because), QueueStateConflict)
	wantCode(t, b.Retry(ctx, record.NewID(), because), UnknownQueueEntry)
	w.a.code(record.InsufficientScope)
	flushed(t, b)
	expect(t, b, id, Rejected, record.InsufficientScope)
	for _, ch := range []Change{{}, {Reason: strings.Repeat("x", maxReason+1)}, {Reason: "x", By: strings.Repeat("x", maxReason+1)}} {
		wantCode(t, b.Retry(ctx, id, ch), record.InvalidMessage)
	}
	w.a.unwrap()
	must(t, b.Retry(ctx, id, because))
	expect(t, b, id, Pending, "")
	flushed(t, b)
	expect(t, b, id, Committed, "")
	wantCode(t, b.Retry(ctx, id, because), QueueStateConflict)
	lines, err := b.Audit(ctx, id, 0, 0)
	must(t, err)
	if len(lines) != 1 || lines[0].Action != "retry" || lines[0].Reason != because.Reason || lines[0].By != "ada" || lines[0].State != Rejected || lines[0].Code != "insufficient_scope" || lines[0].Time.IsZero() {
		t.Errorf("%+v", lines)
	}
}

// A conflict is rebased: at its place in the lane, before what waits behind it.
func TestRebase(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	b := w.open(k)
	enqueue(t, b, rename(p, "Ada", 1))
	flushed(t, b)
	ids := enqueue(t, b, rename(p, "Grace", 1), create(p))
	flushed(t, b)
	expect(t, b, ids[0], Conflicted, record.VersionConflict)
	newID, err := b.Rebase(ctx, ids[0], 2, because)
	must(t, err)
	old := expect(t, b, ids[0], Discarded, record.VersionConflict)
	fresh := expect(t, b, newID, Pending, "")
	if old.ReplacedBy != newID || fresh.Position != old.Position || fresh.Sequence <= old.Sequence || newID == ids[0] {
		t.Errorf("%+v, %+v", old, fresh)
	}
	was, _ := old.Intent(b.o.Limits)
	is, err := fresh.Intent(b.o.Limits)
	if err != nil || string(is.Resource) != string(was.Resource) || is.BaseVersion != 2 {
		t.Errorf("%+v, %v", is, err)
	}
	if r := flushed(t, b); r.Committed != 2 {
		t.Errorf("%+v", r)
	}
	if seqs := w.done(k, p, newID, ids[1]); seqs[0] >= seqs[1] {
		t.Errorf("the rebased write came after what waited behind it: %v", seqs)
	}
	// The old operation is not enqueued again by mistake, and not rebased twice.
	if again := enqueue(t, b, record.Intent{Operation: was.Operation, Patient: p, OperationID: ids[0], Resource: was.Resource, BaseVersion: 1}); again[0] != ids[0] {
		t.Error(again)
	}
	_, err = b.Rebase(ctx, ids[0], 3, because)
	wantCode(t, err, QueueStateConflict)
	// A creation has no base.
	w.a.code(record.InvalidResource)
	id := enqueue(t, b, create(p))[0]
	flushed(t, b)
	_, err = b.Rebase(ctx, id, 3, because)
	wantCode(t, err, record.InvalidMessage)
	expect(t, b, id, Rejected, record.InvalidResource)
}

func TestReplace(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	b := w.open(k)
	bad := create(p)
	bad.Resource = []byte(strings.Replace(string(bad.Resource), "final", "x", 1))
	ids := enqueue(t, b, bad, create(p))
	flushed(t, b)
	expect(t, b, ids[0], Rejected, record.InvalidResourceStatus)
	_, err := b.Replace(ctx, ids[0], create(w.patient()), because)
	wantCode(t, err, record.InvalidMessage)
	same := create(p)
	same.OperationID = ids[0]
	_, err = b.Replace(ctx, ids[0], same, because)
	wantCode(t, err, QueueOperationIDConflict)
	_, err = b.Replace(ctx, ids[0], bad, because) // the very same
	wantCode(t, err, QueueOperationIDConflict)
	expect(t, b, ids[0], Rejected, record.InvalidResourceStatus)
	good := create(p)
	newID, err := b.Replace(ctx, ids[0], good, because)
	must(t, err)
	if newID != good.OperationID {
		t.Error(newID)
	}
	flushed(t, b)
	if seqs := w.done(k, p, newID, ids[1]); seqs[0] != 2 || seqs[1] != 3 {
		t.Errorf("%v", seqs)
	}
	lines, err := b.Audit(ctx, "", 0, 0)
	must(t, err)
	if len(lines) != 1 || lines[0].Action != "replace" || lines[0].ReplacedBy != newID || lines[0].OperationID != ids[0] {
		t.Errorf("%+v", lines)
	}
}

func TestDiscard(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	b := w.open(w.client())
	ids := enqueue(t, b, rename(p, "Ada", 9), create(p), create(p))
	flushed(t, b)
	must(t, b.Discard(ctx, ids[0], because))
	must(t, b.Discard(ctx, ids[2], because)) // one that waits in the middle
	wantCode(t, b.Discard(ctx, ids[0], because), QueueStateConflict)
	if r := flushed(t, b); r.Committed != 1 || len(r.Stops) != 0 {
		t.Errorf("%+v", r)
	}
	expect(t, b, ids[0], Discarded, record.VersionConflict)
	expect(t, b, ids[2], Discarded, "")
	wantCode(t, b.Discard(ctx, ids[1], because), QueueStateConflict)
	execSQL(t, w.path, "update queue set state = 'submitted', waits = 1 where operation_id = '"+ids[0]+"'")
	wantCode(t, b.Discard(ctx, ids[0], because), QueueWorkerBusy)
}

// What the Host may have done is not put aside by mistake.
func TestAnUnknownOutcomeNeedsAWord(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	b := w.open(k)
	id := enqueue(t, b, rename(p, "Ada", 1))[0]
	w.a.code(record.HostUnavailable)
	flushed(t, b)
	wantCode(t, b.Discard(ctx, id, because), QueueOutcomeUnknown)
	_, err := b.Rebase(ctx, id, 2, because)
	wantCode(t, err, QueueOutcomeUnknown)
	// A refusal that says nothing about the first attempt keeps it so.
	w.a.code(record.InsufficientScope)
	flushed(t, b)
	if e := expect(t, b, id, Rejected, record.InsufficientScope); !e.Unsure {
		t.Error("it is sure")
	}
	// One that comes after the Host has looked for the receipt settles it.
	must(t, b.Retry(ctx, id, because))
	w.a.code(record.VersionConflict)
	flushed(t, b)
	if e := expect(t, b, id, Conflicted, record.VersionConflict); e.Unsure {
		t.Error("it is not sure")
	}
	w.a.code(record.HostUnavailable)
	other := enqueue(t, b, create(w.patient()))[0]
	flushed(t, b)
	word := because
	word.Unsure = true
	must(t, b.Discard(ctx, other, word))
}

func TestPrune(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	clock := time.Now()
	b := w.open(w.client(), func(o *Options) { o.Now = func() time.Time { return clock } })
	early := enqueue(t, b, create(p), create(p))
	must(t, b.Discard(ctx, early[1], because))
	flushed(t, b)
	clock = clock.Add(time.Hour)
	late := enqueue(t, b, create(p), rename(p, "Ada", 9))
	flushed(t, b)
	if n, err := b.Prune(ctx, clock.Add(-time.Minute)); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, id := range early {
		_, err := b.Entry(ctx, id)
		wantCode(t, err, UnknownQueueEntry)
	}
	expect(t, b, late[0], Committed, "")
	expect(t, b, late[1], Conflicted, record.VersionConflict)
	// More than a batch.
	execSQL(t, w.path, fmt.Sprintf(`insert into queue (operation_id, patient, operation, position, intent, digest, state, waits, created, changed)
		with recursive n(i) as (select 1 union all select i + 1 from n where i < %d) select 'x' || i, 'p', 'o', 100 + i, '{}', 'd', 'committed', null, 0, 0 from n`, 2*pruneBatch+7))
	if n, err := b.Prune(ctx, clock.Add(-time.Minute)); n != 2*pruneBatch+7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n := number(t, w.path, "select count(*) from queue_past"); n != 2*pruneBatch+9 {
		t.Errorf("%d operations are known", n)
	}
}

func TestEntriesHeadsSummary(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p, q := w.patient(), w.patient()
	clock := time.UnixMilli(1_700_000_000_000)
	b := w.open(w.client(), func(o *Options) { o.Now = func() time.Time { return clock } })
	ids := enqueue(t, b, create(p), create(q), rename(p, "Ada", 9), create(p), create(q))
	flushed(t, b)
	clock = clock.Add(time.Minute)
	ids = append(ids, enqueue(t, b, create(p))...)
	names := func(f Filter) (out []int) {
		t.Helper()
		for {
			list, err := b.Entries(ctx, f)
			must(t, err)
			if len(list) == 0 {
				return out
			}
			for _, e := range list {
				for i, id := range ids {
					if id == e.OperationID {
						out = append(out, i)
					}
				}
				f.After = e.Sequence
			}
		}
	}
	for _, c := range []struct {
		f    Filter
		want []int
	}{
		{Filter{}, []int{0, 1, 2, 3, 4, 5}},
		{Filter{Limit: 2}, []int{0, 1, 2, 3, 4, 5}},
		{Filter{Limit: 1 << 30}, []int{0, 1, 2, 3, 4, 5}},
		{Filter{States: []State{Committed}, Limit: 1}, []int{0, 1, 4}},
		{Filter{States: []State{Pending, Conflicted}, Limit: 1}, []int{2, 3, 5}},
		{Filter{States: []State{Discarded}}, nil},
		{Filter{Patient: q}, []int{1, 4}},
		{Filter{Patient: p, States: []State{Pending}}, []int{3, 5}},
		{Filter{After: 4}, []int{4, 5}},
	} {
		if d := cmp.Diff(c.want, names(c.f)); d != "" {
			t.Errorf("%+v: %s", c.f, d)
		}
	}
	sum, err := b.Summary(ctx)
	must(t, err)
	start := time.UnixMilli(1_700_000_000_000)
	if d := cmp.Diff(Summary{map[State]Depth{Pending: {2, start}, Conflicted: {1, start}}}, sum); d != "" {
		t.Error(d)
	}
	if sum.Waiting() != 2 || sum.Blocked() != 1 {
		t.Errorf("%d %d", sum.Waiting(), sum.Blocked())
	}
	heads, err := b.Heads(ctx, "", 0)
	must(t, err)
	if len(heads) != 1 || heads[0].OperationID != ids[2] {
		t.Errorf("%+v", heads)
	}
	if heads, err = b.Heads(ctx, p, 0); err != nil || len(heads) != 0 {
		t.Errorf("%+v %v", heads, err)
	}
}

// A queue of 1,000,000 entries that are done and a few that wait: what waits is
// found by the indexes alone. (Opening and flushing it is a benchmark.)
func TestWhatWaitsIsFoundByIndex(t *testing.T) {
	w := newWorld(t)
	b := w.open(w.client(), strict)
	must(t, b.file.Read(context.Background(), func(c *sqlitefile.Conn) error {
		for _, q := range []*sqlitefile.Query{selectSubmitted, selectUnrouted, selectLanes, selectLane, selectLine, selectEntry, listOpen, listGone, listPatient, selectDepth, selectHeads, selectBefore, updateEntry, closeEntry, listLane} {
			s, _, err := c.DB.Prepare("explain query plan " + q.SQL)
			if err != nil {
				return err
			}
			for s.Step() {
				// A scan of a partial index reads what is open; nothing else may be scanned but the lanes themselves.
				step := s.ColumnText(3)
				if strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, "queue_open") && !strings.Contains(step, "queue_lanes") && !strings.Contains(step, "queue_line") &&
					step != "SCAN lanes" && step != "SCAN CONSTANT ROW" && step != "SCAN sqlite_sequence" {
					t.Errorf("%s: %s", q.Name, step)
				}
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	}))
}
