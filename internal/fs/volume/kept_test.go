package volume_test

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// kernel attaches as a kernel does: it knows inodes until it forgets them.
func kernel(t *testing.T, h *volume.Host, told func(volume.Invalidation), strangers ...volume.Node) *volume.Session {
	t.Helper()
	strange := map[volume.Node]bool{}
	for _, n := range strangers {
		strange[n] = true
	}
	s, err := h.Attach(ctx, me, volume.Ref{Disk: "d"}, volume.AttachOptions{Invalidate: told,
		Knows: func(n volume.Node) bool { return !strange[n] }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newDisk(t *testing.T) *volume.Host {
	t.Helper()
	h := open(t, volume.Options{FS: vfs.NewMem()})
	if _, err := h.CreateDisk(ctx, me, "d"); err != nil {
		t.Fatal(err)
	}
	return h
}

func node(t *testing.T, s *volume.Session, name string) volume.Node {
	t.Helper()
	_, n, err := s.Lookup(volume.Root, name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func inodes(t *testing.T, s *volume.Session) int64 {
	t.Helper()
	st, err := s.StatFS()
	if err != nil {
		t.Fatal(err)
	}
	return st.Inodes
}

// TestKeptUntilForgotten: what loses its last name stays for the client that
// took the name, until it forgets or ends.
func TestKeptUntilForgotten(t *testing.T) {
	h := newDisk(t)
	defer h.Close(ctx)
	s := kernel(t, h, nil)
	before := inodes(t, s)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, s, "a", []byte("unlinked"))
	write(t, s, "b", []byte("replaced"))
	write(t, s, "c", []byte("new"))
	_, d, err := s.Mkdir(root, volume.Root, "d", 0o755)
	must(err)
	gone := []volume.Node{node(t, s, "a"), node(t, s, "b"), d}
	must(s.Unlink(root, volume.Root, "a"))
	must(s.Rename(root, volume.Root, "c", volume.Root, "b", 0))
	must(s.Rmdir(root, volume.Root, "d"))
	for i, want := range []string{"unlinked", "replaced"} {
		f, err := s.Open(gone[i])
		must(err)
		p := make([]byte, 20)
		if n, err := f.ReadAt(p, 0); err != nil || string(p[:n]) != want {
			t.Errorf("what was %s has %q, %v", want, p[:n], err)
		}
		must(f.Close())
	}
	for _, n := range gone {
		if a, err := s.GetAttr(n); err != nil || a.Nlink != 0 {
			t.Errorf("inode %d: %d links, %v", n.Ino, a.Nlink, err)
		}
		s.Forget(n)
		s.Forget(n)
		if _, err := s.GetAttr(n); !errors.Is(err, tine.ErrStale) {
			t.Errorf("forgotten inode %d: %v", n.Ino, err)
		}
	}
	if n := inodes(t, s); n != before+1 {
		t.Errorf("%d inodes are left, want %d", n, before+1)
	}
	must(s.Unlink(root, volume.Root, "b"))
	must(s.Detach(ctx))
	s = attach(t, h, "d")
	defer s.Detach(ctx)
	if n := inodes(t, s); n != before {
		t.Errorf("%d inodes after the client's end, want %d", n, before)
	}
	write(t, s, "e", nil)
	e := node(t, s, "e")
	must(s.Unlink(root, volume.Root, "e"))
	if _, err := s.GetAttr(e); !errors.Is(err, tine.ErrStale) {
		t.Errorf("a client that asks for nothing keeps what it removes: %v", err)
	}
}

// TestKeptByOthers: what one client removes stays for those that know it, and
// only for those.
func TestKeptByOthers(t *testing.T) {
	h := newDisk(t)
	defer h.Close(ctx)
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	write(t, s, "f", []byte("known"))
	write(t, s, "g", []byte("to one"))
	f, g := node(t, s, "f"), node(t, s, "g")
	a, b := kernel(t, h, nil), kernel(t, h, nil, g)
	defer a.Detach(ctx)
	for _, name := range []string{"f", "g"} {
		if err := s.Unlink(root, volume.Root, name); err != nil {
			t.Fatal(err)
		}
	}
	there := func(n volume.Node, want bool) {
		t.Helper()
		if _, err := s.GetAttr(n); (err == nil) != want {
			t.Errorf("inode %d: %v, want it there: %v", n.Ino, err, want)
		}
	}
	b.Forget(g) // it never knew it
	there(g, true)
	a.Forget(g)
	there(g, false)
	a.Forget(f)
	there(f, true)
	if err := b.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	there(f, false)
}

// TestAwaitForgotten: whoever waits for room sees what a removal has freed.
func TestAwaitForgotten(t *testing.T) {
	h := newDisk(t)
	defer h.Close(ctx)
	s := kernel(t, h, nil)
	defer s.Detach(ctx)
	if s.AwaitForgotten() {
		t.Error("there was nothing to wait for")
	}
	before := inodes(t, s)
	for range 100 {
		write(t, s, "f", []byte("x"))
		n := node(t, s, "f")
		if err := s.Unlink(root, volume.Root, "f"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { s.Forget(n) })
		s.AwaitForgotten()
		if n := inodes(t, s); n != before {
			t.Fatalf("%d inodes after the wait, want %d", n, before)
		}
		wg.Wait()
	}
}

// TestRenameTellsOfInodes: other clients learn that the links and times of what
// was moved and replaced have changed.
func TestRenameTellsOfInodes(t *testing.T) {
	h := newDisk(t)
	defer h.Close(ctx)
	told := make(chan volume.Node, 100)
	other := kernel(t, h, func(i volume.Invalidation) {
		if i.Kind == volume.InvalidAttr {
			told <- i.Node
		}
	})
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	for _, name := range []string{"a", "b", "mark"} {
		write(t, s, name, nil)
	}
	a, b, mark := node(t, s, "a"), node(t, s, "b"), node(t, s, "mark")
	// since returns what was told of since it was called before.
	since := func() (all []volume.Node) {
		t.Helper()
		if err := s.SetXattr(root, mark, "user.mark", nil, 0); err != nil {
			t.Fatal(err)
		}
		for n := range told {
			if n == mark {
				break
			}
			all = append(all, n)
		}
		return all
	}
	if _, err := s.Link(root, b, volume.Root, "c"); err != nil {
		t.Fatal(err)
	}
	since()
	if err := s.Rename(root, volume.Root, "a", volume.Root, "b", 0); err != nil {
		t.Fatal(err)
	}
	if all := since(); !slices.Contains(all, a) || !slices.Contains(all, b) {
		t.Errorf("told of %v, not of %v and %v", all, a, b)
	}
	if err := other.Detach(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestLocksJoin: ranges of one owner and kind that touch are one lock.
func TestLocksJoin(t *testing.T) {
	h := newDisk(t)
	defer h.Close(ctx)
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	write(t, s, "f", nil)
	n := node(t, s, "f")
	lock := func(k volume.LockKind, start, end int64) {
		t.Helper()
		if err := s.SetLock(ctx, n, volume.Lock{Kind: k, Start: start, End: end, Owner: 1}, false); err != nil {
			t.Fatal(err)
		}
	}
	held := func(at int64) volume.Lock {
		t.Helper()
		l, err := s.GetLock(n, volume.Lock{Kind: volume.WriteLock, Start: at, End: at, Owner: 2})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	want := func(at, start, end int64) {
		t.Helper()
		if l := held(at); l.Kind == volume.Unlock || l.Start != start || l.End != end {
			t.Errorf("at %d the lock is %+v, want one of %d to %d", at, l, start, end)
		}
	}
	lock(volume.WriteLock, 0, 9)
	lock(volume.Unlock, 3, 5)
	want(1, 0, 2)
	want(7, 6, 9)
	lock(volume.WriteLock, 3, 5)
	want(4, 0, 9)
	lock(volume.ReadLock, 10, math.MaxInt64)
	want(4, 0, 9)
	want(50, 10, math.MaxInt64)
	lock(volume.WriteLock, 5, math.MaxInt64)
	want(4, 0, math.MaxInt64)
	lock(volume.Unlock, 0, math.MaxInt64)
	if l := held(4); l.Kind != volume.Unlock {
		t.Errorf("unlocked, and still %+v", l)
	}
}
