//go:build unix

package control

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// fileOf is what the system says of a file of some user.
type fileOf struct {
	os.FileInfo
	uid uint32
}

func (f fileOf) Sys() any { return &syscall.Stat_t{Uid: f.uid} }

func TestASocketOfSomebodyElseIsNotTrusted(t *testing.T) {
	for _, c := range []struct {
		socket, file uint32
		want         bool
	}{{1000, 1000, true}, {1001, 1000, false}, {0, 1000, true}, {1000, 0, false}} {
		if trusted(fileOf{uid: c.socket}, fileOf{uid: c.file}) != c.want {
			t.Errorf("a socket of %d beside a file of %d: want %v", c.socket, c.file, c.want)
		}
	}
	dir := t.TempDir()
	a, err := os.Stat(dir)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	b, err := os.Stat(filepath.Join(dir, "f"))
	must(t, err)
	if !trusted(a, b) {
		t.Error("two files of this user are not one user's")
	}
}
