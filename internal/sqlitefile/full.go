package sqlitefile

import "path/filepath"

// noRoom is how little free space, in bytes, makes a disk count as full when a write to it has failed.
// SQLite writes pages of 4 KiB and makes room for its shared memory in steps of 32 KiB.
const noRoom = 64 << 10

// diskFull tells whether the disk that holds the file has no room left. Where that cannot be found out,
// it counts as having some.
func diskFull(path string) bool {
	free, err := freeSpace(filepath.Dir(path))
	return err == nil && free < noRoom
}
