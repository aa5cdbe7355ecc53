package fusefs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

func TestErrnoTable(t *testing.T) {
	for k := range tine.NumKinds {
		if errnos[k] == 0 {
			t.Errorf("kind %v has no errno", tine.ErrorKind(k))
		}
	}
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{tine.ErrNotFound, syscall.ENOENT},
		{tine.ErrTooLarge, syscall.E2BIG},
		{fmt.Errorf("context: %w", tine.ErrStale), syscall.ESTALE},
		{errors.New("anything"), syscall.EIO},
		{tine.Errorf(tine.KindQuota, "full"), syscall.ENOSPC},
	} {
		if got := Errno(c.err); got != c.want {
			t.Errorf("%v gives %v, want %v", c.err, got, c.want)
		}
	}
}

func TestNodeIDs(t *testing.T) {
	ids := newNodeIDs(1)
	old := volume.Node{Gen: 1, Ino: 5}
	id := ids.hold(old)
	if inoOf(id) != 5 || ids.node(id) != old {
		t.Fatalf("id %#x means %v", id, ids.node(id))
	}
	if ids.id(volume.Node{Gen: 1, Ino: tine.RootIno}) != fuse.FUSE_ROOT_ID || ids.node(fuse.FUSE_ROOT_ID) != volume.Root {
		t.Error("the root is not node 1")
	}
	kept := id
	// More rollbacks than there are slots, while the kernel holds one node.
	for gen := uint32(2); gen < 3*maxSlot; gen++ {
		n := volume.Node{Gen: gen, Ino: 5}
		id := ids.hold(n)
		if ids.node(id) != n || id == kept || id>>inoBits == 0 || id>>inoBits > maxSlot {
			t.Fatalf("generation %d: id %#x means %v", gen, id, ids.node(id))
		}
		ids.forget(id, 1)
	}
	if ids.node(kept) != old {
		t.Errorf("the node that was held all the time is now %v", ids.node(kept))
	}
	ids.forget(kept, 1)
	late := ids.hold(volume.Node{Gen: 7, Ino: 9})
	if ids.current.Load().gen != 3*maxSlot-1 || ids.node(late).Gen != 7 {
		t.Error("a late reply of an older generation made it current")
	}
	if n := ids.node(uint64(maxSlot+1)<<inoBits | 5); n.Gen != staleGen {
		t.Errorf("an id that was never given means %v", n)
	}
	if len(ids.bySlot) > 3 {
		t.Errorf("%d generations are remembered", len(ids.bySlot))
	}
}

// TestHolds: the kernel knows a node until it has forgotten it as often as it
// was given it.
func TestHolds(t *testing.T) {
	ids := newNodeIDs(1)
	n := volume.Node{Gen: 1, Ino: 5}
	if ids.holds(n) {
		t.Error("known before it was given")
	}
	id := ids.hold(n)
	ids.hold(n)
	ids.hold(volume.Node{Gen: 2, Ino: 5})
	if ids.forget(id, 1) || !ids.holds(n) {
		t.Error("forgotten after one of two")
	}
	if !ids.forget(id, 1) || ids.holds(n) {
		t.Error("known after two of two")
	}
	if !ids.holds(volume.Node{Gen: 2, Ino: 5}) {
		t.Error("another generation's was forgotten")
	}
	for i := range ids.counts {
		if got := len(ids.counts[i].holds); got > 1 {
			t.Errorf("%d nodes are counted", got)
		}
	}
}

func TestHandles(t *testing.T) {
	var h handles[int]
	one, two := 1, 2
	a, b := h.add(&one), h.add(&two)
	if h.get(a) != &one || h.get(b) != &two || h.get(99) != nil {
		t.Error("handles do not stand for what was added")
	}
	if h.remove(a) != &one || h.remove(a) != nil || h.get(a) != nil {
		t.Error("a removed handle still stands for something")
	}
	if c := h.add(&two); c != a {
		t.Errorf("a free number is not used again: %d, want %d", c, a)
	}
	if n := len(h.all()); n != 2 {
		t.Errorf("%d handles are open, want 2", n)
	}
}

func TestPlainInodes(t *testing.T) {
	p := new(plainInodes)
	plain, other := &volume.Attr{}, &volume.Attr{Xattrs: true}
	p.note(10, plain, p.before())
	p.note(11, other, p.before())
	if !p.has(10) || p.has(11) {
		t.Error("notes are not as given")
	}
	before := p.before()
	p.changed(10)
	p.note(10, plain, before) // a reader that looked before the change
	if p.has(10) {
		t.Error("an answer from before the change was kept")
	}
}

func TestFeatureNames(t *testing.T) {
	for f := Features(1); f < AllFeatures; f <<= 1 {
		if got, err := ParseFeatures(f.String()); err != nil || got != f {
			t.Errorf("%q parses to %v, %v", f, got, err)
		}
	}
	if got, err := ParseFeatures(AllFeatures.String()); err != nil || got != AllFeatures {
		t.Errorf("all features parse to %v, %v", got, err)
	}
	if _, err := ParseFeatures("warp"); tine.KindOf(err) != tine.KindInvalid {
		t.Errorf("an unknown feature gives %v", err)
	}
}

func TestTimes(t *testing.T) {
	for _, ns := range []int64{0, 1, -1, 1_500_000_000, -1_500_000_000, -1_000_000_000} {
		sec, nsec := splitTime(ns)
		if nsec >= 1e9 || joinTime(sec, nsec) != ns {
			t.Errorf("%d ns splits into %d s %d ns", ns, int64(sec), nsec)
		}
	}
}

func TestTimesThatDoNotFit(t *testing.T) {
	for _, sec := range []int64{1 << 40, math.MaxInt64, 9_223_372_036} {
		if got := joinTime(uint64(sec), 999_999_999); got != 9_223_372_035e9 {
			t.Errorf("%d s give %d ns", sec, got)
		}
		if got := joinTime(uint64(-sec), 0); got != -9_223_372_035e9 {
			t.Errorf("%d s give %d ns", -sec, got)
		}
	}
}

func TestParseMountTable(t *testing.T) {
	const text = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 22 0:41 / /mnt/with\040blank rw,nosuid - fuse.tine tine rw,user_id=0
not a line
`
	want := []mountEntry{{"/", "ext4", unix.Mkdev(8, 1)}, {"/mnt/with blank", "fuse.tine", unix.Mkdev(0, 41)}}
	if got := parseMountTable(text); !slices.Equal(got, want) {
		t.Errorf("parsed %v", got)
	}
}

func TestProcessStatus(t *testing.T) {
	status := []byte("Name:\tx\nUid:\t1\t2\t3\t5\nGid:\t1\t1\t1\t1\nGroups:\t4 24 1000 \nNStgid:\t7\n")
	if got := idsOf(status, "Uid:"); !slices.Equal(got, []uint32{1, 2, 3, 5}) {
		t.Errorf("users %v", got)
	}
	got := idsOf(status, "Groups:")
	if !slices.Equal(got, []uint32{4, 24, 1000}) {
		t.Errorf("parsed %v", got)
	}
}
