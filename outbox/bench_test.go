package outbox

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eda94727/holdfast/record"
)

// Enqueueing is bounded by the disk; the group commit shares its flushes.
func BenchmarkEnqueue(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", n), func(b *testing.B) {
			q, err := Open(context.Background(), filepath.Join(b.TempDir(), "queue.db"), &fake{subject: "a", host: "h"}, Options{})
			must(b, err)
			defer q.Close()
			p := record.NewID()
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ResetTimer()
			for range n {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := q.Enqueue(context.Background(), create(p)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// What one request costs without a queue: the measure for the flush of one lane.
func BenchmarkRoundTrip(b *testing.B) {
	w := newWorld(b)
	p, k := w.patient(), w.client()
	_, err := k.Locate(context.Background(), p)
	must(b, err)
	_, err = k.Write(context.Background(), create(p))
	must(b, err)
	for b.Loop() {
		_, err := k.Write(context.Background(), create(p))
		must(b, err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

func BenchmarkFlush(b *testing.B) {
	for _, lanes := range []int{1, 64} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			w := newWorld(b)
			q := w.open(w.client(), func(o *Options) { o.Parallel = 64 })
			var patients []string
			for range lanes {
				patients = append(patients, w.patient())
			}
			for _, p := range patients { // tokens and locations
				enqueue(b, q, create(p))
			}
			flushed(b, q)
			var all sync.WaitGroup
			for i := range b.N {
				all.Go(func() { enqueue(b, q, create(patients[i%lanes])) })
				if i%64 == 63 {
					all.Wait()
				}
			}
			all.Wait()
			b.ResetTimer()
			if r := flushed(b, q); r.Committed != b.N {
				b.Errorf("%+v", r)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}

var _ = time.Now
