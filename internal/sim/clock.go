package sim

import (
	"sync/atomic"
	"time"
)

// Clock is a time that moves only when it is told to. Safe for concurrent use.
type Clock struct{ nanos atomic.Int64 }

// NewClock returns a clock that stands at some moment of 2020.
func NewClock() *Clock {
	c := &Clock{}
	c.nanos.Store(time.Date(2020, 2, 29, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

// Now returns the time at which the clock stands.
func (c *Clock) Now() time.Time { return time.Unix(0, c.nanos.Load()) }

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.nanos.Add(int64(d)) }
