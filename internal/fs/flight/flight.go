// Package flight counts work under way, so that a stop can wait for all of it.
//
// It differs from sync.WaitGroup in one thing: work may begin while somebody
// waits, also from nothing.
package flight

import "sync"

// Group counts pieces of work under way. The zero value is ready. Its lock is a
// leaf.
type Group struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil while nobody waits
}

// Go runs f on a goroutine of its own, as a piece of work.
func (g *Group) Go(f func()) {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
	go func() {
		defer g.end()
		f()
	}()
}

func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.none != nil {
		close(g.none)
		g.none = nil
	}
}

// Wait waits until nothing is under way, at one moment at least.
func (g *Group) Wait() {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return
	}
	if g.none == nil {
		g.none = make(chan struct{})
	}
	none := g.none
	g.mu.Unlock()
	<-none
}
