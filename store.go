package holdfast

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// Store runs the operations of the task protocol on one database. The rules of the protocol (key
// strategies, recovery, ownership) are here, once; a Dialect knows how the database says them.
//
// Programs make one with sqlite.Open or postgres.Open and hand it to NewClient and NewWorker. Its own
// methods are the protocol's operations, for tools and for workers of another design.
//
// A Store is safe for concurrent use.
type Store struct {
	dialect Dialect
	session Session // the dialect, or a transaction of the application
	inTx    bool
	clock   func() time.Time
	ids     *idSource
	// dependent is set once tasks that wait for others were submitted here.
	dependent *atomic.Bool
}

// StoreOption changes how NewStore works.
type StoreOption func(*Store)

// WithClock sets where the time comes from in a database that has no clock of its own (SQLite).
// It is for tests; Postgres always uses the server's clock.
func WithClock(now func() time.Time) StoreOption { return func(s *Store) { s.clock = now } }

// NewStore is for packages that implement a Dialect. Programs call sqlite.Open or postgres.Open.
func NewStore(d Dialect, options ...StoreOption) *Store {
	s := &Store{dialect: d, session: d, clock: time.Now, dependent: &atomic.Bool{}}
	for _, o := range options {
		o(s)
	}
	s.ids = newIDSource()
	return s
}

// Tx is an open transaction of the application on the store's database: sqlite.Tx or postgres.Tx.
type Tx interface {
	// Session runs the store's statements on the transaction.
	Session(d Dialect) (Session, error)
}

// In answers a Store that does everything inside the application's transaction: what it wrote is
// there when the application commits, and was never there when it rolls back. Nobody is woken before
// the commit.
func (s *Store) In(tx Tx) *Store {
	in := *s
	in.inTx = true
	session, err := tx.Session(s.dialect)
	if err != nil {
		session = brokenSession{err}
	}
	in.session = session
	return &in
}

type brokenSession struct{ err error }

func (b brokenSession) Query(context.Context, Statement, func(int, *Row) error, ...*Row) error {
	return b.err
}
func (b brokenSession) Claim(context.Context, *Claim) (*Claimed, error) { return nil, b.err }

// Close closes the database if the store opened it. Workers and clients on it must have ended.
func (s *Store) Close() error { return s.dialect.Close() }

// Dialect is the database under the store.
func (s *Store) Dialect() Dialect { return s.dialect }

// Now is the database's time.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if s.dialect.Name() == "sqlite" {
		return s.clock(), nil
	}
	return s.dialect.Now(ctx)
}

// ProtocolVersion reads the version that the database speaks. This library speaks "1".
func (s *Store) ProtocolVersion(ctx context.Context) (string, error) {
	return s.Meta(ctx, "protocol_version")
}

// Meta reads a value of the protocol's meta table, "" where there is none.
func (s *Store) Meta(ctx context.Context, key string) (value string, err error) {
	err = s.query(ctx, StmtMeta, func(_ int, a *Row) error { value = a.Value; return nil }, &Row{Key: key})
	return value, err
}

// atomic runs fn in one transaction: a new one, or the application's.
func (s *Store) atomic(ctx context.Context, op string, fn func(Session) error) error {
	if s.inTx {
		return fn(s.session)
	}
	return s.dialect.Atomic(ctx, op, fn)
}

// query runs one statement with the time set.
func (s *Store) query(ctx context.Context, stmt Statement, each func(int, *Row) error, rows ...*Row) error {
	now := s.clock().UnixMilli()
	for _, r := range rows {
		r.Now = now
	}
	return s.session.Query(ctx, stmt, each, rows...)
}

// queryOne runs a statement that answers at most one task.
func queryOne(ctx context.Context, session Session, stmt Statement, row *Row) (*Task, error) {
	var t *Task
	err := session.Query(ctx, stmt, func(_ int, a *Row) error { t = &a.Task; return nil }, row)
	return t, err
}

func (s *Store) one(ctx context.Context, stmt Statement, row *Row) (*Task, error) {
	row.Now = s.clock().UnixMilli()
	return queryOne(ctx, s.session, stmt, row)
}

// wakeQueue and wakeTask tell this process at once; others learn it from the database.
func (s *Store) wakeQueue(queue string) {
	if !s.inTx {
		s.dialect.Hub().WakeQueue(queue)
	}
}

func (s *Store) wakeAll() {
	if !s.inTx {
		s.dialect.Hub().WakeAll()
	}
}

func (s *Store) wakeTask(id string) {
	if !s.inTx {
		s.dialect.Hub().WakeTask(id)
	}
}

// settled wakes whoever waits for what a write has made of a task.
func (s *Store) settled(id, queue string, status Status) {
	switch {
	case status.Terminal():
		s.wakeTask(id)
		if s.dependent.Load() && !s.inTx && s.dialect.Name() == "sqlite" {
			s.dialect.Hub().WakeAll() // its children; a Postgres tells so by itself
		}
	case status == Queued:
		s.wakeQueue(queue)
	}
}

// idSource makes task ids that rise within the process, so that tasks of one millisecond keep their
// order.
type idSource struct {
	mu      sync.Mutex
	last    uint64
	entropy io.Reader
}

func newIDSource() *idSource { return &idSource{entropy: ulid.Monotonic(rand.Reader, 0)} }

const idPrefix = "task_"

func (s *idSource) next(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, ulid.Timestamp(now))
	id, err := ulid.New(s.last, s.entropy)
	if err != nil {
		// 2^80 ids in one millisecond, or no random numbers: the next millisecond starts anew.
		s.last++
		id = ulid.MustNew(s.last, s.entropy)
	}
	return idPrefix + id.String()
}

// checkID refuses what can be no id of a row, so that a mistake is told from a purged task.
func checkID(field, id string) error {
	if id == "" {
		return invalid(field, id, "is empty; give a task id, such as task_01J…")
	}
	if checkText(field, id, true) != nil {
		return fmt.Errorf("%w: %.40q", ErrNotFound, id)
	}
	return nil
}
