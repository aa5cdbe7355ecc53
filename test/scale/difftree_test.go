package scale_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/volume"
)

// A diff costs with the changes, not with the tree. It is measured in two
// shapes: files in directories of 500, and all files in one directory, where a
// diff that lists the directories above a change would read everything.

const (
	treeChanges = 100
	diffRuns    = 200
	coldRuns    = 20 // before those, which fill the row store's cache
)

// diffTree is a disk of some files and a fork of it with some changes.
type diffTree struct {
	host  *volume.Host
	files int
	flat  bool
	diff  times
	cpu   times // of the processor, which others' load does not change
}

func newDiffTree(t *testing.T, files int, flat bool) *diffTree {
	t.Helper()
	store := t.TempDir()
	d := &diffTree{host: openHost(t, store), files: files, flat: flat}
	_, err := d.host.CreateDisk(ctx, me, "disk")
	check(t, err)
	s := attach(t, d.host, "disk")
	if flat {
		_, dir, err := s.Mkdir(root, volume.Root, "flat", 0o755)
		check(t, err)
		for i := range files {
			put(t, s, dir, fmt.Sprintf("file-%d", i), []byte("a small file\n"))
		}
	} else {
		makeTree(t, s, files)
	}
	check(t, s.Detach(ctx))
	// Opened again, the rows lie in tables and not in memory.
	check(t, d.host.ReclaimIdle(ctx))
	check(t, d.host.Close(ctx))
	d.host = openHost(t, store)
	t.Cleanup(func() { check(t, d.host.Close(ctx)) })
	fork(t, d.host, "disk", "fork")
	d.change(t)
	check(t, d.host.ReclaimIdle(ctx))
	return d
}

// dir opens the directory of a file.
func (d *diffTree) dir(t *testing.T, s *volume.Session, i int) (n volume.Node, path string) {
	t.Helper()
	path = "flat"
	if !d.flat {
		path = fmt.Sprintf("top/dir-%d", i/filesPerDir)
	}
	_, n, err := s.Resolve("/"+path, false)
	check(t, err)
	return n, path
}

// change makes as many changes as are looked for, of five kinds in turn and
// spread over the tree.
func (d *diffTree) change(t *testing.T) {
	t.Helper()
	s := attach(t, d.host, "fork")
	for k := range treeChanges {
		i := k * (d.files / treeChanges)
		dir, _ := d.dir(t, s, i)
		name := fmt.Sprintf("file-%d", i)
		switch k % 5 {
		case 0:
			put(t, s, dir, name, []byte("other content"))
		case 1:
			_, n, err := s.Lookup(dir, name)
			check(t, err)
			mode := uint32(0o600)
			_, err = s.SetAttr(root, n, volume.SetAttr{Mode: &mode})
			check(t, err)
		case 2:
			check(t, s.Unlink(root, dir, name))
		case 3:
			put(t, s, dir, name+"-new", []byte("new"))
		case 4:
			check(t, s.Rename(root, dir, name, dir, name+"-moved", 0))
		}
	}
	check(t, s.Detach(ctx))
}

// want is what a diff must say: every path that changed, with how.
func (d *diffTree) want() map[string]volume.Change {
	want := map[string]volume.Change{}
	for k := range treeChanges {
		i := k * (d.files / treeChanges)
		path := "flat"
		if !d.flat {
			path = fmt.Sprintf("top/dir-%d", i/filesPerDir)
		}
		path = fmt.Sprintf("%s/file-%d", path, i)
		switch k % 5 {
		case 0:
			want[path] = volume.Change{Kind: volume.Changed, Content: true, Metadata: true}
		case 1:
			want[path] = volume.Change{Kind: volume.Changed, Metadata: true}
		case 2:
			want[path] = volume.Change{Kind: volume.Removed}
		case 3:
			want[path+"-new"] = volume.Change{Kind: volume.Added}
		case 4:
			want[path] = volume.Change{Kind: volume.Removed}
			want[path+"-moved"] = volume.Change{Kind: volume.Added}
		}
	}
	return want
}

// processorTime is what the calling thread has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	check(t, unix.Getrusage(unix.RUSAGE_THREAD, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// once diffs, checks every change and takes the time.
func (d *diffTree) once(t *testing.T, want map[string]volume.Change) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var got []volume.Change
	before := processorTime(t)
	d.diff.timed(func() {
		check(t, d.host.Diff(ctx, me, volume.Ref{Disk: "disk"}, volume.Ref{Disk: "fork"}, func(c volume.Change) error {
			got = append(got, c)
			return nil
		}))
	})
	d.cpu = append(d.cpu, processorTime(t)-before)
	if len(got) != len(want) {
		t.Fatalf("%d changes found, want %d", len(got), len(want))
	}
	for _, c := range got {
		w, ok := want[string(c.Path)]
		if !ok || c.Kind != w.Kind || c.Content != w.Content || c.Metadata != w.Metadata {
			t.Fatalf("found %q: %+v, want %+v", c.Path, c, w)
		}
	}
}

func TestDiff(t *testing.T) {
	n := size(*files, 20_000, 1_000_000)
	for _, flat := range []bool{false, true} {
		name := fmt.Sprintf("directories of %d", filesPerDir)
		if flat {
			name = "one directory"
		}
		t.Run(name, func(t *testing.T) {
			small, large := newDiffTree(t, n/10, flat), newDiffTree(t, n, flat)
			wantSmall, wantLarge := small.want(), large.want()
			for range coldRuns + diffRuns {
				small.once(t, wantSmall)
				large.once(t, wantLarge)
			}
			t.Logf("the first diffs: %v, %v", small.diff[:1], large.diff[:1])
			for _, d := range []*diffTree{small, large} {
				d.diff, d.cpu = d.diff[coldRuns:], d.cpu[coldRuns:]
			}
			t.Logf("%.2f times the processor's time: %v, %v", float64(large.cpu.median())/float64(small.cpu.median()), small.cpu, large.cpu)
			compare(t, fmt.Sprintf("diff with a fork of %d changes, %s", treeChanges, name),
				fmt.Sprintf("%d files", small.files), small.diff, fmt.Sprintf("%d files", large.files), large.diff, bound(1.5, 4))
		})
	}
}
