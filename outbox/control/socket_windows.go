package control

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// trusted: the access rules of the folder decide.
func trusted(_, _ os.FileInfo) bool { return true }

// wsaConnRefused is Windows' ECONNREFUSED.
const wsaConnRefused = syscall.Errno(10061)

func gone(err error) bool { return errors.Is(err, wsaConnRefused) || errors.Is(err, fs.ErrNotExist) }
