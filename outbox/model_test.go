package outbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/eda94727/holdfast/record"
)

// modelled is what the model knows of an entry.
type modelled struct {
	ID, Lane string
	Position int
	State    State
	Code     record.Code
	Unsure   bool
	Attempts int
}

// model is the queue as the specification has it, and a Host that does what a script
// says: the outcomes of an operation's attempts, and success after them.
type model struct {
	mu      sync.Mutex
	entries []*modelled // in order of their sequences
	intents map[string]record.Intent
	pruned  map[string]bool
	scripts map[string][]string
	tries   map[string]int
	done    map[string][]string // by lane: what the Host did, in its order
	key     *record.Key
	subject string
	strict  bool
}

// Outcomes of an attempt that are no codes.
const (
	success = "success"
	lost    = "done, the answer lost"
	noProof = "done, no receipt"
)

func (m *model) Subject() string { return m.subject }

func (m *model) Location(patient string) (record.Place, bool) {
	return record.Place{Record: patient, Host: record.HostRef{ID: m.key.ID()}}, true
}

// Write is the Host.
func (m *model) Write(_ context.Context, i record.Intent) (record.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	outcome := success
	if n := m.tries[i.OperationID]; n < len(m.scripts[i.OperationID]) {
		outcome = m.scripts[i.OperationID][n]
	}
	m.tries[i.OperationID]++
	replayed := slices.Contains(m.done[i.Patient], i.OperationID)
	switch outcome {
	case success, lost, noProof:
		if !replayed {
			m.done[i.Patient] = append(m.done[i.Patient], i.OperationID)
		}
	default:
		return record.Result{}, &record.Error{Code: record.Code(outcome)}
	}
	switch outcome {
	case lost:
		return record.Result{}, fmt.Errorf("connection reset")
	case noProof:
		return record.Result{Type: "Observation", ID: "x", Version: 1, Status: 201}, nil
	}
	r, err := i.Request(record.Limits{})
	if err != nil {
		return record.Result{}, err
	}
	receipt, err := record.SignReceipt(m.key, record.Receipt{Host: m.key.ID(), Record: i.Patient, Client: m.subject, Operation: i.OperationID, Fingerprint: record.Fingerprint(r.Method, r.Path, r.IfMatch, r.Body),
		Method: r.Method, Type: "Observation", ID: "x", Version: 1, Status: 201, Seq: 1, IssuedAt: 1})
	return record.Result{Type: "Observation", ID: "x", Version: 1, Status: 201, Receipt: receipt, Replayed: replayed}, err
}

// flush does to the model what a flush does.
func (m *model) flush() {
	stopped := map[string]bool{}
	for {
		var next *modelled
		for _, e := range m.entries {
			lane := e.Lane
			if m.strict {
				lane = ""
			}
			if e.State.open() && !stopped[lane] && (next == nil || e.Position < next.Position) {
				next = e
			}
		}
		if next == nil {
			return
		}
		lane := next.Lane
		if m.strict {
			lane = ""
		}
		if next.State != Pending {
			stopped[lane] = true
			continue
		}
		outcome := success
		if n := next.Attempts; n < len(m.scripts[next.ID]) {
			outcome = m.scripts[next.ID][n]
		}
		next.Attempts++
		switch outcome {
		case success:
			next.State, next.Code, next.Unsure = Committed, "", false
			continue
		case lost:
			next.Code, next.Unsure = record.TransportUnavailable, true
		case noProof:
			next.Code, next.Unsure = record.InvalidReceipt, true
		default:
			next.Code, next.State = record.Code(outcome), stateOf(record.Code(outcome))
			switch next.Code {
			case record.VersionConflict, record.InvalidResource:
				next.Unsure = false
			case record.HostUnavailable, record.OperationInProgress, "x_unknown":
				next.Unsure = true
			}
		}
		stopped[lane] = true
	}
}

func (m *model) find(id string) *modelled {
	for _, e := range m.entries {
		if e.ID == id {
			return e
		}
	}
	return nil
}

func TestTheQueueAgainstAModel(t *testing.T) {
	t.Parallel()
	_, plain, encrypted := newDisk(t) // no real flushes: this is about what, not about when
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		files++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", files))
		o := Options{vfs: plain, Strict: rapid.Bool().Draw(t, "strict"), Parallel: rapid.IntRange(1, 3).Draw(t, "parallel")}
		if rapid.Bool().Draw(t, "sealed") {
			o.vfs, o.Key = encrypted, testKey
		}
		key := record.NewKey()
		m := &model{key: key, subject: record.NewKey().ID(), strict: o.Strict, intents: map[string]record.Intent{}, pruned: map[string]bool{}, scripts: map[string][]string{},
			tries: map[string]int{}, done: map[string][]string{}}
		b, err := Open(ctx, path, m, o)
		mustR(t, err)
		defer func() { b.Close(); os.Remove(path) }()
		lanes := []string{record.NewID(), record.NewID(), record.NewID()}
		sequence := 0
		outcomes := rapid.SampledFrom([]string{success, success, lost, noProof, "version_conflict", "insufficient_scope", "record_frozen", "host_unavailable", "operation_in_progress", "invalid_resource", "x_unknown"})
		fresh := func(t *rapid.T, lane string) record.Intent {
			i := create(lane)
			m.mu.Lock()
			m.intents[i.OperationID] = i
			m.scripts[i.OperationID] = rapid.SliceOfN(outcomes, 0, 3).Draw(t, "outcomes")
			m.mu.Unlock()
			return i
		}
		pick := func(t *rapid.T) *modelled {
			if len(m.entries) == 0 {
				t.Skip("nothing is there")
			}
			return m.entries[rapid.IntRange(0, len(m.entries)-1).Draw(t, "entry")]
		}
		add := func(i record.Intent, position int) {
			sequence++
			if position == 0 {
				position = sequence
			}
			m.entries = append(m.entries, &modelled{ID: i.OperationID, Lane: i.Patient, Position: position, State: Pending})
		}
		wantR := func(t *rapid.T, err error, code record.Code) {
			if record.CodeOf(err) != code {
				t.Fatalf("the error is %v, want %q", err, code)
			}
		}
		// givesWay is the code that a discarding of e gets.
		refusal := func(e *modelled, unsure bool) record.Code {
			switch {
			case !e.State.open():
				return QueueStateConflict
			case e.Unsure && !unsure:
				return QueueOutcomeUnknown
			}
			return ""
		}
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				i := fresh(t, rapid.SampledFrom(lanes).Draw(t, "lane"))
				_, err := b.Enqueue(ctx, i)
				mustR(t, err)
				add(i, 0)
			},
			"enqueue again": func(t *rapid.T) { // E4 and E5, also of what was pruned
				if len(m.intents) == 0 {
					t.Skip("nothing is there")
				}
				var ids []string
				for id := range m.intents {
					if m.find(id) != nil || m.pruned[id] {
						ids = append(ids, id)
					}
				}
				if len(ids) == 0 {
					t.Skip("nothing is there")
				}
				slices.Sort(ids)
				i := m.intents[rapid.SampledFrom(ids).Draw(t, "operation")]
				_, err := b.Enqueue(ctx, i)
				mustR(t, err)
				i.Resource = []byte(`{"resourceType":"Observation"}`)
				_, err = b.Enqueue(ctx, i)
				wantR(t, err, QueueOperationIDConflict)
			},
			"flush": func(t *rapid.T) {
				r, err := b.Flush(ctx)
				mustR(t, err)
				was := m.count(Committed)
				m.flush()
				if r.Committed != m.count(Committed)-was {
					t.Fatalf("%+v", r)
				}
			},
			"reopen": func(t *rapid.T) {
				mustR(t, b.Close())
				var err error
				b, err = Open(ctx, path, m, o)
				mustR(t, err)
			},
			"retry": func(t *rapid.T) {
				e := pick(t)
				err := b.Retry(ctx, e.ID, because)
				if e.State != Conflicted && e.State != Rejected {
					wantR(t, err, QueueStateConflict)
					return
				}
				mustR(t, err)
				e.State, e.Code = Pending, ""
			},
			"discard": func(t *rapid.T) {
				e, ch := pick(t), because
				ch.Unsure = rapid.Bool().Draw(t, "unsure")
				err := b.Discard(ctx, e.ID, ch)
				code := refusal(e, ch.Unsure)
				wantR(t, err, code)
				if code == "" {
					e.State = Discarded
				}
			},
			"replace": func(t *rapid.T) {
				e, ch := pick(t), because
				ch.Unsure = rapid.Bool().Draw(t, "unsure")
				i := fresh(t, e.Lane)
				_, err := b.Replace(ctx, e.ID, i, ch)
				code := refusal(e, ch.Unsure)
				wantR(t, err, code)
				if code == "" {
					e.State = Discarded
					add(i, e.Position)
				}
			},
			"prune": func(t *rapid.T) {
				n, err := b.Prune(ctx, time.Now().Add(time.Hour))
				mustR(t, err)
				was := len(m.entries)
				m.entries = slices.DeleteFunc(m.entries, func(e *modelled) bool {
					if !e.State.open() {
						m.pruned[e.ID] = true
					}
					return !e.State.open()
				})
				if int(n) != was-len(m.entries) {
					t.Fatalf("%d were removed, want %d", n, was-len(m.entries))
				}
			},
			"": func(t *rapid.T) {
				list, err := b.Entries(ctx, Filter{Limit: 1000})
				mustR(t, err)
				is := []modelled{}
				for _, e := range list {
					is = append(is, modelled{e.OperationID, e.Patient, int(e.Position), e.State, e.Code, e.Unsure, int(e.Attempts)})
				}
				want := []modelled{}
				for _, e := range m.entries {
					want = append(want, *e)
				}
				if d := cmp.Diff(want, is); d != "" {
					t.Fatalf("the queue is not what the model says:\n%s", d)
				}
				sum, err := b.Summary(ctx)
				mustR(t, err)
				if sum.Waiting() != int64(m.count(Pending)) || sum.Blocked() != int64(m.count(Conflicted)+m.count(Rejected)) {
					t.Fatalf("%+v", sum)
				}
				v, err := b.Verify(ctx)
				mustR(t, err)
				if len(v.Problems) > 0 {
					t.Fatalf("%+v", v.Problems)
				}
				for lane, ids := range m.done {
					if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
						t.Fatalf("done twice in %s: %v", lane, ids)
					}
					// What is committed was done in the lane's order.
					last := 0
					for _, id := range ids {
						if e := m.find(id); e != nil && e.State == Committed {
							if e.Position < last {
								t.Fatalf("done out of order in %s", lane)
							}
							last = e.Position
						}
					}
				}
			},
		})
	})
}

func (m *model) count(s State) (n int) {
	for _, e := range m.entries {
		if e.State == s {
			n++
		}
	}
	return n
}

func mustR(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
