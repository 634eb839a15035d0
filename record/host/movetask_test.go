package host

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
	"github.com/eda94727/holdfast/sqlite"
)

// A move is a task: an attempt that fails in the middle is followed by another,
// which goes on.
func TestMoveTask(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := newLand(t, dbtest.SQLite)
	p := l.patient(3)
	if err := l.b.host.Expect(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	var failed atomic.Bool
	l.a.host.step = func(name string) error {
		if name == stepAccepted && failed.CompareAndSwap(false, true) {
			return errors.New("stopped")
		}
		return nil
	}
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "tasks.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Concurrency: 2})
	l.a.host.HandleMoves(worker)
	if err := worker.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer worker.Stop(ctx)
	client := holdfast.NewClient(store)
	out, err := MoveTask().Call(ctx, client, MoveInput{p.id, l.b.host.Ref()}, MoveKey(p.id))
	if err != nil || out.Versions != 7 || !failed.Load() {
		t.Fatalf("%+v, %v", out, err)
	}
	p.check()
	// The same call again is another task, which finds the record gone.
	first, err := client.GetByKey(ctx, "record.move:"+p.id)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := MoveTask().Submit(ctx, client, MoveInput{p.id, l.b.host.Ref()}, MoveKey(p.id)); err != nil || again.ID == first.ID {
		t.Errorf("after the move's end its task still answers: %v, %v", again, err)
	} else if _, err := client.Wait(ctx, again.ID); err != nil {
		t.Error(err)
	}
	var fail *holdfast.TaskFailedError
	if _, err := MoveTask().Call(ctx, client, MoveInput{record.NewID(), l.b.host.Ref()}); !errors.As(err, &fail) {
		t.Errorf("no such record: %v", err)
	}
}
