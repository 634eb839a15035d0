package postgres

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/sqltext"
)

//go:embed sql/*.sql schema/*.sql
var files embed.FS

// Statements of this dialect alone.
const (
	stmtClock        holdfast.Statement = "clock"
	stmtClaim        holdfast.Statement = "claim"
	stmtClaimAfter   holdfast.Statement = "claim_after"
	stmtClaimPlan    holdfast.Statement = "claim_plan"
	stmtClaimKept    holdfast.Statement = "claim_kept"
	stmtClaimTake    holdfast.Statement = "claim_take"
	stmtInsertMany   holdfast.Statement = "insert_many"
	stmtCompleteMany holdfast.Statement = "complete_many"
)

// serverClock is the server's time in epoch milliseconds, at this moment of the transaction.
const serverClock = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"

type statements map[holdfast.Statement]*variants

// variants are the texts of one file, by the mask of optional parameters given.
type variants struct {
	text     *sqltext.Text
	optional []holdfast.Column
	mu       sync.RWMutex
	byMask   map[uint]*statement
}

type statement struct {
	name   string
	sql    string
	params []holdfast.Column
}

var tables = regexp.MustCompile(`\b(cairnq_tasks|cairnq_task_keys|cairnq_meta|holdfast_[a-z]+)\b`)

// load parses the statements. With a schema, every table is named with it, so that they also work on
// connections whose search_path is another's.
func load(schema string) statements {
	qualified := "t." + strings.ReplaceAll(holdfast.TaskColumns, ", ", ", t.")
	texts, err := sqltext.Load(files, "sql", map[string]string{"columns": holdfast.TaskColumns, "t.columns": qualified, "now": serverClock})
	if err != nil {
		panic(err) // the files are embedded
	}
	out := statements{}
	for name, text := range texts {
		if schema != "" {
			prefix := strings.ReplaceAll(pgx.Identifier{schema}.Sanitize(), "$", "$$") + "."
			text.Edit(func(line string) string {
				return tables.ReplaceAllStringFunc(line, func(table string) string {
					if strings.Contains(line, "'"+table+"'") {
						return table // a member of the metadata, not a table
					}
					return strings.ReplaceAll(prefix, "$$", "$") + table
				})
			})
		}
		v := &variants{text: text, byMask: map[uint]*statement{}}
		for _, o := range text.Optional {
			v.optional = append(v.optional, column(o))
		}
		out[holdfast.Statement(name)] = v
	}
	return out
}

func column(name string) holdfast.Column {
	c, ok := holdfast.ColumnOf(name)
	if !ok {
		panic(fmt.Sprintf("postgres: statement names %q, which is no field of holdfast.Row", name))
	}
	return c
}

// find answers the variant for what row gives.
func (s statements) find(stmt holdfast.Statement, row *holdfast.Row) *statement {
	v := s[stmt]
	var mask uint
	for i, c := range v.optional {
		if row.Given(c) {
			mask |= 1 << i
		}
	}
	v.mu.RLock()
	one := v.byMask[mask]
	v.mu.RUnlock()
	if one != nil {
		return one
	}
	sql, names := v.text.Render(sqltext.Dollar, mask)
	one = &statement{name: v.text.Name, sql: sql}
	for _, n := range names {
		one.params = append(one.params, column(n))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byMask[mask] = one
	return one
}
