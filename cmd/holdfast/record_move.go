package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/directory"
	"github.com/eda94727/holdfast/record/host"
)

func (a *app) recordMove(data *string) *cobra.Command {
	var (
		to, id         string
		cancel, noWait bool
	)
	cmd := &cobra.Command{
		Use:   "move RECORD --to URL --to-id ID",
		Short: "Move a record to another Host",
		Long: `Move has the Host of a folder (--data, the Host that the record leaves) move a record to another: it
freezes the record, sends everything with receipts and history, publishes the new location with both
Hosts' signatures, and has the new Host take over. The move is a task of the Host: the process that
serves the folder drives it, and goes on where it stood after a crash of anything. This command
submits it and prints its progress until it has ended; interrupted, it leaves the move running, and
the same command again watches on.

The receiving Host's operator must expect the record first ("holdfast host expect"). --cancel takes a
move back as long as it is not published; afterwards it only goes forward. With --json, each line is
the whole task.`,
		Example: `  holdfast host expect --data b "$record"
  holdfast record move --data a "$record" --to https://b.example --to-id "$(holdfast host info --data b --json | jq -r .id)"
  holdfast record move --data a "$record" --cancel`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			if err := record.CheckID("record", args[0]); err != nil {
				return err
			}
			in := host.MoveInput{Record: args[0]}
			switch {
			case cancel && (to != "" || id != "" || noWait):
				return usagef("--cancel stands alone")
			case !cancel:
				if to == "" || id == "" {
					return usagef(`say where to: --to URL and --to-id ID, as "holdfast host info" of the other Host prints them`)
				}
				in.To = hostRef(to, id)
				if err := in.To.Check(); err != nil {
					return err
				}
			}
			return a.withTasks(ctx, *data, func(c *holdfast.Client) error {
				if cancel {
					return a.cancelMove(ctx, c, in)
				}
				return a.move(ctx, c, *data, in, noWait)
			})
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "the URL of the Host that the record goes to")
	cmd.Flags().StringVar(&id, "to-id", "", "that Host's id")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take a move back that is not published yet")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "print the task's id and leave the move to the Host")
	a.jsonFlag(cmd)
	return cmd
}

// withTasks opens the store of a Host's tasks.
func (a *app) withTasks(ctx context.Context, data string, act func(*holdfast.Client) error) error {
	s, err := loadService(hostKind, data)
	if err != nil {
		return err
	}
	address, err := a.databaseURL(hostKind, &s, true)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(data, pinFile)); err != nil {
		return exitError{exitState, errors.New("the Host has no Directory, and so its records cannot move; start it with --directory")}
	}
	store, err := openTasks(ctx, data, address)
	if err != nil {
		return err
	}
	defer store.Close()
	return act(holdfast.NewClient(store))
}

func (a *app) move(ctx context.Context, c *holdfast.Client, data string, in host.MoveInput, noWait bool) error {
	t, err := host.MoveTask().Submit(ctx, c, in, host.MoveKey(in.Record))
	if err != nil {
		return err
	}
	// The key may have led to a move that is on its way.
	var going host.MoveInput
	if err := json.Unmarshal(t.Payload, &going); err != nil {
		return fmt.Errorf("the task %s is no move: %w", t.ID, err)
	}
	if going.To != in.To {
		return exitError{exitState, fmt.Errorf("the record is on its way to another Host, %s at %s; wait for the end, or take it back by --cancel", going.To.ID, going.To.Issuer)}
	}
	if noWait {
		if a.json {
			return a.stdout.document(t)
		}
		fmt.Fprintln(a.stdout, t.ID)
		return nil
	}
	if err := a.hintIfNobodyDrives(ctx, c); err != nil {
		return err
	}
	if err := a.follow(ctx, c, t.ID); err != nil {
		return err
	}
	l, err := locate(ctx, data, in.Record)
	if err != nil {
		return fmt.Errorf("the move has ended, and the Directory was asked: %w", err)
	}
	if l.Host != in.To {
		return exitError{exitState, fmt.Errorf("the record had left this Host before, and lives at %s, %s; move it from there", l.Host.Issuer, l.Host.ID)}
	}
	if !a.json {
		fmt.Fprintf(a.stdout, "%s lives at %s now, generation %d\n", in.Record, clean(l.Host.Issuer), l.Generation)
	}
	return nil
}

// locate asks the Directory of a Host's folder, and believes only what is signed from the first
// generation on. What the Host itself has verified is left to the process that serves.
func locate(ctx context.Context, data, recordID string) (record.Location, error) {
	pin, http, err := new(trustFlags).load(data)
	if err != nil {
		return record.Location{}, err
	}
	if pin == nil {
		return record.Location{}, usagef("the Host has no Directory")
	}
	dir, err := os.MkdirTemp("", "holdfast-move-*")
	if err != nil {
		return record.Location{}, err
	}
	defer os.RemoveAll(dir)
	trust, err := directory.OpenTrust(filepath.Join(dir, "trust.json"), *pin, nil)
	if err != nil {
		return record.Location{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	address, c := directory.Address(pin.Directory, recordID), directory.Client{HTTP: http}
	document, err := c.Document(ctx, address)
	if err != nil {
		return record.Location{}, err
	}
	return trust.Accept(ctx, document, address, 1, c.Log)
}

// hintIfNobodyDrives says that a task waits for its Host to be started.
func (a *app) hintIfNobodyDrives(ctx context.Context, c *holdfast.Client) error {
	workers, err := c.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if w.State == holdfast.WorkerRunning {
			return nil
		}
	}
	fmt.Fprintln(a.stderr, `no Host works on this folder's moves now; they begin when "holdfast host" runs with a Directory`)
	return nil
}

// follow prints a task's changes until its end.
func (a *app) follow(ctx context.Context, c *holdfast.Client, id string) error {
	var last *holdfast.Task
	for t, err := range c.Watch(ctx, id) {
		if err != nil {
			if ctx.Err() != nil {
				fmt.Fprintln(a.stderr, "the move goes on without this command; call it again to watch, or with --cancel")
			}
			return err
		}
		if err := a.changed(last, t); err != nil {
			return err
		}
		last = t
	}
	return moveEnd(last)
}

// moveEnd makes an error of a move's end that is no success. What the handler's error said is all
// that the task keeps of it.
func moveEnd(t *holdfast.Task) error {
	switch {
	case t != nil && t.Status == holdfast.Failed:
		return exitError{exitTaskFailed, errors.New(t.Failure().Message)}
	case t != nil && t.Status == holdfast.Canceled:
		return exitError{exitTaskFailed, errors.New("the move was canceled; the same command again goes on, --cancel takes it back")}
	}
	return nil
}

func (a *app) cancelMove(ctx context.Context, c *holdfast.Client, in host.MoveInput) error {
	if err := a.hintIfNobodyDrives(ctx, c); err != nil {
		return err
	}
	// First the attempts end, then the move is taken back where it stands.
	t, err := c.CancelByKey(ctx, moveKey(in.Record))
	switch {
	case err == nil:
		if _, err := c.Wait(ctx, t.ID); err != nil {
			return err
		}
	case !errors.Is(err, holdfast.ErrNotFound) && !errors.Is(err, holdfast.ErrState):
		return err
	}
	t, err = cancelMoveTask().Submit(ctx, c, in, holdfast.Key("record.move.cancel:"+in.Record, holdfast.ReuseLive))
	if err != nil {
		return err
	}
	if t, err = c.Wait(ctx, t.ID); err != nil {
		return err
	}
	if err := moveEnd(t); err != nil {
		return err
	}
	if a.json {
		return a.stdout.document(map[string]string{"record": in.Record, "state": "active"})
	}
	fmt.Fprintf(a.stdout, "the move of %s is taken back\n", in.Record)
	return nil
}

// moveKey is the business key that host.MoveKey gives to the move of a record.
func moveKey(recordID string) string { return "record.move:" + recordID }
