// Command keys shows business keys: many submit the same work, and it is done once.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

type Report struct{ Month string }
type Written struct{ Pages int }

var WriteReport = holdfast.Define[Report, Written]("report.write")

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

	var calls atomic.Int64
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{})
	WriteReport.Handle(worker, func(context.Context, *holdfast.Run, Report) (Written, error) {
		calls.Add(1)
		return Written{Pages: 12}, nil
	})
	if err := worker.Start(ctx); err != nil {
		return err
	}
	defer worker.Stop(ctx)

	// Twenty callers want the report of May at once. All get the answer of the one task.
	key := holdfast.Key("report:2026-05", holdfast.ReuseSucceeded) // made again only if it failed
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			out, err := WriteReport.Call(ctx, client, Report{"2026-05"}, key)
			if err != nil || out.Pages != 12 {
				log.Fatal(out, err)
			}
		})
	}
	callers.Wait()
	fmt.Printf("20 callers, %d report written\n", calls.Load())

	// Reject makes the second submit an error that names the first.
	_, err = WriteReport.Submit(ctx, client, Report{"2026-05"}, holdfast.Key("report:2026-05", holdfast.Reject))
	var taken *holdfast.AlreadyExistsError
	if !errors.As(err, &taken) {
		return fmt.Errorf("expected an AlreadyExistsError, got %w", err)
	}
	fmt.Printf("the key %q is taken\n", taken.Key)

	// Anybody who knows the key can wait, look, cancel or retry.
	task, err := client.WaitByKey(ctx, "report:2026-05")
	if err != nil {
		return err
	}
	fmt.Printf("its task has %s\n", task.Status)
	return nil
}
