package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/sqlite"
)

func TestBusyStoreSaysWhoWaitedHowLongForWhat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store := openAt(t, path, sqlite.WithBusyBudget(150*time.Millisecond))
	task := submitTo(t, store, holdfast.Submission{Name: "job"})
	conn, err := openSQL(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	for op, do := range map[string]func() error{
		"insert": func() error {
			_, err := store.Submit(t.Context(), &holdfast.Submission{Name: "job"})
			return err
		},
		"submit": func() error {
			_, err := store.Submit(t.Context(), &holdfast.Submission{Name: "job", Key: "k"})
			return err
		},
		"claim": func() error {
			_, err := store.Claim(t.Context(), holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "w", Lease: time.Minute})
			return err
		},
		"cancel": func() error { _, err := store.Cancel(t.Context(), task.ID); return err },
	} {
		err := do()
		var busy *sqlitefile.BusyError
		if !errors.Is(err, holdfast.ErrBusy) || !errors.As(err, &busy) || busy.Op != op || busy.Waited < busy.Budget || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error is %v, want that it is busy, and with what", op, err)
		}
	}
	// Reading needs no lock, and a claim that would find nothing is only a read.
	if _, err := store.Get(t.Context(), task.ID); err != nil {
		t.Error(err)
	}
	if _, err := store.Claim(t.Context(), holdfast.Claim{Queues: []string{"empty"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "w", Lease: time.Minute}); err != nil {
		t.Errorf("a claim of an empty queue took the lock: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Cancel(t.Context(), task.ID); err != nil {
		t.Error(err)
	}
}

func TestClosedStore(t *testing.T) {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "tasks.db"), sqlite.WithReaders(1), sqlite.WithSynchronous(sqlite.Normal))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Submit(t.Context(), &holdfast.Submission{Name: "job"}); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("a submit after Close: %v", err)
	}
	if _, err := store.Get(t.Context(), "task_x"); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestMemoryStore(t *testing.T) {
	store := openAt(t, sqlite.Memory)
	task := submitTo(t, store, holdfast.Submission{Name: "job", Key: "k"})
	own := claimFrom(t, store, "default", 1)
	if len(own) != 1 || own[0].ID != task.ID {
		t.Fatalf("claimed %v", own)
	}
	if _, err := store.Complete(t.Context(), own[0], nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(sqlite.Memory); !os.IsNotExist(err) {
		t.Errorf("a database in memory left a file: %v", err)
	}
}

func TestTenThousandInOneCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store := openAt(t, path)
	subs := make([]*holdfast.Submission, 10_000)
	for i := range subs {
		subs[i] = &holdfast.Submission{Name: "job"}
	}
	tasks, err := store.SubmitMany(t.Context(), subs)
	if err != nil || len(tasks) != len(subs) {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	if got := strings1(t, openSQL(t, path), "select count(*) from cairnq_tasks where status = 'queued'"); got[0] != "10000" {
		t.Errorf("%s tasks, want 10000", got[0])
	}
}

// Whoever waits for a queue or a task is woken by what this process does at once, and by what another
// does as soon as it is committed.
func TestWakeUps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store, other := openAt(t, path), openAt(t, path) // another store is another connection, as in another process
	hub := store.Dialect().Hub()
	queue, elsewhere := hub.ListenQueues("default"), hub.ListenQueues("elsewhere")
	defer queue.Close()
	defer elsewhere.Close()
	task := submitTo(t, store, holdfast.Submission{Name: "job"})
	select {
	case <-queue.Arm():
	default:
		t.Error("a submit of this process woke nobody")
	}
	select {
	case <-elsewhere.Arm():
		t.Error("a submit woke a listener of another queue, though nothing else was watched yet")
	default:
	}
	ended := hub.ListenTask(task.ID)
	defer ended.Close()
	own := claimFrom(t, other, "default", 1)[0]
	if _, err := other.Complete(t.Context(), own, nil); err != nil {
		t.Fatal(err)
	}
	// The first signals may be of the claim, or false alarms.
	for c := ended.Arm(); ; {
		select {
		case <-c:
		case <-time.After(20 * time.Second):
			t.Fatal("the end of a task, by another, woke nobody")
		}
		if now, err := store.Status(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		} else if now.Status == holdfast.Succeeded {
			return
		}
	}
}

// Callers whose contexts end leave at once, and what they asked for is not done.
func TestCallersLeaveWithTheirContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store, db := openAt(t, path), openSQL(t, path)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := store.Submit(ctx, &holdfast.Submission{Name: "job"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error is %v, want the context's", err)
			}
		})
	}
	wg.Wait()
	if _, err := conn.ExecContext(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	submitTo(t, store, holdfast.Submission{Name: "job"}) // behind them all
	if got := strings1(t, db, "select count(*) from cairnq_tasks"); got[0] != "1" {
		t.Errorf("%s tasks, want only the last", got[0])
	}
}
