package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/eda94727/holdfast/outbox"
	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/client"
	"github.com/eda94727/holdfast/record/host"
)

// An application writes while its Host is away, and sends when it is there. One of its
// writes conflicts with somebody else's, and is rebased.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	server, ref, app, patient := theHost(dir)
	defer server.Close()

	// A client that writes to one Host. (With Pin and StateDir in place of Host it finds
	// each record's Host by a Directory, and follows records that move.)
	c, err := client.New(client.Config{Key: app, Host: &ref, HTTP: server.Client()})
	if err != nil {
		panic(err)
	}
	box, err := outbox.Open(ctx, filepath.Join(dir, "queue.db"), c, outbox.Options{})
	if err != nil {
		panic(err)
	}
	defer box.Close()

	// Enqueue answers when the write is on disk. Nothing has been sent yet.
	note, err := box.Enqueue(ctx, record.Intent{Operation: record.CreateResource, Patient: patient,
		Resource: []byte(`{"resourceType":"Condition","code":{"text":"Asthma"},"subject":{"reference":"Patient/` + patient + `"}}`)})
	if err != nil {
		panic(err)
	}
	name, err := box.Enqueue(ctx, record.Intent{Operation: record.UpdateDemographics, Patient: patient, BaseVersion: 1,
		Resource: []byte(`{"name":"Ada Lovelace"}`)})
	if err != nil {
		panic(err)
	}

	// Somebody else changes the name first.
	other := record.Intent{Operation: record.UpdateDemographics, Patient: patient, BaseVersion: 1, OperationID: record.NewID(), Resource: []byte(`{"name":"Ada Byron"}`)}
	if _, err := c.Write(ctx, other); err != nil {
		panic(err)
	}

	// A program that runs on would call box.Run(ctx) in a goroutine instead.
	report, err := box.Flush(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("committed:", report.Committed)
	for _, stop := range report.Stops {
		fmt.Println("stopped by:", stop.State, stop.Code)
	}

	// After a person has looked at both, the write goes on top of the other one.
	name, err = box.Rebase(ctx, name, 2, outbox.Change{Reason: "the new name is the right one", By: "reception"})
	if err != nil {
		panic(err)
	}
	if _, err := box.Flush(ctx); err != nil {
		panic(err)
	}
	for _, id := range []string{note, name} {
		entry, err := box.Entry(ctx, id)
		if err != nil {
			panic(err)
		}
		fmt.Println(entry.Operation, entry.State, entry.Result.Type, entry.Result.Version)
	}
	// Output:
	// committed: 1
	// stopped by: conflicted version_conflict
	// create_resource committed Condition 1
	// update_demographics committed Patient 3
}

// A form and its write are saved together, or not at all: the application keeps its
// own tables in the queue's file.
func ExampleOutbox_EnqueueTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	server, ref, app, patient := theHost(dir)
	defer server.Close()
	c, err := client.New(client.Config{Key: app, Host: &ref, HTTP: server.Client()})
	if err != nil {
		panic(err)
	}
	box, err := outbox.Open(ctx, filepath.Join(dir, "queue.db"), c, outbox.Options{})
	if err != nil {
		panic(err)
	}
	defer box.Close()

	// The driver is imported for its side effect: _ "github.com/ncruces/go-sqlite3/driver".
	db, err := sql.Open("sqlite3", box.URI("_txlock=immediate&_pragma=synchronous(full)&_pragma=busy_timeout(5000)"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec(`create table form (id integer primary key, text text)`); err != nil {
		panic(err)
	}
	save := func(text string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `insert into form (text) values (?)`, text); err != nil {
			return err
		}
		if _, err := box.EnqueueTx(ctx, tx, record.Intent{Operation: record.CreateResource, Patient: patient, Resource: []byte(text)}); err != nil {
			return err
		}
		return tx.Commit()
	}
	good := `{"resourceType":"Condition","code":{"text":"Asthma"},"subject":{"reference":"Patient/` + patient + `"}}`
	if err := save(good); err != nil {
		panic(err)
	}
	if err := save("no JSON"); err != nil {
		fmt.Println(record.CodeOf(err))
	}
	var forms int
	if err := db.QueryRow(`select count(*) from form`).Scan(&forms); err != nil {
		panic(err)
	}
	report, err := box.Flush(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("forms:", forms, "sent:", report.Sent)
	// Output:
	// invalid_message
	// forms: 1 sent: 1
}

// theHost is a Host in this process, with a record that an application may write to.
func theHost(dir string) (server *httptest.Server, ref record.HostRef, app *record.Key, patient string) {
	ctx := context.Background()
	server = httptest.NewUnstartedServer(nil)
	server.StartTLS()
	config, err := host.InDir(filepath.Join(dir, "host"))
	if err != nil {
		panic(err)
	}
	config.URL = server.URL
	h, err := host.Open(ctx, config)
	if err != nil {
		panic(err)
	}
	server.Config.Handler = h.Handler()
	made, err := h.CreateRecord(ctx, host.NewRecord{})
	if err != nil {
		panic(err)
	}
	app = record.NewKey()
	if _, err := h.Grant(ctx, host.Grant{Record: made.ID, Client: app.ID(), Scope: "patient/*.cruds"}); err != nil {
		panic(err)
	}
	return server, h.Ref(), app, made.ID
}
