//go:build unix

package control

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// trusted reports whether a socket is of the user who owns the file, or of root.
func trusted(socket, file os.FileInfo) bool {
	s, ok := socket.Sys().(*syscall.Stat_t)
	f, also := file.Sys().(*syscall.Stat_t)
	return ok && also && (s.Uid == f.Uid || s.Uid == 0)
}

// gone tells a socket without a listener from other failures.
func gone(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}
