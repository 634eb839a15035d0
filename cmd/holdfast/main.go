// Command holdfast submits, runs and looks after tasks in a SQLite file or a Postgres database.
// "holdfast demo" shows what it does; "holdfast help" lists the rest.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // the zones of schedules, also where the system has none
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
