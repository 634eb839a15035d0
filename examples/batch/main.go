// Command batch submits ten thousand tasks in one call and runs them in batches of up to a hundred.
package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

type Reading struct {
	Sensor int
	Value  float64
}

var Store = holdfast.Define[Reading, struct{}]("reading.store")

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	store, err := sqlite.Open(ctx, sqlite.Memory)
	if err != nil {
		return err
	}
	defer store.Close()
	client := holdfast.NewClient(store)

	// All of them are submitted, or none.
	const readings = 10_000
	items := make([]holdfast.Item, readings)
	for i := range items {
		items[i] = Store.Item(Reading{Sensor: i % 7, Value: float64(i)})
	}
	tasks, err := client.SubmitMany(ctx, items)
	if err != nil {
		return err
	}
	fmt.Printf("%d tasks submitted\n", len(tasks))

	// A batch takes what is due, at once; it never waits to be full.
	var stored atomic.Int64
	done := make(chan struct{})
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Concurrency: 4})
	worker.HandleBatch(Store.Name(), 100, func(ctx context.Context, batch []*holdfast.Run) (map[string]any, error) {
		for _, run := range batch {
			var in Reading
			if err := run.Task().Decode(&in); err != nil {
				if err := run.Fail(ctx, holdfast.Permanent(err)); err != nil { // this one only
					return nil, err
				}
			}
		}
		if stored.Add(int64(len(batch))) == readings {
			close(done)
		}
		return nil, nil // every other task of the batch has succeeded
	})
	if err := worker.Start(ctx); err != nil {
		return err
	}
	<-done
	if err := worker.Stop(ctx); err != nil { // waits until the outcomes are written
		return err
	}
	stats, err := client.Stats(ctx, "")
	if err != nil {
		return err
	}
	fmt.Printf("%d tasks succeeded\n", stats[0].Succeeded)
	return nil
}
