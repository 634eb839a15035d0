// Command clinic saves a form, and the write to the patient's record that follows from it, in one
// transaction: both are there, or neither. The outbox delivers the write, also when the record's Host
// cannot be reached now.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/outbox/control"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	_ "github.com/ncruces/go-sqlite3/driver" // any database/sql driver for SQLite will do
)

func main() {
	dir, err := os.MkdirTemp("", "holdfast-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), dir); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string) error {
	// The Host is somebody else's, on another machine: see host.go.
	there, err := startHost(ctx, filepath.Join(dir, "host"))
	if err != nil {
		return err
	}
	defer there.stop()

	// The application's key, and where records live: a Directory in a larger world.
	config, err := client.InDir(filepath.Join(dir, "app"))
	if err != nil {
		return err
	}
	config.Host, config.HTTP = there.ref, there.http
	k, err := client.New(config)
	if err != nil {
		return err
	}
	defer k.Close()
	patient, err := there.admit(ctx, k.Subject())
	if err != nil {
		return err
	}

	path := filepath.Join(dir, "app.db")
	db, err := open(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	return clinic(ctx, db, path, k, patient)
}

// open opens the application's own connection. Its commits must be on disk too: synchronous=FULL.
func open(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, `create table forms (patient text, weight text)`); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func clinic(ctx context.Context, db *sql.DB, path string, k *client.Client, patient string) (err error) {
	box, err := outbox.Open(ctx, path, k, outbox.Options{})
	if err != nil {
		return err
	}
	// "holdfast outbox list --file app.db" works while this program runs.
	server, err := control.Start(box, path, control.Options{})
	if err != nil {
		return errors.Join(err, box.Close())
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- box.Run(running) }() // sends, and tries again
	defer func() {
		stop()
		err = errors.Join(err, <-ended, server.Close(), box.Close())
	}()

	events, cancel := box.Events()
	defer cancel()
	if err := save(ctx, db, box, patient, "70.10", nil); err != nil {
		return err
	}
	if err := save(ctx, db, box, patient, "7010", errors.New("that weight is not to be believed")); err == nil {
		return errors.New("the second form should not have been saved")
	}
	for e := range events {
		if e.State != outbox.Pending && e.State != outbox.Submitted {
			break
		}
	}

	var forms int
	if err := db.QueryRowContext(ctx, `select count(*) from forms`).Scan(&forms); err != nil {
		return err
	}
	writes, err := box.Entries(ctx, outbox.Filter{})
	if err != nil {
		return err
	}
	w := writes[0]
	fmt.Printf("%d form saved, %d write: %s as %s, version %d\n", forms, len(writes), w.State, w.Result.Type, w.Result.Version)
	return nil
}

func save(ctx context.Context, db *sql.DB, box *outbox.Outbox, patient, weight string, trouble error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	if _, err := tx.ExecContext(ctx, `insert into forms values (?, ?)`, patient, weight); err != nil {
		return err
	}
	_, err = box.EnqueueTx(ctx, tx, record.Intent{
		Operation: record.CreateResource,
		Patient:   patient,
		Resource: fmt.Appendf(nil, `{"resourceType": "Observation", "status": "final", "code": {"text": "body weight"},
			"subject": {"reference": "Patient/%s"}, "valueQuantity": {"value": %s, "unit": "kg"}}`, patient, weight),
	})
	if err != nil {
		return err
	}
	if trouble != nil {
		return trouble // rolled back: no form, no write
	}
	return tx.Commit()
}
