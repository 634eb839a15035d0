package outbox

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
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

// The flush of one lane against the same writes one by one without a queue, and the
// flush of 64 lanes against that of one: turn by turn, so that what else the machine
// does falls on all. Away is how far the Host is; on loopback it shares the processors
// with the queue, which bounds what lanes side by side can bring.
func BenchmarkFlush(b *testing.B) {
	for _, away := range []time.Duration{0, 5 * time.Millisecond} {
		b.Run(fmt.Sprintf("away=%v", away), func(b *testing.B) {
			const turn = 64
			room := make([]byte, 32<<20) // as the command `holdfast host` has, for the Host that runs in this process
			defer runtime.KeepAlive(room)
			w := newWorld(b)
			k := w.client()
			q := w.open(k, func(o *Options) { o.Parallel = turn })
			var patients []string
			for range turn {
				patients = append(patients, w.patient())
			}
			send := func(patient func(i int) string) time.Duration {
				var all sync.WaitGroup
				for i := range turn {
					all.Go(func() { enqueue(b, q, create(patient(i))) })
				}
				all.Wait()
				start := time.Now()
				must(b, flushAll(q))
				return time.Since(start)
			}
			each := func(i int) string { return patients[i] }
			send(each) // tokens, locations and connections
			if away > 0 {
				w.a.instead(func(rw http.ResponseWriter, r *http.Request, h http.Handler) {
					time.Sleep(away)
					h.ServeHTTP(rw, r)
				})
			}
			var direct, one, many time.Duration
			turns := 0
			for b.Loop() {
				start := time.Now()
				for range turn {
					_, err := k.Write(context.Background(), create(patients[0]))
					must(b, err)
				}
				direct += time.Since(start)
				one += send(func(int) string { return patients[0] })
				many += send(each)
				turns++
			}
			rate := func(d time.Duration) float64 { return float64(turns*turn) / d.Seconds() }
			b.ReportMetric(rate(direct), "direct/s")
			b.ReportMetric(rate(one), "1-lane/s")
			b.ReportMetric(rate(many), "64-lanes/s")
			b.ReportMetric(100*rate(one)/rate(direct), "%-of-direct")
			b.ReportMetric(rate(many)/rate(one), "×-one-lane")
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
