package host

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/eda94727/holdfast/record"
)

// InDir returns the Config of a Host that keeps everything in one folder: its
// key in host.key and its database in host.db, both made at the first use. URL
// and whatever else is wanted are the caller's to set.
func InDir(dir string) (Config, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Config{}, fmt.Errorf("host: %w", err)
	}
	key, err := record.LoadOrCreateKey(filepath.Join(dir, "host.key"))
	if err != nil {
		return Config{}, err
	}
	return Config{Key: key, Database: filepath.Join(dir, "host.db")}, nil
}

// TrustIn returns the name of the file in a Host's folder that goes into
// [Directory.TrustFile].
func TrustIn(dir string) string { return filepath.Join(dir, "trust.json") }
