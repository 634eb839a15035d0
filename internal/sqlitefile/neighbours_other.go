//go:build !linux

package sqlitefile

// neighbours cannot be told here, so there may always be some.
func (f *File) neighbours() bool { return true }

// holder describes who holds the write lock now.
func (f *File) holder() string { return "another program on the file" }
