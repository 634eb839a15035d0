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
