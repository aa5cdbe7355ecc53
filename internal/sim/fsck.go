package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/fsck"
	"tine.dev/tine/internal/fs/kv/pebble"
)

// fsckClone runs the independent checker on a copy of what the Host, closed or
// crashed, has left. Leaks are allowed: what a crash interrupts is made up for
// at the next start.
func (w *World) fsckClone() error {
	clone := w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	if _, err := clone.Stat("/data/rows"); err != nil {
		return nil // the crash came before there were any rows
	}
	rows, err := pebble.Open(pebble.Options{Dir: "/data/rows", FS: clone, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("opening the rows: %w", err)
	}
	defer rows.Close()
	r, err := fsck.Check(fsck.Options{Rows: rows, FS: clone, SegmentDir: "/data/segments", Data: true})
	if err != nil {
		return fmt.Errorf("fsck: %w", err)
	}
	return fsckErrors(r)
}

func fsckErrors(r *fsck.Report) error {
	var bad []string
	for _, f := range r.Findings {
		if f.Severity == fsck.Error && len(bad) < 20 {
			bad = append(bad, fmt.Sprintf("%s %s %s: %s (%s)", f.Code, f.Disk, f.Path, f.What, f.Key))
		}
	}
	if r.Clean() {
		return nil
	}
	return errors.New("fsck finds:\n" + strings.Join(bad, "\n"))
}

// fsckLive runs the checker on the rows of the open Host, as the server does,
// and compares what each disk takes up, as the Host says, with what fsck
// counts. Nothing may be attached.
func (w *World) fsckLive() error {
	ctx := context.Background()
	if err := w.host.ReclaimIdle(ctx); err != nil {
		return err
	}
	stored, err := w.host.Stored(ctx)
	if err != nil {
		return err
	}
	o := fsck.Options{Rows: stored.Rows, FS: stored.FS, SegmentDir: stored.Segments, Live: true}
	r, err := fsck.Check(o)
	if err == nil {
		err = fsckErrors(r)
	}
	if err != nil {
		return err
	}
	us, err := fsck.Usage(o)
	if err != nil {
		return err
	}
	for _, d := range w.disks {
		u, err := w.host.Usage(ctx, caller, d.name)
		if err != nil {
			return err
		}
		for _, m := range us {
			if m.Disk == d.name && (m.Inodes != u.Inodes || m.LogicalBytes != u.LogicalBytes || m.UniqueBytes != u.UniqueBytes || m.SharedBytes != u.SharedBytes) {
				return fmt.Errorf("usage of %s: the Host says %+v, fsck counts %+v", d.name, u, m)
			}
		}
	}
	return nil
}
