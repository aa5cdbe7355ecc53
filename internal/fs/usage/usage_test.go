package usage

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// counted is a store that counts the rows that are read.
type counted struct {
	kv.Store
	reads atomic.Int64
}

func (c *counted) Snapshot() kv.Snapshot { return &countedSnapshot{c.Store.Snapshot(), c} }

type countedSnapshot struct {
	kv.Snapshot
	c *counted
}

func (n *countedSnapshot) Newest(prefix []byte, limit tine.Epoch) ([]byte, tine.Epoch, bool, error) {
	n.c.reads.Add(1)
	return n.Snapshot.Newest(prefix, limit)
}

func (n *countedSnapshot) Scan(lower, upper []byte, born *kv.Born) (kv.Scan, error) {
	s, err := n.Snapshot.Scan(lower, upper, born)
	return &countedScan{s, n.c}, err
}

type countedScan struct {
	kv.Scan
	c *counted
}

func (s *countedScan) Next() bool {
	s.c.reads.Add(1)
	return s.Scan.Next()
}

// usageWorld is an engine whose disks have files of one small chunk each.
type usageWorld struct {
	t    *testing.T
	rows *counted
	e    *timeline.Engine
}

func newUsageWorld(t *testing.T) *usageWorld {
	segs, err := segment.Open(segment.Options{FS: vfs.NewMem(), Dir: "segments"})
	if err != nil {
		t.Fatal(err)
	}
	w := &usageWorld{t: t, rows: &counted{Store: mem.New()}}
	w.e, err = timeline.Open(timeline.Options{Rows: w.rows, Segments: segs, CommitInterval: -1, Manual: true,
		Reap: func(*timeline.Txn) (bool, error) { return false, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		segs.Close()
		w.rows.Close()
	})
	return w
}

func (w *usageWorld) create(name string) *timeline.Disk {
	d, err := w.e.Create(context.Background(), tine.DefaultTenant, name, timeline.Actor{}, timeline.Origin{Counters: record.Counters{NextIno: 2, NextCookie: 1}})
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *usageWorld) fork(d *timeline.Disk, name string) *timeline.Disk {
	ds, _, err := d.Fork("", []string{name}, timeline.Actor{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ds[0]
}

func (w *usageWorld) checkpoint(d *timeline.Disk, name string) {
	if _, _, err := d.Checkpoint(name, "", timeline.Actor{}); err != nil {
		w.t.Fatal(err)
	}
}

// write gives the files from a to b a chunk of size bytes.
func (w *usageWorld) write(d *timeline.Disk, a, b, size int) {
	at, err := d.Attach("")
	if err != nil {
		w.t.Fatal(err)
	}
	defer at.Detach()
	v, _, err := at.Enter(0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer at.Exit()
	err = v.Change(func(t *timeline.Txn) error {
		for i := a; i < b; i++ {
			k := record.ChunkKey(tine.Ino(i), 0)
			f, err := t.Get(k)
			if err != nil {
				return err
			}
			old := record.Chunk{}
			if f.Exists() {
				if old, err = record.DecodeChunk(f.Val); err != nil {
					return err
				}
			}
			if err := t.PutChunk(k, f, &record.Chunk{Inline: make([]byte, size)}); err != nil {
				return err
			}
			t.Count(0, int64(size)-old.Bytes())
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *usageWorld) sync(ds ...*timeline.Disk) {
	for _, d := range ds {
		if err := d.Sync(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// usage compares a disk's usage with what it must be, and returns how many
// rows were read for it.
func (w *usageWorld) usage(d *timeline.Disk, logical, unique, shared int) int {
	w.t.Helper()
	before := w.rows.reads.Load()
	u, err := Of(d)
	if err != nil {
		w.t.Fatal(err)
	}
	if want := (Usage{int64(logical), int64(unique), int64(shared), 0}); u != want {
		w.t.Errorf("%s: %+v, want %+v", d.ID(), u, want)
	}
	return int(w.rows.reads.Load() - before)
}

// TestUsageCostsWithTheChanges counts the rows that are read for disks of
// different sizes in which ten files have changed.
func TestUsageCostsWithTheChanges(t *testing.T) {
	const most = 300
	type reads struct{ fork, parent, past, alone int }
	measure := func(files int) reads {
		w := newUsageWorld(t)
		var r reads
		parent := w.create("parent")
		w.write(parent, 100, 100+files, 100)
		fork := w.fork(parent, "fork")
		w.write(fork, 100, 110, 60)
		w.write(parent, 200, 210, 70)
		w.sync(parent, fork)
		// Without the fork the parent does not need what it has overwritten either.
		r.fork = w.usage(fork, files*100-400, 600+1000, files*100-400-1600)
		// Without the parent its line is the fork's, which does not need what it has overwritten.
		r.parent = w.usage(parent, files*100-300, 700+1000, files*100-300-1700)
		// Three checkpoints and a rollback: what is freed lies in three lines.
		w.checkpoint(fork, "one")
		w.write(fork, 110, 120, 50)
		w.checkpoint(fork, "two")
		w.write(fork, 110, 120, 40)
		if _, err := fork.Rollback(context.Background(), "one", timeline.Actor{}); err != nil {
			t.Fatal(err)
		}
		w.write(fork, 120, 130, 30)
		w.sync(fork)
		r.past = w.usage(fork, files*100-400-700, 600+500+400+300+1000, files*100-1100-1900)
		alone := w.create("alone")
		w.write(alone, 100, 100+files, 100)
		w.checkpoint(alone, "one")
		w.write(alone, 100, 110, 60)
		w.sync(alone)
		r.alone = w.usage(alone, files*100-400, files*100+600, 0)
		return r
	}
	small, large := measure(1000), measure(50_000)
	t.Logf("rows read: %+v of 1,000 files, %+v of 50,000", small, large)
	if small != large || max(large.fork, large.parent, large.past, large.alone) > most {
		t.Errorf("%+v rows are read of 1,000 files and %+v of 50,000; want the same, and at most %d", small, large, most)
	}
}

// TestUsageSeesWhatIsNotCommitted asks for disks of which all is in memory.
func TestUsageSeesWhatIsNotCommitted(t *testing.T) {
	w := newUsageWorld(t)
	parent := w.create("parent")
	w.write(parent, 100, 150, 100)
	w.usage(parent, 5000, 5000, 0)
	fork := w.fork(parent, "fork")
	w.write(fork, 100, 110, 60)
	w.usage(fork, 4600, 600, 4000)
	w.write(fork, 140, 160, 10)
	w.usage(fork, 3800, 800, 3000)
	w.usage(parent, 5000, 2000, 3000)
	w.write(fork, 140, 160, 20)
	w.checkpoint(fork, "one")
	w.write(fork, 150, 170, 40)
	w.usage(fork, 4600, 600+400+800, 3000)
}

// TestUsageBesideEverything asks for usage while lines are written, forked,
// removed and absorbed: no number is promised then, but no error either.
func TestUsageBesideEverything(t *testing.T) {
	w := newUsageWorld(t)
	base := w.create("base")
	w.write(base, 100, 400, 100)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			u, err := Of(base)
			if err != nil || u.UniqueBytes < 0 || u.SharedBytes < 0 || u.SharedBytes > u.LogicalBytes {
				t.Errorf("usage %d: %+v, %v", n, u, err)
				return
			}
		}
	}()
	for i := range 60 {
		fork := w.fork(base, "fork")
		w.write(fork, 100+i, 160+i, 50)
		w.write(base, 200+i, 210+i, 60+i)
		var err error
		if i%3 > 0 {
			_, err = base.Promote(context.Background(), fork, true, timeline.Actor{})
		} else {
			err = fork.Remove(context.Background(), true, timeline.Actor{})
		}
		if err == nil {
			err = w.e.Tidy(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
}
