package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

// Each worker holds an advisory lock in a session of its own: one connection, outside of the pool. The
// server gives the lock up when the session ends, which is at once when the worker's process dies,
// since its system closes the connection. When the whole host vanishes, the server learns it from
// keepalives, within some 5 s more.
//
// The lock's key is a hash of the worker's id, seeded with the registry's table, so that installations
// in one database do not meet.

// timing: from a death to the takeover it takes at most 1.2 × 1.2 s + 3.2 s, less than 5 s. The holder
// lets go half a second before anybody takes over.
var timing = holdfast.LivenessTiming{
	Look:  1200 * time.Millisecond,
	Grace: 3200 * time.Millisecond,
	Beat:  500 * time.Millisecond,
	Hold:  2700 * time.Millisecond,
}

const (
	stmtWorkerGone  holdfast.Statement = "worker_gone"
	stmtWorkerSeize holdfast.Statement = "worker_seize"

	// enterPatience is how long a lock may be held by somebody who takes over, or by the session of a
	// predecessor that the server has not ended yet.
	enterPatience = 2 * time.Second
)

// Timing implements holdfast.Liveness.
func (d *dialect) Timing() holdfast.LivenessTiming { return timing }

// Enter implements holdfast.Liveness.
func (d *dialect) Enter(ctx context.Context, id string) (holdfast.WorkerLock, error) {
	pc := d.pool.Config()
	cc := pc.ConnConfig.Copy()
	if pc.BeforeConnect != nil {
		if err := pc.BeforeConnect(ctx, cc); err != nil {
			return nil, translate("connect", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, translate("connect", err)
	}
	s := &workerSession{conn: conn, pid: conn.PgConn().PID()}
	if pc.AfterConnect != nil { // the application's search_path, say
		if err := pc.AfterConnect(ctx, conn); err != nil {
			s.Release()
			return nil, translate("connect", err)
		}
	}
	if err := s.lock(ctx, id, d.workers); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// workerSession implements holdfast.WorkerLock.
type workerSession struct {
	conn *pgx.Conn
	pid  uint32 // of the server's process, as the server told at the start
}

// errPooled: a pooler gives its clients process numbers of its own, and another server process, without
// the lock, with each transaction.
var errPooled = errors.New("another process of the server answers than the one that the session began with")

// Prove implements holdfast.WorkerLock. The session is there, and with it the lock.
func (s *workerSession) Prove(ctx context.Context) error {
	var pid uint32
	if err := s.conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return translate("prove", err)
	}
	if pid != s.pid {
		return errPooled
	}
	return nil
}

func (s *workerSession) lock(ctx context.Context, id, table string) error {
	switch err := s.Prove(ctx); {
	case errors.Is(err, errPooled):
		return &holdfast.LeaseOnlyError{Reason: "the connection goes through a pooler, so no session is the worker's own"}
	case err != nil:
		return err
	}
	// So that the server notices soon when the worker's host has vanished. No effect on Unix sockets.
	for _, set := range []string{"tcp_keepalives_idle = 2", "tcp_keepalives_interval = 1", "tcp_keepalives_count = 3", "tcp_user_timeout = 5000"} {
		if _, err := s.conn.Exec(ctx, "set "+set); err != nil {
			return translate("set", err)
		}
	}
	for began := time.Now(); ; {
		var got bool
		err := s.conn.QueryRow(ctx, "select pg_try_advisory_lock(hashtextextended($1::text, $2::text::regclass::oid::bigint))", pgx.QueryExecModeExec, id, table).Scan(&got)
		switch {
		case err != nil:
			return translate("lock", err)
		case got:
			return nil
		case time.Since(began) > enterPatience:
			return fmt.Errorf("%w: its session is there", holdfast.ErrWorkerTaken)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Release implements holdfast.WorkerLock.
func (s *workerSession) Release() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // it is over either way
}

// Gone implements holdfast.Liveness.
func (d *dialect) Gone(ctx context.Context, _ time.Time) (list []holdfast.GoneWorker, err error) {
	err = session{d, d.pool}.run(ctx, stmtWorkerGone, &holdfast.Row{}, claiming.NewRow, func(a *holdfast.Row) error {
		list = append(list, holdfast.GoneWorker{ID: a.WorkerID, Token: a.Key, Stale: a.Count == 0})
		return nil
	})
	return list, err
}

// Seize implements holdfast.Liveness.
func (d *dialect) Seize(ctx context.Context, id string, fn func(holdfast.Session) error) (got bool, err error) {
	err = d.Atomic(ctx, "bury", func(s holdfast.Session) error {
		got = false
		row := &holdfast.Row{}
		row.WorkerID = id
		if err := s.(session).run(ctx, stmtWorkerSeize, row, claiming.NewRow, func(*holdfast.Row) error { got = true; return nil }); err != nil || !got {
			return err
		}
		return fn(s)
	})
	return got && err == nil, err
}
