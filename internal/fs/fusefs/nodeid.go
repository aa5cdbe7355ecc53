package fusefs

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const (
	inoBits = 48
	// maxSlot stays below 0xffff because the protocol library uses the node
	// id of 64 ones for a file of its own.
	maxSlot = 0xfffe
	// staleGen is a generation that no session ever has: what it names is
	// answered with ESTALE.
	staleGen = math.MaxUint32
)

// inoOf returns the inode number in a node id.
func inoOf(id uint64) uint64 { return id & uint64(tine.MaxIno) }

// nodeIDs translates between the kernel's node ids and nodes of the volume.
//
// The upper 16 bits of an id are a slot that stands for a generation, not the
// generation itself: a slot is given to another generation only when the
// kernel has forgotten every node that it learnt under it, so that however
// often a mounted disk is rolled back, an id never comes to mean something
// else (I17). Slot 0 is never used, so that id 1 can only be the root.
//
// How often each node was given to the kernel, less what it has forgotten, is
// counted: what it still holds must stay even without a name. That takes some
// 20 bytes for each inode that the kernel has cached, which takes a kilobyte
// there.
type nodeIDs struct {
	current atomic.Pointer[generation]
	counts  [countShards]countShard
	begun   time.Time

	mu     sync.Mutex // guards the fields below and changes of current
	bySlot map[uint16]*generation
	next   uint16
}

const countShards = 64

// countShard counts the holds of a part of the nodes.
type countShard struct {
	mu    sync.Mutex
	holds map[uint64]hold // by node id
}

// hold is what the kernel has been given of a node and not forgotten.
type hold struct {
	count uint32
	last  uint32 // when it was given last: milliseconds since the mount
}

// shard spreads neighbouring inode numbers over all shards.
func (t *nodeIDs) shard(id uint64) *countShard { return &t.counts[id%countShards] }

// generation is one generation of the disk as the kernel knows it.
type generation struct {
	slot uint16
	gen  uint32
	held atomic.Int64 // lookups that the kernel has not yet forgotten
}

func newNodeIDs(gen uint32) *nodeIDs {
	t := &nodeIDs{begun: time.Now(), bySlot: make(map[uint16]*generation), next: 1}
	t.current.Store(&generation{})
	t.start(gen)
	return t
}

// id returns the kernel's name for a node.
func (t *nodeIDs) id(n volume.Node) uint64 {
	if n.Ino == tine.RootIno {
		return fuse.FUSE_ROOT_ID
	}
	return uint64(t.generation(n.Gen).slot)<<inoBits | uint64(n.Ino)
}

// hold is id for a reply that gives the node to the kernel, which will
// forget it later.
func (t *nodeIDs) hold(n volume.Node) uint64 {
	if n.Ino == tine.RootIno {
		return fuse.FUSE_ROOT_ID
	}
	g := t.generation(n.Gen)
	g.held.Add(1)
	id := uint64(g.slot)<<inoBits | uint64(n.Ino)
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == nil {
		s.holds = make(map[uint64]hold)
	}
	s.holds[id] = hold{s.holds[id].count + 1, t.millis(time.Now())}
	return id
}

func (t *nodeIDs) millis(at time.Time) uint32 { return uint32(at.Sub(t.begun).Milliseconds()) }

// forget takes back count holds, and reports whether none is left.
func (t *nodeIDs) forget(id, count uint64) (last bool) {
	if id == fuse.FUSE_ROOT_ID {
		return false
	}
	s := t.shard(id)
	s.mu.Lock()
	h := s.holds[id]
	if last = uint64(h.count) <= count; last {
		delete(s.holds, id)
	} else {
		h.count -= uint32(count)
		s.holds[id] = h
	}
	s.mu.Unlock()
	if g := t.slot(uint16(id >> inoBits)); g != nil {
		g.held.Add(-int64(count))
	}
	return last
}

// holds reports whether the kernel may hold the node.
func (t *nodeIDs) holds(n volume.Node) bool {
	id := t.id(n)
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[id].count > 0
}

// given reports whether the kernel was given the node for the last time not
// longer than within before at. The counts of milliseconds may go round.
func (t *nodeIDs) given(id uint64, at time.Time, within time.Duration) bool {
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return int32(t.millis(at)-s.holds[id].last) <= int32(within.Milliseconds())
}

// node returns what an id names. The root is the root of whichever
// generation is current. An id of a slot that means nothing yields a node
// that the volume calls stale.
func (t *nodeIDs) node(id uint64) volume.Node {
	if id == fuse.FUSE_ROOT_ID {
		return volume.Root
	}
	g := t.slot(uint16(id >> inoBits))
	if g == nil {
		return volume.Node{Gen: staleGen, Ino: tine.Ino(inoOf(id))}
	}
	return volume.Node{Gen: g.gen, Ino: tine.Ino(inoOf(id))}
}

func (t *nodeIDs) slot(slot uint16) *generation {
	if g := t.current.Load(); g.slot == slot {
		return g
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bySlot[slot]
}

func (t *nodeIDs) generation(gen uint32) *generation {
	if g := t.current.Load(); g.gen == gen {
		return g
	}
	return t.start(gen)
}

// start returns the slot of a generation, and gives it one if it has none. A
// late reply of an older generation gets one too; it never becomes current.
func (t *nodeIDs) start(gen uint32) *generation {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.bySlot {
		if g.gen == gen {
			return g
		}
	}
	current := t.current.Load()
	for slot, g := range t.bySlot {
		if g != current && g.held.Load() <= 0 {
			delete(t.bySlot, slot)
		}
	}
	for tries := 0; t.bySlot[t.next] != nil && tries < maxSlot; tries++ {
		t.next = t.next%maxSlot + 1
	}
	g := &generation{slot: t.next, gen: gen}
	t.bySlot[g.slot] = g
	t.next = t.next%maxSlot + 1
	if current.slot == 0 || gen > current.gen {
		t.current.Store(g)
	}
	return g
}
