package sqlite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// A disk that is full, and one that can only be read. A child has both to itself, in namespaces where it
// may mount a small file system in memory.
func TestDiskFullOrReadOnly(t *testing.T) {
	cmd := child(t, "disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC), string(out) == "no mount\n":
		// Some systems allow no namespaces. What SQLite does about a full disk is tested elsewhere with
		// its own limit (internal/sqlitefile), permissions by another user.
		t.Log("this system allows no file system of the test's own")
	case err != nil || string(out) != "tried\n":
		t.Errorf("%v; it said %q", err, out)
	}
}

func init() { children["disk"] = childOnDisk }

func childOnDisk(ctx context.Context, dir string) (failed error) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		fmt.Println("no mount")
		return nil
	}
	wrong := func(format string, args ...any) { failed = errors.Join(failed, fmt.Errorf(format, args...)) }
	path := filepath.Join(dir, "tasks.db")
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	if _, err := store.Submit(ctx, &holdfast.Submission{Name: "running"}); err != nil {
		return err
	}
	got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{AnyName: true, Limit: 1}}, WorkerID: "w", Lease: time.Hour})
	if err != nil || len(got.Tasks) != 1 {
		return fmt.Errorf("claimed %v, %w", got, err)
	}
	running := got.Tasks[0]
	value := json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
	tasks := 1
	for ; ; tasks++ {
		if _, err = store.Submit(ctx, &holdfast.Submission{Name: "n", Payload: value}); err != nil {
			break
		}
	}
	sub := &holdfast.Submission{Name: "n", Payload: value, Key: "k"}
	for op, err := range map[string]error{
		"the first that found no room": err,
		"submit with a key":            second(store.Submit(ctx, sub)),
		"submit many":                  second(store.SubmitMany(ctx, []*holdfast.Submission{{Name: "n"}, sub})),
		"complete":                     second(store.Complete(ctx, running, value)),
		"fail":                         second(store.Fail(ctx, running, value, true, 0)),
	} {
		if !errors.Is(err, holdfast.ErrFull) || !strings.Contains(err.Error(), path) {
			wrong("%s: %v, want ErrFull and the path", op, err)
		}
	}
	unchanged := func() {
		list, err := store.List(ctx, holdfast.Filter{Limit: 10_000})
		if err != nil || len(list) != tasks {
			wrong("%d tasks (%v), %d were acknowledged", len(list), err, tasks)
		}
		if now, err := store.Get(ctx, running.ID); err != nil || now.Status != holdfast.Running || now.Error != nil || now.Result != nil {
			wrong("the running task: %+v, %v", now, err)
		}
		if _, err := store.GetByKey(ctx, "k"); !errors.Is(err, holdfast.ErrNotFound) {
			wrong("the key: %v", err)
		}
	}
	unchanged()
	// Room again.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=20m"); err != nil {
		return err
	}
	if _, err := store.Submit(ctx, &holdfast.Submission{Name: "n", Payload: value}); err != nil {
		wrong("with room again: %v", err)
	}
	tasks++
	if err := store.Close(); err != nil {
		wrong("close: %v", err)
	}
	// A disk that can only be read.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	for name, want := range map[string][]error{"tasks.db": {holdfast.ErrReadOnly}, "new.db": {holdfast.ErrReadOnly, holdfast.ErrUnavailable}} {
		s, err := sqlite.Open(ctx, filepath.Join(dir, name))
		if err == nil {
			_, err = s.Submit(ctx, &holdfast.Submission{Name: "n"})
			s.Close()
		}
		if err == nil || !errors.Is(err, want[0]) && !errors.Is(err, want[len(want)-1]) || !strings.Contains(err.Error(), name) {
			wrong("%s on a disk that can only be read: %v, want %v and the path", name, err, want)
		}
	}
	fmt.Println("tried")
	return failed
}

func second[T any](_ T, err error) error { return err }
