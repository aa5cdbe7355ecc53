package depot_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/depot"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/object"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

var (
	ctx    = context.Background()
	treeID = tine.TreeID{7, 7, 7}
	strata = []tine.StratumID{{1}, {2}}
)

// file is a segment as a machine has it: one content for each generation
// whose file is there.
type file struct {
	loc   record.Segment // as its row is
	files map[uint64][]byte
}

// world is one machine that owns the tree, and what it has done so far. It
// plays the engine: it commits rows and keeps segments.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	store *blob.Store
	clean *blob.Store // the same without faults, for looking
	rows  kv.Store
	tree  *depot.Tree
	opts  depot.Options // of its depot

	mu   sync.Mutex
	segs map[tine.SegmentID]*file
	roll map[tine.SegmentID]bool
	asks chan struct{} // holds a token when roll has been added to

	history []string // what the tree shows after each commit
	synced  int      // index into history that the store is known to have
	made    int      // segments and servers
	terms   int      // how often the tree was taken up
	eager   bool     // what is of no use is removed from the store at once
}

func (w *world) options() depot.Options {
	w.made++
	horizon := time.Duration(0)
	if w.eager {
		horizon = 1
	}
	return depot.Options{
		Horizon: horizon,
		Blob:    w.store, Server: tine.ServerID{byte(w.made), byte(w.made >> 8), 1}, Codec: journal.NewCodec(), Logger: slog.New(slog.DiscardHandler),
		Pause: 100 * time.Microsecond, Delay: time.Duration(w.rng.IntN(3)) * 200 * time.Microsecond, ObjectBytes: 1 + w.rng.IntN(2000), TailBytes: int64(w.rng.IntN(300)), Uploads: 2,
		CutBytes: int64(1 + w.rng.IntN(5000)), CutObjects: uint64(2 + w.rng.IntN(10)), TableBytes: int64(500 + w.rng.IntN(3000)),
		Lost: func(tine.TreeID, error) {},
	}
}

// server makes the world's machine another one.
func (w *world) server(o depot.Options) { w.opts = o }

func gone(id tine.SegmentID) error {
	return tine.Errorf(tine.KindNotFound, "the file of segment %s is gone", id)
}

func (w *world) content(id tine.SegmentID, generation uint64) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.segs[id]
	if f == nil || f.files[generation] == nil {
		return nil, gone(id)
	}
	return f.files[generation], nil
}

// Upload implements depot.Segments.
func (w *world) Upload(_ context.Context, id tine.SegmentID, loc record.Segment) error {
	p, err := w.content(id, loc.Generation)
	if err != nil {
		return err
	}
	_, err = w.store.Put(ctx, object.Key(id, loc.Generation), bytes.NewReader(p[:loc.End]), blob.Condition{})
	return err
}

// Read implements depot.Segments.
func (w *world) Read(id tine.SegmentID, loc record.Segment, p []byte, off int64) error {
	c, err := w.content(id, loc.Generation)
	if err == nil {
		copy(p, c[off:])
	}
	return err
}

// Forget implements depot.Segments.
func (w *world) Forget(tine.SegmentID, uint64) {}

// Roll implements depot.Segments.
func (w *world) Roll(id tine.SegmentID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roll[id] = true
	select {
	case w.asks <- struct{}{}:
	default:
	}
}

func segmentRow(id tine.SegmentID) []byte {
	return record.Key(treeID, record.IDKey(record.TableSegment, id), 0)
}

// commit applies changes to the tree as the engine does.
func (w *world) commit(changes ...kv.Change) {
	w.t.Helper()
	b := w.tree.Rows().NewBatch()
	for _, c := range changes {
		c.Apply(b)
	}
	if err := w.tree.Rows().Commit(b, w.rng.IntN(2) == 0); err != nil {
		w.t.Fatal(err)
	}
	w.history = append(w.history, show(w.t, w.rows))
}

// show writes all rows that another machine must come to have.
func show(t *testing.T, rows kv.Store) string {
	t.Helper()
	snap := rows.Snapshot()
	defer snap.Close()
	scan, err := snap.Scan(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer scan.Close()
	var out strings.Builder
	for scan.Next() {
		owner, l, e, err := record.SplitKey(scan.Key())
		if err != nil {
			t.Fatal(err)
		}
		v := scan.Value()
		switch l.Table() {
		case record.TableTail, record.TableOutbox, record.TableShipped, record.TableGrave:
			if tine.TreeID(owner) == treeID {
				continue
			}
		case record.TableSegment:
			loc, err := record.DecodeSegment(v)
			if err != nil {
				t.Fatal(err)
			}
			if loc.State == record.SegmentOpen {
				loc.Synced = 0
			}
			v = loc.Append(nil)
		}
		fmt.Fprintf(&out, "%x %x %d %x\n", owner, l, e, v)
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// someRows are changes of rows of files.
func (w *world) someRows() (cs []kv.Change) {
	for range 1 + w.rng.IntN(4) {
		s := strata[w.rng.IntN(len(strata))]
		key := record.Key(s, record.InodeKey(tine.Ino(w.rng.IntN(400))), tine.Epoch(w.rng.IntN(3)))
		switch w.rng.IntN(16) {
		case 0:
			disk := record.Key(tine.DefaultTenant, record.IDKey(record.TableDisk, tine.DiskID{byte(w.rng.IntN(5))}), 0)
			cs = append(cs, kv.Change{Kind: kv.ChangeKind(1 + w.rng.IntN(2)), Key: disk})
		case 1:
			if w.rng.IntN(4) > 0 {
				continue
			}
			end := record.AppendKey(nil, s, record.InodeKey(tine.Ino(w.rng.IntN(400))))
			start := key[:len(key)-record.EpochLen]
			if bytes.Compare(start, end) < 0 {
				cs = append(cs, kv.Change{Kind: kv.ChangeDeleteRange, Key: start, Value: end})
			}
		case 2, 3:
			cs = append(cs, kv.Change{Kind: kv.ChangeDelete, Key: key})
		default:
			cs = append(cs, kv.Change{Kind: kv.ChangeSet, Key: key, Value: binary.BigEndian.AppendUint32(nil, w.rng.Uint32())})
		}
	}
	return cs
}

func (f *file) row(id tine.SegmentID) kv.Change {
	return kv.Change{Kind: kv.ChangeSet, Key: segmentRow(id), Value: f.loc.Append(nil)}
}

// pick returns a segment in the given state.
func (w *world) pick(state record.SegmentState) (tine.SegmentID, *file) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []tine.SegmentID
	for id, f := range w.segs {
		if f.loc.State == state {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return tine.SegmentID{}, nil
	}
	slices.SortFunc(ids, func(a, b tine.SegmentID) int { return bytes.Compare(a[:], b[:]) })
	id := ids[w.rng.IntN(len(ids))]
	return id, w.segs[id]
}

// alter changes what the shipper may be reading.
func (w *world) alter(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

// step does one thing that an engine does.
func (w *world) step() {
	w.t.Helper()
	switch w.rng.IntN(8) {
	case 0, 1: // data
		id, f := w.pick(record.SegmentOpen)
		if f == nil || w.rng.IntN(4) == 0 {
			w.made++
			id, f = tine.SegmentID{byte(w.made), byte(w.made >> 8), 9}, &file{files: map[uint64][]byte{0: {}}}
			f.loc = record.Segment{Timeline: tine.TimelineID{3}, State: record.SegmentOpen}
			w.alter(func() { w.segs[id] = f })
		}
		w.alter(func() {
			for range w.rng.IntN(200) {
				f.files[0] = append(f.files[0], byte(w.rng.Uint32()))
			}
			f.loc.End = int64(len(f.files[0]))
			f.loc.Synced = f.loc.End / 2
		})
		tail := kv.Change{Kind: kv.ChangeSet, Key: record.Key(treeID, record.OffsetKey(record.TableTail, id, 0), 0), Value: []byte("of this machine")}
		w.commit(append(w.someRows(), f.row(id), tail)...)
	case 2: // a full segment
		if id, f := w.pick(record.SegmentOpen); f != nil {
			w.seal(id, f)
		}
	case 3: // all of it is dead
		id, f := w.pick(record.SegmentState(1 + w.rng.IntN(2)))
		if f != nil {
			w.commit(append(w.someRows(), kv.Change{Kind: kv.ChangeDelete, Key: segmentRow(id)})...)
			w.alter(func() { delete(w.segs, id) })
		}
	case 4: // a repack
		if id, f := w.pick(record.SegmentSealed); f != nil {
			old := f.loc.Generation
			w.alter(func() { f.files[old+1], f.loc.Generation = f.files[old], old+1 })
			w.commit(f.row(id))
			w.alter(func() { delete(f.files, old) })
		}
	default:
		w.commit(w.someRows()...)
	}
	w.mu.Lock()
	var wanted []tine.SegmentID
	for id := range w.roll {
		if f := w.segs[id]; f != nil && f.loc.State == record.SegmentOpen {
			wanted = append(wanted, id)
		}
	}
	clear(w.roll)
	w.mu.Unlock()
	for _, id := range wanted {
		w.seal(id, w.segs[id])
	}
}

func (w *world) seal(id tine.SegmentID, f *file) {
	w.alter(func() { f.loc.State, f.loc.Synced, f.loc.Physical = record.SegmentSealed, f.loc.End, f.loc.End+100 })
	w.commit(f.row(id))
}

// newRows makes the row store of a machine.
func newRows(t *testing.T, store *blob.Store) kv.Store {
	t.Helper()
	rows, err := pebble.Open(pebble.Options{Dir: "/rows", FS: vfs.NewMem(), CacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler), Tables: run.NewTables(store, nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	})
	return rows
}

// newWorld makes a tree in a store.
func newWorld(t *testing.T, seed uint64, store, clean *blob.Store, eager bool) *world {
	w := &world{t: t, eager: eager, rng: rand.New(rand.NewPCG(seed, 5)), store: store, clean: clean, rows: newRows(t, clean),
		segs: map[tine.SegmentID]*file{}, roll: map[tine.SegmentID]bool{}, asks: make(chan struct{}, 1)}
	w.server(w.options())
	first := w.opts
	first.Blob = clean // that a tree may be there already is its maker's to see
	tree, err := depot.New(first).Create(ctx, w.rows, treeID, w)
	if err != nil {
		t.Fatal(err)
	}
	tree.Close()
	if w.tree, _, err = depot.New(w.opts).Resume(w.rows, treeID, w); err != nil {
		t.Fatal(err)
	}
	w.commit(
		kv.Change{Kind: kv.ChangeSet, Key: record.Key(tine.DefaultTenant, record.IDKey(record.TableTree, treeID), 0), Value: record.Tree{Tenant: tine.DefaultTenant}.Append(nil)},
		kv.Change{Kind: kv.ChangeSet, Key: record.Key(treeID, record.IDKey(record.TableTimeline, tine.TimelineID{3}), 0), Value: (&record.Timeline{Strata: strata}).Append(nil)},
	)
	return w
}
