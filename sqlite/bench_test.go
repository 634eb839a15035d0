package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

// Each benchmark names its synchronous mode: FULL flushes the disk at each commit (the default),
// NORMAL does not. "indexes=full" is the schema that other libraries of the protocol make, with its
// nine complete indexes.

// benchStore opens a new file. With full indexes the schema of other libraries is there first, with
// our ledger row, so that it is left alone.
func benchStore(b *testing.B, mode sqlite.Synchronous, full bool) *holdfast.Store {
	b.Helper()
	path := filepath.Join(b.TempDir(), "tasks.db")
	if full {
		store, err := sqlite.Open(context.Background(), path)
		if err != nil {
			b.Fatal(err)
		}
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
		db, err := sql.Open("sqlite3", "file:"+path)
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close()
		for _, index := range []string{
			"claim_idx on cairnq_tasks (queue, status, priority desc, run_at_ms, id)",
			"claim_name_idx on cairnq_tasks (queue, status, name, priority desc, run_at_ms, id)",
			"lease_idx on cairnq_tasks (lease_until_ms) where status = 'running' and lease_until_ms is not null",
			"completed_idx on cairnq_tasks (completed_at_ms)",
			"status_completed_idx on cairnq_tasks (status, completed_at_ms)",
			"queue_completed_idx on cairnq_tasks (queue, completed_at_ms) where status in ('succeeded', 'failed', 'canceled')",
			"name_idx on cairnq_tasks (name)",
			"root_idx on cairnq_tasks (root_id)",
			"correlation_idx on cairnq_tasks (correlation_id)",
		} {
			var name string
			if _, err := fmt.Sscan(index, &name); err != nil {
				b.Fatal(err)
			}
			if _, err := db.Exec("drop index cairnq_tasks_" + name + "; create index cairnq_tasks_" + index); err != nil {
				b.Fatal(err)
			}
		}
	}
	store, err := sqlite.Open(context.Background(), path, sqlite.WithSynchronous(mode))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	return store
}

func fill(b *testing.B, store *holdfast.Store, n int, sub holdfast.Submission) {
	b.Helper()
	for left := n; left > 0; left -= 1000 {
		subs := make([]*holdfast.Submission, min(left, 1000))
		for i := range subs {
			subs[i] = &sub
		}
		if _, err := store.SubmitMany(context.Background(), subs); err != nil {
			b.Fatal(err)
		}
	}
}

func perSecond(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s") }

// variants runs a benchmark in both modes and with both sets of indexes.
func variants(b *testing.B, fn func(b *testing.B, store *holdfast.Store)) {
	for _, mode := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		for _, full := range []bool{false, true} {
			indexes := "lean"
			if full {
				indexes = "full"
			}
			b.Run(fmt.Sprintf("synchronous=%s/indexes=%s", mode, indexes), func(b *testing.B) { fn(b, benchStore(b, mode, full)) })
		}
	}
}

// BenchmarkSubmit submits no-op tasks from 1, 16 and 64 goroutines, each waiting for its commit.
func BenchmarkSubmit(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("producers=%d", n), func(b *testing.B) {
			variants(b, func(b *testing.B, store *holdfast.Store) {
				b.ReportAllocs()
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := store.Submit(context.Background(), &holdfast.Submission{Name: "noop"}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				perSecond(b)
			})
		})
	}
}

// BenchmarkBulk submits 10,000 tasks a call.
func BenchmarkBulk(b *testing.B) {
	store := benchStore(b, sqlite.Full, false)
	subs := make([]*holdfast.Submission, 10_000)
	for i := range subs {
		subs[i] = &holdfast.Submission{Name: "noop"}
	}
	for b.Loop() {
		if _, err := store.SubmitMany(context.Background(), subs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(subs))/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkWorker drains no-op tasks through a worker of concurrency 64.
func BenchmarkWorker(b *testing.B) {
	variants(b, func(b *testing.B, store *holdfast.Store) {
		fill(b, store, b.N, holdfast.Submission{Name: "noop"})
		b.ReportAllocs()
		b.ResetTimer()
		drain(b, store, b.N)
		perSecond(b)
	})
}

// drain runs n no-op tasks and stops, so that all of them are settled.
func drain(b *testing.B, store *holdfast.Store, n int) {
	b.Helper()
	var done atomic.Int64
	all := make(chan struct{})
	w := holdfast.NewWorker(store, holdfast.WorkerConfig{Concurrency: 64, Log: slog.New(slog.DiscardHandler)})
	w.Handle("noop", func(context.Context, *holdfast.Run) (any, error) {
		if done.Add(1) == int64(n) {
			close(all)
		}
		return nil, nil
	})
	if err := w.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	<-all
	stop, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := w.Stop(stop); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkClaim claims and puts back one task, with few and with many tasks in the queue, half of
// the many not due, at another priority.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("queued=%d", n), func(b *testing.B) {
			ctx := context.Background()
			store := benchStore(b, sqlite.Normal, false)
			fill(b, store, n/2, holdfast.Submission{Name: "noop"})
			fill(b, store, n/2, holdfast.Submission{Name: "noop", Delay: time.Hour, Priority: 1})
			b.ResetTimer()
			for range b.N {
				got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"noop"}, Limit: 1}}, WorkerID: "w", Lease: time.Minute})
				if err != nil || len(got.Tasks) != 1 {
					b.Fatal(got, err)
				}
				if _, err := store.Release(ctx, got.Tasks[0], 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// childEnv turns the test program into a process that submits tasks to the file it names, one each
// 20 ms, with the time in the payload.
const childEnv = "HOLDFAST_BENCH_SUBMIT"

func TestSubmitAsChild(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		return // not a child: BenchmarkPickup calls this
	}
	n, err := strconv.Atoi(os.Getenv(childEnv + "_N"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := holdfast.NewClient(store)
	for range n {
		time.Sleep(20 * time.Millisecond)
		if _, err := client.Submit(context.Background(), "pickup", time.Now().UnixNano()); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkPickup measures from before the submit in one process to the handler in another, whose
// worker is idle.
func BenchmarkPickup(b *testing.B) {
	path := filepath.Join(b.TempDir(), "tasks.db")
	store, err := sqlite.Open(context.Background(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	took := make(chan time.Duration, b.N)
	w := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: slog.New(slog.DiscardHandler)})
	w.Handle("pickup", func(_ context.Context, run *holdfast.Run) (any, error) {
		now := time.Now().UnixNano()
		var at int64
		if err := json.Unmarshal(run.Task().Payload, &at); err != nil {
			return nil, err
		}
		took <- time.Duration(now - at)
		return nil, nil
	})
	if err := w.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestSubmitAsChild$")
	child.Env = append(os.Environ(), childEnv+"="+path, childEnv+"_N="+strconv.Itoa(b.N))
	if out, err := child.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	all := make([]time.Duration, b.N)
	for i := range all {
		all[i] = <-took
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	stop, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.Stop(stop); err != nil {
		b.Fatal(err)
	}
}
