package holdfast

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// WorkerState is what a registered worker is doing.
type WorkerState string

// The states of a worker.
const (
	WorkerRunning  WorkerState = "running"
	WorkerStopping WorkerState = "stopping" // it claims no more and waits for its handlers
	// WorkerGone: its process has died, or lost its session a moment ago. The others end its leases
	// within 1 s on SQLite and 5 s on Postgres.
	WorkerGone WorkerState = "gone"
	// WorkerUnregistered: known only by the tasks that it runs, such as a worker of another language.
	WorkerUnregistered WorkerState = "unregistered"
)

// WorkerInfo is a worker as Client.Workers finds it.
type WorkerInfo struct {
	// ID is the name in the task table.
	ID string
	// State is what the registry, and its lock, tell of it.
	State WorkerState
	// Host and PID are of its process; empty and 0 for one that is not registered.
	Host string
	PID  int
	// Since is when it registered, Seen its last sign of life, which it gives with its heartbeat but
	// not more often than each second. Both are zero for one that is not registered.
	Since, Seen time.Time
	// Queues, Names and Concurrency are those of its WorkerConfig and handlers.
	Queues      []string
	Names       []string // what it has handlers for
	Concurrency int
	// FastRecovery says that its tasks are taken over as soon as its process has died. Otherwise they
	// wait for their leases to end.
	FastRecovery bool
	// Running is how many tasks it holds, and Tasks are the oldest of them, at most 100.
	Running int
	Tasks   []WorkerTask
}

// WorkerTask is a task that a worker holds.
type WorkerTask struct {
	// ID, Name and Queue are the task's, Attempt its number of starts.
	ID      string
	Name    string
	Queue   string
	Attempt int
	// LeaseUntil is when its lease ends unless it is extended.
	LeaseUntil time.Time
}

// workerTasksShown bounds WorkerInfo.Tasks.
const workerTasksShown = 100

// MarshalJSON writes times as epoch milliseconds, as in tasks.
func (w *WorkerInfo) MarshalJSON() ([]byte, error) {
	type task struct {
		ID         string `json:"id"`
		Name       string `json:"name"`
		Queue      string `json:"queue"`
		Attempt    int    `json:"attempt"`
		LeaseUntil int64  `json:"lease_until_ms"`
	}
	tasks := make([]task, len(w.Tasks))
	for i, t := range w.Tasks {
		tasks[i] = task{t.ID, t.Name, t.Queue, t.Attempt, t.LeaseUntil.UnixMilli()}
	}
	return json.Marshal(struct {
		ID           string      `json:"id"`
		State        WorkerState `json:"state"`
		Host         *string     `json:"host"`
		PID          *int        `json:"pid"`
		Since        *int64      `json:"since_ms"`
		Seen         *int64      `json:"seen_ms"`
		Queues       []string    `json:"queues"`
		Names        []string    `json:"names"`
		Concurrency  int         `json:"concurrency"`
		FastRecovery bool        `json:"fast_recovery"`
		Running      int         `json:"running"`
		Tasks        []task      `json:"tasks"`
	}{w.ID, w.State, optional(w.Host), optionalInt(w.PID), optionalMS(w.Since), optionalMS(w.Seen), append([]string{}, w.Queues...), append([]string{}, w.Names...), w.Concurrency, w.FastRecovery, w.Running, tasks})
}

func optionalInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// Workers lists the registered workers of the database, oldest first, and after them those that are
// known only by the tasks that they run. It changes nothing.
func (c *Client) Workers(ctx context.Context) ([]*WorkerInfo, error) { return c.store.Workers(ctx) }

// workerRecord is the JSON in which the registry's statements take and give what Row has no fields for.
type workerRecord struct {
	Token       string      `json:"token,omitempty"`
	State       WorkerState `json:"state"`
	Host        string      `json:"host"`
	PID         int         `json:"pid"`
	SinceMS     int64       `json:"since_ms"`
	SeenMS      int64       `json:"seen_ms"`
	Locked      int         `json:"locked"` // 1: it holds a lock
	Queues      []string    `json:"queues"`
	Names       []string    `json:"names"`
	Concurrency int         `json:"concurrency"`
}

func (r workerRecord) text() string {
	b, _ := json.Marshal(r) // always can
	return string(b)
}

// Workers is Client.Workers.
func (s *Store) Workers(ctx context.Context) ([]*WorkerInfo, error) {
	var list []*WorkerInfo
	byID := map[string]*WorkerInfo{}
	err := s.query(ctx, StmtWorkers, func(_ int, a *Row) error {
		var r workerRecord
		if err := json.Unmarshal([]byte(a.Value), &r); err != nil {
			return fmt.Errorf("holdfast: the registry's row of worker %q: %w", a.WorkerID, err)
		}
		w := &WorkerInfo{
			ID: a.WorkerID, State: r.State, Host: r.Host, PID: r.PID, Since: time.UnixMilli(r.SinceMS), Seen: time.UnixMilli(r.SeenMS),
			Queues: r.Queues, Names: r.Names, Concurrency: r.Concurrency, FastRecovery: r.Locked == 1,
		}
		list, byID[w.ID] = append(list, w), w
		return nil
	}, &Row{})
	if err != nil {
		return nil, err
	}
	if live, ok := s.dialect.(Liveness); ok {
		gone, err := live.Gone(ctx, s.clock())
		if err != nil {
			return nil, err
		}
		for _, g := range gone {
			if w := byID[g.ID]; w != nil {
				w.State = WorkerGone
			}
		}
	}
	err = s.query(ctx, StmtWorkerTasks, func(_ int, a *Row) error {
		w := byID[a.WorkerID]
		if w == nil {
			w = &WorkerInfo{ID: a.WorkerID, State: WorkerUnregistered}
			list, byID[w.ID] = append(list, w), w
		}
		w.Running = int(a.Count)
		w.Tasks = append(w.Tasks, WorkerTask{ID: a.ID, Name: a.Name, Queue: a.Queue, Attempt: a.Attempt, LeaseUntil: a.LeaseUntil})
		return nil
	}, &Row{Limit: workerTasksShown})
	return list, err
}

// workerRow is a row for the registry's statements.
func (s *Store) workerRow(id, token string) *Row {
	row := &Row{Key: token, Now: s.clock().UnixMilli()}
	row.WorkerID, row.Error = id, leaseExpired
	return row
}

// putWorker enters a worker. With replace, an older row of its id goes, and the leases that stand
// under the id end: its holder is dead, since the caller has its lock.
func (s *Store) putWorker(ctx context.Context, id string, r workerRecord, keep time.Duration, replace bool) (entered bool, err error) {
	var recovered []*Task
	err = s.atomic(ctx, "worker_put", func(in Session) error {
		entered, recovered = false, nil
		if replace {
			deleted, err := rowsOf(ctx, in, StmtWorkerDelete, s.workerRow(id, ""))
			if err != nil {
				return err
			}
			if len(deleted) > 0 {
				if _, recovered, err = s.expireWorker(ctx, in, id); err != nil {
					return err
				}
			}
		}
		row := s.workerRow(id, r.Token)
		row.Value, row.Lease = r.text(), keep.Milliseconds()
		put, err := rowsOf(ctx, in, StmtWorkerPut, row)
		entered = len(put) > 0
		return err
	})
	if err == nil {
		s.recovered(recovered)
	}
	return entered, err
}

// seeWorker renews a worker's row, and tells whether it was still there under the old token.
func (s *Store) seeWorker(ctx context.Context, id, token string, r workerRecord, keep time.Duration) (bool, error) {
	row := s.workerRow(id, token)
	row.Value, row.Lease = r.text(), keep.Milliseconds()
	found, err := rowsOf(ctx, s.session, StmtWorkerSeen, row)
	return len(found) > 0, err
}

// forgetWorker takes a worker's row away, if it still has the token.
func (s *Store) forgetWorker(ctx context.Context, id, token string) error {
	_, err := rowsOf(ctx, s.session, StmtWorkerDelete, s.workerRow(id, token))
	return err
}

// endLeases ends the leases of all tasks of a worker, by the rules of recovery.
func (s *Store) endLeases(ctx context.Context, id string) error {
	var recovered []*Task
	err := s.atomic(ctx, "worker_expire", func(in Session) (err error) {
		_, recovered, err = s.expireWorker(ctx, in, id)
		return err
	})
	if err == nil {
		s.recovered(recovered)
	}
	return err
}

// recoverAtOnce bounds the recovery of a dead worker's tasks in one transaction. If it had more, the
// next claims do the rest: the leases have ended.
const recoverAtOnce = 1000

// expireWorker ends a worker's leases and recovers whatever has expired. It tells how many leases the
// worker had.
func (s *Store) expireWorker(ctx context.Context, in Session, id string) (had int, recovered []*Task, err error) {
	expired, err := rowsOf(ctx, in, StmtWorkerExpire, s.workerRow(id, ""))
	if err != nil || len(expired) == 0 {
		return 0, nil, err
	}
	row := s.workerRow("", "")
	row.Limit = recoverAtOnce
	recovered, err = rowsOf(ctx, in, StmtRecover, row)
	return len(expired), recovered, err
}

// bury ends the leases of a dead worker and takes its row away, in one transaction, unless somebody
// else was faster or the worker has come back. It answers how many tasks those were.
func (s *Store) bury(ctx context.Context, live Liveness, gone GoneWorker) (tasks int, buried bool, err error) {
	var recovered []*Task
	if gone.Stale {
		return 0, false, s.forgetWorker(ctx, gone.ID, gone.Token)
	}
	free, err := live.Seize(ctx, gone.ID, func(in Session) error {
		tasks, recovered, buried = 0, nil, false
		deleted, err := rowsOf(ctx, in, StmtWorkerDelete, s.workerRow(gone.ID, gone.Token))
		if err != nil || len(deleted) == 0 {
			return err
		}
		buried = true
		tasks, recovered, err = s.expireWorker(ctx, in, gone.ID)
		return err
	})
	if err != nil || !free {
		return 0, false, err
	}
	s.recovered(recovered)
	return tasks, buried, nil
}

func (s *Store) recovered(tasks []*Task) {
	for _, t := range tasks {
		s.settled(t.ID, t.Queue, t.Status)
	}
}

// rowsOf runs a statement and answers its rows.
func rowsOf(ctx context.Context, in Session, stmt Statement, row *Row) (list []*Task, err error) {
	err = in.Query(ctx, stmt, func(_ int, a *Row) error { list = append(list, &a.Task); return nil }, row)
	return list, err
}

func newToken() string { return rand.Text() }

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "host"
	}
	return host
}
