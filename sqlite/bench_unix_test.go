//go:build unix

package sqlite_test

import (
	"context"
	"log/slog"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdleWorker reports what a worker costs that has nothing to do, in percent of a core, over
// b.N seconds.
func BenchmarkIdleWorker(b *testing.B) {
	store := benchStore(b, sqlite.Full, false)
	fill(b, store, 50_000, holdfast.Submission{Name: "noop", Delay: time.Hour})
	w := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: slog.New(slog.DiscardHandler)})
	w.Handle("noop", func(context.Context, *holdfast.Run) (any, error) { return nil, nil })
	if err := w.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second) // past the start
	before, start := cpu(b), time.Now()
	time.Sleep(time.Duration(b.N) * time.Second)
	b.ReportMetric(100*float64(cpu(b)-before)/float64(time.Since(start)), "%core")
	if err := w.Stop(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWorkerMemory drains 100,000 tasks a round and reports how far the heap in use grew from the
// end of the first round to the end of the last.
func BenchmarkWorkerMemory(b *testing.B) {
	store := benchStore(b, sqlite.Normal, false)
	inUse := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse) / (1 << 20)
	}
	round := func() {
		fill(b, store, 100_000, holdfast.Submission{Name: "noop"})
		drain(b, store, 100_000)
	}
	round()
	first := inUse()
	for b.Loop() {
		round()
	}
	b.ReportMetric(first, "MiB-after-first")
	b.ReportMetric(inUse(), "MiB-after-last")
}
