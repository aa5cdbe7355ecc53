package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/cache"
	"tine.dev/tine/internal/fs/depot"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/object"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Store is an object store that disks may live in.
type Store struct {
	Name string       // by which people know it here
	ID   tine.StoreID // zero: the store is asked for it, and given one if it has none
	Blob *blob.Store
}

// stores are the object stores of a host, and the trees that it has in them.
// It implements timeline.Away. Safe for concurrent use.
type stores struct {
	server    tine.ServerID
	rows      kv.Store
	segs      *segment.Store
	log       *slog.Logger
	clock     func() time.Time
	elsewhere *outside         // where the row store finds tables
	cache     *cache.Cache     // of what is read from stores; nil without stores
	engine    *timeline.Engine // set before any disk is used

	mu    sync.Mutex // a leaf
	named []*store
	trees map[tine.TreeID]*depot.Tree
}

type store struct {
	Store
	depot   *depot.Depot
	objects *object.Store
}

// openStores makes the host's stores known.
func openStores(ctx context.Context, o *Options, rows kv.Store, segs *segment.Store, elsewhere *outside) (*stores, error) {
	s := &stores{elsewhere: elsewhere, rows: rows, segs: segs, log: o.Logger, clock: o.Clock, trees: map[tine.TreeID]*depot.Tree{}}
	if len(o.Stores) == 0 {
		return s, nil
	}
	var err error
	if s.server, err = serverID(o.FS, o.Dir, o.Clock()); err != nil {
		return nil, err
	}
	if o.StoreCacheBytes == 0 {
		o.StoreCacheBytes = defaultStoreCache
	}
	if s.cache, err = cache.Open(cache.Options{FS: o.FS, Dir: filepath.Join(o.Dir, "cache"), MaxBytes: o.StoreCacheBytes, Logger: o.Logger}); err != nil {
		return nil, err
	}
	for _, x := range o.Stores {
		if err := s.add(ctx, x); err != nil {
			s.close(ctx)
			return nil, err
		}
	}
	return s, nil
}

// defaultStoreCache is how much of the device what was read from stores may take.
const defaultStoreCache = 10 << 30

const serverFile = "server"

// serverID returns the id of the data directory's server, which it makes when
// there is none.
func serverID(fs vfs.FS, dir string, now time.Time) (id tine.ServerID, err error) {
	path := filepath.Join(dir, serverFile)
	f, err := fs.Open(path)
	if err == nil {
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, 64))
		if err == nil {
			err = id.Parse(strings.TrimSpace(string(b)))
		}
		if err != nil {
			return id, tine.Errorf(tine.KindCorrupt, "%s does not hold the id of a server: %w", path, err).
				WithHint("if it is lost, remove the file: the disks in stores are then taken up as those of another server")
		}
		return id, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return id, tine.Errorf(tine.KindIO, "%s cannot be read: %w", path, err)
	}
	id = tine.NewID[tine.ServerID](now)
	if err := writeFile(fs, dir, serverFile, id.String()+"\n"); err != nil {
		return id, tine.Errorf(tine.KindIO, "%s cannot be made: %w", path, err)
	}
	return id, nil
}

// storeKey is the object that says which store this is.
const storeKey = blob.Key("tine/store")

// storeID returns the id that a store has, which it gives it when it has none:
// whatever it is called, it is the same store on every machine.
func storeID(ctx context.Context, b *blob.Store, now time.Time) (id tine.StoreID, err error) {
	id = tine.NewID[tine.StoreID](now)
	_, err = b.Put(ctx, storeKey, bytes.NewReader([]byte("1 "+id.String()+"\n")), blob.Condition{Absent: true})
	if err == nil || tine.KindOf(err) != tine.KindExists {
		return id, err
	}
	text, _, err := b.Get(ctx, storeKey, blob.Range{}, "")
	if err != nil {
		return id, err
	}
	format, rest, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if format != "1" {
		return id, tine.Errorf(tine.KindVersion, "store %s has format %q; this program knows 1", b.Name(), format).WithHint("run a newer tine on it")
	}
	return id, id.Parse(rest)
}

// add makes a store known.
func (s *stores) add(ctx context.Context, o Store) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if o.ID.IsZero() {
		var err error
		if o.ID, err = storeID(ctx, o.Blob, s.clock()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.named {
		if x.Name == o.Name || x.ID == o.ID {
			return tine.Errorf(tine.KindExists, "store %s is known already, as %s", o.Blob.Name(), x.Name)
		}
	}
	objects, err := object.New(object.Options{Blobs: o.Blob, Cache: s.cache})
	if err != nil {
		return err
	}
	d := depot.New(depot.Options{
		Blob: o.Blob, Server: s.server, Host: host, Place: place(o.ID), Codec: journal.NewCodec(), Clock: s.clock, Logger: s.log, Lost: s.lost,
	})
	if err := d.Open(ctx); err != nil {
		return err
	}
	s.named = append(s.named, &store{o, d, objects})
	s.elsewhere.add(o.ID, run.NewTables(o.Blob, frames{s.cache}))
	return nil
}

// find returns a store by what tells.
func (s *stores) find(is func(*store) bool) *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.named {
		if is(x) {
			return x
		}
	}
	return nil
}

// byName returns the id of a store.
func (s *stores) byName(name string) (tine.StoreID, error) {
	if x := s.find(func(x *store) bool { return x.Name == name }); x != nil {
		return x.ID, nil
	}
	return tine.StoreID{}, unknownStore(name)
}

func unknownStore(name string) error {
	return tine.Errorf(tine.KindNotFound, "there is no store %q", name).WithHint("see the stores with: tine store ls")
}

// SyncStore returns when the store of the disk has all that the disk shows now.
// Of a disk without a store it returns when all is durable here.
// Errors: KindInterrupted, KindUnavailable; KindStale if the disk is another server's.
func (h *Host) SyncStore(ctx context.Context, c Caller, name string) error {
	d, err := h.find(ctx, c, name, true)
	if err != nil {
		return err
	}
	if err := d.Sync(ctx); err != nil {
		return err
	}
	h.away.mu.Lock()
	t := h.away.trees[d.Tree()]
	h.away.mu.Unlock()
	if t == nil {
		return nil
	}
	return t.Sync(ctx)
}

// files is the file data of a tree, for its depot.
func (s *stores) files(x *store, id tine.TreeID) depot.Files {
	return depot.Files{Local: s.segs, Objects: x.objects, Seal: func(seg tine.SegmentID) { s.engine.Roll(id, seg) }}
}

// Enter implements timeline.Away.
func (s *stores) Enter(ctx context.Context, id tine.TreeID, rec record.Tree, fresh bool) (timeline.Place, error) {
	x := s.find(func(x *store) bool { return x.ID == rec.Store })
	if x == nil {
		return timeline.Place{}, tine.Errorf(tine.KindUnavailable, "the disk lives in store %s, which this server does not know", rec.Store).
			WithHint("add it with: tine store add NAME URL")
	}
	s.mu.Lock()
	t := s.trees[id]
	s.mu.Unlock()
	switch {
	case t != nil: // it was taken up
	case fresh:
		var err error
		if t, err = x.depot.Create(ctx, s.rows, id, s.files(x, id)); err != nil {
			return timeline.Place{}, err
		}
		s.keep(id, t)
	default:
		var ok bool
		var err error
		if t, ok, err = x.depot.Resume(s.rows, id, s.files(x, id)); err != nil {
			return timeline.Place{}, err
		}
		if !ok {
			return timeline.Place{}, tine.Errorf(tine.KindCorrupt, "the rows of tree %s do not say what store %s has of it", id, x.Name)
		}
		s.keep(id, t)
	}
	return timeline.Place{Rows: t.Rows(), Segments: x.objects, Above: t.Generations()}, nil
}

func (s *stores) keep(id tine.TreeID, t *depot.Tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trees[id] = t
}

// TakeUp claims the trees of a store that are not here, so that their disks
// are. It stops at the first that it cannot have.
// Errors: KindNotFound for a store that is not known; KindConflict for a tree
// that another server writes; KindExists for a disk whose name is taken; those of
// the store.
func (h *Host) TakeUp(ctx context.Context, name string) error { return h.away.takeUp(ctx, name) }

func (s *stores) takeUp(ctx context.Context, name string) error {
	x := s.find(func(x *store) bool { return x.Name == name })
	if x == nil {
		return unknownStore(name)
	}
	ids, err := x.depot.Trees(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if s.engine.Knows(id) {
			continue
		}
		t, err := x.depot.Claim(ctx, s.rows, id, s.files(x, id))
		if tine.KindOf(err) == tine.KindNotFound && err != nil {
			continue // nothing was shipped of it
		}
		if err != nil {
			return err
		}
		s.keep(id, t)
		if err := s.engine.Admit(id); err != nil {
			return err
		}
	}
	return nil
}

// lost tells the engine that a tree is another server's.
func (s *stores) lost(id tine.TreeID, why error) { s.engine.Lose(id, why) }

// partingTime is how long a stop waits for the stores to have everything. What
// they do not have then follows at the next start.
const partingTime = 5 * time.Second

// close ships what it can and stops shipping.
func (s *stores) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, partingTime)
	defer cancel()
	s.mu.Lock()
	all := s.trees
	s.trees = nil
	s.mu.Unlock()
	for id, t := range all {
		if err := t.Sync(ctx); err != nil {
			s.log.Warn("a store does not have everything yet; the rest follows at the next start", "tree", id.String(), "error", err)
		}
		t.Close()
	}
	s.mu.Lock()
	named := s.named
	s.named = nil
	s.mu.Unlock()
	for _, x := range named {
		x.depot.Close()
	}
	if s.cache != nil {
		if err := s.cache.Close(); err != nil {
			s.log.Warn("closing the cache of the stores", "error", err)
		}
	}
}
