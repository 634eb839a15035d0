package postgres_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
)

// large is JSON that cannot be compressed to fit on a page.
func large(bytes int) json.RawMessage {
	var b strings.Builder
	b.WriteByte('"')
	for b.Len() < bytes {
		b.WriteString(rand.Text())
	}
	b.WriteByte('"')
	return json.RawMessage(b.String())
}

// growing runs every operation that writes something large, with running as a task of worker w.
func growing(t *testing.T, store *holdfast.Store, running *holdfast.Task, value json.RawMessage) map[string]error {
	ctx, out := t.Context(), map[string]error{}
	sub := func(key string) *holdfast.Submission {
		return &holdfast.Submission{Name: "n", Payload: value, Key: key}
	}
	_, out["submit"] = store.Submit(ctx, sub(""))
	_, out["submit many"] = store.SubmitMany(ctx, []*holdfast.Submission{{Name: "n"}, sub("")})
	_, out["submit with a key"] = store.Submit(ctx, sub("k"))
	_, out["complete"] = store.Complete(ctx, running, value)
	_, out["succeed"] = store.Succeed(ctx, running, value)
	_, out["fail"] = store.Fail(ctx, running, value, true, 0)
	return out
}

// oneRunning submits one task and claims it.
func oneRunning(t *testing.T, store *holdfast.Store) *holdfast.Task {
	t.Helper()
	if _, err := store.Submit(t.Context(), &holdfast.Submission{Name: "running"}); err != nil {
		t.Fatal(err)
	}
	got, err := store.Claim(t.Context(), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"running"}, Limit: 1}}, WorkerID: "w", Lease: time.Hour})
	if err != nil || len(got.Tasks) != 1 {
		t.Fatal(got, err)
	}
	return got.Tasks[0]
}

// nothingWritten checks that all is as it was before operations that failed.
func nothingWritten(t *testing.T, store *holdfast.Store, running *holdfast.Task, tasks int) {
	t.Helper()
	list, err := store.List(t.Context(), holdfast.Filter{Limit: 10_000})
	if err != nil || len(list) != tasks {
		t.Errorf("%d tasks (%v), want %d", len(list), err, tasks)
	}
	if _, err := store.GetByKey(t.Context(), "k"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("the key: %v", err)
	}
	now, err := store.Get(t.Context(), running.ID)
	if err != nil || now.Status != holdfast.Running || now.Error != nil || now.Result != nil || !now.LeaseUntil.Equal(running.LeaseUntil) {
		t.Errorf("the running task: %+v, %v", now, err)
	}
}

// TestServerSaysDiskFull: the server's own code for a full disk, whatever it was that grew.
func TestServerSaysDiskFull(t *testing.T) {
	dsn := pgtest.DSN(t)
	store := openAt(t, dsn)
	running := oneRunning(t, store)
	admin := connect(t, dsn)
	for _, sql := range []string{
		`create function full_disk() returns trigger language plpgsql as $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$`,
		`create trigger full_disk before insert or update on cairnq_tasks for each row execute function full_disk()`,
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for op, err := range growing(t, store, running, json.RawMessage(`1`)) {
		if !errors.Is(err, holdfast.ErrFull) {
			t.Errorf("%s: %v, want ErrFull", op, err)
		}
	}
	nothingWritten(t, store, running, 1)
}

// TestFullDisk: the server really cannot extend its files. A limit on their size does it, which ends in the
// middle of a page, so that the server sees a write that comes up short.
func TestFullDisk(t *testing.T) {
	cluster := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"autovacuum": "off"}})
	var version int
	if err := connect(t, cluster.DSN()).QueryRow(t.Context(), "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version >= 160000 {
		// Since version 16 the server tells a limit from a full disk. TestServerSaysDiskFull remains.
		t.Log("a server of version 16 or later takes no limit for a full disk")
		return
	}
	limit := func(bytes int) {
		t.Helper()
		if err := errors.Join(cluster.LimitFiles(bytes), cluster.Restart()); err != nil {
			t.Fatal(err)
		}
	}
	limit(16<<20 + 4096)
	store := openAt(t, cluster.DSN())
	running := oneRunning(t, store)
	tasks := 1
	var err error
	for ; ; tasks++ {
		if _, err = store.Submit(t.Context(), &holdfast.Submission{Name: "n", Payload: large(1 << 20)}); err != nil {
			break
		}
		if tasks > 100 {
			t.Fatal("the disk does not become full")
		}
	}
	if !errors.Is(err, holdfast.ErrFull) {
		t.Fatalf("the first that found no room: %v, want ErrFull", err)
	}
	for op, err := range growing(t, store, running, large(2<<20)) {
		if !errors.Is(err, holdfast.ErrFull) {
			t.Errorf("%s: %v, want ErrFull", op, err)
		}
	}
	nothingWritten(t, store, running, tasks)
	limit(0)
	again := openAt(t, cluster.DSN())
	if _, err := again.Submit(t.Context(), &holdfast.Submission{Name: "n", Payload: large(2 << 20)}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if status, err := again.Complete(t.Context(), running, json.RawMessage(`1`)); err != nil || status != holdfast.Succeeded {
		t.Errorf("with room again: %s, %v", status, err)
	}
}
