package processtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
)

// BenchmarkRecovery measures what fast recovery is for: kill -9 of a worker process that runs 10 tasks
// under a lease of an hour, until another process has claimed all of them again. Run it with
//
//	go test ./internal/processtest -run '^$' -bench Recovery -benchtime 20x
func BenchmarkRecovery(b *testing.B) {
	for name, make := range databases {
		b.Run(name, func(b *testing.B) {
			d := make(b)
			client := holdfast.NewClient(d.open(b))
			const tasks = 10
			var all []time.Duration
			p := d.start(b, process{ID: "first", Lease: time.Hour, Concurrency: tasks})
			for range tasks {
				submit(b, client, "hold", holdfast.MaxAttempts(1000))
			}
			p.all("started", tasks)
			for i := range b.N {
				id := fmt.Sprintf("heir-%d", i)
				heir := d.start(b, process{ID: id, Lease: time.Hour, Concurrency: tasks})
				for workers(b, client)[id] == nil {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(rand.N(1500 * time.Millisecond)) // at any moment of the heir's looks
				began := time.Now()
				p.kill()
				heir.all("started", tasks)
				all = append(all, time.Since(began))
				p = heir
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "ms-median")
			b.ReportMetric(float64(all[len(all)-1].Milliseconds()), "ms-max")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(all)), "kills")
		})
	}
}
