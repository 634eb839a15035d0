package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
)

// benchStore opens a fresh database on a server of its own with Postgres' default settings: each
// commit flushes the disk.
func benchStore(b *testing.B) *holdfast.Store {
	b.Helper()
	cluster := pgtest.Start(b, pgtest.Options{Durable: true})
	return openAt(b, cluster.DSN())
}

func fill(b *testing.B, store *holdfast.Store, n int, sub holdfast.Submission) {
	b.Helper()
	for left := n; left > 0; left -= 10_000 {
		subs := make([]*holdfast.Submission, min(left, 10_000))
		for i := range subs {
			subs[i] = &sub
		}
		if _, err := store.SubmitMany(context.Background(), subs); err != nil {
			b.Fatal(err)
		}
	}
}

func perSecond(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s") }

// BenchmarkSubmit submits no-op tasks from 1, 16 and 64 goroutines, each waiting for its commit.
func BenchmarkSubmit(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("producers=%d", n), func(b *testing.B) {
			store := benchStore(b)
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
	}
}

// BenchmarkBulk submits 10,000 tasks a call.
func BenchmarkBulk(b *testing.B) {
	store := benchStore(b)
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
	store := benchStore(b)
	fill(b, store, b.N, holdfast.Submission{Name: "noop"})
	b.ReportAllocs()
	b.ResetTimer()
	var done atomic.Int64
	all := make(chan struct{})
	w := holdfast.NewWorker(store, holdfast.WorkerConfig{Concurrency: 64, Log: slog.New(slog.DiscardHandler)})
	w.Handle("noop", func(context.Context, *holdfast.Run) (any, error) {
		if done.Add(1) == int64(b.N) {
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
	perSecond(b)
}

// BenchmarkClaim claims and puts back one task, with few and with many tasks in the queue, half of
// the many not due, at another priority.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("queued=%d", n), func(b *testing.B) {
			ctx := context.Background()
			store := benchStore(b)
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
