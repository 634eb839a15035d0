// Package sqlitefile opens one SQLite file the way all of Holdfast uses it: one connection that
// writes in groups, several that only read, and a watch that tells when somebody else committed.
//
// # Writing
//
// All writes of a process go through one goroutine. It takes whatever is waiting, runs it in one
// transaction, commits, and answers. Nobody waits for a group to form: a lone write is a group of
// one, and under load the groups grow by themselves, which divides the cost of a disk flush.
//
// # Sharing
//
// The file may be shared with other processes and other SQLite libraries of the same host. A busy
// writer leaves room for them (see neighbours.go), and waits for them up to a budget.
package sqlitefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// Memory is the path of a database that lives in memory, for one File only, and dies with it.
const Memory = ":memory:"

// Synchronous says when a commit is on disk.
type Synchronous string

const (
	// Full flushes the disk at each commit: what was answered survives a power cut. The default.
	Full Synchronous = "FULL"
	// Normal flushes at checkpoints only: a power cut or a crash of the operating system may take
	// back the newest commits (never part of one). A crash of the process takes back nothing.
	Normal Synchronous = "NORMAL"
)

// Options for Open. The zero value is the careful default.
type Options struct {
	// Synchronous is Full unless set.
	Synchronous Synchronous
	// BusyBudget is how long a write may wait for another program on the file before it fails
	// with a *BusyError. 0 means 5 s.
	BusyBudget time.Duration
	// Readers is the number of reading connections, opened when needed. 0 means 4.
	Readers int
	// ReadOnly opens an existing file without the right to write.
	ReadOnly bool
	// URI parameters for SQLite, such as "vfs=adiantum&hexkey=…", for encrypted or test files.
	URI string
	// OnConnect runs on each new connection before it is used, after the pragmas.
	OnConnect func(*sqlite3.Conn) error
	// Temporary is for tests and tools only: it gives up durability (synchronous=OFF).
	Temporary bool
}

// File is an open SQLite file. It is safe for concurrent use.
type File struct {
	path   string
	o      Options
	memory bool

	queue  queue
	done   chan struct{} // closed when the writer has stopped
	writer *Conn         // used by the writer's goroutine only
	alive  []*request    // likewise: the group that is running
	items  []any         // likewise: those of a Joint that is running
	// Likewise: the pages in the WAL after the last commit, and from how many on readers are held back.
	walPages, nextGap int
	soon              bool // likewise: commits are not flushed now

	requests sync.Pool // of *request

	readers *pool
	conns   atomic.Int64

	watch watch

	closeOnce sync.Once
	closeErr  error
	closed    chan struct{}
}

// Open opens the file at path, creating it and its WAL where they do not exist.
// Errors: ErrNotDatabase, ErrCannotOpen, ErrReadOnly, *BusyError.
func Open(ctx context.Context, path string, o Options) (*File, error) {
	if path == "" {
		return nil, fmt.Errorf("%w: the path is empty; name a file, for example tasks.db", ErrCannotOpen)
	}
	if o.BusyBudget == 0 {
		o.BusyBudget = 5 * time.Second
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	o.Synchronous = cmp.Or(o.Synchronous, Full)
	if o.Synchronous != Full && o.Synchronous != Normal {
		return nil, fmt.Errorf("sqlite: synchronous is %q; use FULL or NORMAL", o.Synchronous)
	}
	f := &File{path: path, o: o, memory: path == Memory, done: make(chan struct{}), closed: make(chan struct{})}
	if !f.memory {
		if err := checkPath(path, o.ReadOnly); err != nil {
			return nil, err
		}
	}
	f.queue.init()
	w, err := f.connect(ctx, !o.ReadOnly)
	if err != nil {
		return nil, err
	}
	f.writer = w
	if !f.memory {
		f.readers = newPool(o.Readers)
	}
	f.nextGap = gapAt
	if !f.memory && !o.ReadOnly {
		// In place of SQLite's automatic checkpoints; see tend.
		w.DB.WALHook(func(_ *sqlite3.Conn, _ string, pages int) error { f.walPages = pages; return nil })
	}
	f.watch.init(f)
	go f.write()
	return f, nil
}

// checkPath finds what SQLite would only call "unable to open database file".
func checkPath(path string, readOnly bool) error {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%w: %s is a directory; name a file inside it", ErrCannotOpen, path)
	case err == nil && !readOnly:
		// An append opens for writing and changes nothing. Root passes any permission bits, as in SQLite.
		h, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrReadOnly, path, err)
		}
		h.Close()
	case errors.Is(err, fs.ErrNotExist) && readOnly:
		return fmt.Errorf("%w: %s: %w", ErrCannotOpen, path, err)
	case errors.Is(err, fs.ErrNotExist):
		if dir := filepath.Dir(path); dir != "" {
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("%w: %s: the folder %s does not exist; create it first: %w", ErrCannotOpen, path, dir, err)
			}
		}
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrCannotOpen, path, err)
	}
	return nil
}

// Path is the path given to Open.
func (f *File) Path() string { return f.path }

// connect opens one connection and prepares it. Only a writing one may change the journal mode.
func (f *File) connect(ctx context.Context, writes bool) (_ *Conn, err error) {
	flags := sqlite3.OPEN_URI
	switch {
	case f.o.ReadOnly:
		flags |= sqlite3.OPEN_READONLY
	default:
		flags |= sqlite3.OPEN_READWRITE | sqlite3.OPEN_CREATE
	}
	name := f.path
	if !f.memory {
		name = Name(f.path, f.o.URI)
	}
	db, err := sqlite3.OpenFlags(name, flags)
	if err != nil {
		return nil, f.explain("open", err)
	}
	c := &Conn{DB: db, stmts: map[*Query]*sqlite3.Stmt{}}
	defer func() {
		if err != nil {
			db.Close()
		}
	}()
	// SQLite's own busy handler serves the connection's start only; afterwards the writer waits by
	// itself, so that it can say who waited how long for what.
	if err := db.BusyTimeout(f.o.BusyBudget); err != nil {
		return nil, f.explain("open", err)
	}
	sync := string(f.o.Synchronous)
	if f.o.Temporary {
		sync = "OFF"
	}
	pragmas := []string{"PRAGMA foreign_keys = ON", "PRAGMA synchronous = " + sync, "PRAGMA temp_store = MEMORY", "PRAGMA analysis_limit = 1000", "PRAGMA cache_size = -16000"}
	switch {
	case f.memory:
	case writes:
		pragmas = append(pragmas, "PRAGMA journal_mode = WAL", "PRAGMA journal_size_limit = 67108864")
	default:
		pragmas = append(pragmas, "PRAGMA query_only = ON")
	}
	start := time.Now()
	for _, p := range pragmas {
		for {
			err := db.Exec(p)
			if err == nil {
				break
			}
			// Several processes that create one file at once may see each other's first steps as busy
			// without the busy handler being asked.
			if !isBusy(err) || time.Since(start) > f.o.BusyBudget || ctx.Err() != nil {
				return nil, f.explain("open", err)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	if f.o.OnConnect != nil {
		if err := f.o.OnConnect(db); err != nil {
			return nil, err
		}
	}
	if writes {
		if err := db.BusyTimeout(0); err != nil {
			return nil, f.explain("open", err)
		}
	}
	f.conns.Add(1)
	return c, nil
}

// Name is the URI of a file with parameters, as SQLite reads it.
func Name(path, parameters string) string {
	name := "file:" + escapeURI(path)
	if parameters != "" {
		name += "?" + parameters
	}
	return name
}

// escapeURI keeps SQLite's URI parser away from characters of the path that it would interpret.
func escapeURI(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(path))
}

// Read runs fn on a reading connection, in one read transaction if fn begins one, which ends with
// it. It never takes the write lock and runs beside the writer. fn must not keep the connection or
// its statements.
func (f *File) Read(ctx context.Context, fn func(*Conn) error) error {
	if f.memory {
		return f.Write(ctx, "read", fn)
	}
	select {
	case <-f.readers.free:
	default:
		select {
		case <-f.readers.free:
		case <-ctx.Done():
			return fmt.Errorf("sqlite: waiting for one of %d reading connections: %w", f.o.Readers, context.Cause(ctx))
		case <-f.closed:
			return ErrClosed
		}
	}
	c := f.readers.get()
	select {
	case <-f.closed:
		f.readers.put(c)
		return ErrClosed
	default:
	}
	if c == nil {
		var err error
		if c, err = f.connect(ctx, false); err != nil {
			f.readers.put(nil)
			return err
		}
	}
	c.DB.SetInterrupt(ctx)
	err := fn(c)
	c.DB.SetInterrupt(context.Background())
	// Only now, since an interrupted connection does not roll back either. A snapshot that stays open
	// would show the past to every later read.
	if !c.DB.GetAutocommit() {
		if undo := c.run(&rollback); undo != nil {
			err = cmpErr(err, undo)
			c.close()
			f.conns.Add(-1)
			c = nil
		}
	}
	f.readers.put(c)
	if err != nil && ctx.Err() != nil && errors.Is(err, sqlite3.INTERRUPT) {
		return context.Cause(ctx)
	}
	return f.explain("read", err)
}

// Close waits for the writes that were accepted, then closes every connection. Later calls of any
// method answer ErrClosed.
func (f *File) Close() error {
	f.closeOnce.Do(func() {
		f.watch.close()
		f.queue.close()
		<-f.done
		close(f.closed)
		for range f.o.Readers {
			if f.memory {
				break
			}
			<-f.readers.free
			if c := f.readers.get(); c != nil {
				f.closeErr = errors.Join(f.closeErr, c.close())
			}
		}
		// The writer goes last, so that it is the one that checkpoints and removes the WAL.
		f.closeErr = errors.Join(f.closeErr, f.writer.close())
	})
	return f.closeErr
}
