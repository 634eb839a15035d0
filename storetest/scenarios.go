package storetest

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// Our own scenarios, in the format of the protocol's.
//
//go:embed scenarios/*.json
var ownScenarios embed.FS

// ConformanceEnv names the folder of the protocol's scenarios. Without it, "../shared/conformance"
// beside the repository is used where that exists.
const ConformanceEnv = "HOLDFAST_CONFORMANCE"

type scenario struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Steps       []step `json:"steps"`
}

type step struct {
	expectation
	Op          string         `json:"op"`
	Args        map[string]any `json:"args"`
	Save        string         `json:"save"`
	Expect      *expectation   `json:"expect"`
	ExpectError string         `json:"expectError"`
	Target      any            `json:"target"`
}

type expectation struct {
	Equals         map[string]any `json:"equals"`
	EqualsRef      any            `json:"equalsRef"`
	NotEqualsRef   any            `json:"notEqualsRef"`
	GreaterThanRef any            `json:"greaterThanRef"`
	Length         *int           `json:"length"`
	NotNull        []string       `json:"notNull"`
	IsNull         []string       `json:"isNull"`
}

// runScenarios runs every scenario file on a database of its own.
func runScenarios(t *testing.T, open func(t testing.TB) *Database) {
	folders := []fs.FS{must1(fs.Sub(ownScenarios, "scenarios"))}
	if dir, ok := conformance(t); ok {
		folders = append(folders, os.DirFS(dir))
	}
	for i, folder := range folders {
		files, err := fs.Glob(folder, "*.json")
		if err != nil || len(files) == 0 {
			t.Fatalf("no scenarios in folder %d (%v)", i, err)
		}
		for _, file := range files {
			t.Run([]string{"own", "protocol"}[i]+"/"+strings.TrimSuffix(file, ".json"), func(t *testing.T) {
				raw, err := fs.ReadFile(folder, file)
				if err != nil {
					t.Fatal(err)
				}
				var s scenario
				if err := json.Unmarshal(raw, &s); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				p := &play{test: begin(t, open(t)), saved: map[string]any{}, own: i == 0}
				for n, st := range s.Steps {
					p.step(fmt.Sprintf("step %d, %s", n, st.Op), st)
				}
			})
		}
	}
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err) // the files are embedded
	}
	return v
}

// conformance finds the folder of the protocol's scenarios.
func conformance(t testing.TB) (dir string, ok bool) {
	t.Helper()
	if dir = os.Getenv(ConformanceEnv); dir != "" {
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("%s: %v", ConformanceEnv, err)
		}
		return dir, true
	}
	// Tests run in their package's folder; the repository's root is above it.
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(root)
		if up == root {
			return "", false
		}
		root = up
	}
	dir = filepath.Join(root, "..", "shared", "conformance")
	_, err = os.Stat(dir)
	return dir, err == nil
}

// play is a scenario on its way.
type play struct {
	*test
	saved map[string]any
	own   bool // our names of the key strategies, not the scenarios'
}

func (p *play) step(what string, st step) {
	p.Helper()
	if st.Op == "expect" {
		p.check(what, p.resolve(st.Target), st.expectation)
		return
	}
	args, _ := p.resolve(map[string]any(st.Args)).(map[string]any)
	if args == nil {
		args = map[string]any{}
	}
	result, err := p.do(what, st.Op, arguments{p, what, args})
	if st.ExpectError != "" {
		if kind := errorKind(err); kind != st.ExpectError {
			p.Fatalf("%s: the error is %v (%s), want %s", what, err, kind, st.ExpectError)
		}
		result = map[string]any{"kind": st.ExpectError}
		var exists *holdfast.AlreadyExistsError
		if errors.As(err, &exists) {
			result = map[string]any{"kind": st.ExpectError, "task_id": exists.TaskID}
		}
	} else if err != nil {
		p.Fatalf("%s: %v", what, err)
	}
	if st.Save != "" {
		p.saved[st.Save] = result
	}
	if st.Expect != nil {
		p.check(what, result, *st.Expect)
	}
}

// errorKind is what the scenarios call an error.
func errorKind(err error) string {
	for _, k := range []struct {
		err  error
		name string
	}{
		{holdfast.ErrAlreadyExists, "AlreadyExists"}, {holdfast.ErrLeaseLost, "LostLease"}, {holdfast.ErrInvalid, "Invalid"}, {holdfast.ErrNotJSON, "NotJSON"},
	} {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return fmt.Sprint(err)
}

// resolve replaces "$name.field" by what was kept.
func (p *play) resolve(v any) any {
	switch v := v.(type) {
	case string:
		if !strings.HasPrefix(v, "$") {
			return v
		}
		path := strings.Split(v[1:], ".")
		at, ok := p.saved[path[0]]
		if !ok {
			p.Fatalf("nothing is kept as %s", v)
		}
		for _, name := range path[1:] {
			switch in := at.(type) {
			case map[string]any:
				at = in[name]
			case []any:
				i, err := strconv.Atoi(name)
				if err != nil || i >= len(in) {
					p.Fatalf("%s: no element %s in %v", v, name, in)
				}
				at = in[i]
			default:
				p.Fatalf("%s: no %s in %v", v, name, at)
			}
		}
		return at
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = p.resolve(v[k])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = p.resolve(v[i])
		}
		return out
	}
	return v
}

func (p *play) check(what string, got any, e expectation) {
	p.Helper()
	field := func(name string) any {
		m, _ := got.(map[string]any)
		return m[name]
	}
	for k, want := range e.Equals {
		if !reflect.DeepEqual(field(k), p.resolve(want)) {
			p.Fatalf("%s: %s is %v, want %v", what, k, field(k), want)
		}
	}
	if e.EqualsRef != nil && !reflect.DeepEqual(got, p.resolve(e.EqualsRef)) {
		p.Fatalf("%s: %v, want %v", what, got, p.resolve(e.EqualsRef))
	}
	if e.NotEqualsRef != nil && reflect.DeepEqual(got, p.resolve(e.NotEqualsRef)) {
		p.Fatalf("%s: %v, want another", what, got)
	}
	if e.GreaterThanRef != nil {
		a, ok1 := got.(float64)
		b, ok2 := p.resolve(e.GreaterThanRef).(float64)
		if !ok1 || !ok2 || a <= b {
			p.Fatalf("%s: %v, want more than %v", what, got, p.resolve(e.GreaterThanRef))
		}
	}
	if e.Length != nil {
		list, ok := got.([]any)
		if !ok || len(list) != *e.Length {
			p.Fatalf("%s: %v, want %d", what, got, *e.Length)
		}
	}
	for _, k := range e.NotNull {
		if field(k) == nil {
			p.Fatalf("%s: %s is null", what, k)
		}
	}
	for _, k := range e.IsNull {
		if field(k) != nil {
			p.Fatalf("%s: %s is %v, want null", what, k, field(k))
		}
	}
}

// arguments are a step's, read by name and type. An argument that nobody reads would be a test that
// says more than it does, so do forgets what it has read and the rest is an error.
type arguments struct {
	p    *play
	what string
	m    map[string]any
}

func (a arguments) text(name string) string { s, _ := a.take(name).(string); return s }
func (a arguments) number(name string) int  { f, _ := a.take(name).(float64); return int(f) }
func (a arguments) ms(name string) time.Duration {
	return time.Duration(a.number(name)) * time.Millisecond
}
func (a arguments) flag(name string) bool { b, _ := a.take(name).(bool); return b }
func (a arguments) has(name string) bool  { _, ok := a.m[name]; return ok }
func (a arguments) take(name string) any {
	v := a.m[name]
	delete(a.m, name)
	return v
}

func (a arguments) list(name string) []string {
	list, _ := a.take(name).([]any)
	out := []string{}
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func (a arguments) json(name string) json.RawMessage {
	if !a.has(name) {
		return nil
	}
	raw, err := json.Marshal(a.take(name))
	if err != nil {
		a.p.Fatalf("%s: %v", a.what, err)
	}
	return raw
}

// strategies of the protocol's scenarios, where they differ from ours.
func (p *play) strategy(conflict string, key string) holdfast.Strategy {
	if !p.own && key != "" && (conflict == "" || conflict == "reuse") {
		return holdfast.ReuseLive
	}
	return holdfast.Strategy(conflict)
}

// do runs one operation and answers its result as JSON has it.
func (p *play) do(what, op string, a arguments) (any, error) {
	p.Helper()
	defer func() {
		p.Helper()
		for name := range a.m {
			p.Fatalf("%s: no such argument: %s", what, name)
		}
	}()
	own := func() *holdfast.Task {
		return &holdfast.Task{ID: a.text("id"), WorkerID: a.text("worker_id")}
	}
	// written answers the task after a worker's write, which itself answers no more than the status.
	written := func(id string, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		return p.task(p.s.Get(p.ctx, id))
	}
	switch op {
	case "sleep":
		if d := a.ms("ms"); p.Advance != nil {
			p.Advance(d)
		} else {
			time.Sleep(d)
		}
		return nil, nil
	case "submit":
		key := a.text("key")
		return p.task(p.s.Submit(p.ctx, &holdfast.Submission{
			Name: a.text("name"), Queue: a.text("queue"), Payload: a.json("payload"), Metadata: a.json("metadata"), Key: key, Strategy: p.strategy(a.text("conflict"), key),
			MaxAttempts: a.number("max_attempts"), Priority: a.number("priority"), Delay: a.ms("run_at_delay_ms"),
			RootID: a.text("root_id"), ParentID: a.text("parent_id"), CorrelationID: a.text("correlation_id"),
		}))
	case "get":
		return p.task(p.s.Get(p.ctx, a.text("id")))
	case "get_by_key":
		return p.task(p.s.GetByKey(p.ctx, a.text("key")))
	case "get_status":
		return p.task(p.s.Status(p.ctx, a.text("id")))
	case "get_status_by_key":
		return p.task(p.s.StatusByKey(p.ctx, a.text("key")))
	case "list":
		tasks, err := p.s.List(p.ctx, holdfast.Filter{
			Status: holdfast.Status(a.text("status")), Queue: a.text("queue"), Name: a.text("name"), RootID: a.text("root_id"),
			CorrelationID: a.text("correlation_id"), Limit: a.number("limit"), Offset: a.number("offset"),
		})
		return p.tasks(tasks), err
	case "stats":
		stats, err := p.s.Stats(p.ctx, a.text("queue"))
		return p.plain(stats), err
	case "queue_depth":
		n, err := p.s.QueueDepth(p.ctx, a.text("queue"), a.number("max_depth"))
		return float64(n), err
	case "cancel":
		return p.task(p.s.Cancel(p.ctx, a.text("id")))
	case "cancel_by_key":
		return p.task(p.s.CancelByKey(p.ctx, a.text("key")))
	case "retry":
		return p.task(p.s.Retry(p.ctx, a.text("id"), a.flag("reset_attempt")))
	case "retry_by_key":
		return p.task(p.s.RetryByKey(p.ctx, a.text("key"), a.flag("reset_attempt")))
	case "purge":
		ids, err := p.s.Purge(p.ctx, holdfast.PurgeFilter{
			OlderThan: a.ms("older_than_ms"), Queue: a.text("queue"), Status: holdfast.Status(a.text("status")), Name: a.text("name"), Limit: a.number("limit"),
		})
		return p.plain(ids), err
	case "claim":
		d := holdfast.Draw{AnyName: !a.has("names"), Names: a.list("names"), Limit: cmp.Or(a.number("limit"), 1)}
		got, err := p.s.Claim(p.ctx, holdfast.Claim{Queues: a.list("queues"), WorkerID: a.text("worker_id"), Lease: a.ms("lease_ms"), Draws: []holdfast.Draw{d}})
		if err != nil {
			return nil, err
		}
		return p.tasks(got.Tasks), nil
	case "heartbeat":
		id := a.text("id")
		held, err := p.s.Heartbeat(p.ctx, a.text("worker_id"), a.ms("lease_ms"), id)
		if err == nil && len(held) == 0 {
			err = &holdfast.LeaseLostError{TaskID: id}
		}
		return written(id, err)
	case "heartbeat_batch":
		held, err := p.s.Heartbeat(p.ctx, a.text("worker_id"), a.ms("lease_ms"), a.list("ids")...)
		if err != nil {
			return nil, err
		}
		var tasks []*holdfast.Task
		for _, h := range held {
			tasks = append(tasks, p.get(h.ID))
		}
		return p.tasks(tasks), nil
	case "progress":
		t := own()
		var progress *float64
		if f, ok := a.take("progress").(float64); ok {
			progress = &f
		}
		return written(t.ID, p.s.Progress(p.ctx, t, progress, a.text("message")))
	case "succeed":
		t := own()
		return written(t.ID, second(p.s.Succeed(p.ctx, t, a.json("result"))))
	case "complete":
		t := own()
		return written(t.ID, second(p.s.Complete(p.ctx, t, a.json("result"))))
	case "fail":
		t := own()
		return written(t.ID, second(p.s.Fail(p.ctx, t, a.json("error"), a.flag("retryable"), a.ms("delay_ms"))))
	}
	p.Fatalf("%s: no such operation", what)
	return nil, nil
}

// task is a task as JSON, or null where there is none: the scenarios know no error for that.
func (p *play) task(t *holdfast.Task, err error) (any, error) {
	if errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, holdfast.ErrState) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.plain(t), nil
}

func (p *play) tasks(tasks []*holdfast.Task) any {
	out := make([]any, len(tasks))
	for i, t := range tasks {
		out[i] = p.plain(t)
	}
	return out
}

func (p *play) plain(v any) (out any) {
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	p.must(err)
	return out
}
