package service

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/eda94727/holdfast/record"
)

// InDir returns the Config of a Directory that keeps everything in one folder:
// its keys in directory-1.key to directory-n.key and its database in
// directory.db, all made at the first use. URL is the caller's to set.
func InDir(dir string, keys int) (Config, error) {
	if keys < 1 || keys > 16 {
		return Config{}, fmt.Errorf("directory: %d keys; wanted 1 to 16", keys)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Config{}, fmt.Errorf("directory: %w", err)
	}
	c := Config{Database: filepath.Join(dir, "directory.db")}
	for i := range keys {
		key, err := record.LoadOrCreateKey(filepath.Join(dir, fmt.Sprintf("directory-%d.key", i+1)))
		if err != nil {
			return Config{}, err
		}
		c.Keys = append(c.Keys, key)
	}
	return c, nil
}
