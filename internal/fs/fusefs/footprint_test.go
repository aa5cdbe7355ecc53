package fusefs

import (
	"runtime"
	"testing"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// The kernel may hold every inode of a disk, and never forget one while it has
// memory: what is noted of each must be next to nothing, and go when the kernel
// forgets.
func TestHeldNodesAreSmall(t *testing.T) {
	const nodes, most = 1 << 18, 48
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	ids := newNodeIDs(1)
	before := heap()
	for round := range 2 { // a second look-up of a node takes no more
		for ino := range uint64(nodes) {
			ids.hold(volume.Node{Gen: 1, Ino: tine.Ino(ino + 2)})
		}
		each := float64(heap()-before) / nodes
		t.Logf("after %d look-ups of %d nodes: %.1f bytes for each", round+1, nodes, each)
		if each > most {
			t.Errorf("a node that the kernel holds takes %.1f bytes; at most %d", each, most)
		}
	}
	for ino := range uint64(nodes) {
		n := volume.Node{Gen: 1, Ino: tine.Ino(ino + 2)}
		if !ids.forget(ids.id(n), 2) || ids.holds(n) {
			t.Fatalf("inode %d is held still", n.Ino)
		}
	}
	left := 0
	for i := range ids.counts {
		left += len(ids.counts[i].holds)
	}
	if left != 0 {
		t.Errorf("%d nodes are noted that the kernel has forgotten", left)
	}
}
