// Bench measures Holdfast beside other task queues for Go, on the same machine and in one run. README.md says what and how.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/mattn/go-isatty"
)

func main() {
	serve()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer, complaints *os.File) error {
	var s suite
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(complaints)
	libraries := flags.String("peers", "", "only these `libraries`, of holdfast,river,goqite,backlite,gue")
	db := flags.String("db", "all", "`database`: sqlite, postgres or all")
	flags.IntVar(&s.Tasks, "tasks", 5000, "tasks of each measurement")
	flags.IntVar(&s.Rounds, "rounds", 3, "rounds; the table has their medians")
	flags.IntVar(&s.Pickups, "pickups", 100, "tasks picked up one by one in each round; fewer if they take more than 20 s")
	asJSON := flags.Bool("json", false, "print everything as JSON")
	asMarkdown := flags.Bool("markdown", false, "print Markdown")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for name, n := range map[string]int{"tasks": s.Tasks, "rounds": s.Rounds, "pickups": s.Pickups} {
		if n < 1 || n > 1_000_000 {
			return fmt.Errorf("-%s %d: write a number from 1 to 1,000,000", name, n)
		}
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q? Everything is said with flags: see -help", strings.Join(flags.Args(), " "))
	}
	chosen, err := choose(*libraries, *db)
	if err != nil {
		return err
	}
	progress := func(string) {}
	if isatty.IsTerminal(complaints.Fd()) {
		progress = func(line string) { fmt.Fprintf(complaints, "\r\x1b[K%s", line) }
	}
	r, err := s.run(ctx, chosen, progress)
	progress("")
	if r == nil {
		return err
	}
	err = errors.Join(err, r.failed())
	switch {
	case *asJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return errors.Join(err, encoder.Encode(r))
	case *asMarkdown:
		_, failed := io.WriteString(out, r.markdown())
		return errors.Join(err, failed)
	default:
		_, failed := io.WriteString(out, r.text())
		return errors.Join(err, failed)
	}
}
