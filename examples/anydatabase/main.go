// Command anydatabase runs the same tasks on the database that its argument names:
//
//	go run ./examples/anydatabase tasks.db
//	go run ./examples/anydatabase postgres://postgres@localhost/postgres
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/postgres"
	"github.com/eda94727/holdfast/sqlite"
)

type Sum struct{ A, B int }

var Add = holdfast.Define[Sum, int]("math.add")

// open is all that differs.
func open(ctx context.Context, url string) (*holdfast.Store, error) {
	if strings.HasPrefix(url, "postgres://") {
		return postgres.Open(ctx, url)
	}
	return sqlite.Open(ctx, url)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: anydatabase tasks.db|postgres://…")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	store, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{})
	Add.Handle(worker, func(_ context.Context, _ *holdfast.Run, in Sum) (int, error) { return in.A + in.B, nil })
	if err := worker.Start(ctx); err != nil {
		return err
	}
	sum, err := Add.Call(ctx, holdfast.NewClient(store), Sum{A: 2, B: 3})
	if err != nil {
		return err
	}
	fmt.Printf("2 + 3 = %d, on %s\n", sum, store.Dialect().Name())
	return worker.Stop(ctx)
}
