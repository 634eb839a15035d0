package sqlite_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/storetest"
)

func claimFrom(t testing.TB, store *holdfast.Store, queue string, limit int) []*holdfast.Task {
	t.Helper()
	got, err := store.Claim(t.Context(), holdfast.Claim{Queues: []string{queue}, Draws: []holdfast.Draw{{AnyName: true, Limit: limit}}, WorkerID: "go-1", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return got.Tasks
}

func submitTo(t testing.TB, store *holdfast.Store, sub holdfast.Submission) *holdfast.Task {
	t.Helper()
	task, err := store.Submit(t.Context(), &sub)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// SQLite lets any type stand in any column; other languages' libraries do not expect it.
func TestColumnsHoldTheTypesOfTheProtocol(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store, db := openAt(t, path), openSQL(t, path)
	sub := holdfast.Submission{Name: "job", Key: "k", Payload: json.RawMessage(`{"a":1}`), CorrelationID: "c", Priority: 1}
	submitTo(t, store, sub)
	half := 0.5
	for i, end := range []func(*holdfast.Task) error{
		func(own *holdfast.Task) error {
			_, err := store.Complete(t.Context(), own, json.RawMessage(`1`))
			return err
		},
		func(own *holdfast.Task) error {
			_, err := store.Fail(t.Context(), own, json.RawMessage(`{"code":"e"}`), false, 0)
			return err
		},
		func(own *holdfast.Task) error { return nil },
	} {
		if i > 0 {
			submitTo(t, store, holdfast.Submission{Name: "job", Payload: json.RawMessage(`"text"`)})
		}
		own := claimFrom(t, store, "default", 1)[0]
		if err := store.Progress(t.Context(), own, &half, "half"); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Cancel(t.Context(), own.ID); i == 2 && err != nil {
			t.Fatal(err)
		}
		if err := end(own); err != nil {
			t.Fatal(err)
		}
	}
	for columns, kind := range map[string]string{
		"id name queue status payload result error metadata message worker_id parent_id root_id correlation_id":                     "text",
		"attempt max_attempts priority lease_until_ms run_at_ms cancel_requested_at_ms created_at_ms updated_at_ms completed_at_ms": "integer",
		"progress": "real",
	} {
		for c := range strings.FieldsSeq(columns) {
			if wrong := strings1(t, db, "select typeof("+c+") from cairnq_tasks where typeof("+c+") not in ('"+kind+"', 'null')"); len(wrong) > 0 {
				t.Errorf("%s holds %v, want %s", c, wrong, kind)
			}
		}
	}
	if got := strings1(t, db, "select typeof(key) || typeof(task_id) || typeof(created_at_ms) || typeof(updated_at_ms) from cairnq_task_keys"); got[0] != "texttextintegerinteger" {
		t.Errorf("the key's types are %v", got)
	}
}

// VACUUM may renumber the rows, and then a worker's hint of where its task is points at another one.
func TestWritesFindTheirTaskWhenRowsAreRenumbered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store, db := openAt(t, path), openSQL(t, path)
	for range 6 {
		submitTo(t, store, holdfast.Submission{Name: "job", Queue: "stays"})
	}
	own := claimFrom(t, store, "stays", 6)
	// Each row takes the number of the one before it; the first becomes the last.
	if _, err := db.Exec("update cairnq_tasks set rowid = rowid + 1000; update cairnq_tasks set rowid = case rowid when 1001 then 6 else rowid - 1001 end"); err != nil {
		t.Fatal(err)
	}
	if got := strings1(t, db, "select group_concat(rowid) from (select rowid from cairnq_tasks order by id)"); got[0] != "6,1,2,3,4,5" {
		t.Fatalf("the rows have the numbers %s", got[0])
	}
	half := 0.5
	if err := store.Progress(t.Context(), own[0], &half, ""); err != nil {
		t.Error(err)
	}
	for i, write := range []func(*holdfast.Task) (holdfast.Status, error){
		func(o *holdfast.Task) (holdfast.Status, error) {
			return store.Complete(t.Context(), o, json.RawMessage(`1`))
		},
		func(o *holdfast.Task) (holdfast.Status, error) { return store.Succeed(t.Context(), o, nil) },
		func(o *holdfast.Task) (holdfast.Status, error) { return store.Fail(t.Context(), o, nil, true, 0) },
		func(o *holdfast.Task) (holdfast.Status, error) { return store.Release(t.Context(), o, 0) },
	} {
		status, err := write(own[i])
		if err != nil {
			t.Errorf("write %d: %v", i, err)
		}
		if now, err := store.Get(t.Context(), own[i].ID); err != nil || now.Status != status {
			t.Errorf("write %d: the task is %v (%v), the answer was %s", i, now, err, status)
		}
	}
	if n, err := store.ReleaseMany(t.Context(), own[4:]); err != nil || n != 2 {
		t.Errorf("released %d (%v), want 2", n, err)
	}
	storetest.CheckInvariants(t, db)
}

// python runs a script of Python's own sqlite3 module, as a library in that language would use it.
func python(t testing.TB, script string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed; with it, this test lets Python's sqlite3 module share the file")
	}
	return exec.Command(program, append([]string{"-c", script}, args...)...)
}

func TestPythonSharesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	store := openAt(t, path)
	ours := submitTo(t, store, holdfast.Submission{Name: "for-python", Queue: "python", Key: "ours", Payload: json.RawMessage(`{"n":9007199254740993}`)})
	out, err := python(t, `
import json, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma foreign_keys = on")
now = int(time.time() * 1000)
# Read what Go wrote.
row = db.execute("select id, payload, metadata, attempt, root_id, result from cairnq_tasks where id = (select task_id from cairnq_task_keys where key = 'ours')").fetchone()
assert json.loads(row[1]) == {"n": 9007199254740993} and row[2] == "{}" and row[3] == 0 and row[4] == row[0] and row[5] is None, row
# Claim and complete it, in one transaction each.
db.execute("begin immediate")
got = db.execute("""update cairnq_tasks set status = 'running', worker_id = 'py-1', lease_until_ms = ? + 60000, attempt = attempt + 1, updated_at_ms = ?
  where id in (select id from cairnq_tasks where status = 'queued' and queue = 'python' and run_at_ms <= ? order by priority desc, run_at_ms asc, id asc limit 1)
  returning id""", (now, now, now)).fetchall()
db.execute("commit")
assert got == [(row[0],)], got
db.execute("""update cairnq_tasks set status = 'succeeded', result = ?, progress = 1.0, lease_until_ms = null, completed_at_ms = ?, updated_at_ms = ?
  where id = ? and status = 'running' and worker_id = 'py-1' and lease_until_ms > ?""", (json.dumps({"by": "python", "n": [1, 2]}), now, now, row[0], now))
# Write tasks for Go, with Python's spacing.
for i in range(3):
    id = "task_0PYTHON000000000000000000" + str(i)
    db.execute("insert into cairnq_tasks (id, name, queue, status, payload, run_at_ms, root_id, created_at_ms, updated_at_ms) values (?, 'for-go', 'go', 'queued', ?, ?, ?, ?, ?)",
      (id, json.dumps({"i": i, "text": "é"}, indent=2), now, id, now, now))
    if i == 1:
        db.execute("insert into cairnq_task_keys (key, task_id, created_at_ms, updated_at_ms) values ('theirs', ?, ?, ?)", (id, now, now))
plan = db.execute("explain query plan select id from cairnq_tasks where status = 'queued' and queue = 'go' order by priority desc, run_at_ms asc, id asc limit 1").fetchall()
assert "cairnq_tasks_claim_idx" in plan[0][3], plan
assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
print("ok")
`, path).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Fatalf("python: %v\n%s", err, out)
	}
	done, err := store.Get(t.Context(), ours.ID)
	if err != nil {
		t.Fatal(err)
	}
	if string(done.Result) != `{"by": "python", "n": [1, 2]}` || done.Status != holdfast.Succeeded || done.WorkerID != "py-1" {
		t.Errorf("the task that Python completed: %+v", done)
	}
	theirs, err := store.GetByKey(t.Context(), "theirs")
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		I    int
		Text string
	}
	if err := theirs.Decode(&in); err != nil || in.I != 1 || in.Text != "é" {
		t.Errorf("the payload that Python wrote: %s, %v", theirs.Payload, err)
	}
	tasks := claimFrom(t, store, "go", 10)
	if len(tasks) != 3 {
		t.Fatalf("%d of Python's tasks were claimed, want 3", len(tasks))
	}
	for _, own := range tasks {
		if _, err := store.Complete(t.Context(), own, json.RawMessage(`{"by":"go"}`)); err != nil {
			t.Error(err)
		}
	}
	storetest.CheckInvariants(t, openSQL(t, path))
}
