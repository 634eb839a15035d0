// Package postgres keeps tasks in Postgres (13 or later): many hosts, and programs in other languages
// beside this one.
//
//	store, err := postgres.Open(ctx, "postgres://app@db/app")
//
// Concurrent submits and completions of a process share statements, as commits share a flush of the
// disk. Time is the server's. LISTEN on a connection of its own wakes workers in milliseconds; where it
// cannot be had, polling remains.
package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

type config struct {
	schema   string
	noListen bool
	log      *slog.Logger
	conns    int32
	err      error // of an option
	store    []holdfast.StoreOption
}

// Option changes how Open and New work.
type Option func(*config)

// WithSchema keeps the tables in that schema, which is created if it is missing, instead of the one
// that the connection's search_path gives.
func WithSchema(name string) Option { return func(c *config) { c.schema = name } }

// WithoutListen forgoes LISTEN: behind a pooler that shares connections between transactions it has
// no effect. Workers poll.
func WithoutListen() Option { return func(c *config) { c.noListen = true } }

// WithLogger sets where the store says what nobody asked for, such as a lost connection; slog.Default
// unless said.
func WithLogger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// WithMaxConns bounds the connections of the pool that Open makes; what the DSN says (pool_max_conns)
// or pgx's default, unless said. LISTEN and each worker's session have connections beside the pool's. A
// number below 1 is refused by Open.
func WithMaxConns(n int) Option {
	return func(c *config) {
		if n < 1 || n > math.MaxInt32 {
			c.err = &holdfast.InvalidError{Field: "max_conns", Value: strconv.Itoa(n), Problem: "is not between 1 and 2147483647"}
			return
		}
		c.conns = int32(n)
	}
}

// Open connects to the database, makes the tables where they are missing and brings older ones up to
// date. The DSN is a URL or key=value text as pgx reads it.
//
// Behind a transaction pooler add default_query_exec_mode=exec to the DSN and use WithoutListen.
//
// Errors: holdfast.ErrUnavailable (a DSN that cannot be read, a server that cannot be reached),
// ErrProtocol, ErrReadOnly, ErrInvalid (an option); ErrSecondInstallation.
func Open(ctx context.Context, dsn string, options ...Option) (*holdfast.Store, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, unreadable(err)
	}
	if c.conns > 0 {
		pc.MaxConns = c.conns
	}
	if c.schema != "" {
		quoted := pgx.Identifier{c.schema}.Sanitize()
		pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set search_path to "+quoted)
			return err
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, translate("connect", err)
	}
	store, err := open(ctx, pool, c, true)
	if err != nil {
		pool.Close()
	}
	return store, err
}

// New makes a store on the application's pool, which Close leaves open. LISTEN uses a connection of
// its own, with the pool's settings.
func New(ctx context.Context, pool *pgxpool.Pool, options ...Option) (*holdfast.Store, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	return open(ctx, pool, c, false)
}

func newConfig(options []Option) (*config, error) {
	c := &config{log: slog.Default()}
	for _, o := range options {
		o(c)
	}
	return c, cmp.Or(c.err, checkSchema(c.schema))
}

func open(ctx context.Context, pool *pgxpool.Pool, c *config, own bool) (*holdfast.Store, error) {
	if err := migrate(ctx, pool, c.schema); err != nil {
		return nil, translate("open", err)
	}
	d := &dialect{pool: pool, own: own, log: c.log, sql: load(c.schema), turns: &claiming.Turns{}, workers: "holdfast_workers", settings: stmtClaimPlan}
	if pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		d.settings = stmtClaimKept
	}
	if c.schema != "" {
		d.workers = pgx.Identifier{c.schema, d.workers}.Sanitize()
	}
	d.inserts = newGroup(d, "submit", d.insertMany)
	d.completes = newGroup(d, "complete", d.completeMany)
	if c.noListen {
		d.hub = holdfast.NewHub(nil)
	} else {
		d.ear = newEar(pool, c.log)
		d.hub = holdfast.NewHub(d.ear.want)
		d.ear.hub = d.hub
	}
	return holdfast.NewStore(d, c.store...), nil
}

// dialect implements holdfast.Dialect on a pool.
type dialect struct {
	pool  *pgxpool.Pool
	own   bool // the pool is closed with the store
	log   *slog.Logger
	sql   statements
	hub   *holdfast.Hub
	ear   *ear // nil without LISTEN
	turns *claiming.Turns

	workers  string             // the registry's table, qualified where a schema was given
	settings holdfast.Statement // of a claim, for the planner

	inserts   *group
	completes *group
	close     sync.Once
}

func (d *dialect) Name() string       { return "postgres" }
func (d *dialect) Hub() *holdfast.Hub { return d.hub }

func (d *dialect) Now(ctx context.Context) (time.Time, error) {
	conn, err := d.acquire(ctx, "clock")
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Release()
	ms, err := session{d, conn}.clock(ctx)
	return time.UnixMilli(ms), translate("clock", err)
}

func (d *dialect) CheckJSON(raw json.RawMessage) error { return checkJSON(raw) }

func (d *dialect) Close() error {
	d.close.Do(func() {
		if d.ear != nil {
			d.ear.close()
		}
		if d.own {
			d.pool.Close()
		}
	})
	return nil
}

// Query implements holdfast.Session. Lone inserts and completions join a group.
func (d *dialect) Query(ctx context.Context, stmt holdfast.Statement, each func(int, *holdfast.Row) error, rows ...*holdfast.Row) error {
	if len(rows) == 1 {
		switch stmt {
		case holdfast.StmtInsert:
			return d.inserts.do(ctx, rows[0], each)
		case holdfast.StmtComplete:
			return d.completes.do(ctx, rows[0], each)
		}
	}
	// The answers are passed on after the commit.
	type answer struct {
		i   int
		row *holdfast.Row
	}
	var answers []answer
	err := d.again(ctx, string(stmt), func(conn *pgxpool.Conn) error {
		answers = answers[:0]
		return session{d, conn}.Query(ctx, stmt, func(i int, a *holdfast.Row) error {
			answers = append(answers, answer{i, a})
			return nil
		}, rows...)
	})
	if err != nil {
		return err
	}
	if each != nil {
		for _, a := range answers {
			if err := each(a.i, a.row); err != nil {
				return err
			}
		}
	}
	return nil
}

// transient failures of a transaction are tried again this often.
const tries = 5

// again runs fn, which is one transaction, on a connection of the pool, and once more after a
// serialization failure or a deadlock.
func (d *dialect) again(ctx context.Context, op string, fn func(*pgxpool.Conn) error) error {
	conn, err := d.acquire(ctx, op)
	if err != nil {
		return err
	}
	defer conn.Release()
	for try := range tries {
		if err = fn(conn); !isTransient(err) || ctx.Err() != nil {
			break
		}
		pause(ctx, try)
	}
	return translate(op, err)
}

// Atomic implements holdfast.Dialect.
func (d *dialect) Atomic(ctx context.Context, op string, fn func(holdfast.Session) error) error {
	return d.again(ctx, op, func(conn *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return fn(session{d, tx}) })
	})
}

// Claimable implements holdfast.Dialect. Looking would cost as much as claiming.
func (d *dialect) Claimable(context.Context, *holdfast.Claim) (bool, time.Duration, error) {
	return true, 0, nil
}

// ErrSecondInstallation: the connection's search_path leads to a schema without tasks while another
// schema has them.
var ErrSecondInstallation = fmt.Errorf("%w: a second installation", holdfast.ErrUnavailable)
