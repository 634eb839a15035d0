package claiming

import (
	"context"
	"math"

	"github.com/eda94727/holdfast"
)

// limits are the bounds that all workers of the database share, as far as they concern one claim.
// They are read, and on Postgres locked, in the claim's transaction, and what runs is counted there
// too, so that they are never exceeded; a place that a dead worker held comes back with its lease.
type limits struct {
	queues map[string]*limit
	names  map[string]*limit
	again  int64 // when something that is full now may have room, epoch milliseconds; 0 if nothing is
}

type limit struct {
	row   *holdfast.Row
	room  int
	rate  bool
	tat   int64 // theoretical arrival time of the rate, epoch microseconds (GCRA)
	step  int64 // microseconds between two starts
	spent bool
}

const unbounded = math.MaxInt32

// setBack is how far in the future an account must be to say that the clock was set back, in
// microseconds. Less is the work of another claim that read the clock later and came first.
const setBack = 60_000_000

// fullAgain is how soon a claim is worth trying again when a concurrency limit is full: other
// processes' tasks end without telling this one.
const fullAgain = 100 // ms

func readLimits(ctx context.Context, r Runner, c *holdfast.Claim, now int64) (*limits, error) {
	l := &limits{}
	in := &holdfast.Row{Queues: c.Queues, Names: []string{}}
	for i := range c.Draws {
		if c.Draws[i].AnyName {
			in.Reset = true // every name
		}
		in.Names = append(in.Names, c.Draws[i].Names...)
	}
	counted := false
	if err := r.Run(ctx, StmtLimits, in, NewRow, func(a *holdfast.Row) error {
		one := &limit{row: a, room: unbounded}
		if a.Kind == holdfast.LimitQueue {
			if l.queues == nil {
				l.queues = map[string]*limit{}
			}
			l.queues[a.Key] = one
		} else {
			if l.names == nil {
				l.names = map[string]*limit{}
			}
			l.names[a.Key] = one
		}
		counted = counted || a.Concurrency > 0
		if !a.PausedAt.IsZero() {
			one.room = 0
			return nil
		}
		if a.Concurrency > 0 {
			one.room = int(a.Concurrency)
		}
		if a.RateCount > 0 {
			// A generic cell rate algorithm: one number says when the bucket would be full again.
			one.rate = true
			one.step = max(1, a.RatePeriod*1000/a.RateCount)
			nowUS := now * 1000
			one.tat = max(a.TAT, nowUS)
			if full := nowUS + one.step*a.RateBurst; one.tat > full+setBack {
				// The clock was set back (or the rate was raised): one start is allowed, which writes the
				// account anew, or the rate would stay closed for as long as the clock was set back.
				one.tat = full - one.step
			}
			free := int((nowUS + one.step*a.RateBurst - one.tat) / one.step)
			one.room = min(one.room, free)
			if free <= 0 {
				l.soon((one.tat-one.step*(a.RateBurst-1))/1000 + 1)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if counted {
		var answer holdfast.Row
		if err := r.Run(ctx, StmtRunning, &holdfast.Row{}, Always(&answer), func(a *holdfast.Row) error {
			for _, one := range []*limit{l.queues[a.Queue], l.names[a.Name]} {
				if one != nil && one.row.Concurrency > 0 && one.row.PausedAt.IsZero() {
					one.room = min(one.room, int(one.row.Concurrency)-int(one.running(a.Count)))
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for _, set := range []map[string]*limit{l.queues, l.names} {
			for _, one := range set {
				if one.room <= 0 && one.row.PausedAt.IsZero() {
					l.soon(now + fullAgain)
				}
			}
		}
	}
	return l, nil
}

// running adds up what runs under the limit.
func (l *limit) running(n int64) int64 {
	l.row.Count += n
	return l.row.Count
}

func (l *limits) soon(ms int64) {
	if l.again == 0 || ms < l.again {
		l.again = ms
	}
}

func (l *limits) none() bool { return l.queues == nil && l.names == nil }

// room is how many tasks of a queue and name may start now.
func (l *limits) room(queue, name string) int {
	n := unbounded
	if one := l.queues[queue]; one != nil {
		n = min(n, one.room)
	}
	if one := l.names[name]; one != nil {
		n = min(n, one.room)
	}
	return n
}

// streams are those of a draw. Where names have limits, a draw of any name becomes one of each name
// that is queued, so that a name at its limit holds nobody up.
func (l *limits) streams(ctx context.Context, r Runner, queues []string, d *holdfast.Draw) ([]stream, error) {
	if !d.AnyName || l.names == nil {
		return streamsOf(queues, d), nil
	}
	var out []stream
	for _, q := range queues {
		row := &holdfast.Row{}
		row.Queue = q
		var answer holdfast.Row
		for {
			found := false
			if err := r.Run(ctx, StmtClaimName, row, Always(&answer), func(*holdfast.Row) error { found = true; return nil }); err != nil {
				return nil, err
			}
			if !found {
				break
			}
			out = append(out, stream{queue: q, name: answer.Name})
			row.Name = answer.Name
		}
	}
	return out, nil
}

// admit keeps, in order, the first of the candidates that the limits have room for.
func (l *limits) admit(list []Candidate, most int) []Candidate {
	if l.none() {
		return list[:min(len(list), most)]
	}
	out := list[:0]
	for _, c := range list {
		if len(out) == most {
			break
		}
		if l.room(c.Queue, c.Name) <= 0 {
			continue
		}
		for _, one := range []*limit{l.queues[c.Queue], l.names[c.Name]} {
			if one != nil {
				one.room--
				one.tat += one.step
				one.spent = one.spent || one.rate
			}
		}
		out = append(out, c)
	}
	return out
}

// spend writes down what was taken from rates.
func (l *limits) spend(ctx context.Context, r Runner) error {
	for _, set := range []map[string]*limit{l.queues, l.names} {
		for _, one := range set {
			if !one.spent {
				continue
			}
			row := &holdfast.Row{Kind: one.row.Kind, Key: one.row.Key, TAT: one.tat}
			if err := r.Run(ctx, StmtSpend, row, nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
