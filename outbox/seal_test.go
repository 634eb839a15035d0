package outbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/record"
)

func sealed(o *Options) { o.Key = testKey }

// edit changes the file as a program would that has the file's key.
func edit(t testing.TB, b *Outbox, text string) {
	t.Helper()
	c, err := sqlite3.Open(b.URI(""))
	must(t, err)
	defer c.Close()
	must(t, c.BusyTimeout(10_000_000_000))
	must(t, c.Exec(text))
	if c.TotalChanges() == 0 && !strings.HasPrefix(text, "create") {
		t.Fatalf("nothing was changed by %s", text)
	}
}

func TestAKeyEncryptsTheFile(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	p := w.patient()
	k := w.client()
	b, err := w.tryOpen(k, sealed)
	must(t, err)
	ids := enqueue(t, b, create(p), rename(p, "Ada Lovelace", 9))
	flushed(t, b)
	fileKey, rowKey, err := keys(testKey)
	must(t, err)
	for _, name := range []string{w.path, w.path + "-wal"} {
		data := readFile(t, name)
		if len(data) == 0 {
			t.Errorf("%s is empty", name)
		}
		for _, s := range []string{"SQLite format", p, ids[0], "Observation", "Lovelace", "create table", w.appKey.ID(), string(testKey), string(fileKey), string(rowKey), hex.EncodeToString(fileKey)} {
			if strings.Contains(data, s) {
				t.Errorf("%s holds %q", name, s)
			}
		}
	}
	must(t, b.Close())
	before := readFile(t, w.path)
	plain := filepath.Join(t.TempDir(), "plain.db")
	execSQL(t, plain, "create table x (y)")
	for name, c := range map[string]struct {
		path string
		key  []byte
	}{"no key": {w.path, nil}, "another key": {w.path, bytes.Repeat([]byte{1}, KeySize)}, "a key for a plain file": {plain, testKey}} {
		_, err := Open(ctx, c.path, k, Options{Key: c.key})
		wantCode(t, err, QueueKeyMismatch)
		if err != nil && strings.Contains(err.Error(), hex.EncodeToString(fileKey)) {
			t.Errorf("%s: the error holds the key", name)
		}
	}
	if readFile(t, w.path) != before {
		t.Error("the file was changed")
	}
	_, err = Open(ctx, w.path, k, Options{Key: testKey[:31]})
	wantCode(t, err, record.InvalidMessage)
	b = w.open(k, sealed)
	expect(t, b, ids[0], Committed, "")
	expect(t, b, ids[1], Conflicted, record.VersionConflict)
}

// A file is its user's alone, with a key or without.
func TestNewFilesAreTheirUsersAlone(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		b, err := w.tryOpen(w.client())
		must(t, err)
		enqueue(t, b, create(w.patient()))
		for _, name := range []string{w.path, w.path + "-wal", w.path + "-shm", w.path + "-owner"} {
			info, err := os.Stat(name)
			must(t, err)
			if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
				t.Errorf("%s has mode %v", name, info.Mode())
			}
		}
		must(t, b.Close())
	}
}

// With a key no edit of an entry gets it sent, whoever made it consistent in itself.
func TestAnEditedRowIsSetAsideAndNeverSent(t *testing.T) {
	other := record.NewID()
	for name, text := range map[string]string{
		"content":          `update queue set intent = replace(intent, '1.10', '1.20') where sequence = 2`,
		"patient":          `update queue set patient = '` + other + `' where sequence = 2`,
		"operation":        `update queue set operation = 'create_lab' where sequence = 2`,
		"operation id":     `update queue set operation_id = '` + other + `' where sequence = 2`,
		"digest":           `update queue set digest = 'x' where sequence = 2`,
		"place":            `update queue set position = 0 where sequence = 2`,
		"sequence":         `update queue set sequence = 9 where sequence = 2`,
		"state":            `update queue set state = 'pending', waits = 1 where sequence = 1`,
		"unsure":           `update queue set unsure = 1 where sequence = 2`,
		"attempts":         `update queue set attempts = 7 where sequence = 2`,
		"reason":           `update queue set detail = 'all is well', error = 'record_frozen' where sequence = 2`,
		"successor":        `update queue set replaced_by = '` + other + `' where sequence = 2`,
		"created":          `update queue set created = 0 where sequence = 2`,
		"changed":          `update queue set changed = 0 where sequence = 2`,
		"mac":              `update queue set mac = x'00' where sequence = 2`,
		"no mac":           `update queue set mac = null where sequence = 2`,
		"another row's":    `create temp table c as select * from queue where sequence = 3; delete from queue where sequence = 3; update queue set (operation_id, intent, digest, mac) = (select operation_id, intent, digest, mac from c) where sequence = 2`,
		"swapped places":   `update queue set position = 5 - position where sequence in (2, 3)`,
		"swapped contents": `create temp table c as select * from queue where sequence in (2, 3); delete from queue where sequence in (2, 3); update c set sequence = 5 - sequence, position = 5 - position; insert into queue select * from c`,
		"a row of its own": `insert into queue (operation_id, patient, operation, position, intent, digest, state, created, changed) select '` + other + `', patient, operation, 0, replace(intent, operation_id, '` + other + `'), digest, 'pending', created, changed from queue where sequence = 2`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.patient()
			b := w.open(w.client(), sealed)
			w.a.code(record.VersionConflict)
			ids := enqueue(t, b, create(p), create(p), create(p))
			flushed(t, b)
			must(t, b.Discard(context.Background(), ids[0], because))
			w.a.unwrap()
			edit(t, b, text)
			v, err := b.Verify(context.Background())
			must(t, err)
			if !v.Authenticated || len(v.Problems) == 0 || v.Problems[0].Sequence == 0 {
				t.Fatalf("not found: %+v", v)
			}
			r := flushed(t, b)
			if len(r.Stops) == 0 || !slices.ContainsFunc(r.Stops, func(s Stop) bool { return s.State == Quarantined && s.Code == QueueEntryAltered }) {
				t.Errorf("%+v", r)
			}
			// Another lane, or what stands before it, may go on; the edited one does not.
			for _, problem := range v.Problems {
				e, err := b.Entry(context.Background(), problem.OperationID)
				must(t, err)
				if e.State == Committed || e.State == Submitted {
					t.Errorf("it was sent: %+v", e)
				}
			}
			for _, s := range r.Stops {
				if s.State != Quarantined {
					continue
				}
				wantCode(t, b.Retry(context.Background(), s.OperationID, because), QueueStateConflict)
				unsure := because
				unsure.Unsure = true
				if _, err := b.Rebase(context.Background(), s.OperationID, 3, unsure); err == nil {
					t.Error("an edited entry was rebased")
				}
				must(t, b.Discard(context.Background(), s.OperationID, unsure))
			}
		})
	}
}

// An entry that was edited while it waits for somebody is not made good by Retry.
func TestRetryDoesNotBlessAnEdit(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	b := w.open(w.client(), sealed)
	id := enqueue(t, b, rename(p, "Ada", 9))[0]
	flushed(t, b)
	expect(t, b, id, Conflicted, record.VersionConflict)
	edit(t, b, `update queue set intent = replace(intent, 'Ada', 'Eve')`)
	wantCode(t, b.Retry(context.Background(), id, because), QueueEntryAltered)
	_, err := b.Rebase(context.Background(), id, 1, because)
	wantCode(t, err, QueueEntryAltered)
	must(t, b.Discard(context.Background(), id, because))
}

// What was being sent when the process died, and was edited before the next start, is
// set aside too.
func TestAnEditOfASubmittedRow(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	b, err := w.tryOpen(k, sealed)
	must(t, err)
	id := enqueue(t, b, create(p))[0]
	edit(t, b, `create trigger fail before update on queue when new.state = 'committed' begin select raise(abort, 'no'); end`)
	_, err = b.Flush(context.Background())
	if err == nil {
		t.Fatal("the flush tells nothing")
	}
	expect(t, b, id, Submitted, "")
	edit(t, b, `create temp table x (y); drop trigger fail; update queue set intent = replace(intent, '1.10', '1.20')`)
	must(t, b.Close())
	b = w.open(k, sealed)
	expect(t, b, id, Quarantined, QueueEntryAltered)
	v, err := b.Verify(context.Background())
	must(t, err)
	if len(v.Problems) != 1 || v.Problems[0].OperationID != id || v.Problems[0].State != Quarantined {
		t.Errorf("%+v", v)
	}
}

func TestVerify(t *testing.T) {
	for _, withKey := range []bool{false, true} {
		w := newWorld(t)
		ctx := context.Background()
		p := w.patient()
		b := w.open(w.client(), func(o *Options) {
			if withKey {
				o.Key = testKey
			}
		})
		ids := enqueue(t, b, create(p), create(p), create(p), rename(p, "Ada", 9))
		flushed(t, b)
		must(t, b.Discard(ctx, ids[3], because))
		v, err := b.Verify(ctx)
		must(t, err)
		if v.Checked != 5 || v.Authenticated != withKey || len(v.Problems) != 0 || v.More {
			t.Errorf("%+v", v)
		}
		// A receipt of something else, and what contradicts itself, are found without a key.
		edit(t, b, `update queue set result = (select result from queue where sequence = 2) where sequence = 1`)
		edit(t, b, `update queue set intent = replace(intent, '1.10', '1.20') where sequence = 3`)
		edit(t, b, `update queue set result = '{' where sequence = 2`)
		want := 3
		edit(t, b, `update queue_audit set reason = 'because'`)
		if withKey {
			want++
		}
		v, err = b.Verify(ctx)
		must(t, err)
		if len(v.Problems) != want {
			t.Errorf("with a key %v: %+v", withKey, v.Problems)
		}
		for _, problem := range v.Problems {
			if problem.What == "" || problem.OperationID == "" {
				t.Errorf("%+v", problem)
			}
		}
	}
}

// The key is checked before anything is written, and a seal belongs to one file: a row
// of another file with the same key is not good here.
func TestARowOfAnotherFile(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	first, err := w.tryOpen(k, sealed)
	must(t, err)
	enqueue(t, first, create(p))
	from := first.URI("")
	b, err := Open(context.Background(), filepath.Join(t.TempDir(), "second.db"), k, Options{Key: testKey})
	must(t, err)
	defer b.Close()
	id := enqueue(t, b, create(p))[0]
	edit(t, b, `attach '`+from+`' as other; delete from queue; insert into queue select * from other.queue; detach other`)
	must(t, first.Close())
	if r := flushed(t, b); r.Sent != 0 || len(r.Stops) != 1 || r.Stops[0].State != Quarantined || r.Stops[0].OperationID == id {
		t.Errorf("%+v", r)
	}
}

// A file that is copied back from a backup sends again what it thinks is waiting; the
// Host has the receipts, and nothing is done twice.
func TestAFileCopiedBackFromABackup(t *testing.T) {
	w := newWorld(t)
	p := w.patient()
	k := w.client()
	b, err := w.tryOpen(k, sealed)
	must(t, err)
	early := []record.Intent{create(p), create(p)}
	ids := enqueue(t, b, early...)
	must(t, b.Close())
	backup := readFile(t, w.path)
	b, err = w.tryOpen(k, sealed)
	must(t, err)
	late := create(p)
	ids = append(ids, enqueue(t, b, late)...)
	must(t, flushAll(b))
	was := w.done(k, p, ids...)
	must(t, b.Close())
	must(t, os.WriteFile(w.path, []byte(backup), 0o600))
	b = w.open(k, sealed)
	must(t, flushAll(b))
	for _, id := range ids[:2] {
		if e := expect(t, b, id, Committed, ""); !e.Result.Replayed {
			t.Error("it was done again")
		}
	}
	// What the backup does not know, the application enqueues again under its own id.
	enqueue(t, b, late)
	must(t, flushAll(b))
	if e := expect(t, b, late.OperationID, Committed, ""); !e.Result.Replayed {
		t.Error("it was done again")
	}
	next := enqueue(t, b, create(p))
	must(t, flushAll(b))
	if now := w.done(k, p, append(ids, next...)...); !slices.Equal(now[:3], was) || now[3] != was[2]+1 {
		t.Errorf("%v, before %v", now, was)
	}
}
