package sqlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

func BenchmarkSubmit(b *testing.B) {
	for _, mode := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		for _, n := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("synchronous=%s/producers=%d", mode, n), func(b *testing.B) {
				ctx := context.Background()
				store, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "tasks.db"), sqlite.WithSynchronous(mode))
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close()
				b.ReportAllocs()
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := store.Submit(ctx, &holdfast.Submission{Name: "noop"}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			})
		}
	}
}

func BenchmarkSettle(b *testing.B) {
	for _, mode := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		b.Run(fmt.Sprintf("synchronous=%s/claim=64", mode), func(b *testing.B) {
			ctx := context.Background()
			store, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "tasks.db"), sqlite.WithSynchronous(mode))
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			for left := b.N; left > 0; left -= 1000 {
				subs := make([]*holdfast.Submission, min(left, 1000))
				for i := range subs {
					subs[i] = &holdfast.Submission{Name: "noop"}
				}
				if _, err := store.SubmitMany(ctx, subs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				got, err := store.Claim(ctx, holdfast.Claim{Queues: []string{"default"}, Draws: []holdfast.Draw{{Names: []string{"noop"}, Limit: 64}}, WorkerID: "w", Lease: 30 * time.Second})
				if err != nil {
					b.Fatal(err)
				}
				n += len(got.Tasks)
				var wg sync.WaitGroup
				for _, t := range got.Tasks {
					wg.Go(func() {
						if _, err := store.Complete(ctx, t, nil); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// BenchmarkWorker drains no-op tasks through a worker of concurrency 64.
func BenchmarkWorker(b *testing.B) {
	for _, mode := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		b.Run(fmt.Sprintf("synchronous=%s/concurrency=64", mode), func(b *testing.B) {
			ctx := context.Background()
			store, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "tasks.db"), sqlite.WithSynchronous(mode))
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			for left := b.N; left > 0; left -= 1000 {
				subs := make([]*holdfast.Submission, min(left, 1000))
				for i := range subs {
					subs[i] = &holdfast.Submission{Name: "noop"}
				}
				if _, err := store.SubmitMany(ctx, subs); err != nil {
					b.Fatal(err)
				}
			}
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
			if err := w.Start(ctx); err != nil {
				b.Fatal(err)
			}
			<-all
			stop, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := w.Stop(stop); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}
