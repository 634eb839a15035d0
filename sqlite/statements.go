package sqlite

import (
	"embed"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/eda94727/holdfast"
	"github.com/eda94727/holdfast/internal/sqlitefile"
	"github.com/eda94727/holdfast/internal/sqltext"
)

//go:embed sql/*.sql schema/*.sql
var files embed.FS

const (
	// stmtCompletePlain is the short form of complete that nearly every task takes.
	stmtCompletePlain holdfast.Statement = "complete_plain"
	// stmtWorkerLocks is the registry as those who look for the dead need it.
	stmtWorkerLocks holdfast.Statement = "worker_locks"
)

// dependTriggers look after the tasks that wait for others. They would cost every task a little, so
// they are made where the first such task is.
var dependTriggers = [...]holdfast.Statement{"depend_finished", "depend_retried", "depend_deleted"}

// statement is one SQL text with its parameters and, once it has run, its result columns.
type statement struct {
	sqlitefile.Query
	params  []holdfast.Column
	columns atomic.Pointer[[]holdfast.Column]
}

// variants are the texts of one file, by the mask of optional parameters given.
type variants struct {
	text     *sqltext.Text
	optional []holdfast.Column
	style    sqltext.Style
	mu       sync.RWMutex
	byMask   map[uint]*statement
}

// statements is parsed once, from texts that are part of the program.
var statements = sync.OnceValue(func() map[holdfast.Statement]*variants { return load(sqltext.Numbered) })

// portable is the same for drivers of database/sql, which agree only on plain question marks.
var portable = sync.OnceValue(func() map[holdfast.Statement]*variants { return load(sqltext.Question) })

// inserts are the insert of 1, 2, 4, 8 and 16 tasks, by the binary logarithm of their number.
var inserts = sync.OnceValue(func() (out [5]*statement) {
	text := statements()[holdfast.StmtInsert].text
	for i := range out {
		sql, names := text.RenderRows(1 << i)
		out[i] = &statement{Query: sqlitefile.Query{Name: text.Name, SQL: sql}}
		for _, n := range names {
			out[i].params = append(out[i].params, column(n))
		}
	}
	return out
})

func load(style sqltext.Style) map[holdfast.Statement]*variants {
	settle, err := files.ReadFile("schema/settle.sql")
	if err != nil {
		panic(err) // the files are embedded
	}
	texts, err := sqltext.Load(files, "sql", map[string]string{
		"columns": holdfast.TaskColumns,
		"settle":  string(settle),
		"waiting": strconv.FormatInt(holdfast.WaitingRunAt, 10),
	})
	if err != nil {
		panic(err)
	}
	out := map[holdfast.Statement]*variants{}
	for name, text := range texts {
		v := &variants{text: text, style: style, byMask: map[uint]*statement{}}
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
		panic(fmt.Sprintf("sqlite: statement names %q, which is no field of holdfast.Row", name))
	}
	return c
}

// find answers the variant for what row gives.
func (v *variants) find(row *holdfast.Row) *statement {
	var mask uint
	for i, c := range v.optional {
		if row.Given(c) {
			mask |= 1 << i
		}
	}
	v.mu.RLock()
	s := v.byMask[mask]
	v.mu.RUnlock()
	if s != nil {
		return s
	}
	sql, names := v.text.Render(v.style, mask)
	s = &statement{Query: sqlitefile.Query{Name: v.text.Name, SQL: sql}}
	for _, n := range names {
		s.params = append(s.params, column(n))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if old := v.byMask[mask]; old != nil {
		return old
	}
	v.byMask[mask] = s
	return s
}
