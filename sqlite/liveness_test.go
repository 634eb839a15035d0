package sqlite_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// record is a log that a test reads.
type record struct {
	mu sync.Mutex
	b  strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.b.String(), what)
}

// startHolder starts a worker whose handler of "hold" waits for its end. It answers a function that
// stops it.
func startHolder(t testing.TB, store *holdfast.Store, config holdfast.WorkerConfig) (log *record, stop func()) {
	t.Helper()
	log = &record{}
	config.Log = slog.New(slog.NewTextHandler(log, nil))
	w := holdfast.NewWorker(store, config)
	w.Handle("hold", func(ctx context.Context, _ *holdfast.Run) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return log, stop
}

// until waits until ok.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// files lists the lock files.
func files(t testing.TB, path string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(path + "-workers")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A lock file has a name that every file system takes, whatever the worker's id, and goes with the
// worker, as does the folder with the last one.
func TestLockFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store := openAt(t, path)
	ids := []string{"../../etc/passwd", "Ä:*?\"<>|\\", strings.Repeat("x", 255), "A", "a", ".", "con"}
	var stops []func()
	for _, id := range ids {
		_, stop := startHolder(t, store, holdfast.WorkerConfig{ID: id})
		stops = append(stops, stop)
	}
	names := files(t, path)
	if len(names) != len(ids) {
		t.Errorf("%d files for %d workers: %q", len(names), len(ids), names)
	}
	folded := map[string]bool{}
	for _, n := range names {
		if n = strings.ToLower(n); len(n) > 120 || folded[n] || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789_-.") != "" {
			t.Errorf("file name %q", n)
		}
		folded[n] = true
	}
	list, err := store.Workers(t.Context())
	if err != nil || len(list) != len(ids) {
		t.Fatal(list, err)
	}
	for _, w := range list {
		if !w.FastRecovery || w.State != holdfast.WorkerRunning {
			t.Errorf("%+v", w)
		}
	}
	for _, stop := range stops {
		stop()
	}
	if _, err := os.Stat(path + "-workers"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v, %q", err, files(t, path))
	}
}

// What a process left that died before it was registered is removed by the next worker that starts;
// files that are held, or young, stay.
func TestLeftoverLockFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store := openAt(t, path)
	if err := os.Mkdir(path+"-workers", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "held", "young"} {
		file := filepath.Join(path+"-workers", name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if name != "young" {
			before := time.Now().Add(-2 * time.Minute)
			if err := os.Chtimes(file, before, before); err != nil {
				t.Fatal(err)
			}
		}
	}
	held := flock.New(filepath.Join(path+"-workers", "held"))
	if ok, err := held.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer held.Unlock()
	_, stop := startHolder(t, store, holdfast.WorkerConfig{ID: "w"})
	stop()
	if got := strings.Join(files(t, path), " "); got != "held young" {
		t.Errorf("left: %s", got)
	}
}

// Where no lock can be had, the worker has plain leases, and says so once.
func TestNoLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store := openAt(t, path)
	if err := os.WriteFile(path+"-workers", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	client := holdfast.NewClient(store)
	task, err := client.Submit(t.Context(), "hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	log, _ := startHolder(t, store, holdfast.WorkerConfig{ID: "w", Heartbeat: 100 * time.Millisecond})
	until(t, "the task runs", func() bool {
		now, err := client.Get(t.Context(), task.ID)
		return err == nil && now.Status == holdfast.Running
	})
	list, err := client.Workers(t.Context())
	if err != nil || len(list) != 1 || list[0].FastRecovery || list[0].Running != 1 || list[0].State != holdfast.WorkerRunning {
		t.Errorf("%+v, %v", list, err)
	}
	if n := log.count("no fast recovery"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// Whoever deletes the lock files while workers run takes the fast recovery from them, not their tasks.
func TestDeletedLockFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store, other := openAt(t, path), openAt(t, path)
	client := holdfast.NewClient(store)
	task, err := client.Submit(t.Context(), "hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	startHolder(t, store, holdfast.WorkerConfig{ID: "w"})
	until(t, "the task runs", func() bool {
		now, err := client.Get(t.Context(), task.ID)
		return err == nil && now.Status == holdfast.Running
	})
	if err := os.RemoveAll(path + "-workers"); err != nil {
		t.Fatal(err)
	}
	log, _ := startHolder(t, other, holdfast.WorkerConfig{ID: "heir"})
	// Rows whose lock is free, until it was the heir that found one.
	db := openSQL(t, path)
	sum := sha256.Sum256([]byte("dead"))
	until(t, "the heir looks", func() bool {
		if _, err := db.Exec(`insert into holdfast_workers select 'dead', 'x', host, 1, since_ms, seen_ms, until_ms, 1, state, 1, '[]', '[]'
			from holdfast_workers where id = 'w' on conflict do nothing`); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path+"-workers", fmt.Sprintf("dead.%x", sum[:8])), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return log.count("a worker died") > 0
	})
	if now, err := client.Get(t.Context(), task.ID); err != nil || now.Status != holdfast.Running || now.WorkerID != "w" {
		t.Errorf("%+v, %v", now, err)
	}
}

// Rows of workers that have no lock and were not seen for long are forgotten.
func TestStaleRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store := openAt(t, path)
	startHolder(t, store, holdfast.WorkerConfig{ID: "w"})
	db := openSQL(t, path)
	if _, err := db.Exec(`insert into holdfast_workers select 'stale', 'x', host, 1, since_ms, seen_ms, seen_ms - 1, 0, state, 1, '[]', '[]' from holdfast_workers
		union all select 'fresh', 'x', host, 1, since_ms, seen_ms, seen_ms + 600000, 0, state, 1, '[]', '[]' from holdfast_workers`); err != nil {
		t.Fatal(err)
	}
	until(t, "the stale row goes", func() bool {
		list, err := store.Workers(t.Context())
		return err == nil && len(list) == 2
	})
	tx, err := db.Begin() // what the application sees in its own transaction is the same
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	list, err := holdfast.NewClient(store).In(sqlite.Tx(tx)).Workers(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "fresh" || list[1].ID != "w" {
		t.Errorf("%+v, %v", list, err)
	}
}

// In memory there is nobody else, so workers are listed and nothing more.
func TestWorkersInMemory(t *testing.T) {
	store, err := sqlite.Open(t.Context(), sqlite.Memory)
	if err != nil {
		t.Fatal(err)
	}
	log, stop := startHolder(t, store, holdfast.WorkerConfig{ID: "w"})
	list, err := store.Workers(t.Context())
	if err != nil || len(list) != 1 || list[0].FastRecovery || list[0].State != holdfast.WorkerRunning {
		t.Errorf("%+v, %v", list, err)
	}
	stop()
	if log.count("WARN") != 0 {
		t.Error(log.b.String())
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
