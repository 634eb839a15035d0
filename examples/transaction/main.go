// Command transaction submits a task in the transaction that writes the application's own row: both
// are there, or neither.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/sqlite"
	_ "github.com/ncruces/go-sqlite3/driver" // any database/sql driver for SQLite will do
)

type Mail struct{ To, Subject string }

var SendMail = holdfast.Define[Mail, struct{}]("mail.send")

func main() {
	dir, err := os.MkdirTemp("", "holdfast-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), filepath.Join(dir, "app.db")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	// The application's connection and the store's are two, on one file.
	db, err := sql.Open("sqlite3", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `create table users (email text primary key)`); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	defer store.Close()
	client := holdfast.NewClient(store)

	if err := signUp(ctx, db, client, "ada@example.org", nil); err != nil {
		return err
	}
	if err := signUp(ctx, db, client, "eve@example.org", errors.New("the card was refused")); err == nil {
		return errors.New("the second sign-up should have failed")
	}

	var users int
	if err := db.QueryRowContext(ctx, `select count(*) from users`).Scan(&users); err != nil {
		return err
	}
	tasks, err := client.List(ctx, holdfast.Filter{Name: SendMail.Name()})
	if err != nil {
		return err
	}
	fmt.Printf("%d user, %d mail to send: %s\n", users, len(tasks), tasks[0].Payload)
	return nil
}

func signUp(ctx context.Context, db *sql.DB, client *holdfast.Client, email string, trouble error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	if _, err := tx.ExecContext(ctx, `insert into users values (?)`, email); err != nil {
		return err
	}
	if _, err := SendMail.Submit(ctx, client.In(sqlite.Tx(tx)), Mail{To: email, Subject: "Welcome"}); err != nil {
		return err
	}
	if trouble != nil {
		return trouble // rolled back: no user, no mail
	}
	return tx.Commit()
}
