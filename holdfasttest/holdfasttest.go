// Package holdfasttest helps programs to test their tasks: through the real store, in memory, with a
// clock that the test moves.
//
//	func TestWelcomeMail(t *testing.T) {
//		env := holdfasttest.New(t)
//		signUp(env.Client, "ada@example.org")                       // the code under test submits
//		task := env.RequireSubmitted(t, "mail.welcome")             // it did
//		env.Clock.Advance(24 * time.Hour)                           // it was for tomorrow
//		env.Work(t, func(w *holdfast.Worker) { registerMail(w) })   // runs all that is due
//		task = env.RequireStatus(t, task.ID, holdfast.Succeeded)
//	}
package holdfasttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// Clock is a time that only the test moves. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts at now.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock; d may be negative, as when an operator sets a clock back.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Env is a store of its own for one test.
type Env struct {
	// Store is SQLite's own database in memory: every rule of the real one, nothing on disk.
	Store *holdfast.Store
	// Client submits to the store.
	Client *holdfast.Client
	// Clock gives the store its time: delays, backoffs, leases and schedules pass when it is advanced.
	Clock *Clock
}

// start is where every Env's clock begins.
var start = time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)

// New makes an Env, closed when the test ends.
func New(t testing.TB, options ...holdfast.ClientOption) *Env {
	t.Helper()
	clock := NewClock(start)
	store, err := sqlite.Open(context.Background(), sqlite.Memory, sqlite.WithClock(clock.Now))
	if err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	client := holdfast.NewClient(store, options...)
	t.Cleanup(func() {
		client.Close()
		if err := store.Close(); err != nil {
			t.Errorf("holdfasttest: %v", err)
		}
	})
	return &Env{Store: store, Client: client, Clock: clock}
}

// timeout bounds what runs handlers, so that one that hangs fails the test by name.
const timeout = 30 * time.Second

// Work submits what schedules (Client.PutSchedule) have due, starts a worker, runs every task that is
// due and has a handler, with what those submit, and stops. A failed task that waits for its backoff is
// not due: advance the clock and call Work again.
// The handlers' log goes to the test's.
func (e *Env) Work(t testing.TB, register func(*holdfast.Worker)) {
	t.Helper()
	w := holdfast.NewWorker(e.Store, holdfast.WorkerConfig{Queues: e.queues(t), Client: e.Client, Poll: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(writer{t}, nil))})
	register(w)
	events, _, cancel := w.Subscribe(1024)
	defer cancel()
	ctx, end := context.WithTimeout(context.Background(), timeout)
	defer end()
	if _, _, err := e.Store.FireSchedules(ctx); err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	if err := w.Start(ctx); err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	defer func() {
		if err := w.Stop(ctx); err != nil {
			t.Errorf("holdfasttest: %v", err)
		}
	}()
	for {
		due, running := e.due(t, w)
		if !due && !running {
			return
		}
		select {
		case <-events:
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("holdfasttest: after %v there are still tasks due or running:\n%s", timeout, e.dump(t))
		}
	}
}

// due tells whether anything is due for the worker's handlers, or running.
func (e *Env) due(t testing.TB, w *holdfast.Worker) (due, running bool) {
	t.Helper()
	now := e.Clock.Now()
	for _, task := range e.Tasks(t, holdfast.Filter{}) {
		due = due || (task.Due(now) && w.Handles(task.Name))
		running = running || task.Status == holdfast.Running
	}
	return due, running
}

func (e *Env) queues(t testing.TB) []string {
	t.Helper()
	queues := []string{holdfast.DefaultQueue}
	stats, err := e.Store.Stats(context.Background(), "")
	if err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	for _, q := range stats {
		if q.Queue != holdfast.DefaultQueue {
			queues = append(queues, q.Queue)
		}
	}
	return queues
}

// Run submits one task of the definition, runs it through the handler, and answers its result and
// how it ended. Attempts that fail are not repeated.
func Run[In, Out any](t testing.TB, e *Env, d holdfast.Definition[In, Out], handler func(context.Context, *holdfast.Run, In) (Out, error), in In, options ...holdfast.SubmitOption) (out Out, task *holdfast.Task) {
	t.Helper()
	task, err := d.Submit(context.Background(), e.Client, in, options...)
	if err != nil {
		t.Fatalf("holdfasttest: submit %s: %v", d.Name(), err)
	}
	e.Work(t, func(w *holdfast.Worker) { d.Handle(w, handler) })
	if task, err = e.Client.Get(context.Background(), task.ID); err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	if err := task.DecodeResult(&out); err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	return out, task
}

// Tasks lists what the filter matches, oldest first, without a limit unless the filter has one.
func (e *Env) Tasks(t testing.TB, f holdfast.Filter) []*holdfast.Task {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 1 << 30
	}
	tasks, err := e.Client.List(context.Background(), f)
	if err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	for i, j := 0, len(tasks)-1; i < j; i, j = i+1, j-1 {
		tasks[i], tasks[j] = tasks[j], tasks[i]
	}
	return tasks
}

// Match narrows what RequireSubmitted looks for.
type Match func(*holdfast.Task) bool

// Payload matches tasks whose payload says the same as v in JSON; the order of members does not
// matter.
func Payload(v any) Match {
	want, err := json.Marshal(v)
	return func(task *holdfast.Task) bool { return err == nil && sameJSON(want, task.Payload) }
}

// On matches tasks of the queue.
func On(queue string) Match { return func(task *holdfast.Task) bool { return task.Queue == queue } }

func sameJSON(a, b []byte) bool {
	decode := func(raw []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return nil
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func (e *Env) find(t testing.TB, name string, matches []Match) []*holdfast.Task {
	t.Helper()
	var found []*holdfast.Task
next:
	for _, task := range e.Tasks(t, holdfast.Filter{Name: name}) {
		for _, m := range matches {
			if !m(task) {
				continue next
			}
		}
		found = append(found, task)
	}
	return found
}

// RequireSubmitted answers the one task of this name that fits, whatever its status. None, or more
// than one, fails the test.
func (e *Env) RequireSubmitted(t testing.TB, name string, matches ...Match) *holdfast.Task {
	t.Helper()
	found := e.find(t, name, matches)
	if len(found) != 1 {
		t.Fatalf("holdfasttest: want one task %q that fits, found %d. The store holds:\n%s", name, len(found), e.dump(t))
	}
	return found[0]
}

// RequireNotSubmitted fails the test when a task of this name fits.
func (e *Env) RequireNotSubmitted(t testing.TB, name string, matches ...Match) {
	t.Helper()
	if found := e.find(t, name, matches); len(found) != 0 {
		t.Fatalf("holdfasttest: want no task %q that fits, found %d. The store holds:\n%s", name, len(found), e.dump(t))
	}
}

// RequireStatus answers the task and fails the test when its status is another.
func (e *Env) RequireStatus(t testing.TB, id string, want holdfast.Status) *holdfast.Task {
	t.Helper()
	task, err := e.Client.Get(context.Background(), id)
	if err != nil {
		t.Fatalf("holdfasttest: %v", err)
	}
	if task.Status != want {
		t.Fatalf("holdfasttest: %s is %s, want %s; its last failure: %v", id, task.Status, want, task.Failure())
	}
	return task
}

func (e *Env) dump(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, task := range e.Tasks(t, holdfast.Filter{Limit: 100}) {
		fmt.Fprintf(&b, "  %s %s on %s, %s, attempt %d of %d, payload %.100s\n", task.ID, task.Name, task.Queue, task.Status, task.Attempt, task.MaxAttempts, task.Payload)
	}
	if b.Len() == 0 {
		return "  nothing"
	}
	return b.String()
}

// writer sends lines to the test's log.
type writer struct{ t testing.TB }

func (w writer) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
