package usage

import "tine.dev/tine/internal/fs/timeline"

// Usage says what a disk takes up, in bytes of file data. Names, attributes
// and what the store adds to them are not counted.
//
// LogicalBytes = SharedBytes + what of it removing the disk would free, where
// bytes that the head names n times, by reflinks, count n times. UniqueBytes
// counts every byte once, and also what only the disk's own checkpoints show.
// So a disk without checkpoints and reflinks has logical = unique + shared.
type Usage struct {
	LogicalBytes int64 // data that its head shows, holes left out, unlinked open files included
	UniqueBytes  int64 // what removing it with its own checkpoints would free
	SharedBytes  int64 // of the logical bytes, those that removing it would not free
	Inodes       int64
}

// Of computes what the disk takes up. Logical bytes and inodes are counters.
// The other two come from playing the removal through, on paper: which lines
// would go whole, which would become one, and which versions the pins that are
// left would need. It reads the rows that were born between the neighbours of a
// pin that would go, as freeing them would, and not those that are as they
// were: it costs with the changes, not with the disk. Only for a disk that has
// its tree for itself, with checkpoints and reflinks, are all chunk rows read:
// nothing counts the bytes inside rows.
//
// It is exact while nothing writes to the tree and no background work is
// left, and else near it: what waits to be freed is counted as well. The
// tree's lock is held to copy the structure, no lock while rows are read. It
// changes nothing, but has commits of the lines that it looks at started. Errors
// are those of reading.
func Of(d *timeline.Disk) (Usage, error) {
	var w *whatIf
	s, err := d.Survey(func(r *timeline.Removal) []*timeline.Line {
		if r.Alone {
			return nil
		}
		w = newWhatIf(r)
		return w.losers()
	})
	if err != nil {
		return Usage{}, err
	}
	defer s.Close()
	u := Usage{LogicalBytes: s.Bytes, Inodes: s.Inodes}
	if w == nil {
		u.UniqueBytes = u.LogicalBytes
		return u, nil
	}
	n := newTally(s, w)
	if n.all {
		err = n.countAll(u.LogicalBytes)
	} else if err = n.count(); err == nil {
		u.SharedBytes = max(0, u.LogicalBytes-n.ofHead)
	}
	if err != nil {
		return Usage{}, err
	}
	u.UniqueBytes = max(0, n.unique)
	return u, nil
}
