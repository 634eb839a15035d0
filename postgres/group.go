package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

const (
	// groupsAtOnce is how many statements of one kind are under way at most: while they are, others
	// gather for the next.
	groupsAtOnce = 2
	// groupSize bounds one statement.
	groupSize = 500
)

// group lets concurrent writes of one kind share a statement, and with it a round trip and a commit.
// Nobody waits for a group to form: a lone write goes at once.
type group struct {
	d    *dialect
	op   string
	many func(ctx context.Context, q querier, rows []*holdfast.Row, each func(int, *holdfast.Row) error) error

	mu      sync.Mutex
	waiting []*member
	active  int
	// cancels end the waits for a connection that leads make, when nobody is left to wait for.
	cancels [groupsAtOnce]context.CancelFunc
}

type member struct {
	row     *holdfast.Row
	answers []*holdfast.Row
	err     error
	taken   bool // under the group's lock
	done    chan struct{}
}

func newGroup(d *dialect, op string, many func(context.Context, querier, []*holdfast.Row, func(int, *holdfast.Row) error) error) *group {
	return &group{d: d, op: op, many: many}
}

// do adds a write and returns after its commit. A caller whose ctx ends while the write waits has
// written nothing; once it is under way, do waits for the answer, so that the answer is true.
func (g *group) do(ctx context.Context, row *holdfast.Row, each func(int, *holdfast.Row) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	m := &member{row: row, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, m)
	lead := g.active < groupsAtOnce
	if lead {
		g.active++
	}
	g.mu.Unlock()
	if lead {
		// The caller's deadline must not cut off those who joined it.
		go g.lead(context.WithoutCancel(ctx))
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		g.mu.Lock()
		left := !m.taken
		if left {
			for i, w := range g.waiting {
				if w == m {
					g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
					break
				}
			}
			if len(g.waiting) == 0 {
				for _, cancel := range g.cancels {
					if cancel != nil {
						cancel()
					}
				}
			}
		}
		g.mu.Unlock()
		if left {
			return g.d.unserved(g.op, context.Cause(ctx))
		}
		<-m.done
	}
	if m.err != nil || each == nil {
		return translate(g.op, m.err)
	}
	for _, a := range m.answers {
		if err := each(0, a); err != nil {
			return err
		}
	}
	return nil
}

// lead runs groups until nobody waits. It takes a connection first and then whoever waits by now, so
// that nobody is under way, and bound to stay, before a statement can be sent.
func (g *group) lead(ctx context.Context) {
	for {
		wait, cancel := context.WithCancel(ctx)
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.active--
			g.mu.Unlock()
			cancel()
			return
		}
		slot := 0
		for g.cancels[slot] != nil {
			slot++
		}
		g.cancels[slot] = cancel
		g.mu.Unlock()

		conn, err := g.d.pool.Acquire(wait)

		g.mu.Lock()
		g.cancels[slot] = nil
		if err != nil && wait.Err() != nil && len(g.waiting) > 0 {
			// Everybody had left, and then somebody came.
			g.mu.Unlock()
			continue
		}
		n := min(len(g.waiting), groupSize)
		list := append([]*member{}, g.waiting[:n]...)
		g.waiting = append(g.waiting[:0], g.waiting[n:]...)
		for _, m := range list {
			m.taken = true
		}
		g.mu.Unlock()
		cancel()

		if err != nil {
			for _, m := range list {
				m.err = err
			}
		} else {
			if n > 0 {
				g.run(ctx, conn, list)
			}
			conn.Release()
		}
		for _, m := range list {
			close(m.done)
		}
	}
}

// run runs one group. When the server refuses the statement, one of the group may be the cause, so
// each is tried alone and gets its own answer. When the connection is lost instead, nobody knows what
// became of it: everybody is told so, and nothing is tried a second time.
func (g *group) run(ctx context.Context, conn querier, list []*member) {
	var err error
	for try := range tries {
		if err = g.try(ctx, conn, list); !isTransient(err) {
			break
		}
		pause(ctx, try)
	}
	if err == nil {
		return
	}
	var refused *pgconn.PgError
	if len(list) == 1 || !errors.As(err, &refused) || lost(refused) {
		for _, m := range list {
			m.err = err
		}
		return
	}
	for i := range list {
		list[i].err = g.try(ctx, conn, list[i:i+1])
	}
}

// try answers the members only if all went well.
func (g *group) try(ctx context.Context, conn querier, list []*member) error {
	rows := make([]*holdfast.Row, len(list))
	for i, m := range list {
		rows[i], m.answers = m.row, nil
	}
	return g.many(ctx, conn, rows, func(i int, a *holdfast.Row) error {
		list[i].answers = append(list[i].answers, a)
		return nil
	})
}

func (d *dialect) insertMany(ctx context.Context, q querier, rows []*holdfast.Row, each func(int, *holdfast.Row) error) error {
	return d.insertAll(ctx, session{d, q}, rows, each)
}

// insertAll inserts all rows in one statement.
func (d *dialect) insertAll(ctx context.Context, s session, rows []*holdfast.Row, each func(int, *holdfast.Row) error) error {
	byID := make(map[string]int, len(rows))
	for i, r := range rows {
		byID[r.ID] = i
	}
	return s.many(ctx, stmtInsertMany, rows, func(a *holdfast.Row) error {
		i := byID[a.ID]
		r := rows[i]
		r.RunAt, r.CreatedAt, r.UpdatedAt = a.RunAt, a.CreatedAt, a.UpdatedAt
		return call(each, i, r)
	})
}

// completeMany completes all rows in one statement. A task given twice is completed once, and the
// second is told that its lease is lost.
func (d *dialect) completeMany(ctx context.Context, q querier, rows []*holdfast.Row, each func(int, *holdfast.Row) error) error {
	byID := make(map[string]int, len(rows))
	for i, r := range rows {
		if _, twice := byID[r.ID]; !twice {
			byID[r.ID] = i
		}
	}
	return session{d, q}.many(ctx, stmtCompleteMany, rows, func(a *holdfast.Row) error { return call(each, byID[a.ID], a) })
}

// many runs a statement whose parameters are lists.
func (s session) many(ctx context.Context, stmt holdfast.Statement, rows []*holdfast.Row, each func(*holdfast.Row) error) error {
	one := s.d.sql.find(stmt, rows[0])
	answers, err := s.q.Query(ctx, one.sql, one.manyArguments(rows)...)
	if err != nil {
		return err
	}
	return read(answers, claiming.NewRow, each)
}
