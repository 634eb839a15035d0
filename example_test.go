package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
)

type SummarizeIn struct{ Text string }
type SummarizeOut struct{ Words int }

// A definition is made once, and used by those who submit and those who handle.
var Summarize = holdfast.Define[SummarizeIn, SummarizeOut]("summary.create", holdfast.MaxAttempts(5))

// exampleStore is a database in memory; sqlite.Open("tasks.db") and postgres.Open make lasting ones.
func exampleStore() (*holdfast.Store, *holdfast.Client) {
	store, err := sqlite.Open(context.Background(), sqlite.Memory)
	if err != nil {
		log.Fatal(err)
	}
	return store, holdfast.NewClient(store)
}

func Example() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Memory) // or a file, or postgres.Open
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: slog.New(slog.DiscardHandler)})
	Summarize.Handle(worker, func(ctx context.Context, run *holdfast.Run, in SummarizeIn) (SummarizeOut, error) {
		return SummarizeOut{Words: len(in.Text)}, nil
	})
	if err := worker.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer worker.Stop(ctx)

	client := holdfast.NewClient(store)
	out, err := Summarize.Call(ctx, client, SummarizeIn{"four"})
	fmt.Println(out.Words, err)
	// Output: 4 <nil>
}

func ExampleKey() {
	ctx := context.Background()
	store, client := exampleStore()
	defer store.Close()

	a, err := Summarize.Submit(ctx, client, SummarizeIn{"x"}, holdfast.Key("summary:7"))
	if err != nil {
		log.Fatal(err)
	}
	b, err := Summarize.Submit(ctx, client, SummarizeIn{"x"}, holdfast.Key("summary:7"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("one task:", a.ID == b.ID)

	_, err = Summarize.Submit(ctx, client, SummarizeIn{"x"}, holdfast.Key("summary:7", holdfast.Reject))
	fmt.Println("rejected:", errors.Is(err, holdfast.ErrAlreadyExists))
	// Output:
	// one task: true
	// rejected: true
}

func ExamplePermanent() {
	ctx := context.Background()
	store, client := exampleStore()
	defer store.Close()

	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: slog.New(slog.DiscardHandler)})
	Summarize.Handle(worker, func(_ context.Context, _ *holdfast.Run, in SummarizeIn) (SummarizeOut, error) {
		if in.Text == "" {
			return SummarizeOut{}, holdfast.Permanent(errors.New("there is no text")) // no further attempt
		}
		return SummarizeOut{}, errors.New("try again later") // retried
	})
	if err := worker.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer worker.Stop(ctx)

	_, err := Summarize.Call(ctx, client, SummarizeIn{})
	var failed *holdfast.TaskFailedError
	if errors.As(err, &failed) {
		fmt.Println(failed.Failure.Code, failed.Failure.Message)
	}
	// Output: handler_error there is no text
}

func ExampleRun_Progress() {
	ctx := context.Background()
	store, client := exampleStore()
	defer store.Close()

	seen := make(chan struct{})
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Log: slog.New(slog.DiscardHandler)})
	Summarize.Handle(worker, func(ctx context.Context, run *holdfast.Run, in SummarizeIn) (SummarizeOut, error) {
		if err := run.Progress(ctx, 0.5, "half of it"); err != nil {
			return SummarizeOut{}, err // the task is not ours any more
		}
		<-seen
		return SummarizeOut{Words: 1}, nil
	})
	if err := worker.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer worker.Stop(ctx)

	task, err := Summarize.Submit(ctx, client, SummarizeIn{"word"})
	if err != nil {
		log.Fatal(err)
	}
	for t, err := range client.Watch(ctx, task.ID) {
		if err != nil {
			log.Fatal(err)
		}
		if t.Progress != nil && t.Status == holdfast.Running {
			fmt.Println(*t.Progress, t.Message)
			break
		}
	}
	close(seen)
	// Output: 0.5 half of it
}

func ExampleClient_SubmitMany() {
	ctx := context.Background()
	store, client := exampleStore()
	defer store.Close()

	tasks, err := client.SubmitMany(ctx, []holdfast.Item{
		Summarize.Item(SummarizeIn{"a"}),
		Summarize.Item(SummarizeIn{"b"}, holdfast.Priority(10)),
		holdfast.NewItem("cleanup", nil, holdfast.Delay(time.Hour)),
	})
	fmt.Println(len(tasks), err)
	// Output: 3 <nil>
}

func ExampleClient_Wait_timeout() {
	ctx := context.Background()
	store, client := exampleStore()
	defer store.Close()

	task, err := Summarize.Submit(ctx, client, SummarizeIn{"a"}) // no worker runs
	if err != nil {
		log.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = client.Wait(short, task.ID)
	var timeout *holdfast.WaitTimeoutError
	if errors.As(err, &timeout) {
		fmt.Println(timeout.Why)
	}
	// Output: it was never claimed; is a worker running for name "summary.create" on queue "default"?
}

func ExampleClient_List() {
	ctx := context.Background()
	store, client := exampleStore()
	defer store.Close()

	for i := range 5 {
		if _, err := client.Submit(ctx, "step", i); err != nil {
			log.Fatal(err)
		}
	}
	filter := holdfast.Filter{Name: "step", Limit: 2}
	for {
		page, err := client.List(ctx, filter)
		if err != nil {
			log.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, t := range page {
			fmt.Print(string(t.Payload), " ")
		}
		filter.After = page[len(page)-1].Cursor()
	}
	fmt.Println()
	// Output: 4 3 2 1 0
}

func ExampleClient_Cancel() {
	ctx := context.Background()
	store, client := exampleStore()
	defer store.Close()

	task, err := client.Submit(ctx, "cleanup", nil, holdfast.Delay(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	task, err = client.Cancel(ctx, task.ID)
	fmt.Println(task.Status, err)

	_, err = client.Cancel(ctx, task.ID)
	fmt.Println(errors.Is(err, holdfast.ErrState))
	// Output:
	// canceled <nil>
	// true
}
