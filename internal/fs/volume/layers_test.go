package volume_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// heldRows is a store whose commits wait while the gate is locked.
type heldRows struct {
	kv.Store
	gate sync.RWMutex
}

func (h *heldRows) Commit(b kv.Batch, sync bool) error {
	h.gate.RLock()
	defer h.gate.RUnlock()
	return h.Store.Commit(b, sync)
}

// names lists the root directory.
func names(t *testing.T, s *volume.Session) (all []string) {
	t.Helper()
	d, err := s.OpenDir(volume.Root)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Read(0, func(e volume.DirEntry) bool {
		all = append(all, string(e.Name))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestForksShowWhatIsNotYetDurable: a chain of forks in which every level has
// written, and nothing has reached the store: look-ups, contents and listings of
// each level show what the levels above it had when it was made, and no more
// (I11). Then all of it becomes durable, and nothing changes.
func TestForksShowWhatIsNotYetDurable(t *testing.T) {
	rows := &heldRows{Store: mem.New()}
	h := open(t, volume.Options{FS: vfs.NewMem(), Rows: rows})
	if _, err := h.CreateDisk(ctx, me, "level-0"); err != nil {
		t.Fatal(err)
	}
	rows.gate.Lock()

	const depth = 4
	sessions := []*volume.Session{attach(t, h, "level-0")}
	for level := range depth {
		s := sessions[level]
		write(t, s, fmt.Sprintf("new-%d", level), fmt.Appendf(nil, "made at %d", level))
		write(t, s, "hot", fmt.Appendf(nil, "hot at %d", level))
		name := fmt.Sprintf("level-%d", level+1)
		if _, err := h.Fork(ctx, me, volume.Ref{Disk: fmt.Sprintf("level-%d", level)}, []string{name}, volume.WaitRunnable); err != nil {
			t.Fatal(err)
		}
		write(t, s, fmt.Sprintf("after-%d", level), []byte("after the fork"))
		sessions = append(sessions, attach(t, h, name))
	}
	look := func(when string) {
		t.Helper()
		for level, s := range sessions {
			want := []string{"hot"}
			for l := range depth {
				name := fmt.Sprintf("new-%d", l)
				_, _, err := s.Lookup(volume.Root, name)
				if l > level {
					if tine.KindOf(err) != tine.KindNotFound {
						t.Errorf("%s: level %d shows %s: %v", when, level, name, err)
					}
					continue
				}
				want = append(want, name)
				if got := string(read(t, s, name)); got != fmt.Sprintf("made at %d", l) {
					t.Errorf("%s: %s at level %d has %q", when, name, level, got)
				}
			}
			if level < depth {
				want = append(want, fmt.Sprintf("after-%d", level))
			}
			if got := string(read(t, s, "hot")); got != fmt.Sprintf("hot at %d", min(level, depth-1)) {
				t.Errorf("%s: hot at level %d has %q", when, level, got)
			}
			slices.Sort(want)
			if got := names(t, s); !slices.Equal(got, want) {
				t.Errorf("%s: level %d lists %s, want %s", when, level, strings.Join(got, " "), strings.Join(want, " "))
			}
		}
	}
	look("before anything is durable")
	rows.gate.Unlock()
	for _, s := range sessions {
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	look("when all is durable")
	for _, s := range sessions {
		if err := s.Detach(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
}
