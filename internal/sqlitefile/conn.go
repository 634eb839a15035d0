package sqlitefile

import (
	"github.com/ncruces/go-sqlite3"
)

// Query is one SQL statement. Its address is its identity: each connection prepares it once.
type Query struct {
	// Name is what errors call the statement.
	Name string
	SQL  string
}

// The statements around transactions, prepared like all others.
var (
	beginRead      = Query{"begin a read", "BEGIN"}
	beginImmediate = Query{"begin", "BEGIN IMMEDIATE"}
	commit         = Query{"commit", "COMMIT"}
	rollback       = Query{"rollback", "ROLLBACK"}
	savepoint      = Query{"savepoint", "SAVEPOINT one"}
	release        = Query{"release", "RELEASE one"}
)

// Conn is a connection with its prepared statements. It belongs to one goroutine at a time.
type Conn struct {
	DB    *sqlite3.Conn
	stmts map[*Query]*sqlite3.Stmt
}

// Stmt answers the prepared statement of q, ready to be bound. Whoever steps it resets it, also
// after an error: a statement that is left in the middle keeps its transaction and its WAL pages.
func (c *Conn) Stmt(q *Query) (*sqlite3.Stmt, error) {
	if s, ok := c.stmts[q]; ok {
		return s, nil
	}
	s, _, err := c.DB.PrepareFlags(q.SQL, sqlite3.PREPARE_PERSISTENT)
	if err != nil {
		return nil, err
	}
	c.stmts[q] = s
	return s, nil
}

// run runs a statement without parameters and rows.
func (c *Conn) run(q *Query) error {
	s, err := c.Stmt(q)
	if err != nil {
		return err
	}
	return Rows(s, func() error { return nil })
}

// Begin begins a read transaction; [File.Read] ends it.
func (c *Conn) Begin() error { return c.run(&beginRead) }

// Rows steps a bound statement through all its rows, calling each on every one, and resets it.
func Rows(s *sqlite3.Stmt, each func() error) error {
	for s.Step() {
		if err := each(); err != nil {
			s.Reset()
			return err
		}
	}
	if err := s.Err(); err != nil {
		s.Reset()
		return err
	}
	return s.Reset()
}

func (c *Conn) close() error {
	for _, s := range c.stmts {
		s.Close()
	}
	return c.DB.Close()
}
