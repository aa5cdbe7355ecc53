package depot

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Options say which store, and how much travels at once.
type Options struct {
	Blob   *blob.Store
	Server tine.ServerID // who writes
	Host   string        // the name of the machine, for people
	Place  string        // stands before the names of tables that a row store adopts, so that it knows the store
	Codec  *journal.Codec
	Clock  func() time.Time // default time.Now
	Logger *slog.Logger     // default: nothing is logged

	// Lost is told, once, of a tree that another server has taken over. It is
	// called from a goroutine of the depot.
	Lost func(tree tine.TreeID, why error)

	// Fits is asked, while a tree is taken up and before it is claimed, with the rows of its
	// disks; its error ends that. It is asked again when the tree was written
	// meanwhile. nil: every tree fits.
	Fits func(tree tine.TreeID, disks []kv.Change) error

	Lease       time.Duration // how long servers must not be heard of before their trees are taken up; 0: LeaseTime
	Delay       time.Duration // how long a commit may wait for others to travel with it; 0: 1 s; negative: until it is asked for
	Pause       time.Duration // after an attempt that failed, doubled for each further one up to 30 times as long; 0: 1 s
	ObjectBytes int           // changes in a journal object before compression; 0: 8 MiB
	TailBytes   int64         // of an open segment that ride in a journal object; 0: 1 MiB
	CutBytes    int64         // a run is cut when the journal has grown by so much, compressed; 0: 8 MiB
	CutObjects  uint64        // or by so many objects; 0: 256
	TableBytes  int64         // of the tables of runs; 0: 8 MiB
	Horizon     time.Duration // how long what is of no use any more stays in the store; 0: 1 h
	Uploads     int           // segments that are sent at a time; 0: 4
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Fits == nil {
		o.Fits = func(tine.TreeID, []kv.Change) error { return nil }
	}
	if o.Lease == 0 {
		o.Lease = LeaseTime
	}
	if o.Horizon == 0 {
		o.Horizon = time.Hour
	}
	if o.Delay == 0 {
		o.Delay = time.Second
	}
	if o.Pause == 0 {
		o.Pause = time.Second
	}
	if o.ObjectBytes == 0 {
		o.ObjectBytes = 8 << 20
	}
	if o.TailBytes == 0 {
		o.TailBytes = 1 << 20
	}
	if o.CutBytes == 0 {
		o.CutBytes = 8 << 20
	}
	if o.CutObjects == 0 {
		o.CutObjects = 256
	}
	if o.Uploads == 0 {
		o.Uploads = 4
	}
}

// Depot is an object store in which trees live. Safe for concurrent use, Open
// and Close excepted.
type Depot struct {
	o      Options
	opened time.Time // when it was opened, by the store's clock
	began  time.Time // the same, by this machine's, which also measures
	quit   chan struct{}
	done   sync.WaitGroup
}

// New returns a depot. It makes no request; call Open before any other method.
func New(o Options) *Depot {
	o.setDefaults()
	return &Depot{o: o}
}

// Segments is what a Tree wants of the engine: the file data of the tree. Safe
// for concurrent use.
type Segments interface {
	// Upload puts a sealed segment into the store, unless it is there.
	// Errors: KindNotFound if its file is gone, for which the rows that follow
	// have the reason; those of reading files and of blob.Store.
	Upload(ctx context.Context, id tine.SegmentID, loc record.Segment) error
	// Read reads bytes of a segment, sealed or open. Errors as of Upload.
	Read(id tine.SegmentID, loc record.Segment, p []byte, off int64) error
	// Forget gives up what is kept of a segment's object, which is gone.
	Forget(id tine.SegmentID, generation uint64)
	// Roll has an open segment sealed soon, by a commit like any other.
	Roll(id tine.SegmentID)
}

func treePrefix(id tine.TreeID) string { return "trees/" + id.String() + "/" }

func journalPrefix(id tine.TreeID) string { return treePrefix(id) + "journal/" }

func journalKey(id tine.TreeID, number uint64) blob.Key {
	return blob.Key(fmt.Sprintf("%s%020d", journalPrefix(id), number))
}
