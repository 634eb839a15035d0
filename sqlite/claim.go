package sqlite

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/eda94727/holdfast"
)

// recoverAtOnce bounds one recovery, so that a crowd of expired leases does not hold the write lock
// for long; the next claim takes the rest.
const recoverAtOnce = 1000

// candidate is a due task as the claim index shows it.
type candidate struct {
	row      int64
	id       string
	priority int
	runAt    int64
}

func compare(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
}

// claim recovers, then serves the draws, inside the caller's transaction.
func claim(ctx context.Context, r runner, c *holdfast.Claim) (*holdfast.Claimed, error) {
	now := c.Now.UnixMilli()
	out := &holdfast.Claimed{}
	first, err := nextLease(ctx, r)
	if err != nil {
		return nil, err
	}
	if first != 0 && first <= now {
		row := &holdfast.Row{Now: now, Limit: recoverAtOnce}
		row.Error = c.Recover
		if err := r.run(ctx, holdfast.StmtRecover, row, newRow, func(a *holdfast.Row) error {
			out.Recovered = append(out.Recovered, &a.Task)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	take := &holdfast.Row{Now: now, Lease: c.Lease.Milliseconds()}
	take.WorkerID = c.WorkerID
	lease := time.UnixMilli(now + take.Lease)
	var list []candidate
	quota := c.Quota()
	for i := range c.Draws {
		d := &c.Draws[i]
		limit := quota.Limit(d)
		list = list[:0]
		streams := 0
		for _, s := range streamsOf(c.Queues, d) {
			n := len(list)
			if list, err = pick(ctx, r, s, now, limit, list); err != nil {
				return nil, err
			}
			if len(list) > n {
				streams++
			}
		}
		if streams > 1 {
			slices.SortFunc(list, compare)
		}
		list = list[:min(len(list), limit)]
		quota.Took(d, len(list))
		if len(list) == 0 {
			continue
		}
		take.Hints = take.Hints[:0]
		for _, one := range list {
			take.Hints = append(take.Hints, one.row)
		}
		if err := r.run(ctx, stmtClaimRead, take, newRow, func(a *holdfast.Row) error {
			t := &a.Task
			t.Status, t.WorkerID, t.LeaseUntil = holdfast.Running, c.WorkerID, lease
			t.Attempt++
			t.UpdatedAt = time.UnixMilli(now)
			out.Tasks = append(out.Tasks, t)
			return nil
		}); err != nil {
			return nil, err
		}
		if _, err := r.change(ctx, stmtClaimTake, take); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stream is one index range: the queued tasks of a queue, of one name or of any.
type stream struct {
	queue string
	name  string
	any   bool
}

func streamsOf(queues []string, d *holdfast.Draw) []stream {
	var out []stream
	for _, q := range queues {
		if d.AnyName {
			out = append(out, stream{queue: q, any: true})
			continue
		}
		for _, n := range d.Names {
			out = append(out, stream{queue: q, name: n})
		}
	}
	return out
}

// walk goes through the priorities of a stream from high to low, as long as fn says.
func walk(ctx context.Context, r runner, s stream, fn func(priority int, first int64) (more bool, err error)) error {
	next := stmtClaimNext
	if s.any {
		next = stmtClaimNextAny
	}
	row := &holdfast.Row{Below: math.MaxInt64}
	row.Queue, row.Name = s.queue, s.name
	var answer holdfast.Row
	for {
		found := false
		if err := r.run(ctx, next, row, always(&answer), func(*holdfast.Row) error { found = true; return nil }); err != nil || !found {
			return err
		}
		if more, err := fn(answer.Priority, answer.RunAt.UnixMilli()); err != nil || !more {
			return err
		}
		row.Below = int64(answer.Priority)
	}
}

// pick appends up to limit due tasks of the stream, in order.
func pick(ctx context.Context, r runner, s stream, now int64, limit int, list []candidate) ([]candidate, error) {
	if limit <= 0 {
		return list, nil
	}
	stmt := stmtClaimPick
	if s.any {
		stmt = stmtClaimPickAny
	}
	row := &holdfast.Row{Now: now, Limit: int64(limit)}
	row.Queue, row.Name = s.queue, s.name
	var answer holdfast.Row
	err := walk(ctx, r, s, func(priority int, first int64) (bool, error) {
		if first > now {
			return true, nil
		}
		row.Priority = priority
		err := r.run(ctx, stmt, row, always(&answer), func(a *holdfast.Row) error {
			list = append(list, candidate{a.Hint(), a.ID, a.Priority, a.RunAt.UnixMilli()})
			row.Limit--
			return nil
		})
		return row.Limit > 0, err
	})
	return list, err
}

// claimable looks for anything due or expired, and otherwise for when there will be.
func claimable(ctx context.Context, r runner, c *holdfast.Claim) (bool, time.Duration, error) {
	now := c.Now.UnixMilli()
	next, err := nextLease(ctx, r)
	if err != nil {
		return false, 0, err
	}
	if next != 0 && next <= now {
		return true, 0, nil
	}
	due := false
	quota := c.Quota()
	for i := range c.Draws {
		d := &c.Draws[i]
		if quota.Limit(d) == 0 {
			continue
		}
		for _, s := range streamsOf(c.Queues, d) {
			if err := walk(ctx, r, s, func(_ int, first int64) (bool, error) {
				if due = first <= now; due {
					return false, nil
				}
				if next == 0 || first < next {
					next = first
				}
				return true, nil
			}); err != nil || due {
				return due, 0, err
			}
		}
	}
	if next == 0 {
		return false, 0, nil
	}
	return false, time.Duration(next-now) * time.Millisecond, nil
}

// nextLease answers when the first lease ends, in epoch milliseconds; 0 when nothing runs.
func nextLease(ctx context.Context, r runner) (ms int64, err error) {
	var answer holdfast.Row
	err = r.run(ctx, stmtNextLease, &holdfast.Row{}, always(&answer), func(a *holdfast.Row) error {
		if !a.LeaseUntil.IsZero() {
			ms = a.LeaseUntil.UnixMilli()
		}
		return nil
	})
	return ms, err
}
