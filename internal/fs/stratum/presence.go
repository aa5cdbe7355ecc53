package stratum

import (
	"hash/maphash"
	"math/bits"
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

// Hash is what a filter is asked for: the hash of a whole logical key, or of
// the group that rows share. One is made for a look-up, however many strata it
// asks; it means something to filters of the same seed only.
type Hash uint64

// HashOf returns the hash of a key or of a group.
func HashOf(seed maphash.Seed, l record.Logical) Hash { return Hash(maphash.String(seed, string(l))) }

// note adds a key, and the group that it belongs to.
func (p *presence) note(l record.Logical) {
	p.add(HashOf(p.seed, l))
	if len(l) > groupLen {
		p.add(HashOf(p.seed, l[:groupLen]))
	}
}

// block returns where the bits of a key lie: by its place among all hashes,
// which needs no division.
func (p *presence) block(h Hash) *block {
	i, _ := bits.Mul64(uint64(h), uint64(len(p.blocks)))
	return &p.blocks[i]
}

// add counts only what it did not have: the same rows are written again and
// again, and folded into the same stratum, and do not fill it.
func (p *presence) add(h Hash) {
	b := p.block(h)
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

func (p *presence) has(h Hash) bool {
	b := p.block(h)
	h ^= h >> 29
	for range probes {
		if b[h>>6&7].Load()&(1<<(h&63)) == 0 {
			return false
		}
		h = h>>9 | h<<55
	}
	return true
}
