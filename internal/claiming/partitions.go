package claiming

import (
	"context"
	"slices"
	"sync"

	"github.com/eda94727/holdfast"
)

// mutexMap holds the last partition served of each stream.
type mutexMap struct {
	mu sync.Mutex
	m  map[stream]string
}

func (t *Turns) of(s stream) string {
	t.last.mu.Lock()
	defer t.last.mu.Unlock()
	return t.last.m[s]
}

// served notes the last partition of each stream among what is taken. A transaction that is taken
// back moves the turn on all the same, which harms nobody.
func (t *Turns) served(list []Candidate) {
	for i := range list {
		if list[i].part == "" {
			continue
		}
		t.last.mu.Lock()
		if t.last.m == nil {
			t.last.m = map[stream]string{}
		}
		t.last.m[stream{queue: list[i].Queue, name: list[i].Name}] = list[i].part
		t.last.mu.Unlock()
	}
}

// pickInTurn serves the partitions of a stream in turn, from the one after the last served: each
// gives one task before any gives its second. It answers nothing when nothing queued has a partition.
// Tasks without one get a turn like a partition: that of the head of the protocol's order.
//
// Among other streams the picks keep their own places: the k-th served takes the place of the k-th in
// the protocol's order, so that a partition with an old backlog gives its place to the one whose turn
// it is.
func pickInTurn(ctx context.Context, r Runner, s stream, now int64, limit int, turns *Turns) ([]Candidate, error) {
	parts, err := partitions(ctx, r, s, turns.of(s), limit)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	// Some may have nothing due, or less than their share, so each is asked for more.
	share := min(limit, max(2, 4*limit/len(parts)))
	row := &holdfast.Row{Now: now, Limit: int64(share)}
	row.Queue, row.Name = s.queue, s.name
	var answer holdfast.Row
	lists := make([][]Candidate, len(parts), len(parts)+1)
	for i, p := range parts {
		row.Partition = p
		if err := r.Run(ctx, StmtClaimPickPart, row, Always(&answer), func(a *holdfast.Row) error {
			c := candidate(s, a)
			c.part = p
			lists[i] = append(lists[i], c)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	plain, err := pickInOrder(ctx, r, s, now, share, nil)
	if err != nil {
		return nil, err
	}
	lists = append(lists, plain)
	picks := make([]Candidate, 0, limit)
	picked := make(map[string]bool, limit)
	for round, more := 0, true; more && len(picks) < limit; round++ {
		more = false
		for _, own := range lists {
			if round >= len(own) || len(picks) == limit {
				continue
			}
			more = true
			if c := own[round]; !picked[c.ID] {
				picked[c.ID] = true
				picks = append(picks, c)
			}
		}
	}
	places := slices.SortedFunc(slices.Values(picks), compare)
	for i := range picks {
		picks[i].Priority, picks[i].RunAt, picks[i].place = places[i].Priority, places[i].RunAt, places[i].place
	}
	return picks, nil
}

// partitions lists up to limit partitions that have queued tasks, from the one after last, around to
// last itself.
func partitions(ctx context.Context, r Runner, s stream, last string, limit int) ([]string, error) {
	var out []string
	row := &holdfast.Row{Partition: last}
	row.Queue, row.Name = s.queue, s.name
	var answer holdfast.Row
	around := last == ""
	for len(out) < limit {
		found := false
		if err := r.Run(ctx, StmtClaimPart, row, Always(&answer), func(*holdfast.Row) error { found = true; return nil }); err != nil {
			return nil, err
		}
		switch {
		case !found && around:
			return out, nil
		case !found:
			around, row.Partition = true, ""
			continue
		case around && last != "" && answer.Partition > last:
			return out, nil // all the way round
		}
		out = append(out, answer.Partition)
		row.Partition = answer.Partition
	}
	return out, nil
}
