package cache

import "context"

// flight is a frame on its way to those who wait for it, and then to the device.
type flight struct {
	done   chan struct{} // closed when data and err are set
	cancel context.CancelFunc
	data   []byte
	err    error

	// The rest belongs to Cache.mu.
	waiters  int
	ahead    bool // fetched though nobody waits
	landed   bool // data is there
	left     bool // nobody waits any more; another may be on its way
	unwanted bool // dropped meanwhile: not to be kept
}

// start begins to get a frame. c.mu is held.
func (c *Cache) start(id frameID, fetch Fetch, ahead bool) *flight {
	ctx, cancel := context.WithCancel(c.life)
	f := &flight{done: make(chan struct{}), cancel: cancel, ahead: ahead}
	c.flights[id] = f
	if ahead {
		c.ahead++
	}
	probe := c.files.get(id) != nil || !c.off && !c.isListed()
	c.work.Go(func() {
		defer cancel()
		c.fly(ctx, id, f, fetch, probe)
	})
	return f
}

func (c *Cache) isListed() bool {
	select {
	case <-c.listed:
		return true
	default:
		return false
	}
}

// fly gets the frame, hands it to those who wait, and then keeps it.
func (c *Cache) fly(ctx context.Context, id frameID, f *flight, fetch Fetch, probe bool) {
	var data []byte
	if probe {
		data = c.read(id, f)
	}
	found := data != nil
	var err error
	if !found {
		data, err = fetch(ctx)
	}
	if !c.land(id, f, data, err, found) {
		return
	}
	if !found {
		c.keep(id, f)
	}
	c.mu.Lock()
	delete(c.flights, id)
	c.mu.Unlock()
}

// land hands the result to those who wait. It reports whether the flight goes
// on to the device; if not, it is over.
func (c *Cache) land(id frameID, f *flight, data []byte, err error, found bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.done)
	if f.ahead {
		c.ahead--
	}
	if found {
		c.stats.DeviceHits++
	} else {
		c.stats.Misses++
	}
	if err != nil && c.life.Err() != nil {
		err = errClosed()
	}
	f.data, f.err = data, err
	if f.left {
		return false
	}
	if err != nil {
		delete(c.flights, id)
		return false
	}
	f.landed = true
	if !f.unwanted {
		c.remember(id, data)
	}
	return true
}

// remember puts a frame in memory. c.mu is held.
func (c *Cache) remember(id frameID, data []byte) {
	cost := int64(len(data)) + memoryOverhead
	if cost > c.memory.max || c.memory.find(id) != nil {
		return
	}
	for !c.memory.fits(cost) {
		c.memory.victim()
	}
	c.memory.add(id, cost, data)
}

// leave takes one off those who wait. The last one to leave ends the fetch,
// unless the bytes are there by now.
func (c *Cache) leave(id frameID, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.waiters--
	if f.waiters > 0 || f.ahead || f.landed || c.flights[id] != f {
		return
	}
	f.left = true
	delete(c.flights, id)
	f.cancel()
}
