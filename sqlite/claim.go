package sqlite

import (
	"context"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/claiming"
)

const (
	stmtClaimRead holdfast.Statement = "claim_read"
	stmtClaimTake holdfast.Statement = "claim_take"
)

// claimer claims in steps over a runner.
type claimer struct{ runner }

func (c claimer) Run(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error {
	return c.run(ctx, stmt, in, next, each)
}

func (c claimer) Now(_ context.Context, claim *holdfast.Claim) (int64, error) {
	return claim.Now.UnixMilli(), nil
}

// Take reads the rows and updates them, in two statements for all of them: an update that answers
// its rows keeps them in a temporary table first.
func (c claimer) Take(ctx context.Context, claim *holdfast.Claim, now int64, list []claiming.Candidate) ([]*holdfast.Task, error) {
	in := &holdfast.Row{Now: now, Lease: claim.Lease.Milliseconds(), Hints: make([]int64, len(list))}
	in.WorkerID = claim.WorkerID
	for i, one := range list {
		in.Hints[i] = one.Row
	}
	lease, updated := time.UnixMilli(now+in.Lease), time.UnixMilli(now)
	tasks := make([]*holdfast.Task, 0, len(list))
	if err := c.run(ctx, stmtClaimRead, in, claiming.NewRow, func(a *holdfast.Row) error {
		t := &a.Task
		t.Status, t.WorkerID, t.LeaseUntil, t.UpdatedAt = holdfast.Running, claim.WorkerID, lease, updated
		t.Attempt++
		tasks = append(tasks, t)
		return nil
	}); err != nil {
		return nil, err
	}
	_, err := c.change(ctx, stmtClaimTake, in)
	return tasks, err
}
