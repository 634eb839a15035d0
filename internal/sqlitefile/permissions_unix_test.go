//go:build unix

package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The super-user passes every permission, so a child without its rights tries.
func TestPermissions(t *testing.T) {
	if os.Getuid() != 0 {
		t.Run("as we are", func(t *testing.T) { tryWithoutRights(t, preparePermissions(t, t.TempDir())) })
		return
	}
	dir, err := os.MkdirTemp("", "permissions")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	cmd := child(t, "nobody", preparePermissions(t, dir))
	out, err := cmd.Output()
	if err != nil || string(out) != "tried\n" {
		t.Errorf("as nobody: %v, said %q", err, out)
	}
}

// preparePermissions makes what tryWithoutRights tries.
func preparePermissions(t *testing.T, dir string) string {
	for _, c := range []struct {
		folder string
		file   os.FileMode
		mode   os.FileMode
	}{{"file", 0o444, 0o777}, {"secret", 0o000, 0o777}, {"folder", 0o666, 0o555}, {"hidden", 0o666, 0o000}} {
		folder := filepath.Join(dir, c.folder)
		must(t, os.Mkdir(folder, 0o777))
		path := filepath.Join(folder, "test.db")
		f, err := Open(t.Context(), path, Options{})
		must(t, err)
		execSQL(t, f, "create table t (k integer primary key, v text)")
		must(t, f.Close())
		must(t, os.Chmod(path, c.file))
		must(t, os.Chmod(folder, c.mode))
		t.Cleanup(func() { os.Chmod(folder, 0o777) })
	}
	return dir
}

func tryWithoutRights(t interface{ Errorf(string, ...any) }, dir string) {
	for _, c := range []struct {
		path string
		want []error
	}{
		{"file/test.db", []error{ErrReadOnly}},                  // a file without write permission
		{"secret/test.db", []error{ErrReadOnly, ErrCannotOpen}}, // a file without any
		{"folder/test.db", []error{ErrReadOnly, ErrCannotOpen}}, // a folder in which no WAL can be made
		{"folder/new.db", []error{ErrReadOnly, ErrCannotOpen}},  // or the file itself
		{"hidden/test.db", []error{ErrReadOnly, ErrCannotOpen}}, // a folder that cannot be entered
		{"hidden/sub/test.db", []error{ErrReadOnly, ErrCannotOpen}},
	} {
		path := filepath.Join(dir, c.path)
		f, err := Open(context.Background(), path, Options{})
		if err == nil {
			err = f.Write(context.Background(), "submit", insert(1))
			f.Close()
		}
		if !isOneOf(err, c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error is %v, want one of %v, and the path", c.path, err, c.want)
		}
	}
}

func isOneOf(err error, list []error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// report is the part of testing.T that a child has.
type report struct{ failed bool }

func (r *report) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func childAsNobody(dir string) {
	const nobody = 65534
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var r report
	tryWithoutRights(&r, dir)
	if r.failed {
		os.Exit(1)
	}
	fmt.Println("tried")
}
