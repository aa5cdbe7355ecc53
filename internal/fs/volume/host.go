package volume

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/meta"
	"tine.dev/tine/internal/fs/room"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Options say how a data directory is opened.
type Options struct {
	Dir            string // the data directory; made if missing
	FS             vfs.FS // nil: the machine's
	Owner          Cred   // of the root directories of new disks
	Clock          func() time.Time
	Logger         *slog.Logger
	CacheBytes     int64         // of the row store; 0: 64 MiB
	CommitInterval time.Duration // 0: 1 s; negative: commits only when asked
	UndoKeep       int           // automatic checkpoints kept per disk; 0: 3
	TrashKeep      time.Duration // how long removed disks can be brought back; 0: 24 h; negative: for ever
	SegmentBytes   int64         // 0: 64 MiB, less on a small device
	Manual         bool          // no background work of its own: for the simulator
	Crash          crashpoint.Hook
	Mutation       timeline.Mutation
	Rows           kv.Store // nil: Pebble in Dir; for tests of the seam
	Stores         []Store  // object stores that disks may live in

	StoreLease      time.Duration  // how long a server must not be heard of before its trees are taken up; 0: the default
	StoreLost       func(LostTree) // is told, once each, of trees that another server has taken over; no lock is held
	StoreCacheBytes int64          // what was read from stores may take on the device; 0: 10 GiB
}

// Host is one open data directory. It is safe for concurrent use.
type Host struct {
	engine *timeline.Engine
	rows   kv.Store
	segs   *segment.Store
	fs     vfs.FS
	dir    string
	keep   int64 // bytes of the device that data must leave free
	log    *slog.Logger
	clock  func() time.Time
	owner  Cred
	trash  time.Duration
	stop   chan struct{}
	tidy   sync.WaitGroup
	watch  watch // see Observe
	rested rested
	away   *stores

	mu   sync.Mutex // guards hubs
	hubs map[tine.DiskID]*hub
}

// Open opens a data directory, recovering what a crash left. Only one process
// may have it open; the caller sees to that.
func Open(ctx context.Context, o Options) (*Host, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.TrashKeep == 0 {
		o.TrashKeep = 24 * time.Hour
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	began := time.Now()
	if err := checkFormat(o.FS, o.Dir); err != nil {
		return nil, err
	}
	rows, elsewhere := o.Rows, &outside{}
	if rows == nil {
		var err error
		rows, err = pebble.Open(pebble.Options{Dir: filepath.Join(o.Dir, "rows"), FS: o.FS, CacheBytes: o.CacheBytes, Logger: o.Logger, Tables: elsewhere})
		if err != nil {
			return nil, err
		}
	}
	rowsOpen := time.Now()
	space := deviceRoom(o.FS, o.Dir)
	if o.SegmentBytes == 0 {
		o.SegmentBytes = segmentBytes(o.FS, o.Dir)
	}
	if w, ok := rows.(kv.Waiter); ok {
		space.Waiter = w
		if w.Room().None {
			rows.Close()
			return nil, errNoRoom
		}
	}
	commits := &commitCounters{}
	rows = counted(rows, commits)
	segs, err := segment.Open(segment.Options{FS: o.FS, Dir: filepath.Join(o.Dir, "segments"), OpenFiles: 512, Crash: o.Crash, Logger: o.Logger})
	if err != nil {
		rows.Close()
		return nil, err
	}
	segsOpen := time.Now()
	away, err := openStores(ctx, &o, rows, segs, elsewhere)
	if err != nil {
		segs.Close()
		rows.Close()
		return nil, err
	}
	engine, err := timeline.Open(timeline.Options{
		Away: away, Room: room.New(rows, space), Rows: rows, Segments: segs, Clock: o.Clock, Logger: o.Logger, Crash: o.Crash, CommitInterval: o.CommitInterval,
		UndoKeep: o.UndoKeep, SegmentBytes: o.SegmentBytes, Manual: o.Manual, Mutation: o.Mutation, Reap: meta.Reap,
	})
	if err != nil {
		away.close(ctx)
		segs.Close()
		rows.Close()
		return nil, err
	}
	away.begin(engine)
	// Which part of a start is slow is asked when it has been slow.
	o.Logger.Info("opened the data directory", "rows", millis(rowsOpen.Sub(began)), "segments", millis(segsOpen.Sub(rowsOpen)), "disks", millis(time.Since(segsOpen)))
	h := &Host{engine: engine, away: away, fs: o.FS, dir: o.Dir, keep: space.KeepBytes, rows: rows, segs: segs, log: o.Logger, clock: o.Clock, owner: o.Owner, trash: o.TrashKeep,
		stop: make(chan struct{}), watch: watch{commits: commits}, hubs: map[tine.DiskID]*hub{}}
	if !o.Manual && o.TrashKeep > 0 {
		h.tidy.Add(1)
		go h.emptyTrash()
	}
	return h, nil
}

// errNoRoom refuses a start on a device without any room: what was open when the
// server last stopped cannot be recovered there, so no disk could be used, and a
// server that is started again and again finds the room when there is some.
var errNoRoom = tine.Errorf(tine.KindNoSpace, "no space left on the device of the data directory, not even for what the last run has left to finish").
	WithHint("free space on the device, or make it larger, then start the server again")

func millis(d time.Duration) string { return d.Round(time.Millisecond).String() }

// Close commits everything that has reached the host and releases the data
// directory. Sessions must be detached before.
func (h *Host) Close(ctx context.Context) error {
	close(h.stop)
	h.tidy.Wait()
	err := h.engine.Close(ctx)
	h.away.close(ctx)
	if e := h.segs.Close(); err == nil {
		err = e
	}
	if e := h.rows.Close(); err == nil {
		err = e
	}
	return err
}

// keepBytes of the device, or a third of a small one, are left to the row store:
// it stops taking what grows at a mark below that, and needs the rest to flush
// and compact what deletions leave.
const keepBytes = 192 << 20

// deviceRoom returns how the engine learns what is free, where the file system
// says that, and how much of it to leave alone.
func deviceRoom(fs vfs.FS, dir string) room.Options {
	u, err := fs.GetDiskUsage(dir)
	if err != nil || u.TotalBytes == 0 || u.TotalBytes > 1<<62 {
		return room.Options{}
	}
	return room.Options{KeepBytes: min(keepBytes, int64(u.TotalBytes/3)), FreeBytes: func() int64 {
		u, err := fs.GetDiskUsage(dir)
		if err != nil {
			return unknownFree
		}
		return int64(u.AvailBytes)
	}}
}

// segmentBytes is how large segments get: on a small device no larger than what
// there is room to copy when it is full, or no dead bytes of them could be given
// back.
func segmentBytes(fs vfs.FS, dir string) int64 {
	const usual, least, share = 64 << 20, 1 << 20, 16
	u, err := fs.GetDiskUsage(dir)
	if err != nil || u.TotalBytes == 0 {
		return usual
	}
	return int64(min(usual, max(least, u.TotalBytes/share)))
}

// unknownFree is what is reported where the file system under the data
// directory does not say what is free.
const unknownFree = 1 << 40

// freeBytes is what the device under the data directory still takes of data.
func (h *Host) freeBytes() int64 {
	u, err := h.fs.GetDiskUsage(h.dir)
	if err != nil || u.AvailBytes > 1<<62 {
		return unknownFree
	}
	return max(0, int64(u.AvailBytes)-h.keep)
}

// trashInterval is how often the trash is looked through.
const trashInterval = time.Minute

// emptyTrash purges removed disks whose time is over.
func (h *Host) emptyTrash() {
	defer h.tidy.Done()
	tick := time.NewTicker(trashInterval)
	defer tick.Stop()
	for {
		for _, d := range h.engine.Disks(tine.DefaultTenant, true) {
			if err := d.Expire(context.Background(), h.clock().Add(-h.trash).UnixNano()); err != nil {
				h.log.Warn("a removed disk could not be purged", "disk", d.ID().String(), "error", err)
			}
		}
		select {
		case <-h.stop:
			return
		case <-tick.C:
		}
	}
}

// ReclaimIdle runs background work until nothing is left to free, absorb, fold
// or repack.
func (h *Host) ReclaimIdle(ctx context.Context) error {
	if err := h.engine.RemoveStrays(); err != nil {
		return err
	}
	return h.engine.Tidy(ctx)
}

// HostStats are figures of the whole host.
type HostStats = timeline.Stats

// Stats returns the host's figures.
func (h *Host) Stats() HostStats { return h.engine.Stats() }
