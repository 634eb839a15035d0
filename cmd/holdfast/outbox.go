package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/outbox/control"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
)

const envOutbox = "HOLDFAST_OUTBOX"

// queueFile is the queue of an application's folder, unless another is named.
const queueFile = "outbox.db"

// outboxFlags are those of all commands of a queue.
type outboxFlags struct {
	file, data, keyFile string
}

func (a *app) outboxCommand() *cobra.Command {
	f := outboxFlags{}
	cmd := &cobra.Command{
		Use:     "outbox",
		GroupID: groupRecords,
		Short:   "Look after writes that wait for their Hosts, and send them",
		Long: `An outbox is a queue of writes to patients' records, in a SQLite file: each reaches its record's Host
once, those of one patient in order, whatever happens in between. A file has one owner, the process
that sends: an application in Go that opens the file by package outbox, or "holdfast outbox run".

These commands work beside the owner, over a socket beside the file (an application serves it by package
outbox/control), or on the file itself when nobody owns it. --file names the file, or the variable
HOLDFAST_OUTBOX; without both, it is outbox.db in the application's folder (--data).

What is written stays hidden unless --content asks for it. Changes by hand need a --reason, which is kept.`,
		Example: `  holdfast outbox run --data app
  holdfast outbox list --file app.db
  holdfast outbox show --file app.db "$operation" --content
  holdfast outbox rebase --file app.db "$operation" --version 4 --reason 'read again, still wanted'`,
		Args: cobra.NoArgs,
		RunE: a.action(func(context.Context, []string) error {
			return usagef(`say what to do with the queue: run, enqueue, list, show, summary, audit, retry, rebase, replace, discard, follow, prune or verify; "holdfast help outbox" tells more`)
		}),
	}
	fl := cmd.PersistentFlags()
	fl.StringVar(&f.file, "file", "", "the queue's file (default: $HOLDFAST_OUTBOX, or outbox.db in --data)")
	fl.StringVar(&f.data, "data", "", `the application's folder, as "holdfast record init" makes it: for run, and to make a queue`)
	fl.StringVar(&f.keyFile, "key-file", "", "the key of an encrypted queue: a file with 32 bytes, as they are or as 64 hexadecimal digits")
	cmd.AddCommand(a.outboxRun(&f), a.outboxEnqueue(&f), a.outboxList(&f), a.outboxShow(&f), a.outboxSummary(&f), a.outboxAudit(&f),
		a.outboxRetry(&f), a.outboxRebase(&f), a.outboxReplace(&f), a.outboxDiscard(&f), a.outboxFollow(&f), a.outboxPrune(&f), a.outboxVerify(&f))
	return cmd
}

// path is the queue's file.
func (f *outboxFlags) path() (string, error) {
	path := cmp.Or(f.file, os.Getenv(envOutbox))
	if path == "" && f.data != "" {
		path = filepath.Join(f.data, queueFile)
	}
	if path == "" {
		return "", usagef("no queue is named: use --file app.db, or %s=app.db, or --data with the application's folder", envOutbox)
	}
	return path, nil
}

// key reads the key of an encrypted queue; nil where none is named.
func (f *outboxFlags) key() ([]byte, error) {
	if f.keyFile == "" {
		return nil, nil
	}
	file, err := os.Open(f.keyFile)
	if err != nil {
		return nil, usageError{fmt.Errorf("--key-file: %w", err)}
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, 1024))
	if err != nil {
		return nil, usageError{fmt.Errorf("--key-file: %w", err)}
	}
	if len(b) == outbox.KeySize {
		return b, nil
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != outbox.KeySize {
		return nil, usagef("--key-file %s holds no key: it has %d bytes, and a key has %d, or %d hexadecimal digits", f.keyFile, len(b), outbox.KeySize, 2*outbox.KeySize)
	}
	return key, nil
}

// turn is how long a command waits for another that has the file for a moment.
const turn = 5 * time.Second

// withQueue works on the queue: through its owner, or on the file if there is none. With create, a queue
// that is not there is made for the application of --data.
func (a *app) withQueue(ctx context.Context, f *outboxFlags, content, create bool, act func(control.Queue) error) error {
	path, err := f.path()
	if err != nil {
		return err
	}
	key, err := f.key()
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		switch k, err := control.Dial(ctx, path); {
		case err == nil:
			defer k.Close()
			k.Content = content
			return act(k)
		case !errors.Is(err, control.ErrNobody):
			return exitError{exitDatabase, err}
		}
		b, err := a.openQueue(ctx, f, path, key, create)
		if err == nil {
			return errors.Join(act(b), b.Close())
		}
		if !errors.Is(err, outbox.QueueInUse) || time.Since(began) > turn {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// openQueue opens the file for this command alone. Nothing is sent, so no client is needed but to make a
// queue: then the application of the folder is its owner.
func (a *app) openQueue(ctx context.Context, f *outboxFlags, path string, key []byte, create bool) (*outbox.Outbox, error) {
	if create && f.data != "" {
		k, err := a.sendingClient(f.data, path, 20*time.Second, nil)
		if err != nil {
			return nil, err
		}
		b, err := outbox.Open(ctx, path, k, outbox.Options{Key: key})
		return b, queueOpened(err)
	}
	b, err := outbox.Open(ctx, path, nil, outbox.Options{Key: key})
	return b, queueOpened(err)
}

// queueOpened tells trouble with the file from the queue's own refusals.
func queueOpened(err error) error {
	if err != nil && record.CodeOf(err) == "" && !errors.Is(err, context.Canceled) {
		return exitError{exitDatabase, err}
	}
	return err
}

// sendingClient is the client of an application's folder for its queue. What it has verified of the
// Directory is kept beside the queue and not in the folder, which commands of "holdfast record" use at
// the same time.
func (a *app) sendingClient(data, path string, timeout time.Duration, log func(*client.Config)) (*client.Client, error) {
	var known application
	found, err := readSettings(filepath.Join(data, applicationFile), &known)
	if err != nil {
		return nil, err
	}
	if _, keyErr := os.Stat(filepath.Join(data, "app.key")); !found || keyErr != nil {
		return nil, noApplication(data)
	}
	if err := ownFolder(data); err != nil {
		return nil, err
	}
	config, err := client.InDir(data)
	if err != nil {
		return nil, err
	}
	pin, http, err := new(trustFlags).load(data)
	if err != nil {
		return nil, err
	}
	if pin == nil && known.Host == nil {
		return nil, exitError{exitNotFound, errors.New("the folder has no " + pinFile + ": call \"holdfast record init\" with --directory")}
	}
	if pin != nil {
		config.Pin = *pin
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, exitError{exitDatabase, fmt.Errorf("the folder %s does not exist; create it first", filepath.Dir(path))}
	}
	config.StateDir = path + "-state"
	config.Host, config.Actor, config.HTTP, config.Timeout = known.Host, known.Actor, http, timeout
	if log != nil {
		log(&config)
	}
	return client.New(config)
}

func noApplication(data string) error {
	return exitError{exitNotFound, fmt.Errorf("there is no application in %s; \"holdfast record init --data %s\" makes one", data, data)}
}

// outboxExit is the exit code of a refusal of the queue's own; 0 for other codes.
func outboxExit(code record.Code) int {
	switch code {
	case outbox.UnknownQueueEntry, outbox.UnknownQueueRoute, outbox.UnknownQueue:
		return exitNotFound
	case outbox.QueueInUse, outbox.QueueWorkerBusy, outbox.QueueStateConflict, outbox.QueueOutcomeUnknown, outbox.QueueOperationIDConflict,
		outbox.QueueRouteUpdateRequired, outbox.WrongQueueOwner, outbox.QueueEntryAltered:
		return exitState
	case outbox.QueueKeyMismatch:
		return exitDatabase
	}
	return 0
}

// outboxRemedy says what to do about one.
func outboxRemedy(code record.Code) string {
	switch code {
	case outbox.UnknownQueue:
		return `check --file; "holdfast outbox enqueue" or "holdfast outbox run", with --data, makes a queue`
	case outbox.UnknownQueueEntry:
		return `"holdfast outbox list --all" shows the entries that there are; done ones may have been pruned`
	case outbox.QueueInUse:
		return "its owner does not answer: it is about to start or to end, or an application that does not serve the socket (package outbox/control); stop it, or ask it"
	case outbox.WrongQueueOwner:
		return "name the folder of the application that made the queue by --data"
	case outbox.QueueKeyMismatch:
		return "give the key that the queue was made with by --key-file, or leave it out for a queue without one"
	case outbox.QueueWorkerBusy:
		return "try again in a moment"
	case outbox.QueueOutcomeUnknown:
		return "let the queue be sent first, which tells; or add --accept-unknown, and the write may come twice, or be done though given up"
	case outbox.QueueOperationIDConflict:
		return "leave --operation out: another write has this id"
	case outbox.QueueRouteUpdateRequired:
		return "the record has moved: the queue's owner follows with its next flush"
	case outbox.QueueEntryAltered:
		return `somebody edited the file: "holdfast outbox verify" shows what; replace or discard the entry`
	}
	return ""
}

// changeFlags are those of all changes by hand.
type changeFlags struct{ outbox.Change }

func (c *changeFlags) add(cmd *cobra.Command, unsure bool) {
	fl := cmd.Flags()
	fl.StringVar(&c.Reason, "reason", "", "why: it is kept in the audit")
	fl.StringVar(&c.By, "by", "", "who: a name for the audit (default: the user of this process)")
	if unsure {
		fl.BoolVar(&c.Unsure, "accept-unknown", false, "also where the Host may have done the write already without our knowing")
	}
}

// check refuses a change without a reason before anything is opened.
func (c *changeFlags) check() (outbox.Change, error) {
	if strings.TrimSpace(c.Reason) == "" {
		return c.Change, usagef("--reason is missing; say in a few words why")
	}
	if c.By == "" {
		c.By = userName()
	}
	return c.Change, nil
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid " + fmt.Sprint(os.Getuid())
}

// checkOperation refuses what is no operation id, before anything is opened.
func checkOperation(id string) error { return record.CheckID("operation", id) }
