package record

import (
	"fmt"
	"os"
	"path/filepath"
)

// WriteFileDurably replaces the file at path with data, so that after a crash
// at any moment either the old or the new content is there, whole: it writes a
// temporary file beside it, syncs it, renames it and syncs the directory. The
// file is readable by its owner only.
func WriteFileDurably(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("record: write %s: %w", path, err)
	}
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("record: write %s: %w", path, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("record: write %s: %w", path, err)
	}
	return nil
}
