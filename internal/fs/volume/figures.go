package volume

import (
	"math/bits"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// The buckets of a histogram: two for each doubling, from under 1 us to over
// 16 s, so that a quantile read from it is right within a quarter.
const (
	firstBits  = 10 // the first bucket ends at 1,024 ns
	NumBuckets = 50
)

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	if d < 1<<firstBits {
		return 0
	}
	n := bits.Len64(uint64(d))
	half := int(d>>(n-2)) & 1 // the second highest bit
	return min(2*(n-firstBits-1)+half+1, NumBuckets-1)
}

// BucketEnd returns the duration at which a bucket ends; the last has no end,
// for which it returns 0.
func BucketEnd(bucket int) time.Duration {
	switch {
	case bucket >= NumBuckets-1:
		return 0
	case bucket == 0:
		return 1 << firstBits
	}
	n := firstBits + (bucket-1)/2
	if bucket%2 == 1 {
		return 3 << (n - 1)
	}
	return 2 << n
}

// histogram counts durations, from many goroutines at once.
type histogram struct {
	nanos   atomic.Uint64
	buckets [NumBuckets]atomic.Uint64
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(d)].Add(1)
	h.nanos.Add(uint64(d))
}

// Histogram is what a histogram held at one moment.
type Histogram struct {
	Nanos   uint64 // the sum of all durations
	Buckets [NumBuckets]uint64
}

// Count returns how many durations it holds.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// Add adds another's counts.
func (h *Histogram) Add(o *Histogram) {
	h.Nanos += o.Nanos
	for i, b := range o.Buckets {
		h.Buckets[i] += b
	}
}

func (h *histogram) addTo(to *Histogram) {
	to.Nanos += h.nanos.Load()
	for i := range h.buckets {
		to.Buckets[i] += h.buckets[i].Load()
	}
}

// OpFigures are counts of file operations.
type OpFigures struct {
	ReadBytes, WrittenBytes uint64
	Ops                     [NumOps]Histogram
}

func (c *opCounters) addTo(to *OpFigures) {
	to.ReadBytes += c.read.Load()
	to.WrittenBytes += c.written.Load()
	for i := range c.ops {
		c.ops[i].addTo(&to.Ops[i])
	}
}

// DiskActivity are the counts of one disk since its first present session
// began.
type DiskActivity struct {
	ID       tine.DiskID
	Sessions int
	OpFigures
}

// Activity returns the counts of every disk that has a session, in no order,
// and the sum over all disks since the host was opened, those that have been
// detached included. The sum never goes back.
func (h *Host) Activity() (disks []DiskActivity, sum OpFigures) {
	w := &h.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	sum = w.past
	for id, c := range w.attached {
		d := DiskActivity{ID: id, Sessions: c.sessions}
		c.addTo(&d.OpFigures)
		disks = append(disks, d)
		c.addTo(&sum)
	}
	return disks, sum
}

// commitCounters counts the batches that reach the row store.
type commitCounters struct {
	synced, unsynced histogram
	bytes            atomic.Uint64
	failed           atomic.Uint64
}

// CommitFigures are counts of the batches that were committed to the row
// store: commits of disks, records of trees, and background work.
type CommitFigures struct {
	Synced   Histogram // those that are durable when they return: each waits for a flush of the device
	Unsynced Histogram // those that become durable with the next
	Bytes    uint64    // their rows, keys included
	Failed   uint64
}

// Commits returns the counts since the host was opened.
func (h *Host) Commits() CommitFigures {
	c := h.watch.commits
	f := CommitFigures{Bytes: c.bytes.Load(), Failed: c.failed.Load()}
	c.synced.addTo(&f.Synced)
	c.unsynced.addTo(&f.Unsynced)
	return f
}

// RowFigures are the row store's own figures.
type RowFigures = kv.Metrics

// Rows returns the row store's own figures.
func (h *Host) Rows() RowFigures { return h.rows.Metrics() }

// countedRows is a row store whose commits are counted.
type countedRows struct {
	kv.Store
	c *commitCounters
}

// adoptingRows is one of a store that can read tables outside of it.
type adoptingRows struct {
	countedRows
	kv.Adopter
}

// counted returns the row store with its commits counted.
func counted(rows kv.Store, c *commitCounters) kv.Store {
	r := countedRows{rows, c}
	if a, ok := rows.(kv.Adopter); ok {
		return adoptingRows{r, a}
	}
	return r
}

// Commit commits and counts.
func (r countedRows) Commit(b kv.Batch, sync bool) error {
	size, start := b.Size(), readClock()
	err := r.Store.Commit(b, sync)
	took := time.Duration(readClock() - start)
	if err != nil {
		r.c.failed.Add(1)
		return err
	}
	r.c.bytes.Add(uint64(size))
	if sync {
		r.c.synced.add(took)
	} else {
		r.c.unsynced.add(took)
	}
	return nil
}
