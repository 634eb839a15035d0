// Package storetest is the suite that every dialect of a holdfast.Store must pass.
//
// A dialect's test calls Run with a function that opens a store on a fresh, empty database:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) *storetest.Database { … })
//	}
//
// The suite has four parts: the rules of the task protocol, each a test of its name; the scenarios of
// the protocol and our own; a model in memory with random operations; and several workers at once.
package storetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// Database is a fresh, empty task database. Whoever opens it closes it in the test's cleanup.
type Database struct {
	// Store is open on the database.
	Store *holdfast.Store
	// SQL reaches the same tables by another way than the store, as the programs of other libraries do.
	SQL *sql.DB
	// Again opens one more store on the same database.
	Again func(t testing.TB) *holdfast.Store
	// Advance moves the store's clock, where the dialect takes one; see Clock. Without it the suite
	// moves the times in the tables (the protocol's, and holdfast_limits) back, which comes to the same.
	Advance func(d time.Duration)
}

// Clock is a clock that stands still unless it is moved. Its methods may be called at any time.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that shows the present, to the millisecond.
func NewClock() *Clock { return &Clock{now: time.Now().Truncate(time.Millisecond)} }

// Now is the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Run runs the whole suite. open is called once for each test.
func Run(t *testing.T, open func(t testing.TB) *Database) {
	t.Run("rules", func(t *testing.T) {
		for _, group := range rules {
			t.Run(group.name, func(t *testing.T) {
				for _, r := range group.rules {
					t.Run(r.name, func(t *testing.T) { r.run(begin(t, open(t))) })
				}
			})
		}
	})
	t.Run("rules when every transaction runs twice", func(t *testing.T) {
		for _, r := range keyRules {
			t.Run(r.name, func(t *testing.T) { r.run(begin(t, runTwice(open(t)))) })
		}
	})
	t.Run("scenarios", func(t *testing.T) { runScenarios(t, open) })
	t.Run("model", func(t *testing.T) { runModel(t, open) })
	t.Run("at once", func(t *testing.T) {
		for _, r := range atOnceRules {
			t.Run(r.name, func(t *testing.T) { r.run(begin(t, open(t))) })
		}
	})
}

type rule struct {
	name string
	run  func(x *test)
}

var rules = []struct {
	name  string
	rules []rule
}{
	{"submit", submitRules},
	{"claim", claimRules},
	{"recovery", recoveryRules},
	{"limits", limitRules},
	{"own", ownRules},
	{"settle", settleRules},
	{"cancel and retry", cancelRules},
	{"read", readRules},
	{"purge", purgeRules},
	{"keys", keyRules},
	{"json", jsonRules},
	{"others", othersRules},
}

// test is one test on one database.
type test struct {
	testing.TB
	*Database
	ctx context.Context
	s   *holdfast.Store
}

// begin makes a test that looks at the invariants when it ends.
func begin(t testing.TB, db *Database) *test {
	x := &test{TB: t, Database: db, ctx: t.Context(), s: db.Store}
	t.Cleanup(func() { CheckInvariants(t, db.SQL) })
	return x
}

// The lease and the step of time that tests use unless the length matters. No test runs for so long
// that the time which passes by itself could be taken for one.
const (
	lease = time.Hour
	later = time.Minute
)

func (x *test) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// pass lets time pass, in the database's eyes.
func (x *test) pass(d time.Duration) {
	x.Helper()
	if x.Advance != nil {
		x.Advance(d)
		return
	}
	ms := d.Milliseconds()
	x.exec(fmt.Sprintf(`update cairnq_tasks set lease_until_ms = lease_until_ms - %[1]d, run_at_ms = run_at_ms - %[1]d,
		cancel_requested_at_ms = cancel_requested_at_ms - %[1]d, created_at_ms = created_at_ms - %[1]d,
		updated_at_ms = updated_at_ms - %[1]d, completed_at_ms = completed_at_ms - %[1]d`, ms))
	x.exec(fmt.Sprintf("update cairnq_task_keys set created_at_ms = created_at_ms - %[1]d, updated_at_ms = updated_at_ms - %[1]d", ms))
	x.exec(fmt.Sprintf("update holdfast_limits set tat_us = tat_us - %[1]d000, paused_at_ms = paused_at_ms - %[1]d, updated_at_ms = updated_at_ms - %[1]d", ms))
}

func (x *test) exec(query string) {
	x.Helper()
	if _, err := x.SQL.ExecContext(x.ctx, query); err != nil {
		x.Fatalf("%s: %v", query, err)
	}
}

// number answers the only value of a query.
func (x *test) number(query string) (n int64) {
	x.Helper()
	if err := x.SQL.QueryRowContext(x.ctx, query).Scan(&n); err != nil {
		x.Fatalf("%s: %v", query, err)
	}
	return n
}

// rows is how many tasks there are.
func (x *test) rows() int64 { x.Helper(); return x.number("select count(*) from cairnq_tasks") }

func (x *test) submit(sub holdfast.Submission) *holdfast.Task {
	x.Helper()
	if sub.Name == "" {
		sub.Name = "job"
	}
	t, err := x.s.Submit(x.ctx, &sub)
	x.must(err)
	return t
}

// job submits a plain task.
func (x *test) job() *holdfast.Task { x.Helper(); return x.submit(holdfast.Submission{}) }

func (x *test) get(id string) *holdfast.Task {
	x.Helper()
	t, err := x.s.Get(x.ctx, id)
	x.must(err)
	return t
}

func (x *test) statusIs(id string, want holdfast.Status) {
	x.Helper()
	if got := x.get(id).Status; got != want {
		x.Fatalf("%s is %s, want %s", id, got, want)
	}
}

func anyName(limit int) []holdfast.Draw { return []holdfast.Draw{{AnyName: true, Limit: limit}} }

func named(limit int, names ...string) holdfast.Draw {
	return holdfast.Draw{Names: names, Limit: limit}
}

func (x *test) claimAll(c holdfast.Claim) *holdfast.Claimed {
	x.Helper()
	if c.WorkerID == "" {
		c.WorkerID = "w"
	}
	if c.Queues == nil {
		c.Queues = []string{holdfast.DefaultQueue}
	}
	if c.Lease == 0 {
		c.Lease = lease
	}
	got, err := x.s.Claim(x.ctx, c)
	x.must(err)
	return got
}

// claim takes up to limit tasks of the default queue for worker.
func (x *test) claim(worker string, limit int) []*holdfast.Task {
	x.Helper()
	return x.claimAll(holdfast.Claim{WorkerID: worker, Draws: anyName(limit)}).Tasks
}

// running submits one task and claims it for worker.
func (x *test) running(worker string, sub holdfast.Submission) *holdfast.Task {
	x.Helper()
	want := x.submit(sub)
	got := x.claim(worker, 1)
	if len(got) != 1 || got[0].ID != want.ID {
		x.Fatalf("the claim took %v, want %s", idsOf(got), want.ID)
	}
	return got[0]
}

// ended makes a task of the status.
func (x *test) ended(status holdfast.Status, sub holdfast.Submission) *holdfast.Task {
	x.Helper()
	t := x.running("w", sub)
	var err error
	switch status {
	case holdfast.Succeeded:
		_, err = x.s.Succeed(x.ctx, t, json.RawMessage(`{"ok":true}`))
	case holdfast.Failed:
		_, err = x.s.Fail(x.ctx, t, failure("boom"), false, 0)
	case holdfast.Canceled:
		if _, err = x.s.Cancel(x.ctx, t.ID); err == nil {
			_, err = x.s.Complete(x.ctx, t, nil)
		}
	}
	x.must(err)
	x.statusIs(t.ID, status)
	return x.get(t.ID)
}

// inStatus makes a task of any status.
func (x *test) inStatus(status holdfast.Status, sub holdfast.Submission) *holdfast.Task {
	x.Helper()
	switch status {
	case holdfast.Queued:
		return x.submit(sub)
	case holdfast.Running:
		return x.running("w", sub)
	}
	return x.ended(status, sub)
}

func failure(message string) json.RawMessage {
	raw, err := json.Marshal(&holdfast.Failure{Type: "Boom", Code: "boom", Message: message, Retryable: true})
	if err != nil {
		panic(err) // strings always can
	}
	return raw
}

func idsOf(tasks []*holdfast.Task) []string {
	ids := []string{}
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

func namesOf(tasks []*holdfast.Task) []string {
	names := []string{}
	for _, t := range tasks {
		names = append(names, t.Name)
	}
	return names
}

// is fails unless got is want.
func is[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// same fails unless the two tasks are equal in every column.
func same(t testing.TB, what string, got, want *holdfast.Task) {
	t.Helper()
	g, w := asJSON(t, got), asJSON(t, want)
	for k := range w {
		if !reflect.DeepEqual(g[k], w[k]) {
			t.Errorf("%s: %s is %v, want %v", what, k, g[k], w[k])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// asJSON is the task under the protocol's column names, with exact numbers.
func asJSON(t testing.TB, task *holdfast.Task) map[string]any {
	t.Helper()
	raw, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := exact(t, raw).(map[string]any)
	return m
}

// exact reads JSON with numbers as fractions, so that 1.0 is 1 and no digit is lost.
func exact(t testing.TB, raw []byte) any {
	t.Helper()
	v, err := parseExact(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func sameJSON(t testing.TB, what string, got, want json.RawMessage) {
	t.Helper()
	if (got == nil) != (want == nil) || got != nil && !reflect.DeepEqual(exact(t, got), exact(t, want)) {
		t.Fatalf("%s is %.300s, want %.300s", what, got, want)
	}
}

func fractions(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return v.String()
		}
		return r.RatString()
	case map[string]any:
		for k := range v {
			v[k] = fractions(v[k])
		}
	case []any:
		for i := range v {
			v[i] = fractions(v[i])
		}
	case string:
		return "text " + v
	}
	return v
}

// refused fails unless err is an InvalidError that names the field.
func refused(t testing.TB, err error, field string) {
	t.Helper()
	var invalid *holdfast.InvalidError
	if !errors.Is(err, holdfast.ErrInvalid) || !errors.As(err, &invalid) {
		t.Fatalf("the error is %v, want an InvalidError of %s", err, field)
	}
	if invalid.Field != field {
		t.Fatalf("the error names the field %q, want %q: %v", invalid.Field, field, err)
	}
}

// errorIs fails unless err is target.
func errorIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("the error is %v, want %v", err, target)
	}
}
