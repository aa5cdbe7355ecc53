package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// finish compares everything once more, and again after closing and opening.
// With Drain it then gives up all but one disk and looks for what was not
// freed.
func (w *World) finish() error {
	if err := w.compareAll(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	if err := w.reopen(); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	if !w.cfg.Drain {
		return nil
	}
	if err := w.drain(); err != nil {
		return fmt.Errorf("after giving up all but one disk: %w", err)
	}
	return nil
}

// drain removes all but one disk and all checkpoints, waits until there is
// nothing left to free, and looks at what is left; then it empties the disk,
// and looks again.
func (w *World) drain() error {
	ctx := context.Background()
	d := w.disks[0]
	for _, x := range w.disks[1:] {
		if err := w.purge(x); err != nil {
			return fmt.Errorf("removing %s: %w", x.name, err)
		}
	}
	w.disks = w.disks[:1]
	for _, x := range slices.Backward(w.trash) {
		if err := w.purgeTrash(d, x); err != nil {
			return err
		}
	}
	w.trash = nil
	for _, c := range d.checkpoints {
		if err := w.host.RemoveCheckpoint(ctx, caller, d.name, c.name); err != nil {
			return fmt.Errorf("removing checkpoint %s: %w", c.name, err)
		}
	}
	d.checkpoints = nil
	if err := w.noLeak(d); err != nil {
		return err
	}
	if err := w.empty(d); err != nil {
		return err
	}
	if err := w.noLeak(d); err != nil {
		return fmt.Errorf("with the disk empty: %w", err)
	}
	if err := w.host.Close(ctx); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	w.host = nil
	return w.onlyRootRows()
}

// purgeTrash gives up a removed disk for good, out of the way of the name of
// the one that stays.
func (w *World) purgeTrash(d, x *disk) error {
	ctx := context.Background()
	if x.name == d.name {
		w.named++
		name := fmt.Sprintf("disk%d", w.named)
		if _, err := w.host.RenameDisk(ctx, caller, d.name, name); err != nil {
			return fmt.Errorf("renaming %s: %w", d.name, err)
		}
		d.name = name
	}
	if _, err := w.host.UndeleteDisk(ctx, caller, x.name); err != nil {
		return fmt.Errorf("undeleting %s: %w", x.name, err)
	}
	if err := w.purge(x); err != nil {
		return fmt.Errorf("removing %s: %w", x.name, err)
	}
	return nil
}

// noLeak waits for background work and compares what the host says it keeps
// with what the one disk that is left shows.
func (w *World) noLeak(d *disk) error {
	if err := w.host.ReclaimIdle(context.Background()); err != nil {
		return fmt.Errorf("reclaim: %w", err)
	}
	got, err := w.read(volume.Ref{Disk: d.name})
	if err != nil {
		return err
	}
	if err := difference(d.fs.Tree, got); err != nil {
		return err
	}
	var large int64 // bytes that cannot lie in rows
	got.All(func(n *posix.Node) {
		if a := n.Content.Allocated(); a > tine.InlineBytes {
			large += a
		}
	})
	s := w.host.Stats()
	switch {
	case s.Trees != 1 || s.Disks != 1 || s.Lines != 1 || s.Checkpoints != 0 || s.PendingTasks != 0:
		return fmt.Errorf("one disk is left; the host has %+v", s)
	case w.copies == 0 && (s.LiveBytes < large || s.LiveBytes > got.Bytes):
		return fmt.Errorf("the disk shows %d bytes, %d of them in large files; the host keeps %d", got.Bytes, large, s.LiveBytes)
	case got.Inodes == 1 && (s.LiveBytes != 0 || s.Segments != 0):
		return fmt.Errorf("the disk is empty; the host has %+v", s)
	}
	return nil
}

// empty removes everything from the disk.
func (w *World) empty(d *disk) error {
	t := &turn{World: w, d: d, r: rand.New(rand.NewPCG(w.cfg.Seed, 1<<62))}
	if err := t.attach(); err != nil {
		return err
	}
	t.s = d.sessions[len(d.sessions)-1]
	d.fs.Now = w.clock.Now().UnixNano()
	var clear func(dir tine.Ino) error
	clear = func(dir tine.Ino) error {
		for _, e := range d.fs.Get(dir).Names {
			var err error
			if d.fs.Get(e.Ino).IsDir() {
				if err = clear(e.Ino); err == nil {
					err = t.removal("rmdir", dir, e.Name, t.s.Rmdir, d.fs.Rmdir)
				}
			} else {
				err = t.removal("unlink", dir, e.Name, t.s.Unlink, d.fs.Unlink)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := clear(tine.RootIno); err != nil {
		return fmt.Errorf("emptying: %w", err)
	}
	for _, x := range d.fs.Get(tine.RootIno).Xattrs {
		if err := t.s.RemoveXattr(volume.Cred{}, volume.Root, x.Name); err != nil {
			return fmt.Errorf("emptying: %w", err)
		}
		if err := d.fs.RemoveXattr(tine.RootIno, x.Name); err != nil {
			return fmt.Errorf("emptying the model: %w", err)
		}
	}
	return w.letGo(d)
}

// onlyRootRows looks into the closed row store: of an empty disk nothing may
// be left but its root and what describes it.
func (w *World) onlyRootRows() error {
	rows, err := pebble.Open(pebble.Options{Dir: "/data/rows", FS: w.mem, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("opening the rows: %w", err)
	}
	defer rows.Close()
	want := map[record.Table]int{record.TableTree: 1, record.TableTimeline: 1, record.TableDisk: 1, record.TableInode: 1, record.TableCounters: 1}
	found := map[record.Table]int{}
	return eachRow(rows, func(_ [tine.IDSize]byte, l record.Logical, epoch tine.Epoch, v []byte) error {
		if found[l.Table()]++; found[l.Table()] > want[l.Table()] && l.Table() != record.TableLog && l.Table() != record.TableAlias {
			return fmt.Errorf("it is left over: %x", v)
		}
		return nil
	})
}

func tableName(t record.Table) string {
	names := map[record.Table]string{
		record.TableTimeline: "timeline", record.TableCheckpoint: "checkpoint", record.TableSegment: "segment",
		record.TableTail: "tail", record.TableTask: "task", record.TableLive: "live", record.TablePiece: "piece",
		record.TableInode: "inode", record.TableDentry: "dentry", record.TableCookie: "cookie", record.TableChunk: "chunk",
		record.TableXattr: "xattr", record.TableLink: "link", record.TableOrphan: "orphan", record.TableCounters: "counters",
	}
	if n, ok := names[t]; ok {
		return n
	}
	return fmt.Sprintf("of table %#x", byte(t))
}
