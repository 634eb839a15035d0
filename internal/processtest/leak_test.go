package processtest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eda94727/holdfast"
)

// Stores, clients and workers that were stopped leave no goroutine behind, whatever state they were in.
func TestNothingIsLeftRunning(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		before := goleak.IgnoreCurrent()
		defer goleak.VerifyNone(t, before)
		for range 3 {
			store, err := openers[d.name](t.Context(), d.dsn)
			if err != nil {
				t.Fatal(err)
			}
			client := holdfast.NewClient(store, holdfast.WithRetention(holdfast.Retention{Age: time.Hour}))
			if _, err := client.Submit(t.Context(), "hold", nil); err != nil {
				t.Fatal(err)
			}
			started := make(chan struct{}, 10)
			var ws []*holdfast.Worker
			for range 2 {
				w := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: quiet})
				handlers(w, func(what string, _ ...any) {
					if what == "started" {
						started <- struct{}{}
					}
				})
				if err := w.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				ws = append(ws, w)
			}
			next(t, started)
			for _, w := range ws {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				if err := w.Stop(ctx); err != nil {
					t.Error(err)
				}
				cancel()
			}
			// One that never started, and one that may not start.
			if err := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: quiet}).Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: quiet}).Start(t.Context()); invalidField(err) != "handlers" {
				t.Error(err)
			}
			client.Close()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
