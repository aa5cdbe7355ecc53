package crash_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/api"
	"tine.dev/tine/test/rig"
)

// running is a data directory that the real program serves.
type running struct {
	ctx context.Context
	rig *rig.Rig
	api *api.Client
}

// recoverReal has the real program recover what is left, and looks at it
// through mounts.
func (r *recording) recoverReal(t *testing.T, binary string, fs vfs.FS, pos int64) (err error) {
	g, err := rig.New(binary, t.TempDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := export(fs, dataDir, g.Data()); err != nil {
		return err
	}
	// The clients' mounts are of another rig.
	if err := os.Remove(filepath.Join(g.Data(), "mounts.json")); err != nil && !os.IsNotExist(err) {
		return err
	}
	if _, err := g.Start(t.Context()); err != nil {
		return err
	}
	a := api.NewClient(filepath.Join(g.Dir(), "tine.sock"), "crash")
	defer a.Close()
	if err := check(running{t.Context(), g, a}, r.clients, pos); err != nil {
		return fmt.Errorf("%w\n%s", err, g.LogEnd())
	}
	return g.Stop(t.Context())
}

func (r running) disks() (map[string]bool, error) {
	ds, err := r.api.Disks(r.ctx, false)
	names := map[string]bool{}
	for _, d := range ds {
		names[d.Name] = true
	}
	return names, err
}

func (r running) checkpoints(disk string) (map[string]bool, error) {
	cs, err := r.api.Checkpoints(r.ctx, disk)
	names := map[string]bool{}
	for _, c := range cs {
		if !c.Auto {
			names[c.Name] = true
		}
	}
	return names, err
}

func (r running) text(ref string) (string, error) {
	at, err := r.rig.Mount(r.ctx, ref)
	if err != nil {
		return "", err
	}
	t, seen := tree{}, map[uint64]*file{}
	err = filepath.Walk(at, func(p string, fi os.FileInfo, err error) error {
		if err != nil || p == at {
			return err
		}
		name, err := filepath.Rel(at, p)
		if err != nil || fi.IsDir() {
			t[name] = &file{dir: true}
			return err
		}
		ino := fi.Sys().(*syscall.Stat_t).Ino
		if seen[ino] == nil {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			seen[ino] = &file{data: data}
		}
		t[name] = seen[ino]
		return nil
	})
	return t.lines(), errors.Join(err, r.rig.Unmount(r.ctx, ref))
}
