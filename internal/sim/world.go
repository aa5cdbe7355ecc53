package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// caller is on whose behalf the driver acts.
var caller = volume.Caller{Tenant: tine.DefaultTenant, Author: "sim", Principal: "sim"}

const undoKeep = 2

// Config says what a run does. The zero value runs steps on files and whole
// disks, without crashes.
type Config struct {
	Seed      uint64
	Steps     int
	Skip      map[int]bool        // steps to leave out
	Crashes   bool                // crash and recover now and then, instead of only closing and opening again
	FilesOnly bool                // one disk, and no forks or checkpoints
	Drain     bool                // at the end, give up all but one disk and look for leaks
	Logger    *slog.Logger        // of the Host; nil for none
	Mutation  timeline.Mutation   // a deliberate fault in the engine
	Cuts      bool                // crash as well at many moments from which the run does not go on; implies Crashes
	Small     bool                // few disks and short files, so that reading all of them takes little time
	Wrap      func(vfs.FS) vfs.FS // puts a layer over the file system; nil for none
}

// World is a Host and the model of it. Not safe for concurrent use.
type World struct {
	cfg   Config
	clock *Clock
	mem   *vfs.MemFS
	host  *volume.Host
	crash *crash
	cuts  *cutter // nil: none

	disks   []*disk // living
	trash   []*disk
	groves  map[tine.TreeID]*grove
	named   int            // names given so far
	seq     int            // the present step
	copies  int            // reflinks made so far
	crashes map[string]int // by where
	log     []string
}

// Failure is a difference between engine and model, and the way to it.
type Failure struct {
	Config Config
	Step   int
	Log    []string
	Err    error
}

func (f *Failure) Error() string {
	tail := f.Log
	if len(tail) > 60 {
		tail = tail[len(tail)-60:]
	}
	return fmt.Sprintf("%v\nseed %d, step %d; the last steps were:\n%s", f.Err, f.Config.Seed, f.Step, strings.Join(tail, "\n"))
}

// Run runs a world and returns the first difference, or nil.
func Run(cfg Config) *Failure {
	_, f := run(cfg)
	return f
}

func run(cfg Config) (*World, *Failure) {
	w := &World{cfg: cfg, clock: NewClock(), mem: vfs.NewCrashableMem(), groves: map[tine.TreeID]*grove{}, crashes: map[string]int{}}
	if cfg.Cuts {
		w.cfg.Crashes, w.cuts = true, newCutter()
	}
	defer w.abandon()
	if err := w.all(); err != nil {
		return w, &Failure{cfg, w.seq, w.log, err}
	}
	return w, nil
}

// all takes all steps, and ends.
func (w *World) all() error {
	if err := w.open(); err != nil {
		return err
	}
	if err := w.createDisk(rand.New(rand.NewPCG(w.cfg.Seed, 0))); err != nil {
		return err
	}
	for i := 1; i <= w.cfg.Steps; i++ {
		if w.cfg.Skip[i] {
			continue
		}
		w.seq = i
		w.cuts.begin(w.cfg.Seed, i)
		err := w.step(rand.New(rand.NewPCG(w.cfg.Seed, uint64(i))))
		if w.crashed() {
			err = w.recover()
		}
		if err == nil && w.cuts.due() {
			err = w.checkCuts()
		}
		if err != nil {
			return err
		}
	}
	w.seq = w.cfg.Steps + 1
	w.crash.disarm()
	if w.crashed() {
		if err := w.recover(); err != nil {
			return err
		}
	}
	if err := w.finish(); err != nil || w.cfg.Drain {
		return err
	}
	return w.checkCuts()
}

// note adds a line to the log of what was done.
func (w *World) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%6d %s", w.seq, fmt.Sprintf(format, args...)))
}

func (t *turn) note(format string, args ...any) {
	t.World.note("%s: %s", t.d.name, fmt.Sprintf(format, args...))
}

// open opens a Host on the file system in memory.
func (w *World) open() error {
	r := rand.New(rand.NewPCG(w.cfg.Seed, 1<<63))
	w.crash = newCrash(w.mem, w.cuts)
	fs := w.crash.fs()
	if w.cfg.Wrap != nil {
		fs = w.cfg.Wrap(fs)
	}
	o := volume.Options{
		Dir: "/data", FS: fs, Crash: w.crash.at, Clock: w.clock.Now, Logger: w.cfg.Logger, CacheBytes: 4 << 20,
		UndoKeep: undoKeep, TrashKeep: -1,
		CommitInterval: pick(r, []time.Duration{-1, time.Millisecond, time.Second}),
		SegmentBytes:   w.segmentBytes(r),
		Manual:         r.IntN(2) == 0,
		Mutation:       w.cfg.Mutation,
	}
	var err error
	w.host, err = volume.Open(context.Background(), o)
	if err != nil {
		return fmt.Errorf("opening the data directory: %w", err)
	}
	return nil
}

func (w *World) segmentBytes(r *rand.Rand) int64 {
	if w.cfg.Small {
		return pick(r, []int64{0, 100 << 10, 300 << 10})
	}
	return pick(r, []int64{0, 300 << 10, 2 << 20})
}

// abandon closes the Host without a look at what comes of it.
func (w *World) abandon() {
	if w.host != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = w.host.Close(ctx)
		w.host = nil
	}
	if w.crash != nil {
		w.crash.over()
	}
}

// choice is something that a step can do, and how often it does it.
type choice struct {
	weight int
	do     func(*turn) error
}

var fileChoices = []choice{
	{12, (*turn).create}, {6, (*turn).mkdir}, {2, (*turn).mknod}, {3, (*turn).symlink}, {2, (*turn).tmpfile},
	{4, (*turn).link}, {8, (*turn).unlink}, {4, (*turn).rmdir}, {10, (*turn).rename}, {4, (*turn).lookup}, {4, (*turn).list},
	{12, (*turn).write}, {4, (*turn).appendData}, {6, (*turn).read}, {5, (*turn).truncate}, {6, (*turn).allocate},
	{7, (*turn).copyRange}, {3, (*turn).seek}, {5, (*turn).fsync}, {6, (*turn).release}, {6, (*turn).setAttr},
	{3, (*turn).setXattr}, {2, (*turn).removeXattr}, {2, (*turn).getXattr}, {1, (*turn).readlink}, {2, (*turn).statFS},
	{2, (*turn).compare},
}

var diskChoices = []choice{
	{1, (*turn).newDisk}, {6, (*turn).fork}, {8, (*turn).checkpoint}, {5, (*turn).removeCheckpoint}, {4, (*turn).rollback},
	{3, (*turn).promote}, {3, (*turn).undo}, {2, (*turn).renameDisk}, {4, (*turn).removeDisk}, {2, (*turn).undelete},
	{4, (*turn).compareCheckpoint}, {3, (*turn).attach}, {3, (*turn).detach}, {2, (*turn).listDisks}, {2, (*turn).reclaim},
	{3, (*turn).diff},
}

// rareChoices lead to the places that are passed least.
var rareChoices = []choice{
	{4, (*turn).reclaim}, {3, (*turn).rollback}, {2, (*turn).promote}, {2, (*turn).fork}, {2, (*turn).removeCheckpoint},
	{4, (*turn).fsync}, {3, (*turn).write}, {2, (*turn).unlink},
}

func choose(r *rand.Rand, from []choice) func(*turn) error {
	total := 0
	for _, c := range from {
		total += c.weight
	}
	n := r.IntN(total)
	for _, c := range from {
		if n < c.weight {
			return c.do
		}
		n -= c.weight
	}
	return from[0].do
}

// step does one thing.
func (w *World) step(r *rand.Rand) error {
	w.clock.Advance(time.Duration(1 + r.Int64N(5e9)))
	if r.IntN(250) == 0 {
		return w.reopen()
	}
	if w.cfg.Crashes && r.IntN(60) == 0 || w.cfg.Cuts && r.IntN(30) == 0 {
		w.crash.arm(r)
	}
	return w.turn(r)
}

// turn does one thing to one disk.
func (w *World) turn(r *rand.Rand) error {
	for _, d := range append(slices.Clone(w.disks), w.trash...) {
		d.fs.Now = w.clock.Now().UnixNano()
	}
	t := &turn{World: w, r: r, d: pick(r, w.disks)}
	if len(t.d.sessions) == 0 {
		if err := t.attach(); err != nil || w.crashed() {
			return err
		}
	}
	t.s = pick(r, t.d.sessions)
	do := choose(r, fileChoices)
	if !w.cfg.FilesOnly && r.IntN(6) == 0 {
		do = choose(r, diskChoices)
	} else if w.cfg.Cuts && r.IntN(5) == 0 {
		do = choose(r, rareChoices)
	}
	l, fs, sum, unseen := t.d.line, t.d.fs, t.d.fs.Tree.Sum(), t.d.fs.Unseen
	err := do(t)
	if fs.Tree.Sum() != sum {
		l.pos++
	}
	if fs.Unseen != unseen {
		l.blur++
	}
	w.saw(t.d)
	if w.crashed() {
		return nil
	}
	return err
}

// compare reads a whole disk.
func (t *turn) compare() error {
	t.note("compare")
	got, err := observe(t.s.Session)
	if err != nil {
		return err
	}
	if err := difference(t.d.fs.Tree, got); err != nil {
		return err
	}
	if t.d.fs.Unnamed() > 0 {
		return nil
	}
	st, err := t.s.StatFS()
	if err != nil || st.Bytes != got.Bytes || st.Inodes != got.Inodes {
		return fmt.Errorf("statfs shows %+v, %s; there are %d bytes in %d inodes", st, sayError(err), got.Bytes, got.Inodes)
	}
	return nil
}

// compareAll compares every disk and checkpoint.
func (w *World) compareAll() error {
	for _, d := range w.disks {
		if err := w.compareRef(volume.Ref{Disk: d.name}, d.fs.Tree); err != nil {
			return err
		}
		for _, c := range d.checkpoints {
			if err := w.compareRef(volume.Ref{Disk: d.name, Checkpoint: c.name}, c.tree); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareRef reads a disk or checkpoint through an attachment of its own.
func (w *World) compareRef(ref volume.Ref, want posix.Tree) error {
	got, err := w.read(ref)
	if err == nil {
		err = difference(want, got)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	return nil
}

func difference(want, got posix.Tree) error {
	if diff := posix.Difference(want, got); diff != "" {
		return errors.New("it differs from the model:\n" + diff)
	}
	return nil
}

// letGo forgets all that is open on a disk. The end of a session makes durable what
// the disk shows; a fork to which none was attached may still be on its way.
func (w *World) letGo(d *disk) error {
	for _, h := range d.handles {
		d.closed(h.ino)
	}
	d.handles = nil
	for _, s := range d.sessions {
		if err := s.Detach(context.Background()); err != nil {
			return fmt.Errorf("detaching from %s: %w", d.name, err)
		}
	}
	if len(d.sessions) > 0 {
		w.durable(d)
	}
	d.sessions = nil
	return nil
}

// reopen closes the Host and opens it again: nothing may be lost.
func (w *World) reopen() error {
	w.note("close and open again")
	for _, d := range w.disks {
		if w.seq%2 == 0 {
			if err := w.letGo(d); err != nil {
				return err
			}
			continue
		}
		for _, h := range d.handles {
			d.closed(h.ino)
		}
		d.handles, d.sessions = nil, nil
	}
	h := w.host
	w.host = nil
	if err := h.Close(context.Background()); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	if w.crashed() {
		return nil
	}
	w.crash.over()
	if err := w.checkCuts(); err != nil {
		return err
	}
	w.settle()
	if err := w.auditClone(); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	return w.compareAll()
}
