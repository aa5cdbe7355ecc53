package timeline

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/rounds"
	"tine.dev/tine/internal/fs/step"
	"tine.dev/tine/internal/tine"
)

// tree is all lines that descend from one root. Its records are a stream of
// their own: each is durable only after the one before.
type tree struct {
	engine *Engine
	id     tine.TreeID
	rec    record.Tree
	place  Place                      // through which its rows are committed; known once it is loaded
	poison atomic.Pointer[tine.Error] // see fail

	mu          sync.Mutex
	loaded      bool
	lines       map[tine.TimelineID]*line
	aliases     map[tine.TimelineID]*line // follow with root
	aliasesKept int                       // how many were left when they were last looked through
	disks       []*Disk
	last        *step.Step // the newest record
	nextTask    uint64
	nextLog     uint64
	tasks       []task
	large       map[tine.StratumID]bool // strata found too large for a filter
	headless    map[*line]struct{}      // lines without a head: what may be absorbed or removed
	todo        rounds.Marks            // background work that may be waiting

	topo    sync.RWMutex
	version atomic.Uint64 // grows with every change of the topology
	folds   atomic.Uint64 // grows before and after each step of a fold: odd while one runs

	segMu sync.RWMutex
	segs  map[tine.SegmentID]*segInfo
}

// fail poisons the tree: file data that a commit named could not be made durable, and
// what follows in the stream cannot be either. The disks of other trees have
// data files of their own, and go on; an error of the rows, which are one store,
// fails the engine.
func (t *tree) fail(err error) {
	p := &tine.Error{Kind: tine.KindUnavailable, Msg: "the data of the disk could not be written", Err: err,
		Hint: "look at the device, then restart the server: the disk opens at its last durable state"}
	if t.poison.CompareAndSwap(nil, p) {
		t.engine.flights.Go(func() { // apart: whoever holds t.mu may wait for this committer
			t.engine.Logger.Error("file data could not be written; the disks of one tree answer EIO until the server is restarted",
				"tree", t.id.String(), "disks", t.diskNames(), "error", err)
		})
	}
}

// diskNames returns the names of the tree's disks. It takes t.mu.
func (t *tree) diskNames() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for _, d := range t.disks {
		names = append(names, d.rec.Name)
	}
	return names
}

// check returns why nothing can become durable in the tree, nil if it can.
func (t *tree) check() error {
	if p := t.poison.Load(); p != nil {
		return p
	}
	return t.engine.check()
}

type checkpoint struct {
	id   tine.CheckpointID
	rec  record.Checkpoint
	line *line // follow with root
	open int   // attachments that stand on it
}

func newTree(e *Engine, id tine.TreeID, rec record.Tree) *tree {
	return &tree{
		engine: e, id: id, rec: rec, place: Place{Rows: e.Rows}, lines: map[tine.TimelineID]*line{}, aliases: map[tine.TimelineID]*line{},
		segs: map[tine.SegmentID]*segInfo{}, large: map[tine.StratumID]bool{}, headless: map[*line]struct{}{},
	}
}

// key is the full key of one of the tree's own records.
func (t *tree) key(l record.Logical) []byte { return record.Key(t.id, l, 0) }

// newLine makes a line in memory and connects it; t.mu is held.
func (t *tree) newLine(id tine.TimelineID, parent *line, branch tine.Epoch) *line {
	l := &line{tree: t, id: id, parent: parent, branch: branch, first: branch + 1, epoch: branch + 1}
	l.open = newLayer(l, l.epoch)
	l.view = View{line: l, epoch: tine.Head}
	t.lines[id] = l
	return l
}

// setHead makes the disk's head this line, or leaves it without one (nil); t.mu
// and line.mu are held.
func (l *line) setHead(d *Disk) {
	l.head = d
	l.state.disk.Store(d)
	if d == nil {
		l.tree.headless[l] = struct{}{}
	} else {
		delete(l.tree.headless, l)
	}
}

// adopt connects a child to its parent, whose pin it holds; t.mu is held.
func (l *line) adopt(child *line) {
	t := l.tree
	t.topo.Lock()
	if l.children == nil {
		l.children = map[*line]struct{}{}
	}
	l.children[child] = struct{}{}
	t.topo.Unlock()
}

// rows collects the rows of a record. Its step exists from the start, so that a
// line can be made to wait for it at the very moment at which the line's pins
// change in memory (I7): a version that counts on a pin, or on its absence, is
// durable only after the record that made it so.
type rows struct {
	list kv.Changes
	*step.Step
}

func newRows() *rows { return &rows{Step: step.New()} }

// hold adds n holders to a pin of the line.
func (l *line) hold(r *rows, e tine.Epoch, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		l.pins.Add(e)
	}
	l.after = r.Step
}

// release takes one holder of a pin away; last reports that the pin is gone.
func (l *line) release(r *rows, e tine.Epoch) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after = r.Step
	return l.pins.Release(e)
}

func (t *tree) setTimeline(r *rows, l *line) {
	rec := l.timeline()
	r.list.Set(t.key(record.IDKey(record.TableTimeline, l.id)), rec.Append(nil))
}

func (t *tree) setCheckpoint(r *rows, c *checkpoint) {
	c.rec.Timeline = c.line.root().id
	r.list.Set(t.key(record.IDKey(record.TableCheckpoint, c.id)), c.rec.Append(nil))
}

func (t *tree) setDisk(r *rows, d *Disk) {
	d.rec.Timeline = d.line.id
	r.list.Set(record.Key(t.rec.Tenant, record.IDKey(record.TableDisk, d.id), 0), d.rec.Append(nil))
}

func (t *tree) delDisk(r *rows, d *Disk) {
	r.list.Delete(record.Key(t.rec.Tenant, record.IDKey(record.TableDisk, d.id), 0))
}

func (t *tree) setLog(r *rows, d *Disk, e record.LogEntry) {
	t.nextLog++
	r.list.Set(t.key(record.LogKey(d.id, t.nextLog)), e.Append(nil))
}

// commit makes a record durable in the background, after the tree's records
// before it and the given steps (I6); t.mu is held. The rows are as of now.
func (t *tree) commit(r *rows, deps ...*step.Step) *step.Step {
	r.After(append(deps, t.last)...)
	t.last = r.Step
	t.engine.flights.Go(func() { r.Finish(t.apply(r)) })
	return r.Step
}

// change commits the disk's record, and an entry of its history; t.mu is held.
func (t *tree) change(d *Disk, op, detail string, a Actor) *step.Step {
	r := newRows()
	t.setDisk(r, d)
	t.setLog(r, d, d.entry(d.engine.now(), op, detail, a))
	return t.commit(r)
}

func (t *tree) apply(r *rows) error {
	e := t.engine
	if err := r.AwaitDeps(); err != nil {
		return err
	}
	for {
		if err := t.check(); err != nil {
			return err
		}
		b := e.Rows.NewBatch()
		r.list.Apply(b)
		b.Frees() // some give space back, the others are refused before they are made
		e.Crash.At(crashpoint.RecordBuilt)
		err := t.place.Rows.Commit(b, true)
		if err == nil {
			e.Crash.At(crashpoint.RecordApplied)
			return nil
		}
		if tine.KindOf(err) != tine.KindNoSpace || !e.waitForSpace() {
			e.fail(err)
			return err
		}
	}
}

// resolve returns the line that an id means, nil if there is none.
func (t *tree) resolve(id tine.TimelineID) *line {
	if l := t.aliases[id]; l != nil {
		return l.root()
	}
	return t.lines[id]
}

// ensure loads the tree when it is first used. It leaves t.mu held on success.
func (t *tree) ensure() error {
	t.mu.Lock()
	if t.loaded {
		return nil
	}
	err := t.enter(context.Background(), false)
	if err == nil {
		err = t.load()
	}
	if err != nil {
		t.mu.Unlock()
		return err
	}
	t.loaded = true
	return nil
}

// close commits what is pending, seals the open segments and stops.
func (t *tree) close(ctx context.Context) error {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	var first error
	for _, l := range t.sorted() {
		first = cmp.Or(first, l.syncAndSeal(ctx))
	}
	return cmp.Or(first, last.Wait(ctx, t.engine.Room))
}

// sorted returns the tree's lines in the order of their ids, which is the
// order of their making. It takes t.mu.
func (t *tree) sorted() []*line {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.lines), func(a, b *line) int { return slices.Compare(a.id[:], b.id[:]) })
}
