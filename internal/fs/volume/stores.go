package volume

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

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
	Blob *blob.Store  // nil: Open makes it
	// Open makes Blob of URL, without a request to the store. A store that has Open
	// and cannot be reached when the host opens keeps nobody waiting: it is asked
	// again and again, and its disks go on with what is on this machine.
	Open OpenBlob
	URL  string
	// Doubtful: what Open opens may be another store than that of ID, so nothing
	// is done with it before it has been asked.
	Doubtful bool
	// Known, if set, is told the store's id when it has said it, and before any
	// disk can be made in it. Its error ends the attempt.
	Known func(tine.StoreID) error
}

// OpenBlob makes a blob store of a URL; the drivers' package does. It is
// declared here for those who pass it on without knowing stores.
type OpenBlob func(ctx context.Context, url string) (*blob.Store, error)

// stores are the object stores of a host, and the trees that it has in them.
// It implements timeline.Away. Safe for concurrent use.
type stores struct {
	o         Options
	rows      kv.Store
	segs      *segment.Store
	log       *slog.Logger
	elsewhere *outside         // where the row store finds tables
	ready     chan struct{}    // closed when engine is set
	engine    *timeline.Engine // read it with running

	taking sync.Mutex // held while trees are taken up or discarded; before mu

	mu      sync.Mutex // a leaf; guards what follows
	server  tine.ServerID
	cache   *cache.Cache // of what is read from stores; nil before the first store
	named   []*store
	trees   map[tine.TreeID]*depot.Tree
	fitting map[tine.TreeID]func() // gives back the names that a tree about to be claimed has reserved
}

// store is one of them. Its fields are guarded by stores.mu, but for those of
// Store that do not change.
type store struct {
	Store
	depot   *depot.Depot // nil until what Open makes is there and the id is known
	objects *object.Store
	ready   bool          // it has answered
	failed  error         // why it has not
	since   time.Time     // since when
	tried   chan struct{} // closed when its disks can be used, or could not be at the first attempt
	first   sync.Once
	end     context.CancelFunc
	done    sync.WaitGroup // asks until it has answered
}

// defaultStoreCache is how much of the device what was read from stores may take.
const defaultStoreCache = 10 << 30

// openStores makes the host's stores known.
func openStores(ctx context.Context, o *Options, rows kv.Store, segs *segment.Store, elsewhere *outside) (*stores, error) {
	if o.StoreCacheBytes == 0 {
		o.StoreCacheBytes = defaultStoreCache
	}
	s := &stores{o: *o, elsewhere: elsewhere, rows: rows, segs: segs, log: o.Logger, ready: make(chan struct{}), trees: map[tine.TreeID]*depot.Tree{}, fitting: map[tine.TreeID]func(){}}
	var asked []*store
	for _, o := range o.Stores {
		x := &store{Store: o, tried: make(chan struct{})}
		var err error
		if o.Open == nil {
			err = s.add(ctx, x)
		} else if err = s.register(x); err == nil {
			asked = append(asked, x)
		}
		if err != nil {
			s.close(ctx)
			return nil, err
		}
	}
	s.askAll(asked)
	return s, nil
}

// openTime is how long a start waits for what needs no answer of a store, such as
// reading a file of credentials.
const openTime = 3 * time.Second

// askAll begins to ask stores, and returns when their disks can be used, or could
// not be at once.
func (s *stores) askAll(xs []*store) {
	for _, x := range xs {
		s.ask(x)
	}
	late := time.After(openTime)
	for _, x := range xs {
		select {
		case <-x.tried:
		case <-late:
			return
		}
	}
}

// begin is told the engine, once.
func (s *stores) begin(e *timeline.Engine) {
	s.engine = e
	close(s.ready)
}

// running returns the engine, when there is one: trees are loaded, and may be
// found lost, while it is still being opened.
func (s *stores) running() *timeline.Engine {
	<-s.ready
	return s.engine
}

func (s *stores) all() []*store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.named)
}

// add makes a store known that answers.
func (s *stores) add(ctx context.Context, x *store) error {
	if err := s.register(x); err != nil {
		return err
	}
	err := s.connect(ctx, x)
	if err != nil {
		s.forget(x)
	}
	return err
}

// register takes a name.
func (s *stores) register(x *store) error {
	if err := tine.CheckName("store", x.Name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, y := range s.named {
		if y.Name == x.Name {
			return tine.Errorf(tine.KindExists, "there is a store %q already", x.Name).WithHint("choose another name, or remove it with: tine store rm %s", x.Name)
		}
		if y.ID == x.ID && !x.ID.IsZero() {
			return sameStore(x, y)
		}
	}
	x.failed, x.since = errUnasked, s.o.Clock()
	s.named = append(s.named, x)
	return nil
}

var errUnasked = tine.Errorf(tine.KindUnavailable, "it has not answered yet")

func sameStore(x, known *store) error {
	return tine.Errorf(tine.KindExists, "%q is the store that is known already as %q", x.Name, known.Name).
		WithHint("use it under that name; for another one, give another prefix in the URL")
}

// forget undoes register.
func (s *stores) forget(x *store) {
	s.mu.Lock()
	s.named = slices.DeleteFunc(s.named, func(y *store) bool { return y == x })
	s.mu.Unlock()
	x.close(s.log)
}

// close ends all work on the store; no tree of it is open.
func (x *store) close(log *slog.Logger) {
	if x.end != nil {
		x.end()
	}
	x.done.Wait()
	if x.ready {
		x.depot.Close()
	}
	if x.Blob != nil && x.Open != nil {
		if err := x.Blob.Close(); err != nil {
			log.Warn("closing a store", "store", x.Name, "error", err)
		}
	}
}

// ask connects a store in the background, until that succeeds.
func (s *stores) ask(x *store) {
	ctx, cancel := context.WithCancel(context.Background())
	x.end = cancel
	x.done.Go(func() {
		for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
			if s.connect(ctx, x) == nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

// connect makes a store usable as far as it can: its disks once its id is known
// for certain, which may be so before it answers; others' trees, once it has
// answered.
func (s *stores) connect(ctx context.Context, x *store) error {
	err := s.tryConnect(ctx, x)
	defer x.usable()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		if x.failed != errUnasked && x.failed != nil {
			s.log.Info("the store answers", "store", x.Name)
		}
		x.ready, x.failed, x.since = true, nil, time.Time{}
	case ctx.Err() != nil:
	case x.failed == nil || x.failed.Error() != err.Error():
		s.log.Warn("a store cannot be used yet; it is asked again", "store", x.Name, "error", err, "hint", tine.HintOf(err))
		x.failed = err
	}
	return err
}

// usable ends the wait for the store at a start.
func (x *store) usable() { x.first.Do(func() { close(x.tried) }) }

func (s *stores) tryConnect(ctx context.Context, x *store) error {
	if x.Blob == nil {
		b, err := x.Open(ctx, x.URL)
		if err != nil {
			return err
		}
		s.mu.Lock()
		x.Blob = b
		s.mu.Unlock()
	}
	if !x.ID.IsZero() && !x.Doubtful {
		if err := s.makeDepot(x); err != nil {
			return err
		}
		x.usable()
	}
	id, err := storeID(ctx, x.Blob, s.o.Clock(), x.ID)
	if err != nil {
		return err
	}
	if x.Known != nil {
		if err := x.Known(id); err != nil {
			return err
		}
	}
	s.mu.Lock()
	for _, y := range s.named {
		if y != x && y.ID == id {
			s.mu.Unlock()
			return sameStore(x, y)
		}
	}
	x.ID, x.Doubtful = id, false
	s.mu.Unlock()
	if err := s.makeDepot(x); err != nil {
		return err
	}
	return x.depot.Open(ctx)
}

// makeDepot makes what trees in the store need. It makes no request.
func (s *stores) makeDepot(x *store) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.depot != nil {
		return nil
	}
	o := &s.o
	if s.server.IsZero() {
		var err error
		if s.server, err = serverID(o.FS, o.Dir, o.Clock()); err != nil {
			return err
		}
	}
	if s.cache == nil {
		var err error
		if s.cache, err = cache.Open(cache.Options{FS: o.FS, Dir: filepath.Join(o.Dir, "cache"), MaxBytes: o.StoreCacheBytes, Logger: o.Logger}); err != nil {
			return err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if x.objects, err = object.New(object.Options{Blobs: x.Blob, Cache: s.cache}); err != nil {
		return err
	}
	x.depot = depot.New(depot.Options{
		Blob: x.Blob, Server: s.server, Host: host, Place: place(x.ID), Codec: journal.NewCodec(), Clock: o.Clock, Logger: s.log, Lost: s.lost, Fits: s.fits, Lease: o.StoreLease,
	})
	s.elsewhere.add(x.ID, run.NewTables(x.Blob, frames{s.cache}))
	return nil
}

// find returns a store by what tells, nil if there is none; s.mu is held then.
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

// byName returns a store.
func (s *stores) byName(name string) (*store, error) {
	if x := s.find(func(x *store) bool { return x.Name == name }); x != nil {
		return x, nil
	}
	return nil, tine.Errorf(tine.KindNotFound, "there is no store %q", name).WithHint("see the stores with: tine store ls")
}

// usable returns a store that has answered.
func (s *stores) usable(name string) (*store, error) {
	x, err := s.byName(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !x.ready {
		return nil, tine.Errorf(tine.KindUnavailable, "the store %q cannot be used yet: %w", name, x.failed).
			WithHint("see what is wrong with: tine store check %s", name)
	}
	return x, nil
}

// files is the file data of a tree, for its depot.
func (s *stores) files(x *store, id tine.TreeID) depot.Files {
	return depot.Files{Local: s.segs, Objects: x.objects, Seal: func(seg tine.SegmentID) { s.running().Roll(id, seg) }}
}

// Enter implements timeline.Away.
func (s *stores) Enter(ctx context.Context, id tine.TreeID, rec record.Tree, fresh bool) (timeline.Place, error) {
	x := s.find(func(x *store) bool { return x.ID == rec.Store })
	if x == nil {
		return timeline.Place{}, tine.Errorf(tine.KindUnavailable, "the disk lives in store %s, which this server does not know", rec.Store).
			WithHint("add it with: tine store add NAME URL")
	}
	s.mu.Lock()
	t, ready, failed := s.trees[id], x.depot != nil, x.failed
	s.mu.Unlock()
	var err error
	switch {
	case t != nil: // it was taken up
	case !ready:
		return timeline.Place{}, tine.Errorf(tine.KindUnavailable, "the disk lives in store %q, which cannot be used yet: %w", x.Name, failed).
			WithHint("see what is wrong with: tine store check %s", x.Name)
	case fresh:
		if t, err = x.depot.Create(ctx, s.rows, id, s.files(x, id)); err != nil {
			return timeline.Place{}, err
		}
		s.keep(id, t)
	default:
		var ok bool
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

// tree returns a tree that is in use and lives in a store, else nil.
func (s *stores) tree(id tine.TreeID) *depot.Tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trees[id]
}

// partingTime is how long a stop waits for the stores to have everything. What
// they do not have then follows at the next start.
const partingTime = 5 * time.Second

// close ships what it can and stops shipping.
func (s *stores) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, partingTime)
	defer cancel()
	s.mu.Lock()
	trees, named := s.trees, s.named
	s.trees, s.named = nil, nil
	s.mu.Unlock()
	for _, x := range named { // first, so that none is connected any more
		if x.end != nil {
			x.end()
		}
	}
	for id, t := range trees {
		if err := t.Sync(ctx); err != nil && tine.KindOf(err) != tine.KindStale {
			s.log.Warn("a store does not have everything yet; the rest follows at the next start", "tree", id.String(), "error", err)
		}
		t.Close()
	}
	for _, x := range named {
		x.close(s.log)
	}
	if s.cache != nil {
		if err := s.cache.Close(); err != nil {
			s.log.Warn("closing the cache of the stores", "error", err)
		}
	}
}
