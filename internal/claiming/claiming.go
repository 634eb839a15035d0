// Package claiming decides which tasks a claim takes, in small steps over index ranges. SQLite always
// claims like this, since a step costs microseconds; Postgres does where limits or partitions make
// one statement too few.
//
// Every step reads only what it needs: a stream is the queued tasks of one queue and name, and is
// walked from priority to priority, so that neither tasks that are not due nor other names' backlogs
// are read.
package claiming

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/eda94727/holdfast"
)

const dayMS = 24 * 60 * 60 * 1000

// Statements that a dialect needs for claiming in steps.
const (
	StmtNextLease     holdfast.Statement = "next_lease"      // → lease_until_ms
	StmtClaimNext     holdfast.Statement = "claim_next"      // Queue, Name, Below → priority, run_at_ms
	StmtClaimNextAny  holdfast.Statement = "claim_next_any"  // Queue, Below → priority, run_at_ms
	StmtClaimPick     holdfast.Statement = "claim_pick"      // Queue, Name, Priority, Now, Limit → candidates
	StmtClaimPickAny  holdfast.Statement = "claim_pick_any"  // Queue, Priority, Now, Limit → candidates
	StmtClaimPart     holdfast.Statement = "claim_partition" // Queue, Name, Partition → the next partition
	StmtClaimPickPart holdfast.Statement = "claim_pick_part" // Queue, Name, Partition, Now, Limit → candidates
	StmtClaimName     holdfast.Statement = "claim_name"      // Queue, Name → the next name
	StmtLimits        holdfast.Statement = "limits_for"      // Queues, Names → limits, locked where it matters
	StmtRunning       holdfast.Statement = "running_counts"  // → queue, name, count
	StmtSpend         holdfast.Statement = "limit_spend"     // Kind, Key, TAT → nothing
)

// RecoverAtOnce bounds one recovery, so that a crowd of expired leases does not hold locks for long;
// the next claim takes the rest.
const RecoverAtOnce = 1000

// Runner runs statements in the claim's transaction, or, for Claimable, beside it.
type Runner interface {
	// Run runs one statement. Answers are scanned into the row that next gives, and handed to each.
	Run(ctx context.Context, stmt holdfast.Statement, in *holdfast.Row, next func() *holdfast.Row, each func(*holdfast.Row) error) error
	// Take makes the candidates the worker's and answers them.
	Take(ctx context.Context, c *holdfast.Claim, now int64, list []Candidate) ([]*holdfast.Task, error)
	// Now is the time in epoch milliseconds.
	Now(ctx context.Context, c *holdfast.Claim) (int64, error)
}

// Turns remembers, for each stream, which partition was served last. The zero value is ready.
type Turns struct {
	last mutexMap
}

// Candidate is a due task as an index shows it.
type Candidate struct {
	Row      int64 // SQLite's row number
	ID       string
	Queue    string
	Name     string // empty from a stream of any name
	Priority int
	RunAt    int64

	part  string // its partition, if it was picked in turn
	place string // what decides between equals: its id, or the id whose place it takes
}

func compare(a, b Candidate) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.RunAt, b.RunAt), cmp.Compare(a.place, b.place))
}

// NewRow makes a row for an answer that is kept.
func NewRow() *holdfast.Row { return new(holdfast.Row) }

// Always gives the same row, for answers that nobody keeps.
func Always(r *holdfast.Row) func() *holdfast.Row { return func() *holdfast.Row { return r } }

// Claim recovers, then serves the draws, inside the runner's transaction.
func Claim(ctx context.Context, r Runner, c *holdfast.Claim, turns *Turns) (*holdfast.Claimed, error) {
	now, err := r.Now(ctx, c)
	if err != nil {
		return nil, err
	}
	out := &holdfast.Claimed{}
	first, err := nextLease(ctx, r)
	if err != nil {
		return nil, err
	}
	if first != 0 && first <= now {
		row := &holdfast.Row{Now: now, Limit: RecoverAtOnce}
		row.Error = c.Recover
		if err := r.Run(ctx, holdfast.StmtRecover, row, NewRow, func(a *holdfast.Row) error {
			out.Recovered = append(out.Recovered, &a.Task)
			return nil
		}); err != nil {
			return nil, err
		}
		// What was given back is due from this moment on.
		if now, err = r.Now(ctx, c); err != nil {
			return nil, err
		}
	}
	limits, err := readLimits(ctx, r, c, now)
	if err != nil {
		return nil, err
	}
	quota := c.Quota()
	var list []Candidate
	for i := range c.Draws {
		d := &c.Draws[i]
		limit := quota.Limit(d)
		if limit == 0 {
			continue
		}
		list = list[:0]
		streams, err := limits.streams(ctx, r, c.Queues, d)
		if err != nil {
			return nil, err
		}
		filled := 0
		for _, s := range streams {
			n := len(list)
			if list, err = pick(ctx, r, s, now, min(limit, limits.room(s.queue, s.name)), list, turns); err != nil {
				return nil, err
			}
			if len(list) > n {
				filled++
			}
		}
		if filled > 1 {
			slices.SortFunc(list, compare)
		}
		list = limits.admit(list, limit)
		quota.Took(d, len(list))
		if len(list) == 0 {
			continue
		}
		turns.served(list)
		tasks, err := r.Take(ctx, c, now, list)
		if err != nil {
			return nil, err
		}
		out.Tasks = append(out.Tasks, tasks...)
	}
	return out, limits.spend(ctx, r)
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
func walk(ctx context.Context, r Runner, s stream, fn func(priority int, first int64) (more bool, err error)) error {
	next := StmtClaimNext
	if s.any {
		next = StmtClaimNextAny
	}
	row := &holdfast.Row{Below: math.MaxInt64}
	row.Queue, row.Name = s.queue, s.name
	var answer holdfast.Row
	for {
		found := false
		if err := r.Run(ctx, next, row, Always(&answer), func(*holdfast.Row) error { found = true; return nil }); err != nil || !found {
			return err
		}
		if more, err := fn(answer.Priority, answer.RunAt.UnixMilli()); err != nil || !more {
			return err
		}
		row.Below = int64(answer.Priority)
	}
}

// pick appends up to limit due tasks of the stream, in the order in which they are to be served.
func pick(ctx context.Context, r Runner, s stream, now int64, limit int, list []Candidate, turns *Turns) ([]Candidate, error) {
	if limit <= 0 {
		return list, nil
	}
	if !s.any {
		picks, err := pickInTurn(ctx, r, s, now, limit, turns)
		if err != nil || len(picks) > 0 {
			return append(list, picks...), err
		}
	}
	return pickInOrder(ctx, r, s, now, limit, list)
}

// pickInOrder appends up to limit due tasks of the stream in the protocol's order.
func pickInOrder(ctx context.Context, r Runner, s stream, now int64, limit int, list []Candidate) ([]Candidate, error) {
	stmt := StmtClaimPick
	if s.any {
		stmt = StmtClaimPickAny
	}
	row := &holdfast.Row{Now: now, Limit: int64(limit)}
	row.Queue, row.Name = s.queue, s.name
	var answer holdfast.Row
	err := walk(ctx, r, s, func(priority int, first int64) (bool, error) {
		if first > now {
			return true, nil
		}
		row.Priority = priority
		err := r.Run(ctx, stmt, row, Always(&answer), func(a *holdfast.Row) error {
			list = append(list, candidate(s, a))
			row.Limit--
			return nil
		})
		return row.Limit > 0, err
	})
	return list, err
}

func candidate(s stream, a *holdfast.Row) Candidate {
	return Candidate{Row: a.Hint(), ID: a.ID, Queue: s.queue, Name: s.name, Priority: a.Priority, RunAt: a.RunAt.UnixMilli(), place: a.ID}
}

// Claimable looks for anything due or expired, and otherwise for when there will be.
func Claimable(ctx context.Context, r Runner, c *holdfast.Claim) (bool, time.Duration, error) {
	now, err := r.Now(ctx, c)
	if err != nil {
		return false, 0, err
	}
	next, err := nextLease(ctx, r)
	if err != nil {
		return false, 0, err
	}
	if next != 0 && next <= now {
		return true, 0, nil
	}
	limits, err := readLimits(ctx, r, c, now)
	if err != nil {
		return false, 0, err
	}
	due := false
	quota := c.Quota()
	for i := range c.Draws {
		d := &c.Draws[i]
		if quota.Limit(d) == 0 {
			continue
		}
		streams, err := limits.streams(ctx, r, c.Queues, d)
		if err != nil {
			return false, 0, err
		}
		for _, s := range streams {
			if limits.room(s.queue, s.name) <= 0 {
				continue
			}
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
	if again := limits.again; again != 0 && (next == 0 || again < next) {
		next = again
	}
	if next == 0 {
		return false, 0, nil
	}
	// A task that waits for others is due in the year 9999, which is more than a Duration holds.
	return false, time.Duration(min(max(next-now, 1), dayMS)) * time.Millisecond, nil
}

// nextLease answers when the first lease ends, in epoch milliseconds; 0 when nothing runs.
func nextLease(ctx context.Context, r Runner) (ms int64, err error) {
	var answer holdfast.Row
	err = r.Run(ctx, StmtNextLease, &holdfast.Row{}, Always(&answer), func(a *holdfast.Row) error {
		if !a.LeaseUntil.IsZero() {
			ms = a.LeaseUntil.UnixMilli()
		}
		return nil
	})
	return ms, err
}
