package outbox

import (
	"errors"
	"io/fs"
	"os"
)

// beside are what SQLite keeps beside a file while it is open.
var beside = []string{"-wal", "-shm"}

// rightsBefore makes a new file that only its user may read, and gives the files beside
// an old one its rights, before anything is written to them: the driver would make
// them readable for all that umask lets in.
func rightsBefore(path string) error {
	if h, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err == nil {
		return h.Close() // SQLite removes a WAL beside an empty file
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return nil // whoever opens it tells why
	}
	for _, name := range beside {
		h, err := os.OpenFile(path+name, os.O_CREATE|os.O_EXCL|os.O_RDWR, info.Mode().Perm())
		if err == nil {
			err = h.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// rightsAfter does the same for the files that SQLite has made.
func rightsAfter(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	for _, name := range beside {
		if err := os.Chmod(path+name, info.Mode().Perm()); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
