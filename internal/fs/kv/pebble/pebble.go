// Package pebble is the key-value store on local files: the kv seam over
// CockroachDB's Pebble, a log-structured merge tree.
//
// What it makes of Pebble:
//
//   - Keys are rows of package record. The Bloom filters hold the key without
//     its epoch, so that "the newest version not after e" is one seek, and a
//     row that is not there costs no block.
//   - Every block carries the interval of epochs in it, so that a scan for the
//     rows born in an interval reads only blocks that may hold one.
//   - A snapshot is one iterator; its scans are clones of it.
//   - A full device is an error of one commit, not the end: a low mark stops
//     commits before Pebble sees it, and a reserve file leaves room to clean up.
//     Should the log have no room all the same, it waits for some.
//   - A log or manifest that has rotted is told from one that a crash has cut off, by
//     a mark of how far it was durable.
//   - What is fatal to Pebble poisons the store instead of ending the process.
//     Callers get tine.KindUnavailable at once; Pebble's goroutines are parked
//     and fenced off the files, so that the directory can be opened again in
//     the same process. The memory of the dead one is lost until the process ends.
//
// Locks: Pebble's own come first; fence.mu, space.mu and mark.mu are each taken
// last, and never together.
package pebble

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/rarely"
	"tine.dev/tine/internal/tine"
)

// Options say how to open a store. Only Dir is needed.
type Options struct {
	Dir string // made if it does not exist
	// FS is where Dir lies; nil is the operating system's file system. The
	// reserve file exists only there.
	FS vfs.FS
	// CacheBytes is the size of the block cache; 0 is 64 MiB.
	CacheBytes int64
	// MemTableBytes is the size of one memory table, of which there may be
	// four; 0 is 8 MiB. Smaller on small devices.
	MemTableBytes uint64
	Logger        *slog.Logger // nil logs nothing
	// LowSpaceBytes is the free space below which commits get
	// tine.KindNoSpace unless their batch is marked AllowLow; 0 is 32 MiB
	// and two memory tables, negative is none. Smaller on small devices.
	LowSpaceBytes int64
	// ReserveBytes is the size of the reserve file; 0 is 64 MiB, negative is
	// none. Smaller on small devices.
	ReserveBytes int64
	// CutLog opens a store whose log is damaged, at the state before the damage:
	// what was committed after it is lost, also if it was durable.
	CutLog bool
	// Tables opens the tables outside that the store has adopted (see kv.Adopter).
	// Without it, rows there cannot be read, tine.KindUnavailable.
	Tables kv.Tables
	// OnPoison is called once, on a goroutine of its own, when an open store
	// stops for good. The error is of kind tine.KindUnavailable.
	OnPoison func(error)
}

// store implements kv.Store.
type store struct {
	db      *pdb.DB
	dir     string
	lock    io.Closer // of the directory
	fence   *fence
	poison  *poison
	space   *space
	outside *outside
	keys    keyPool
	changes atomic.Uint64 // counts new read states, see snapshot.release
	closed  atomic.Bool
	stalled atomic.Bool // commits wait for a flush or a compaction
	noRoom  rarely.Teller
	// flushErr is how the last flush ended, see backgroundFailed.
	flushErr atomic.Pointer[error]
}

// Open opens or creates the store in o.Dir and replays its log. Errors:
// KindBusy if it is open elsewhere, KindCorrupt, KindVersion, KindNoSpace, KindIO.
func Open(o Options) (kv.Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	onDisk := o.FS == vfs.Default
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := o.FS.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, translate("create "+o.Dir, err)
	}
	o.setDefaults()
	lock, err := o.FS.Lock(o.FS.PathJoin(o.Dir, lockName))
	if err != nil {
		return nil, tine.Errorf(tine.KindBusy, "%s cannot be locked: %w", o.Dir, err).
			WithHint("another process, or this one, has it open: stop it first")
	}
	if err := check(o.FS, o.Dir, o.CutLog); err != nil {
		_ = lock.Close()
		return nil, err
	}
	s := &store{dir: o.Dir, lock: lock, space: newSpace(o, o.FS, onDisk, log), outside: newOutside(o.Tables, log)}
	s.fence = &fence{FS: o.FS, mark: openMark(o.FS, o.Dir), still: make(chan struct{}), relieve: s.space.relieve,
		compacts: s.space.compacts, layOut: s.space.layOut}
	s.poison = &poison{done: make(chan struct{}), shut: s.fence.shut}
	s.fence.fatal = s.poison.strike
	po := s.pebbleOptions(o, &logger{log: log, poison: s.poison})
	err = s.poison.run(func() (err error) {
		s.db, err = pdb.Open(o.Dir, po)
		return err
	})
	if err != nil {
		s.fence.mark.close()
		if s.poison.check() == nil || s.fence.quiet(closePatience) {
			_ = lock.Close()
		}
		return nil, translate("open "+o.Dir, err)
	}
	s.noteBounds()
	s.fence.patient.Store(true)
	s.poison.hook.Store(&o.OnPoison)
	return s, nil
}

// Format is Pebble's format of the stores.
const Format = pdb.FormatValueSeparation

// lockName is the file whose lock says that the directory is open.
const lockName = "LOCK"

func (o *Options) setDefaults() {
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 8 << 20
	}
	if usage, err := o.FS.GetDiskUsage(o.Dir); err == nil {
		o.MemTableBytes = min(o.MemTableBytes, max(512<<10, usage.TotalBytes/128))
	}
	if o.LowSpaceBytes == 0 {
		o.LowSpaceBytes = 32<<20 + 2*int64(o.MemTableBytes)
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = 64 << 20
	}
	o.LowSpaceBytes, o.ReserveBytes = max(0, o.LowSpaceBytes), max(0, o.ReserveBytes)
}

// pebbleOptions holds all tuning. The figures suit a machine of a few cores
// that has other work too: one compaction, two when they fall behind. The
// memory tables hold the overwrites of many commit intervals, and no more: a seek
// in one of 80,000 rows took 2.6 times as long as in one of 4,000, most of it
// waiting for memory, while a million files were as quick to make with four
// times the flushes.
func (s *store) pebbleOptions(o Options, log *logger) *pdb.Options {
	po := tableFormat()
	po.FS = s.fence
	po.Logger = log
	po.EventListener = s.events(log)
	po.CacheSize = o.CacheBytes + 2*int64(o.MemTableBytes) // Pebble charges its memory tables to the cache
	po.MemTableSize = o.MemTableBytes
	po.MemTableStopWritesThreshold = 4
	po.L0CompactionThreshold = 2
	// While adopted tables cannot be read (see kv.Tables) what lies over them cannot
	// be compacted, and must not stop the commits of everybody else.
	po.L0StopWritesThreshold = 200
	po.LBaseMaxBytes = 64 << 20
	po.MaxOpenFiles = 512
	po.BytesPerSync = 1 << 20
	po.WALBytesPerSync = 1 << 20
	po.FlushDelayDeleteRange = 10 * time.Second
	po.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	po.TargetFileSizes[0] = 4 << 20
	po.Experimental.RemoteStorage = s.outside
	po.Experimental.IngestSplit = func() bool { return true } // see Adopt
	// Old versions are read as often as new ones, by forks; Pebble would move
	// their values out of the way.
	po.Experimental.SpanPolicyFunc = func(from []byte) (pdb.SpanPolicy, []byte, error) {
		return pdb.SpanPolicy{DisableValueSeparationBySuffix: true, ValueStoragePolicy: pdb.ValueStorageLowReadLatency}, s.outside.endOf(from), nil
	}
	// Compactions triggered by reads would make closing an iterator take
	// Pebble's main lock; see snapshot.release.
	po.Experimental.ReadSamplingMultiplier = -1
	return po
}

// events turns what Pebble reports into the store's own state. The handlers
// run with Pebble's locks held and must not wait.
func (s *store) events(log *logger) *pdb.EventListener {
	return &pdb.EventListener{
		BackgroundError: func(err error) {
			if s.outside.told(err) {
				return
			}
			if errors.Is(err, syscall.ENOSPC) {
				s.noRoom.Met(log.log, time.Now(), "the device is full; the key-value store puts flushes and compactions off", "error", err)
			} else {
				log.Errorf("background work failed: %s", err)
			}
			s.backgroundFailed(err)
		},
		// Corruption is an error of the read that met it.
		DataCorruption: func(i pdb.DataCorruptionInfo) { log.Errorf("%s", i) },
		CompactionEnd: func(i pdb.CompactionInfo) {
			s.changes.Add(1)
			s.roomAgain(i.Err, log)
		},
		WALCreated:    func(pdb.WALCreateInfo) { s.changes.Add(1) },
		TableIngested: func(pdb.TableIngestInfo) { s.changes.Add(1) },
		FlushEnd: func(i pdb.FlushInfo) {
			s.changes.Add(1)
			if i.Err == nil || len(i.Output) > 0 {
				s.space.failed.Store(0)
			}
			s.flushErr.Store(&i.Err)
			s.roomAgain(i.Err, log)
		},
		WriteStallBegin: func(pdb.WriteStallBeginInfo) { s.stalled.Store(true) },
		WriteStallEnd:   func() { s.stalled.Store(false) },
	}
}

// roomAgain notes how a flush or a compaction has ended.
func (s *store) roomAgain(err error, log *logger) {
	if err == nil && s.space.failed.Load() == 0 {
		s.noRoom.Over(log.log, "the key-value store has room for flushes and compactions again")
	}
}

// What a full device may do, counted in failed flushes, each of which takes
// at least fullPause.
const (
	// patientFlushes is after how many Flush gives up waiting, and Open: Pebble
	// flushes what it replays from the log, and would try for ever. And no commit
	// is let in any more if one waits already for memory that only a flush frees.
	patientFlushes = 5
)

// backgroundFailed is told of failed flushes and compactions. A full device
// is waited out: Pebble tries again, commits are refused meanwhile. A flush
// that fails otherwise poisons the store, for writers would wait for ever. It
// is told from a compaction, which may fail and be tried again, by its error:
// FlushEnd comes just before, and reports an error for an empty table too.
func (s *store) backgroundFailed(err error) {
	if last := s.flushErr.Load(); last == nil || !errors.Is(err, *last) {
		return
	}
	full := errors.Is(err, syscall.ENOSPC)
	if full {
		s.space.relieve()
	}
	if failed := s.space.failed.Add(1); !full || failed > patientFlushes && !s.fence.patient.Load() {
		s.poison.strike(err)
	}
}

// Waiting reports whether a commit that was let in waits for room on the device,
// so that none can become durable before there is; see kv.Waiter.
func (s *store) Waiting() bool {
	return s.fence.waits.Load() > 0 || s.stalled.Load() && s.space.failed.Load() > patientFlushes
}

// Room tells what room the device has; see kv.Waiter.
func (s *store) Room() kv.Room { return s.space.room() }

// AlwaysBytes is what finds room also on a device that others have filled; see
// kv.Waiter.
func (s *store) AlwaysBytes() int64 { return s.space.always() }

// check returns the error of a store that takes no calls any more.
func (s *store) check() error {
	if s.closed.Load() {
		return tine.Errorf(tine.KindUnavailable, "the key-value store is closed")
	}
	return s.poison.check()
}

func (s *store) Flush() error {
	if err := s.check(); err != nil {
		return err
	}
	return s.background("flush", s.flush)
}

// flush waits for all that is in memory now to be in tables, but not for a
// full device to get room.
func (s *store) flush() error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	t := time.NewTicker(fullPause)
	defer t.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-t.C:
			if s.space.failed.Load() >= patientFlushes {
				return tine.Errorf(tine.KindNoSpace, "the rows in memory cannot be written to tables: %w", syscall.ENOSPC)
			}
		}
	}
}

func (s *store) Compact(lower, upper []byte) error {
	if err := s.check(); err != nil {
		return err
	}
	if string(lower) >= string(upper) {
		return nil
	}
	return s.background("compact", func() error {
		return s.watched(context.Background(), lower, upper, func(ctx context.Context) error {
			return s.db.Compact(ctx, lower, upper, false)
		})
	})
}

// background runs work whose failure changes nothing for the rows.
func (s *store) background(what string, f func() error) error {
	err := s.poison.run(f)
	if err == nil || s.poison.check() != nil {
		return err
	}
	return translate(what, err)
}

// Metrics returns zeros for a store that is poisoned or closed.
func (s *store) Metrics() kv.Metrics {
	var m kv.Metrics
	if s.check() != nil {
		return m
	}
	got := make(chan kv.Metrics, 1)
	err := s.poison.run(func() error {
		pm := s.db.Metrics()
		_, outside := pm.RemoteTablesTotal()
		got <- kv.Metrics{
			DiskBytes:   int64(pm.DiskSpaceUsage()),
			MemoryBytes: int64(pm.MemTable.Size) + pm.BlockCache.Size,
			Compactions: pm.Compact.NumInProgress,
			Tables:      pm.Total().TablesCount,
			CacheBytes:  pm.BlockCache.Size,
			CacheHits:   pm.BlockCache.Hits,
			CacheMisses: pm.BlockCache.Misses,
			LogBytes:    int64(pm.WAL.Size),
			Flushes:     pm.Flush.Count,
			Compacted:   pm.Compact.Count,
			Debt:        int64(pm.Compact.EstimatedDebt),
			Outside:     int64(outside),
		}
		return nil
	})
	if err == nil {
		m = <-got
	}
	return m
}

// closePatience is how long Close waits for a device to answer.
const closePatience = 10 * time.Second

// Close flushes what is in memory and closes the files. Without room for that
// the rows stay in the log, where the next Open finds them; a commit for which
// even the log has no room is given up. On a poisoned store
// it only makes sure that nothing touches the directory any more, and returns
// the poison; if the device does not answer at all, the directory stays locked
// until the process ends.
func (s *store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	enough := time.AfterFunc(closePatience, func() {
		if s.Waiting() { // for room, which nobody may ever make
			s.poison.strike(syscall.ENOSPC)
		}
	})
	defer enough.Stop()
	s.outside.stop() // or a compaction that waits for a table outside would hold up all
	err := s.poison.run(func() error {
		return errors.Join(s.flush(), s.db.Close())
	})
	s.fence.mark.close()
	if perr := s.poison.check(); perr != nil {
		if s.fence.quiet(closePatience) {
			_ = s.lock.Close()
		}
		return perr
	}
	return translate("close", errors.Join(err, s.lock.Close()))
}

// keyPool keeps scratch buffers for keys.
type keyPool struct{ pool sync.Pool }

func (p *keyPool) get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, 384)
}

func (p *keyPool) put(b []byte) { p.pool.Put(&b) }
