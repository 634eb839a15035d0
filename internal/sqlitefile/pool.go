package sqlitefile

import "sync"

// pool keeps the reading connections. The one that was used last goes out first:
// its pages are the most likely to be current still, and a program that reads
// little opens few.
type pool struct {
	free chan struct{} // one for each connection that nobody has
	mu   sync.Mutex
	open []*Conn // those of them that are open, the one used last at the end
}

func newPool(size int) *pool {
	p := &pool{free: make(chan struct{}, size)}
	for range size {
		p.free <- struct{}{}
	}
	return p
}

// get answers a connection for a token of free, nil for one to be opened.
func (p *pool) get() (c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.open) - 1; last >= 0 {
		c, p.open[last] = p.open[last], nil
		p.open = p.open[:last]
	}
	return c
}

// put gives back a connection; nil for one that is not open.
func (p *pool) put(c *Conn) {
	if c != nil {
		p.mu.Lock()
		p.open = append(p.open, c)
		p.mu.Unlock()
	}
	p.free <- struct{}{}
}
