package postgres_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/pgtest"
)

// childEnv turns the test program into a process that submits tasks to the database it names, one each
// 20 ms, with the time in the payload.
const childEnv = "HOLDFAST_BENCH_SUBMIT"

func TestSubmitAsChild(t *testing.T) {
	dsn := os.Getenv(childEnv)
	if dsn == "" {
		return // not a child: BenchmarkPickup calls this
	}
	n, err := strconv.Atoi(os.Getenv(childEnv + "_N"))
	if err != nil {
		t.Fatal(err)
	}
	client := holdfast.NewClient(openAt(t, dsn))
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
	cluster := pgtest.Start(b, pgtest.Options{Durable: true})
	store := openAt(b, cluster.DSN())
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
	child.Env = append(os.Environ(), childEnv+"="+cluster.DSN(), childEnv+"_N="+strconv.Itoa(b.N))
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
