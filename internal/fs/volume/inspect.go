package volume

import (
	"context"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// Stored is where a host keeps what it has committed, for those who look at it
// from outside: rows, and the folder of segment files. It must only be read,
// and rows only through snapshots.
type Stored struct {
	Rows     kv.Store
	FS       vfs.FS
	Segments string
}

// Stored makes durable what has reached the living disks, and returns where it
// is kept. It stays good until Close. On a full device what is durable is all
// that can be looked at. Errors: those of a sync, and of the removal
// of what a crash has left.
func (h *Host) Stored(ctx context.Context) (Stored, error) {
	if err := h.engine.RemoveStrays(); err != nil {
		return Stored{}, err
	}
	for _, d := range h.engine.Disks(tine.DefaultTenant, false) {
		if err := d.Sync(ctx); err != nil && tine.KindOf(err) != tine.KindNoSpace {
			return Stored{}, err
		}
	}
	return Stored{h.rows, h.fs, filepath.Join(h.dir, "segments")}, nil
}
