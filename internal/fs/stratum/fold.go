package stratum

import (
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
)

// foldBatch is how many versions one step of a fold moves, a little more to end
// with a whole row.
const foldBatch = 1024

// Fold moves some rows of the stratum into another of the same line; done
// reports that none is left. Each call is one atomic batch that moves all
// versions of a row together (I13), so look-ups that ask both strata are right
// between calls, and a crash between them only leaves the rest for later. It is
// not durable when it returns. Nothing else may write the line's rows meanwhile.
func (s *Stratum) Fold(rows kv.Store, into *Stratum) (done bool, err error) {
	snap := rows.Snapshot()
	defer snap.Close()
	scan, err := snap.Scan(s.ID[:], record.PrefixEnd(s.ID[:]), nil)
	if err != nil {
		return false, err
	}
	defer scan.Close()
	b := rows.NewBatch()
	var last record.Logical
	n := 0
	for scan.Next() {
		_, k, e, err := record.SplitKey(scan.Key())
		if err != nil {
			b.Discard()
			return false, err
		}
		if n >= foldBatch && k != last {
			return false, rows.Commit(b, false)
		}
		into.Note(k)
		b.Set(record.Key(into.ID, k, e), scan.Value())
		b.Delete(scan.Key())
		last = k
		n++
	}
	if err := scan.Err(); err != nil {
		b.Discard()
		return false, err
	}
	if err := rows.Commit(b, false); err != nil {
		return false, err
	}
	return true, nil
}

// foldCount is how far strata are counted to compare them: beyond it they are
// equally large.
const foldCount = 1 << 16

// FoldPair chooses, of the strata of a line in their order, the neighbours whose
// smaller one is smallest: from is to be folded into the other.
func FoldPair(snap kv.Snapshot, strata []*Stratum) (from, into *Stratum, err error) {
	sizes := make([]int, len(strata))
	for i, s := range strata {
		if sizes[i], err = s.Count(snap, foldCount); err != nil {
			return from, into, err
		}
	}
	best := 0
	for i := 0; i+1 < len(strata); i++ {
		if min(sizes[i], sizes[i+1]) < min(sizes[best], sizes[best+1]) {
			best = i
		}
	}
	if sizes[best] < sizes[best+1] {
		return strata[best], strata[best+1], nil
	}
	return strata[best+1], strata[best], nil
}
