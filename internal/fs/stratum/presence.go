package stratum

import (
	"hash/maphash"
	"sync/atomic"

	"tine.dev/tine/internal/fs/record"
)

// presence is a blocked Bloom filter: all bits of one key lie in one cache
// line. Adding is for one goroutine at a time, the line's committer; asking is
// for all.
type presence struct {
	seed   maphash.Seed
	blocks []block
	keys   int // added so far, each once, or nearly
	room   int // keys it was made for
}

type block [8]atomic.Uint64 // 512 bits

const (
	bitsPerKey = 10
	probes     = 6
)

func newPresence(seed maphash.Seed, rows int) *presence {
	room := rows + rows/2 + 16
	return &presence{seed: seed, blocks: make([]block, room*bitsPerKey/512+1), room: room}
}

// hash is what is asked for: of a whole logical key, or of the prefix that the
// rows of one inode in one table share.
func (p *presence) hash(l record.Logical) uint64 { return maphash.String(p.seed, string(l)) }

// note adds a key, and the group that it belongs to.
func (p *presence) note(l record.Logical) {
	p.add(p.hash(l))
	if len(l) > groupLen {
		p.add(p.hash(l[:groupLen]))
	}
}

// add counts only what it did not have: the same rows are written again and
// again, and folded into the same stratum, and do not fill it.
func (p *presence) add(h uint64) {
	b := &p.blocks[h%uint64(len(p.blocks))]
	h ^= h >> 29
	fresh := false
	for range probes {
		bit := uint64(1) << (h & 63)
		fresh = b[h>>6&7].Or(bit)&bit == 0 || fresh
		h = h>>9 | h<<55
	}
	if fresh {
		p.keys++
	}
}

func (p *presence) has(h uint64) bool {
	b := &p.blocks[h%uint64(len(p.blocks))]
	h ^= h >> 29
	for range probes {
		if b[h>>6&7].Load()&(1<<(h&63)) == 0 {
			return false
		}
		h = h>>9 | h<<55
	}
	return true
}
