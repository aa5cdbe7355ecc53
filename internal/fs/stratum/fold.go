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
