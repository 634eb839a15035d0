package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/ncruces/go-sqlite3"

	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/record"
)

// Options for [Open]. The zero value is the careful default.
type Options struct {
	// Strict makes the whole file one lane: nothing is sent before everything that
	// was enqueued earlier is done, whichever patient it is about.
	Strict bool
	// Parallel bounds the lanes that are sent at once; 0 means 8.
	Parallel int
	// RequestTimeout is the deadline of one write, whatever the client does; 0
	// means 60 seconds.
	RequestTimeout time.Duration
	// ManualMoves leaves an entry whose record has moved pending until
	// [Outbox.FollowMigration] is called; otherwise a flush asks the Directory and
	// follows by itself.
	ManualMoves bool
	// NoReceipts is for servers that know no receipts: a result without one is then
	// a success.
	NoReceipts bool
	// Key encrypts the file and authenticates each row: [KeySize] random bytes, which
	// the application keeps elsewhere. It is needed at every opening; without it the
	// file cannot be read by anybody. Nil means a file without either.
	Key []byte
	// Limits bounds a resource; the zero value means record's defaults (1 MiB).
	// The client and the Host must take as much.
	Limits record.Limits
	// Retry says how soon [Outbox.Run] tries again what failed.
	Retry Backoff
	// Grace is how long [Outbox.Run] lets running requests go on when it is told
	// to stop; 0 means 5 seconds.
	Grace time.Duration
	// Log takes what happens, without content and secrets; nil means no log.
	Log *slog.Logger
	// Now is the clock of the times in entries; nil means time.Now. Nothing
	// depends on it.
	Now func() time.Time

	vfs string // of the encrypted or plain file; for tests
}

// Outbox is an open queue file. Its methods are safe for concurrent use.
type Outbox struct {
	file   *sqlitefile.File
	lock   *flock.Flock
	client Client
	o      Options

	// busy is held by a flush, a migration and Close (F1). A channel, because the
	// second is refused and does not wait.
	busy chan struct{}
	// stale is true after an outcome could not be written down (F9).
	stale    atomic.Bool
	verified bool // the client has verified receipts when it returns them
	// seal is nil without a key.
	seal     *seal
	instance string
	// step is called at the points where a test kills the process.
	step func(point string)

	events listeners
	// shared is closed when the application uses transactions of its own, which
	// nobody tells Run of.
	shared    chan struct{}
	shareOnce sync.Once
	uri       string

	closed   chan struct{}
	mu       sync.Mutex
	delays   map[string]delay // by lane; for Run
	touched  map[string]bool  // the lanes that are being sent: changed by hand meanwhile
	doubtful map[string]bool  // Hosts that did not answer last
	flushed  chan struct{}    // wakes a flush that is under way
	woken    chan struct{}    // wakes Run
}

// Open opens the queue file at path for a client, and makes it where it does not
// exist. The folder must exist.
//
// A nil client is for looking after the queue of an application that does not run:
// the file must be there, whoever its owner is; everything can be read and changed
// by hand, and [Outbox.Flush] and [Outbox.Run] are refused with [QueueHasNoClient].
//
// Errors: [QueueInUse] if it is open already, in this process or another (O5);
// [QueueKeyMismatch] if it does not open with [Options.Key], or its absence;
// [WrongQueueOwner] if it belongs to another application (O2); [UnknownQueue] if
// there is no client and no queue; and those of the file system.
func Open(ctx context.Context, path string, client Client, o Options) (*Outbox, error) {
	if client == nil {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, failf(UnknownQueue, "path", "there is no file %s", path)
		}
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = time.Minute
	}
	if o.Grace <= 0 {
		o.Grace = 5 * time.Second
	}
	o.Retry = o.Retry.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	lock, err := takeLock(path)
	if err != nil {
		return nil, err
	}
	b := &Outbox{lock: lock, client: client, o: o, busy: make(chan struct{}, 1), delays: map[string]delay{}, touched: map[string]bool{}, doubtful: map[string]bool{}, step: func(string) {},
		flushed: make(chan struct{}, 1), woken: make(chan struct{}, 1), closed: make(chan struct{}), shared: make(chan struct{})}
	if c, ok := client.(interface{ VerifiesReceipts() bool }); ok {
		b.verified = c.VerifiesReceipts()
	}
	if err := b.open(ctx, path); err != nil {
		return nil, errors.Join(fmt.Errorf("outbox: open %s: %w", path, err), lock.Close())
	}
	return b, nil
}

func (b *Outbox) open(ctx context.Context, path string) (err error) {
	o := sqlitefile.Options{Synchronous: sqlitefile.Full}
	if b.o.vfs != "" {
		o.URI = "vfs=" + b.o.vfs
	}
	b.instance = rand.Text()
	if b.o.Key != nil {
		file, rows, err := keys(b.o.Key)
		if err != nil {
			return err
		}
		b.o.Key = nil
		b.seal = &seal{key: rows}
		o.URI = uri(cmp.Or(b.o.vfs, defaultVFS), file)
		if err := trim(path + "-wal"); err != nil {
			return err
		}
	}
	if err := rightsBefore(path); err != nil {
		return err
	}
	b.uri = sqlitefile.Name(path, o.URI)
	if b.file, err = sqlitefile.Open(ctx, path, o); err == nil {
		if err = b.file.Write(ctx, "open the queue", b.prepare); err == nil {
			err = rightsAfter(path)
		}
		if err != nil {
			b.file.Close()
		}
	}
	if errors.Is(err, sqlitefile.ErrNotDatabase) {
		detail := "the file is encrypted, or no database; give its key"
		if b.seal != nil {
			detail = "the file has another key, or none, or is no database"
		}
		return &record.Error{Code: QueueKeyMismatch, Field: "key", Detail: detail, Err: err}
	}
	return err
}

// takeLock locks a file beside the queue for as long as the process lives. Links
// are followed first, so that two names of one file have one lock. (The queue file
// itself is not locked: that would disturb SQLite's own locks.)
func takeLock(path string) (*flock.Flock, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		var folder string
		if folder, err = filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			real = filepath.Join(folder, filepath.Base(path))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("outbox: open %s: %w; the folder must exist", path, err)
	}
	lock := flock.New(real+"-owner", flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("outbox: lock %s: %w", path, err)
	}
	if !held {
		lock.Close()
		return nil, failf(QueueInUse, "path", "%s is open already, here or in another process; a queue has one owner", path)
	}
	return lock, nil
}

// prepare makes the tables, checks the owner (O1, O2), takes back what was being
// sent (O3) and gives every lane a route (O4).
func (b *Outbox) prepare(c *sqlitefile.Conn) error {
	if b.client == nil {
		queue := false
		err := rows(c, selectTable, func(*sqlite3.Stmt) error { queue = true; return nil })
		if err == nil && !queue {
			err = failf(UnknownQueue, "path", "the file holds no queue")
		}
		if err != nil {
			return err
		}
	}
	if err := c.Exec(schemaSQL); err != nil {
		return err
	}
	if b.o.Strict {
		if _, err := run(c, createLine); err != nil {
			return err
		}
	}
	if _, err := run(c, insertFormat, b.instance); err != nil {
		return err
	}
	var version int64
	err := rows(c, selectFormat, func(s *sqlite3.Stmt) error {
		version, b.instance = s.ColumnInt64(0), s.ColumnText(1)
		return nil
	})
	if err != nil {
		return err
	}
	if b.seal != nil {
		b.seal.instance = b.instance
	}
	if version != 1 {
		return fmt.Errorf("the queue has format %d, and this program knows 1; use a newer program", version)
	}
	if b.client != nil {
		if err := b.checkOwner(c); err != nil {
			return err
		}
	}
	if err := b.recover(c); err != nil {
		return err
	}
	var unrouted []string
	err = rows(c, selectUnrouted, func(s *sqlite3.Stmt) error { unrouted = append(unrouted, s.ColumnText(0)); return nil })
	for _, patient := range unrouted {
		if err == nil {
			err = b.pin(c, patient)
		}
	}
	return err
}

// recover makes pending what was being sent: nobody knows what became of it (O3,
// F9). What was altered meanwhile is left for the flush to set aside.
func (b *Outbox) recover(c *sqlitefile.Conn) error {
	var list []Entry
	if err := rows(c, selectSubmitted, func(s *sqlite3.Stmt) error { list = append(list, scanEntry(s)); return nil }); err != nil {
		return err
	}
	for _, e := range list {
		was := e
		e.State, e.Unsure = Pending, true
		if !b.seal.check(&was) {
			e.State, e.Code, e.Detail = Quarantined, QueueEntryAltered, altered
		}
		if _, err := b.put(c, was, e); err != nil {
			return err
		}
	}
	return nil
}

// checkOwner makes the client's subject the owner of a new file, and of no other.
func (b *Outbox) checkOwner(c *sqlitefile.Conn) error {
	subject := b.client.Subject()
	if _, err := run(c, insertOwner, subject); err != nil {
		return err
	}
	var owner string
	if err := rows(c, selectOwner, func(s *sqlite3.Stmt) error { owner = s.ColumnText(0); return nil }); err != nil {
		return err
	}
	if owner != subject {
		return failf(WrongQueueOwner, "subject", "the queue belongs to %s, not to %s; open it with that application's key", owner, subject)
	}
	return nil
}

// hold refuses a second flush, migration or close (F1, M1).
func (b *Outbox) hold() (release func(), err error) {
	select {
	case b.busy <- struct{}{}:
		return func() { <-b.busy }, nil
	case <-b.closed:
		return nil, ErrClosed
	default:
		return nil, failf(QueueWorkerBusy, "", "a flush or a migration is under way")
	}
}

// Close closes the file and gives up its ownership. During a flush or a migration
// it is refused with [QueueWorkerBusy]: stop [Outbox.Run] first.
func (b *Outbox) Close() error {
	// Held for ever: nothing is sent any more.
	if _, err := b.hold(); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil
		}
		return err
	}
	close(b.closed)
	// The file first: whoever gets the lock finds it at rest.
	return errors.Join(b.file.Close(), b.lock.Close())
}

// Changes signals after commits to the file, by anybody: for a user interface that
// shows the queue. Several commits may be one signal, and a signal a false alarm.
// Call cancel when done.
func (b *Outbox) Changes() (ch <-chan struct{}, cancel func()) { return b.file.Changes() }

func (b *Outbox) millis() int64 { return b.o.Now().UnixMilli() }

// wake tells a flush that is under way, and Run, that there is something to do.
func (b *Outbox) wake() {
	for _, ch := range []chan struct{}{b.flushed, b.woken} {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
