// Package room knows whether the device under a data directory has room.
//
// A full device is not a failure, it passes. So that it can pass, three things
// are kept apart. Data is refused early, while the row store still has what it
// needs to write a deletion. A device that has refused a commit counts as full,
// and whatever makes a disk larger is refused until it has been asked again. And
// what was accepted before is tried again and again: it is bounded, and the
// deletions that give space back may stand behind it.
package room

import (
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Options say what a Device can ask. Nothing is needed.
type Options struct {
	// FreeBytes tells how much the device still takes; nil: no limit is known.
	FreeBytes func() int64
	// KeepBytes of it are left to the row store, without which nothing can be
	// deleted.
	KeepBytes int64
	// RowsWait reports that a commit of the row store waits for room, so that
	// none becomes durable before there is some; nil: never.
	RowsWait func() bool
}

// Device is what is known of a device's room. It is safe for concurrent use and
// takes no locks.
type Device struct {
	Options
	rows kv.Store

	full   atomic.Bool  // the last commit found no room
	probed atomic.Int64 // when it was last asked, in nanoseconds
	credit atomic.Int64 // bytes that may be taken before it is asked again
}

// New returns a device with room, as far as is known, that holds the rows.
func New(rows kv.Store, o Options) *Device { return &Device{Options: o, rows: rows} }

// askEvery is how many bytes are taken at most before the device is asked
// again how much room it has.
const askEvery = 16 << 20

// Take is called before n bytes of data are written. It refuses, with
// KindNoSpace, what would take from the device what the row store needs to go
// on: a store that cannot even write a deletion could never give space back.
func (d *Device) Take(n int64) error {
	if d.FreeBytes == nil || d.credit.Add(-n) >= 0 {
		return nil
	}
	spare := d.FreeBytes() - d.KeepBytes
	if spare < n {
		d.credit.Store(0)
		return tine.ErrNoSpace
	}
	d.credit.Store(min(spare/2, askEvery))
	return nil
}

// Full reports whether the device had no room at the last try.
func (d *Device) Full() bool { return d.full.Load() || d.RowsWait != nil && d.RowsWait() }

// probeInterval is how often a full device is asked whether it has room again.
const probeInterval = 200 * time.Millisecond

// Probe is Full, but asks a full device again now and then, with a batch that
// changes nothing.
func (d *Device) Probe() bool {
	if !d.Full() {
		return false
	}
	now, last := time.Now().UnixNano(), d.probed.Load()
	if now-last < int64(probeInterval) || !d.probed.CompareAndSwap(last, now) {
		return true
	}
	b := d.rows.NewBatch()
	b.Delete(record.Key(tine.TenantID{}, record.TableKey(record.TableTask), 0))
	if d.rows.Commit(b, false) == nil {
		d.full.Store(false)
	}
	return d.Full()
}

// tryAgain is how long a commit that found no room waits before it tries again.
const tryAgain = 100 * time.Millisecond

// Refused tells that a commit has found no room, and returns when it is time to
// try again; false when quit was closed first.
func (d *Device) Refused(quit <-chan struct{}) bool {
	d.full.Store(true)
	select {
	case <-quit:
		return false
	case <-time.After(tryAgain):
		return true
	}
}
