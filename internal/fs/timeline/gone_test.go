package timeline_test

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// TestNothingIsDoneToADiskThatIsGone: who found a disk by its name and is
// overtaken by its purge or promotion is told that it is gone, whatever it
// wanted; a checkpoint, fork or name of it would outlive it, and the next start
// would find them without their disk.
func TestNothingIsDoneToADiskThatIsGone(t *testing.T) {
	ctx, who := context.Background(), timeline.Actor{}
	rows, fs := mem.New(), vfs.NewMem()
	open := func() (*timeline.Engine, *segment.Store) {
		segs, err := segment.Open(segment.Options{FS: fs, Dir: "segments"})
		if err != nil {
			t.Fatal(err)
		}
		e, err := timeline.Open(timeline.Options{Rows: rows, Segments: segs, CommitInterval: -1, Manual: true,
			Reap: func(*timeline.Txn) (bool, error) { return false, nil }})
		if err != nil {
			t.Fatal(err)
		}
		return e, segs
	}
	e, segs := open()
	base, err := e.Create(ctx, tine.DefaultTenant, "base", who, timeline.Origin{Counters: record.Counters{NextIno: 2, NextCookie: 1}})
	if err != nil {
		t.Fatal(err)
	}
	forks, _, err := base.Fork("", []string{"purged", "promoted", "other"}, who)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range forks {
		if _, _, err := d.Checkpoint("cp", "", who); err != nil {
			t.Fatal(err)
		}
	}
	purged, promoted, other := forks[0], forks[1], forks[2]
	if err := purged.Remove(ctx, true, who); err != nil {
		t.Fatal(err)
	}
	if _, err := base.Promote(ctx, promoted, true, who); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*timeline.Disk{purged, promoted} {
		for what, do := range map[string]func() error{
			"checkpoint":    func() error { _, _, err := d.Checkpoint("late", "", who); return err },
			"fork":          func() error { _, _, err := d.Fork("", []string{"late"}, who); return err },
			"rename":        func() error { return d.Rename(ctx, "late", who) },
			"attach":        func() error { _, err := d.Attach(""); return err },
			"rollback":      func() error { _, err := d.Rollback(ctx, "cp", who); return err },
			"undo":          func() error { _, err := d.Undo(ctx, who); return err },
			"promote":       func() error { _, err := other.Promote(ctx, d, true, who); return err },
			"promotion on":  func() error { _, err := d.Promote(ctx, other, true, who); return err },
			"quota":         func() error { return d.SetQuota(ctx, func(q timeline.Quota) timeline.Quota { return q }, who) },
			"checkpoint rm": func() error { return d.RemoveCheckpoint(ctx, "cp", who) },
			"remove":        func() error { return d.Remove(ctx, false, who) },
			"purge":         func() error { return d.Remove(ctx, true, who) },
		} {
			if err := do(); tine.KindOf(err) != tine.KindNotFound || err == nil {
				t.Errorf("%s: %v; want a disk that is gone", what, err)
			}
		}
	}
	if err := e.Tidy(ctx); err != nil {
		t.Error(err)
	}
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	segs.Close()
	e, segs = open()
	for _, name := range []string{"base", "other"} {
		d, err := e.Find(tine.DefaultTenant, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Info(); err != nil {
			t.Errorf("%s, opened again: %v", name, err)
		}
	}
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	segs.Close()
	rows.Close()
}
