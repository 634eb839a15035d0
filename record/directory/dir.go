package directory

import (
	"fmt"
	"io"
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

// Pin returns what clients of this Directory pin.
func (s *Service) Pin() Pin { return Pin{s.config.URL, s.Quorum()} }

// LoadPin reads a pin from a file: the JSON that a Directory answers at …/keys,
// got on a way that is trusted.
func LoadPin(path string) (Pin, error) {
	f, err := os.Open(path)
	if err != nil {
		return Pin{}, fmt.Errorf("directory: load pin: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return Pin{}, fmt.Errorf("directory: load pin: %w", err)
	}
	var p Pin
	if err := record.DecodeJSON(data, record.Limits{}, &p); err != nil {
		return Pin{}, fmt.Errorf("directory: %s is no pin; wanted the JSON of the Directory's /keys: %w", path, err)
	}
	return p, p.Check()
}
