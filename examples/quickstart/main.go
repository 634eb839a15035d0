// Command quickstart submits a task, runs it, and prints its result.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

type Greeting struct{ Name string }
type Greeted struct{ Text string }

// Greet ties the name of a task to the types of its input and output.
var Greet = holdfast.Define[Greeting, Greeted]("greet", holdfast.MaxAttempts(5))

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	store, err := sqlite.Open(ctx, "tasks.db")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// A worker runs tasks. It may live in another process, or in many.
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Concurrency: 16})
	Greet.Handle(worker, func(ctx context.Context, run *holdfast.Run, in Greeting) (Greeted, error) {
		return Greeted{"Hello, " + in.Name}, nil // an error would be retried, after a while
	})
	if err := worker.Start(ctx); err != nil {
		log.Fatal(err)
	}

	// A client submits them. Once Submit returns, the task is on disk.
	client := holdfast.NewClient(store)
	task, err := Greet.Submit(ctx, client, Greeting{"Ada"})
	if err != nil {
		log.Fatal(err)
	}
	out, err := Greet.Wait(ctx, client, task.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Text)

	// Stop lets handlers finish, then hands back what is left.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := worker.Stop(ctx); err != nil {
		log.Fatal(err)
	}
}
