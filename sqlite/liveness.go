package sqlite

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
	"github.com/eda94727/holdfast/internal/sqlitefile"
)

// Each worker holds the operating system's lock on a file of its own, in a folder beside the database
// (tasks.db-workers/…). The lock vanishes with the process, however it ends. The living cannot lose
// it, so there is nothing to prove, and nobody needs to wait before he takes over.
//
// A file that is missing says nothing: whoever deletes the folder while workers run turns them into
// workers with plain leases, and loses no task.

var timing = holdfast.LivenessTiming{Look: 400 * time.Millisecond}

const (
	// enterPatience is how long a lock may be held by somebody who only looks, for microseconds each.
	enterPatience = time.Second
	// leftover is how old a file without a row must be to be removed: one that is younger may belong to
	// a worker that is about to write its row.
	leftover = time.Minute
	// sweepAtOnce bounds how many files one worker's start looks at.
	sweepAtOnce = 1000
)

// Timing implements holdfast.Liveness.
func (d *dialect) Timing() holdfast.LivenessTiming {
	if d.file.Path() == Memory {
		return holdfast.LivenessTiming{}
	}
	return timing
}

// lockFolder is the same for every path that leads to the file.
func (d *dialect) lockFolder() (string, error) {
	path, err := filepath.Abs(d.file.Path())
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	return path + "-workers", err
}

// lockName is a file name for a worker's id, on any file system.
func lockName(id string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, id)
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%.100s.%x", safe, sum[:8])
}

// Enter implements holdfast.Liveness.
func (d *dialect) Enter(ctx context.Context, id string) (holdfast.WorkerLock, error) {
	if d.file.Path() == Memory {
		return nil, nil
	}
	folder, err := d.lockFolder()
	if err != nil {
		return nil, &holdfast.LeaseOnlyError{Reason: "the folder for the locks of workers has no name", Err: err}
	}
	// Whoever may write the database may have workers on it.
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(d.file.Path()); err == nil {
		mode = info.Mode().Perm() & 0o666
	}
	path := filepath.Join(folder, lockName(id))
	for began := time.Now(); ; {
		lock, err := lockFile(folder, path, mode)
		if err != nil {
			return nil, &holdfast.LeaseOnlyError{Reason: "the folder " + folder + " gives no locks to workers", Err: err}
		}
		if lock != nil {
			d.sweep(ctx, folder)
			return &fileLock{lock, folder}, nil
		}
		if time.Since(began) > enterPatience {
			return nil, fmt.Errorf("%w: %s is locked", holdfast.ErrWorkerTaken, path)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lockFile answers nil while somebody else has the lock, or when the file was removed meanwhile.
func lockFile(folder, path string, mode fs.FileMode) (*flock.Flock, error) {
	if err := os.MkdirAll(folder, mode|(mode&0o444)>>2); err != nil {
		return nil, err
	}
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(mode))
	switch ok, err := lock.TryLock(); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // the folder was removed by the last worker that left
	case err != nil:
		return nil, err
	case !ok:
		return nil, nil
	}
	held, err := lock.Stat()
	if err != nil {
		lock.Unlock()
		return nil, err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(held, there) {
		lock.Unlock()
		return nil, nil
	}
	// A file system that takes locks and does not keep them would make the living look dead.
	probe, err := free(path)
	if probe != nil {
		probe.Unlock()
		err = errors.New("the file system does not keep locks")
	}
	if err != nil {
		os.Remove(path)
		lock.Unlock()
		return nil, err
	}
	return lock, nil
}

// free answers a shared lock on the file, which keeps its owner's successor out, or nil while somebody
// has it or where there is no file.
func free(path string) (*flock.Flock, error) {
	lock := flock.New(path, flock.SetFlag(os.O_RDONLY))
	ok, err := lock.TryRLock()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if !ok {
		return nil, err
	}
	return lock, nil
}

// fileLock is the lock of a worker of this process.
type fileLock struct {
	lock   *flock.Flock
	folder string
}

// Prove implements holdfast.WorkerLock.
func (l *fileLock) Prove(context.Context) error { return nil }

// Release implements holdfast.WorkerLock.
func (l *fileLock) Release() {
	remove(l.lock)
	os.Remove(l.folder) // if it is empty
}

// remove deletes a file and gives up the lock on it. Windows deletes no open files, but refuses to
// delete one that somebody else has opened meanwhile.
func remove(lock *flock.Flock) {
	if runtime.GOOS != "windows" {
		os.Remove(lock.Path())
		lock.Unlock()
		return
	}
	lock.Unlock()
	os.Remove(lock.Path())
}

// locks reads the registry's rows, as far as they matter here.
func (d *dialect) locks(ctx context.Context) (rows []*holdfast.Row, err error) {
	err = d.file.Read(ctx, func(c *sqlitefile.Conn) error {
		return native{c}.run(ctx, stmtWorkerLocks, &holdfast.Row{}, claiming.NewRow, func(a *holdfast.Row) error { rows = append(rows, a); return nil })
	})
	return rows, translate(err)
}

// Gone implements holdfast.Liveness.
func (d *dialect) Gone(ctx context.Context, now time.Time) (list []holdfast.GoneWorker, err error) {
	if d.file.Path() == Memory {
		return nil, nil
	}
	rows, err := d.locks(ctx)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	folder, err := d.lockFolder()
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		known := false
		if row.Count == 1 {
			path := filepath.Join(folder, lockName(row.WorkerID))
			lock, err := free(path)
			if lock != nil {
				lock.Unlock()
				list = append(list, holdfast.GoneWorker{ID: row.WorkerID, Token: row.Key})
				continue
			}
			if err == nil {
				_, err = os.Stat(path)
			}
			known = err == nil // somebody has the lock
		}
		if !known && row.LeaseUntil.Before(now) {
			list = append(list, holdfast.GoneWorker{ID: row.WorkerID, Token: row.Key, Stale: true})
		}
	}
	return list, nil
}

// Seize implements holdfast.Liveness.
func (d *dialect) Seize(ctx context.Context, id string, fn func(holdfast.Session) error) (bool, error) {
	folder, err := d.lockFolder()
	if err != nil {
		return false, err
	}
	lock, err := free(filepath.Join(folder, lockName(id)))
	if err != nil || lock == nil {
		return false, err
	}
	if err := d.Atomic(ctx, "bury", fn); err != nil {
		lock.Unlock()
		return false, err
	}
	remove(lock)
	return true, nil
}

// sweep removes files that nobody answers for: their processes died before they wrote a row, or their
// database was replaced by another. What goes wrong here costs a file, no more.
func (d *dialect) sweep(ctx context.Context, folder string) {
	dir, err := os.Open(folder)
	if err != nil {
		return
	}
	entries, _ := dir.ReadDir(sweepAtOnce)
	dir.Close()
	var old []string
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.Type().IsRegular() && time.Since(info.ModTime()) > leftover {
			old = append(old, e.Name())
		}
	}
	if len(old) == 0 {
		return
	}
	rows, err := d.locks(ctx)
	if err != nil {
		return
	}
	registered := map[string]bool{}
	for _, row := range rows {
		registered[lockName(row.WorkerID)] = true
	}
	for _, name := range old {
		if registered[name] {
			continue
		}
		if lock, err := free(filepath.Join(folder, name)); err == nil && lock != nil {
			remove(lock)
		}
	}
}
