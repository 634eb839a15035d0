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

// Opening a queue of 1,000,000 entries that are done, and sending ten more.
func BenchmarkAMillionEntries(b *testing.B) {
	w := newWorld(b)
	ctx := context.Background()
	p, k := w.patient(), w.client()
	q, err := w.tryOpen(k)
	must(b, err)
	enqueue(b, q, create(p))
	must(b, flushAll(q)) // the location and a token
	must(b, q.Close())
	execSQL(b, w.path, `pragma synchronous = off;
		insert into queue (operation_id, patient, operation, position, intent, digest, state, waits, result, created, changed)
		with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000)
		select printf('01900000-0000-7000-8000-%012d', i), printf('01900000-0000-7000-8000-%012d', i % 5000), 'create_resource', i + 1, (select intent from queue), 'digest', 'committed', null, (select result from queue), 1, 1 from n`)
	open := func(b *testing.B) *Outbox {
		q, err := w.tryOpen(k)
		must(b, err)
		return q
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			q := open(b)
			b.StopTimer()
			must(b, q.Close())
			b.StartTimer()
		}
	})
	b.Run("first write after opening", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			q := open(b)
			b.StartTimer()
			enqueue(b, q, create(p))
			b.StopTimer()
			must(b, q.Close())
			b.StartTimer()
		}
	})
	b.Run("flush of ten, until the first is sent", func(b *testing.B) {
		q := open(b)
		defer func() { must(b, q.Close()) }()
		must(b, flushAll(q))
		var total time.Duration
		for b.Loop() {
			for range 10 {
				enqueue(b, q, create(p))
			}
			var first sync.Once
			start := time.Now()
			q.step = func(point string) {
				if point == "submitted" {
					first.Do(func() { total += time.Since(start) })
				}
			}
			must(b, flushAll(q))
			q.step = func(string) {}
		}
		b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs-to-first")
	})
	b.Run("entries, summary", func(b *testing.B) {
		q := open(b)
		defer func() { must(b, q.Close()) }()
		enqueue(b, q, create(p), create(p))
		for b.Loop() {
			list, err := q.Entries(ctx, Filter{States: []State{Pending, Conflicted}})
			must(b, err)
			sum, err := q.Summary(ctx)
			must(b, err)
			if len(list) == 0 || sum.Waiting() != int64(len(list)) {
				b.Fatalf("%d, %+v", len(list), sum)
			}
		}
	})
}
