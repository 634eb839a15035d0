package postgres

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/internal/sqltext"
)

// Statements that only one of the dialects has, with the reason.
var (
	onlyHere = []string{
		"lock_key",      // SQLite's write lock covers every key
		"clock",         // the server's time; SQLite takes the library's
		"claim",         // a claim in one round trip, where SQLite takes cheap steps
		"claim_after",   // what comes next, likewise
		"claim_plan",    // how the server is to plan it
		"claim_kept",    // likewise, where plans are kept
		"insert_many",   // many rows in one statement, where SQLite runs one statement many times
		"complete_many", // likewise
		"worker_gone",   // the server tells who holds a lock, where SQLite asks the operating system
		"worker_seize",  // likewise
	}
	onlySQLite = []string{
		"claim_read",     // Postgres' RETURNING costs little
		"complete_plain", // needs the row number
		"worker_locks",   // whose lock files to look at
		// Triggers, made when the first task waits for others; Postgres has them in its schema.
		"depend_deleted", "depend_finished", "depend_retried",
	}
)

// names lists the statements in the folder of a dialect.
func names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err != nil || len(list) == 0 {
		t.Fatalf("%s holds %d statements: %v", dir, len(list), err)
	}
	for i, f := range list {
		list[i] = strings.TrimSuffix(filepath.Base(f), ".sql")
	}
	return list
}

func TestEveryStatementHasItsTwin(t *testing.T) {
	here, there := names(t, "sql"), names(t, "../sqlite/sql")
	for _, n := range here {
		if slices.Contains(there, n) == slices.Contains(onlyHere, n) {
			t.Errorf("%s.sql: on SQLite %v, listed as only on Postgres %v", n, slices.Contains(there, n), slices.Contains(onlyHere, n))
		}
	}
	for _, n := range there {
		if slices.Contains(here, n) == slices.Contains(onlySQLite, n) {
			t.Errorf("sqlite's %s.sql: on Postgres %v, listed as only on SQLite %v", n, slices.Contains(here, n), slices.Contains(onlySQLite, n))
		}
	}
}

// TestEveryStatementIsUsed looks for each file's name in the Go code that could run it.
func TestEveryStatementIsUsed(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"*.go", "../*.go", "../internal/claiming/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(b)
		}
	}
	for _, n := range names(t, "sql") {
		if !strings.Contains(code.String(), `"`+n+`"`) {
			t.Errorf("no code names %s.sql", n)
		}
	}
}

// TestEveryParameterIsCast: modes of the driver that do not ask the server for types, and drivers of
// database/sql, send parameters without any.
func TestEveryParameterIsCast(t *testing.T) {
	texts, err := sqltext.Load(files, "sql", nil)
	if err != nil {
		t.Fatal(err)
	}
	bare := regexp.MustCompile(`\$\d+($|[^:\d])`)
	for name, text := range texts {
		sql, _ := text.Render(sqltext.Dollar, 1<<len(text.Optional)-1)
		if at := bare.FindString(sql); at != "" {
			t.Errorf("%s: %q has no type:\n%s", name, at, sql)
		}
	}
}

// TestChoicesAreMadeOnce: rows that are locked or counted off for another part of the statement are
// chosen in a materialized list. In a subquery the planner may make the choice again for each row that it
// compares, and pass over those that are locked by now: then more are taken than the limit says.
func TestChoicesAreMadeOnce(t *testing.T) {
	choice := regexp.MustCompile(`(?i)\bfor (no key )?(update|share)\b`)
	list := regexp.MustCompile(`(?i)\bas materialized \($`)
	for _, name := range names(t, "sql") {
		b, err := os.ReadFile(filepath.Join("sql", name+".sql"))
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(string(b), "")
		for _, at := range choice.FindAllStringIndex(text, -1) {
			// Walk out of the parentheses around it.
			depth, enclosed, safe := 0, false, false
			for i := at[0] - 1; i >= 0; i-- {
				switch text[i] {
				case ')':
					depth++
				case '(':
					if depth--; depth < 0 {
						depth, enclosed = 0, true
						safe = safe || list.MatchString(strings.TrimRight(text[:i+1], " "))
					}
				}
			}
			if enclosed && !safe {
				t.Errorf("%s chooses rows in a subquery: put it into a materialized list", name)
			}
		}
	}
}
