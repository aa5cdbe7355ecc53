package stratum

import (
	"hash/maphash"
	"sync/atomic"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Stratum is a stratum in memory: its id, and a filter that spares look-ups
// the probing of strata that certainly hold nothing of a row. With many lines
// behind one another nearly all are such, so a look-up's cost stays nearly the
// same at any depth.
//
// A filter may only be too wide, never too narrow (I12): rows are noted before
// they are applied, and rows that go stay in it until it is made anew.
//
// Note, MakeFilter and Fold are for one goroutine at a time, the committer of
// the line; all else is for any.
type Stratum struct {
	ID     tine.StratumID
	filter atomic.Pointer[presence]
}

// New returns a stratum without a filter. It makes nothing in the store.
func New(id tine.StratumID) *Stratum { return &Stratum{ID: id} }

// Empty returns a stratum of which no row has been written anywhere, with a
// filter that says so from the start: whatever is written to it is to be noted.
func Empty(id tine.StratumID, seed maphash.Seed) *Stratum {
	s := New(id)
	s.filter.Store(newPresence(seed, firstRows))
	return s
}

// firstRows is how many rows the filter of an empty stratum has room for: those
// of a few changed files. It is made for every fork.
const firstRows = 64

// groupLen is the length of the prefix that all rows of one inode in one table
// share: the table byte and the inode number.
const groupLen = 9

// FilterRows bounds the strata that get a filter: larger ones are few, and are
// asked always.
const FilterRows = 1 << 18

// Note adds a row about to be written to the stratum. A filter that has
// outgrown its size answers yes too often, so it goes, and is made anew in time.
func (s *Stratum) Note(l record.Logical) {
	p := s.filter.Load()
	if p == nil {
		return
	}
	p.note(l)
	if p.keys > 4*p.room {
		s.filter.Store(nil)
	}
}

// Lacks reports that the stratum certainly has no row of the key, or none of
// the group when h is the hash of what Group returned.
func (s *Stratum) Lacks(h Hash) bool {
	p := s.filter.Load()
	return p != nil && !p.has(h)
}

// lacks is Lacks for one stratum, with whatever seed its filter has.
func (s *Stratum) lacks(l record.Logical) bool {
	p := s.filter.Load()
	return p != nil && !p.has(HashOf(p.seed, l))
}

// Filtered reports that the stratum has a filter.
func (s *Stratum) Filtered() bool { return s.filter.Load() != nil }

// MakeFilter reads the stratum's keys and sets its filter; false if it has more
// than FilterRows rows, and is left without one. No row may be written
// meanwhile, and the snapshot must have all that are.
func (s *Stratum) MakeFilter(snap kv.Snapshot, seed maphash.Seed) (made bool, err error) {
	n, err := s.Count(snap, FilterRows+1)
	if err != nil || n > FilterRows {
		return false, err
	}
	p := newPresence(seed, 2*n)
	for k, err := range s.Keys(snap, "", kv.Born{UpTo: tine.Head}) {
		if err != nil {
			return false, err
		}
		p.note(k)
	}
	s.filter.Store(p)
	return true, nil
}

// Group returns the table and inode that the keys of [from, end) share, for
// Lacks; "" if they do not all share one.
func Group(from, end record.Logical) record.Logical {
	if len(from) < groupLen || end > record.Logical(record.PrefixEnd([]byte(from[:groupLen]))) {
		return ""
	}
	return from[:groupLen]
}
