package timeline

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// stratum is a stratum in memory: its id, and a filter that spares look-ups
// the probing of strata that certainly hold nothing of a row. With many lines
// behind one another nearly all are such, so a look-up's cost stays nearly the
// same at any depth.
//
// A filter may only be too wide, never too narrow (I12): rows are added before
// they are applied, and rows that go stay in it until it is made anew.
type stratum struct {
	id     tine.StratumID
	filter atomic.Pointer[presence]
}

// presence is a blocked Bloom filter: all bits of one key lie in one cache
// line. Adding is for one goroutine at a time, the line's committer; asking is
// for all.
type presence struct {
	seed   maphash.Seed
	blocks []block
	keys   int // added so far
	room   int // keys it was made for
}

type block [8]atomic.Uint64 // 512 bits

const (
	bitsPerKey = 10
	probes     = 6
	// presenceRows bounds the strata that get a filter: larger ones are few,
	// and are asked always.
	presenceRows = 1 << 18
	// presenceDepth is from how many strata on a path's are given filters.
	presenceDepth = 3
)

func newPresence(seed maphash.Seed, rows int) *presence {
	room := rows + rows/2 + 16
	return &presence{seed: seed, blocks: make([]block, room*bitsPerKey/512+1), room: room}
}

// hash is what is asked for: of a whole logical key, or of the prefix that the
// rows of one inode in one table share.
func (p *presence) hash(l record.Logical) uint64 { return maphash.String(p.seed, string(l)) }

func (p *presence) add(h uint64) {
	b := &p.blocks[h%uint64(len(p.blocks))]
	h ^= h >> 29
	for range probes {
		b[h>>6&7].Or(1 << (h & 63))
		h = h>>9 | h<<55
	}
	p.keys++
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

// groupLen is the length of the prefix that all rows of one inode in one table
// share: the table byte and the inode number.
const groupLen = 9

// note adds a row about to be written to a stratum. A filter that has outgrown
// its size answers yes too often, so it goes, and is made anew in time.
func (s *stratum) note(l record.Logical) {
	p := s.filter.Load()
	if p == nil {
		return
	}
	p.add(p.hash(l))
	if len(l) > groupLen {
		p.add(p.hash(l[:groupLen]))
	}
	if p.keys > 4*p.room {
		s.filter.Store(nil)
	}
}

// lacks reports that the stratum certainly has no row of the key, or of the
// group when l is a group's prefix.
func (s *stratum) lacks(l record.Logical) bool {
	p := s.filter.Load()
	return p != nil && !p.has(p.hash(l))
}

// filterOne makes the filter of one stratum that deserves one and has none.
func (t *tree) filterOne(context.Context) (bool, error) {
	l, s := t.unfiltered()
	if l == nil {
		return false, nil
	}
	return true, l.exclusive(func() error { return l.makeFilter(s) })
}

// unfiltered finds a stratum on a long path that has no filter and is not
// known to be too large.
func (t *tree) unfiltered() (*line, *stratum) {
	var owner *line
	var found *stratum
	t.findLine(choreFilter, func(l *line) bool {
		if l.head != nil && found == nil {
			owner, found = l.unfiltered()
		}
		return owner != nil
	})
	return owner, found
}

// unfiltered finds such a stratum on the path of this line's head.
func (l *line) unfiltered() (*line, *stratum) {
	n := 0
	hops := l.view.hops()
	for i := range hops {
		if !hops[i].line.bare() {
			n += len(hops[i].strata)
		}
	}
	if n < presenceDepth {
		return nil, nil
	}
	for i := range hops {
		if hops[i].line.bare() {
			continue
		}
		for _, s := range hops[i].strata {
			if s.filter.Load() == nil && !l.tree.large[s.id] {
				return hops[i].line.root(), s
			}
		}
	}
	return nil, nil
}

// makeFilter reads the stratum's keys and sets its filter. It runs in the
// line's committer, so that no row is written meanwhile.
func (l *line) makeFilter(s *stratum) error {
	t := l.tree
	snap := t.engine.Rows.Snapshot()
	defer snap.Close()
	n, err := countRows(snap, s.id, presenceRows+1)
	if err != nil {
		return err
	}
	if n > presenceRows {
		t.mu.Lock()
		t.large[s.id] = true
		t.mu.Unlock()
		return nil
	}
	p := newPresence(t.engine.seed, 2*n)
	fresh := &stratum{}
	fresh.filter.Store(p)
	if err := eachKey(snap, s.id, fresh.note); err != nil {
		return err
	}
	s.filter.Store(p)
	return nil
}

func eachKey(snap kv.Snapshot, s tine.StratumID, fn func(record.Logical)) error {
	return scanBorn(snap, s, kv.Born{UpTo: tine.Head}, fn)
}

func newStrata(now time.Time) []*stratum {
	return []*stratum{{id: tine.NewID[tine.StratumID](now)}}
}
