// Package room knows whether the device under a data directory has room.
//
// A full device is not a failure, it passes. So that it can pass, things are kept
// apart. Data is refused early, while the row store still has what it needs to
// write a deletion. What makes a disk larger is refused as soon as the store
// would refuse its rows, not when a commit has met the end: what was accepted by
// then would stand before the deletions that give space back. For the same reason
// what is accepted and not yet committed is bounded (Crowded), by what the store
// always takes, whoever fills the device. And what was accepted is tried again
// and again.
package room

import (
	"math"
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
	// Waiter is the row store, if it can say what room there is; nil: it always
	// has some.
	Waiter kv.Waiter
}

// Device is what is known of a device's room. It is safe for concurrent use and
// takes no locks.
type Device struct {
	Options
	rows   kv.Store
	always int64 // bytes of commits that always find room; 0: not known
	start  time.Time

	full   atomic.Bool  // the last commit found no room
	probed atomic.Int64 // when it was last asked, in nanoseconds since start
	credit atomic.Int64 // bytes that may be taken before it is asked again
	held   atomic.Int64 // bytes of what is accepted and not committed

	looked    atomic.Int64 // when the store was last asked, in nanoseconds since start
	low, last atomic.Bool  // what it said
	spare     atomic.Int64
}

// New returns a device with room, as far as is known, that holds the rows.
func New(rows kv.Store, o Options) *Device {
	d := &Device{Options: o, rows: rows, start: time.Now()}
	d.probed.Store(-int64(probeInterval))
	if d.Waiter != nil {
		d.always = d.Waiter.AlwaysBytes()
		d.looked.Store(-int64(lookInterval))
	}
	return d
}

// lookInterval is how old what the store has said may be. Others would have to
// fill all that is kept for what is accepted in this time.
const lookInterval = 20 * time.Millisecond

// look asks the store what room there is, unless it has just been asked.
func (d *Device) look() {
	if d.Waiter == nil {
		return
	}
	now, last := int64(time.Since(d.start)), d.looked.Load()
	if now-last < int64(lookInterval) || !d.looked.CompareAndSwap(last, now) {
		return
	}
	r := d.Waiter.Room()
	d.spare.Store(r.SpareBytes)
	d.last.Store(r.Last)
	d.low.Store(r.Low)
}

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
		d.looked.Store(-int64(lookInterval)) // what the store has said is old
		return tine.ErrNoSpace
	}
	d.credit.Store(min(spare/2, askEvery))
	return nil
}

// Stuck reports whether commits find no room: the last one did not, or the store
// waits for some.
func (d *Device) Stuck() bool { return d.full.Load() || d.Waiter != nil && d.Waiter.Waiting() }

// Full reports whether there is no room for what makes a disk larger, as of the
// last look or try.
func (d *Device) Full() bool {
	d.look()
	return d.low.Load() || d.Stuck()
}

// Scarce reports whether there is room for nothing but what gives space back.
func (d *Device) Scarce() bool {
	d.look()
	return d.last.Load() || d.Stuck()
}

// Short reports whether the device is full, or nearly so for data: then every
// byte that is dead is worth having back. It asks the device.
func (d *Device) Short() bool {
	return d.Full() || d.FreeBytes != nil && d.FreeBytes() < d.KeepBytes+d.KeepBytes/8
}

// Spare returns how many bytes may be taken for a while, beside clients, without
// a harm to the store.
func (d *Device) Spare() int64 {
	if d.Waiter == nil {
		return math.MaxInt64
	}
	return d.Waiter.Room().SpareBytes
}

// Share is what one of those who accept something holds of it until it is
// committed; who has it sees that it is used by one at a time. The zero value holds
// nothing.
type Share struct{ bytes int64 }

// Set says that so many bytes are held, instead of those before; 0 at the end.
func (s *Share) Set(d *Device, bytes int) {
	d.held.Add(int64(bytes) - s.bytes)
	s.bytes = int64(bytes)
}

// heldShare is which share of the room that is left may be held beyond what the
// store always takes: others need a while to fill the rest, and commits do not
// wait so long.
const heldShare = 1024

// Crowded reports whether so much is held that, should others fill the device
// now, it could not be committed. Who would add to it waits for a commit.
func (d *Device) Crowded() bool {
	if d.always == 0 {
		return false
	}
	d.look()
	return d.held.Load() > d.always+d.spare.Load()/heldShare
}

// probeInterval is how often a full device is asked whether it has room again.
const probeInterval = 200 * time.Millisecond

// Probe is Full, but asks a device that has refused a commit again now and then,
// with a batch that changes nothing.
func (d *Device) Probe() bool {
	if !d.Full() {
		return false
	}
	now, last := int64(time.Since(d.start)), d.probed.Load()
	if !d.full.Load() || now-last < int64(probeInterval) || !d.probed.CompareAndSwap(last, now) {
		return true
	}
	b := d.rows.NewBatch()
	b.Delete(record.Key(tine.TenantID{}, record.TableKey(record.TableTask), 0))
	if d.rows.Commit(b, false) == nil {
		d.full.Store(false)
	}
	return d.Full()
}

// errFull is what refuses what would be made of a whole disk.
var errFull = tine.Errorf(tine.KindNoSpace, "the device is full: nothing was done").
	WithHint("free space on the device that holds the data directory, delete files, checkpoints or disks, or make it larger")

// Grow refuses, with KindNoSpace, what would make something new on a full device.
// Who asks it before anything is done need not take it back.
func (d *Device) Grow() error {
	if d.Probe() {
		return errFull
	}
	return nil
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
