//go:build !unix

package sqlitefile

import "os"

// childAsNobody is for systems with permission bits.
func childAsNobody(string) { os.Exit(1) }
