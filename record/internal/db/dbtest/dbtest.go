// Package dbtest gives the record services' tests both databases.
package dbtest

import (
	"path/filepath"
	"testing"

	"github.com/eda94727/holdfast/internal/pgtest"
)

// Each runs the test once on a fresh SQLite file and once on a fresh Postgres
// database.
func Each(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t)) })
}

// SQLite returns the path of a file that does not exist yet.
func SQLite(t testing.TB) string { return filepath.Join(t.TempDir(), "records.db") }

// Postgres returns the URL of a new, empty database.
func Postgres(t testing.TB) string {
	t.Helper()
	return pgtest.DSN(t)
}
