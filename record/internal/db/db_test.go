package db

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

func TestBothDatabases(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		ctx := context.Background()
		file := func(sql string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(sql)} }
		config := Config{URL: url, Namespace: "test", Schema: `create table if not exists x (id {{rowid}}, k text not null unique, n {{int}}, b {{blob}});`, SQL: fstest.MapFS{
			"sql/put.sql":           file("insert into x (k, n, b) values (:k, :n, :b)"),
			"sql/put_returning.sql": file("insert into x (k, n) values (:k, :n) returning n"),
			"sql/lock.sql":          file("select n from x where k = :k {{lock}}"),
			"sql/get.sql":           file("select n from x where k = :k"),
			"sql/add.sql":           file("update x set n = n + 1 where k = :k"),
			"sql/list.sql":          file("select k, n, b from x where n >= :least\n and k <> :not --? not\n order by k"),
		}}
		d, err := Open(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		again, err := Open(ctx, config) // the tables exist
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		put := func(k string, n any, b []byte) error {
			return d.Write(ctx, "put", func(tx Tx) error {
				_, err := tx.Exec("put", Args{"k": k, "n": n, "b": b})
				return err
			})
		}
		for _, err := range []error{put("a", 1, []byte{0, 1}), put("b", int64(2), nil), put("c", true, []byte{})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := put("a", 1, nil); !errors.Is(err, ErrDuplicate) {
			t.Errorf("a second row of one key: %v", err)
		}
		err = d.Write(ctx, "put", func(tx Tx) error {
			var n int64
			_, err := One(tx, "put_returning", Args{"k": "a", "n": 1}, &n)
			return err
		})
		if !errors.Is(err, ErrDuplicate) {
			t.Errorf("a second row of one key, returning: %v", err)
		}
		err = d.Read(ctx, func(tx Tx) error {
			keys := ""
			err := tx.Adhoc("select k from x where n = :n or n = :m and :n = :n order by k", Args{"n": 1, "m": 2}, func(row Row) error {
				var k string
				err := row.Scan(&k)
				keys += k
				return err
			})
			if keys != "abc" {
				t.Errorf("adhoc: %q", keys)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		// An error takes the whole transaction back.
		stop := errors.New("stop")
		err = d.Write(ctx, "undo", func(tx Tx) error {
			if changed, err := tx.Exec("add", Args{"k": "a"}); err != nil || changed != 1 {
				t.Errorf("changed %d, %v", changed, err)
			}
			return stop
		})
		if !errors.Is(err, stop) {
			t.Errorf("the error is lost: %v", err)
		}
		list := func(args Args) (keys string) {
			err := again.Read(ctx, func(tx Tx) error {
				keys = ""
				return tx.Query("list", args, func(row Row) error {
					var k string
					var n int64
					var b []byte
					if err := row.Scan(&k, &n, &b); err != nil {
						return err
					}
					if k == "a" && (n != 1 || string(b) != "\x00\x01") {
						t.Errorf("a is %d %v", n, b)
					}
					keys += k
					return nil
				})
			})
			if err != nil {
				t.Error(err)
			}
			return keys
		}
		if got := list(Args{"least": 1}); got != "abc" {
			t.Errorf("got %s", got)
		}
		if got := list(Args{"least": 1, "not": "b"}); got != "ac" {
			t.Errorf("got %s", got)
		}
		err = d.Read(ctx, func(tx Tx) error {
			var n int
			found, err := One(tx, "list", Args{"least": 100}, &n)
			if found {
				t.Error("found what is not there")
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		// Concurrent increments under a row lock: none is lost.
		done := make(chan error)
		for range 20 {
			go func() {
				done <- d.Write(ctx, "add", func(tx Tx) error {
					var n int64
					if _, err := One(tx, "lock", Args{"k": "b"}, &n); err != nil {
						return err
					}
					_, err := tx.Exec("add", Args{"k": "b"})
					return err
				})
			}()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := list(Args{"least": 22}); got != "b" {
			t.Errorf("increments were lost: %q", got)
		}
		// A read whose context ends in the middle leaves no old snapshot to the reads after it.
		for i := range 20 {
			cut, cancel := context.WithCancel(ctx)
			err := d.Read(cut, func(tx Tx) error {
				var n int64
				if _, err := One(tx, "get", Args{"k": "c"}, &n); err != nil {
					return err
				}
				cancel()
				_, err := One(tx, "get", Args{"k": "c"}, &n)
				return err
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a read that is cut off: %v", err)
			}
			err = d.Write(ctx, "add", func(tx Tx) error {
				_, err := tx.Exec("add", Args{"k": "c"})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // so that each connection has its turn
				var n int64
				err = d.Read(ctx, func(tx Tx) error {
					_, err := One(tx, "get", Args{"k": "c"}, &n)
					return err
				})
				if err != nil || n != int64(i+2) {
					t.Fatalf("after %d changes n is %d, %v", i+1, n, err)
				}
			}
		}
		for _, wrong := range []Args{{}, {"least": 1.5}} {
			if err := d.Read(ctx, func(tx Tx) error { return tx.Query("list", wrong, func(Row) error { return nil }) }); err == nil {
				t.Errorf("%v passes", wrong)
			}
		}
		if err := d.Ping(ctx); err != nil {
			t.Error(err)
		}
	})
}
