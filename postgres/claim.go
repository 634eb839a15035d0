package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

// Claim implements holdfast.Session. The usual claim is one round trip: recovery and one statement
// for the draw. Claims of any name, of several draws, and those that shared limits or partitions
// concern go in steps.
func (d *dialect) Claim(ctx context.Context, c *holdfast.Claim) (found *holdfast.Claimed, err error) {
	if len(c.Draws) == 1 && !c.Draws[0].AnyName {
		found, steps, err := d.claimAtOnce(ctx, c)
		if err != nil || !steps {
			return found, translate("claim", err)
		}
		recovered := found.Recovered
		found, err = d.claimInSteps(ctx, c)
		if found != nil {
			found.Recovered = append(found.Recovered, recovered...)
		}
		return found, err
	}
	return d.claimInSteps(ctx, c)
}

func (d *dialect) claimInSteps(ctx context.Context, c *holdfast.Claim) (found *holdfast.Claimed, err error) {
	err = d.Atomic(ctx, "claim", func(s holdfast.Session) (err error) {
		found, err = claiming.Claim(ctx, claimer{s.(session)}, c, d.turns)
		return err
	})
	if err != nil || len(found.Tasks) > 0 {
		return found, err
	}
	// Nothing to take: find out when there will be, without locks.
	now, next, err := claiming.Claimable(ctx, claimer{session{d, d.pool}}, c)
	if now {
		next = time.Millisecond // somebody else was taking it, or it became due just now
	}
	found.Next = next
	return found, err
}

// claimAtOnce answers steps when the claim has to be made in steps instead.
func (d *dialect) claimAtOnce(ctx context.Context, c *holdfast.Claim) (found *holdfast.Claimed, steps bool, err error) {
	draw := &c.Draws[0]
	in := &holdfast.Row{Queues: c.Queues, Names: draw.Names, Lease: c.Lease.Milliseconds(), Limit: int64(c.Quota().Limit(draw))}
	in.WorkerID, in.Error = c.WorkerID, c.Recover
	recover := *in
	recover.Limit = claiming.RecoverAtOnce
	found = &holdfast.Claimed{}
	err = d.again(ctx, "claim", func(conn *pgxpool.Conn) error {
		found.Tasks, found.Recovered = nil, nil
		return d.planned(ctx, conn, step{holdfast.StmtRecover, &recover, keep(&found.Recovered)}, step{stmtClaim, in, keep(&found.Tasks)})
	})
	if err != nil || len(found.Tasks) > 0 || in.Limit == 0 || len(draw.Names) == 0 {
		return found, false, err
	}
	var after *holdfast.Row
	if err := d.planned(ctx, d.pool, step{stmtClaimAfter, in, func(a *holdfast.Row) error { after = a; return nil }}); err != nil {
		return found, false, err
	}
	next := after.RunAt
	if next.IsZero() || !after.LeaseUntil.IsZero() && after.LeaseUntil.Before(next) {
		next = after.LeaseUntil
	}
	if !next.IsZero() {
		// What is due already was being taken by somebody else.
		found.Next = max(next.Sub(time.UnixMilli(after.Now)), time.Millisecond)
	}
	return found, after.Count > 0, nil
}

// step is one statement of a batch.
type step struct {
	stmt holdfast.Statement
	row  *holdfast.Row
	each func(*holdfast.Row) error
}

func keep(list *[]*holdfast.Task) func(*holdfast.Row) error {
	return func(a *holdfast.Row) error { *list = append(*list, &a.Task); return nil }
}

// planned runs statements of a claim in one round trip and transaction, after the settings for their plans.
func (d *dialect) planned(ctx context.Context, q querier, steps ...step) error {
	steps = append([]step{{d.settings, &holdfast.Row{}, nil}}, steps...) // what they answer is of no interest
	batch := &pgx.Batch{}
	for _, one := range steps {
		s := d.sql.find(one.stmt, one.row)
		batch.Queue(s.sql, s.arguments(one.row)...)
	}
	results := q.SendBatch(ctx, batch)
	for _, one := range steps {
		answers, err := results.Query()
		if err == nil {
			err = read(answers, claiming.NewRow, one.each)
		}
		if err != nil {
			results.Close()
			return err
		}
	}
	return results.Close()
}

// Claim implements holdfast.Session inside a transaction of the application.
func (s session) Claim(ctx context.Context, c *holdfast.Claim) (*holdfast.Claimed, error) {
	return claiming.Claim(ctx, claimer{s}, c, s.d.turns)
}

// claimer claims in steps on a session.
type claimer struct{ s session }

func (c claimer) Run(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error {
	return c.s.run(ctx, stmt, in, next, each)
}

func (c claimer) Now(ctx context.Context, _ *holdfast.Claim) (int64, error) { return c.s.clock(ctx) }

func (c claimer) Take(ctx context.Context, claim *holdfast.Claim, _ int64, list []claiming.Candidate) (tasks []*holdfast.Task, err error) {
	in := &holdfast.Row{Lease: claim.Lease.Milliseconds()}
	in.WorkerID = claim.WorkerID
	for _, one := range list {
		in.IDs = append(in.IDs, one.ID)
	}
	err = c.s.run(ctx, stmtClaimTake, in, claiming.NewRow, func(a *holdfast.Row) error {
		tasks = append(tasks, &a.Task)
		return nil
	})
	return tasks, err
}
