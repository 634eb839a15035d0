package directory

import (
	"fmt"
	"io"
	"os"

	"github.com/eda94727/holdfast/record"
)

// Pin names a Directory and the keys that a client believes.
type Pin struct {
	// Directory is the Directory's URL.
	Directory string `json:"directory"`
	// Quorum has its keys, got on a way that the client trusts.
	record.Quorum
}

// Check reports whether the pin is complete.
func (p Pin) Check() error {
	if err := record.CheckBaseURL(p.Directory); err != nil {
		return fmt.Errorf("directory: pin: %w", err)
	}
	if err := p.Quorum.Check(); err != nil {
		return fmt.Errorf("directory: pin: %w", err)
	}
	return nil
}

// Address returns the address that a Directory gives to a record.
func Address(directoryURL, recordID string) string { return directoryURL + "/records/" + recordID }

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
