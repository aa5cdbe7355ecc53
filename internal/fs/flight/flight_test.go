package flight_test

import (
	"sync/atomic"
	"testing"

	"tine.dev/tine/internal/fs/flight"
)

// TestWaitSeesWorkThatWorkBegins: a wait lasts until there is a moment without
// work, also when each piece begins the next.
func TestWaitSeesWorkThatWorkBegins(t *testing.T) {
	var g flight.Group
	g.Wait() // nothing is under way
	for range 3 {
		const links = 100
		var done atomic.Int64
		var next func()
		next = func() {
			if done.Add(1) < links {
				g.Go(next)
			}
		}
		g.Go(next)
		g.Wait()
		if n := done.Load(); n != links {
			t.Errorf("the wait ended after %d of %d", n, links)
		}
	}
}
