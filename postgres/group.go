package postgres

import (
	"context"
	"fmt"
	"sync"

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
	many func(ctx context.Context, rows []*holdfast.Row, each func(int, *holdfast.Row) error) error

	mu      sync.Mutex
	waiting []*member
	active  int
}

type member struct {
	row     *holdfast.Row
	answers []*holdfast.Row
	err     error
	taken   bool // under the group's lock
	done    chan struct{}
}

func newGroup(d *dialect, op string, many func(context.Context, []*holdfast.Row, func(int, *holdfast.Row) error) error) *group {
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
		}
		g.mu.Unlock()
		if left {
			return fmt.Errorf("postgres: %s waited for its turn: %w", g.op, context.Cause(ctx))
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

// lead runs groups until nobody waits.
func (g *group) lead(ctx context.Context) {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), groupSize)
		if n == 0 {
			g.active--
			g.mu.Unlock()
			return
		}
		list := append([]*member{}, g.waiting[:n]...)
		g.waiting = append(g.waiting[:0], g.waiting[n:]...)
		for _, m := range list {
			m.taken = true
		}
		g.mu.Unlock()
		g.run(ctx, list)
		for _, m := range list {
			close(m.done)
		}
	}
}

func (g *group) run(ctx context.Context, list []*member) {
	err := g.try(ctx, list)
	if err == nil {
		return
	}
	if len(list) == 1 {
		list[0].err = err
		return
	}
	// One of them may be the cause, so each is tried alone and gets its own answer.
	for _, m := range list {
		m.err = g.try(ctx, []*member{m})
	}
}

func (g *group) try(ctx context.Context, list []*member) error {
	rows := make([]*holdfast.Row, len(list))
	for i, m := range list {
		rows[i], m.answers = m.row, nil
	}
	return g.many(ctx, rows, func(i int, a *holdfast.Row) error {
		list[i].answers = append(list[i].answers, a)
		return nil
	})
}

func (d *dialect) insertMany(ctx context.Context, rows []*holdfast.Row, each func(int, *holdfast.Row) error) error {
	return d.insertAll(ctx, session{d, d.pool}, rows, each)
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
func (d *dialect) completeMany(ctx context.Context, rows []*holdfast.Row, each func(int, *holdfast.Row) error) error {
	byID := make(map[string]int, len(rows))
	for i, r := range rows {
		if _, twice := byID[r.ID]; !twice {
			byID[r.ID] = i
		}
	}
	return session{d, d.pool}.many(ctx, stmtCompleteMany, rows, func(a *holdfast.Row) error { return call(each, byID[a.ID], a) })
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
