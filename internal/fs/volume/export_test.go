package volume

import "time"

// BucketOf returns the bucket of a duration.
func BucketOf(d time.Duration) int { return bucketOf(d) }

// NewOpCounters returns the counters of a disk.
func NewOpCounters() *opCounters { return (&watch{}).join([16]byte{}) }

// CountOne counts one operation that took no time.
func CountOne(c *opCounters) { c.observe(OpLookup, readClock(), nil) }
