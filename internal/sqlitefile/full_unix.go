//go:build linux || darwin || freebsd

package sqlitefile

import "golang.org/x/sys/unix"

// freeSpace is how many bytes a program without privileges may still write in the folder.
func freeSpace(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(max(s.Bavail, 0)) * uint64(s.Bsize), nil
}
