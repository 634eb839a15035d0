package sqlitefile

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch tells when somebody else committed. It works only while somebody is listening: the operating
// system notifies of changes of the WAL, and SQLite's data_version tells whether they were commits.
// Where notification cannot be had, or cannot be relied on, it asks every pollEvery, else every lookEvery.
type watch struct {
	f *File

	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
	stop      context.CancelFunc // of the goroutine, or nil where it has not been needed yet
	running   sync.WaitGroup
	resume    chan struct{} // capacity 1: the first listener came
	closed    bool
}

const (
	pollEvery = 250 * time.Millisecond
	lookEvery = time.Second
	// restBetween bounds how often a busy file is asked.
	restBetween = time.Millisecond
	// settle is how long after the last notification the question is repeated, at growing distances:
	// pages reach the WAL, and the disk, before the commit that they belong to is visible.
	settle = 128 * time.Millisecond
)

func (w *watch) init(f *File) {
	w.f, w.listeners, w.resume = f, map[chan struct{}]struct{}{}, make(chan struct{}, 1)
}

// Changes subscribes to commits by anybody on the file, this process included. The channel has room
// for one signal: several commits may be one signal, and a signal may be a false alarm (the first
// may come at once). Nothing is watched while nobody listens, so call cancel when done.
func (f *File) Changes() (ch <-chan struct{}, cancel func()) {
	w := &f.watch
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || f.memory {
		return c, func() {}
	}
	w.listeners[c] = struct{}{}
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		w.running.Add(1)
		go func() {
			defer w.running.Done()
			w.run(ctx)
		}()
	} else if len(w.listeners) == 1 {
		select {
		case w.resume <- struct{}{}:
		default:
		}
	}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, c)
	}
}

func (w *watch) close() {
	w.mu.Lock()
	w.closed = true
	if w.stop != nil {
		w.stop()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// broadcast signals every listener.
func (w *watch) broadcast() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.listeners {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (w *watch) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.listeners) == 0
}

func (w *watch) run(ctx context.Context) {
	// A connection's data_version tells of others' commits relative to what that connection saw
	// before, so all answers must come from one connection of its own.
	var c *Conn
	defer func() {
		if c != nil {
			w.f.conns.Add(-1)
			_ = c.close()
		}
	}()
	version := int64(-1)
	var asked time.Time
	ask := func() {
		asked = time.Now()
		if c == nil {
			var err error
			if c, err = w.f.connect(ctx, false); err != nil {
				c = nil
				w.broadcast() // cannot tell, so everybody looks for himself
				return
			}
		}
		if now := c.dataVersion(); now != version {
			version = now
			w.broadcast()
		}
	}
	var events chan fsnotify.Event
	rarely := pollEvery
	if n, err := fsnotify.NewWatcher(); err == nil {
		defer n.Close()
		// The WAL stays the same file while anybody has the database open.
		if n.Add(filepath.Clean(w.f.path)+"-wal") == nil {
			events = n.Events
			if runtime.GOOS != "windows" { // which may tell of a write only when it reaches the disk
				rarely = lookEvery
			}
			go func() {
				for range n.Errors { // an overflow is one more reason to ask, which the timer does
				}
			}()
		}
	}
	timer := time.NewTimer(rarely)
	defer timer.Stop()
	next := restBetween
	for {
		if w.idle() {
			select {
			case <-w.resume:
				continue
			case <-ctx.Done():
				return
			}
		}
		ask()
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-w.resume:
		case <-timer.C:
			if next *= 2; next > settle {
				next = rarely
			}
		case <-events:
			// Notifications come in crowds; a short rest turns a crowd into few questions.
			next = restBetween
			if rest := restBetween - time.Since(asked); rest > 0 {
				timer.Reset(rest)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
			}
		}
	}
}
