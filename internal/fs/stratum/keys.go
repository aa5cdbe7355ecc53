package stratum

import (
	"iter"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
)

// Keys yields the key of every version born in an interval whose row's key
// starts with a prefix, in order: once for each version. An error ends it.
func (s *Stratum) Keys(snap kv.Snapshot, p record.Logical, born kv.Born) iter.Seq2[record.Logical, error] {
	return func(yield func(record.Logical, error) bool) {
		lower := record.AppendKey(nil, s.ID, p)
		scan, err := snap.Scan(lower, record.PrefixEnd(lower), &born)
		if err != nil {
			yield("", err)
			return
		}
		defer scan.Close()
		for scan.Next() {
			_, k, _, err := record.SplitKey(scan.Key())
			if !yield(k, err) || err != nil {
				return
			}
		}
		if err := scan.Err(); err != nil {
			yield("", err)
		}
	}
}

// SomeKeys returns up to most keys of rows that have a version born in an
// interval, or with tombs a tombstone born in it, and where to go on; nil at the
// end. It starts at a cursor: one that it has returned, or the id.
func (s *Stratum) SomeKeys(snap kv.Snapshot, cursor []byte, born kv.Born, tombs bool, most int) (keys []record.Logical, next []byte, err error) {
	scan, err := snap.Scan(cursor, record.PrefixEnd(s.ID[:]), &born)
	if err != nil {
		return nil, nil, err
	}
	defer scan.Close()
	for scan.Next() {
		if tombs && !IsTombstone(scan.Value()) {
			continue
		}
		_, k, _, err := record.SplitKey(scan.Key())
		if err != nil {
			return nil, nil, err
		}
		if n := len(keys); n > 0 && keys[n-1] == k {
			continue
		}
		if len(keys) == most {
			return keys, record.AppendKey(nil, s.ID, k), nil
		}
		keys = append(keys, k)
	}
	return keys, nil, scan.Err()
}

// Count counts the versions in the stratum, as far as limit.
func (s *Stratum) Count(snap kv.Snapshot, limit int) (int, error) {
	scan, err := snap.Scan(s.ID[:], record.PrefixEnd(s.ID[:]), nil)
	if err != nil {
		return 0, err
	}
	defer scan.Close()
	n := 0
	for n < limit && scan.Next() {
		n++
	}
	return n, scan.Err()
}

// Has reports whether the stratum has any version born in the interval; nil:
// any at all.
func (s *Stratum) Has(snap kv.Snapshot, born *kv.Born) (bool, error) {
	scan, err := snap.Scan(s.ID[:], record.PrefixEnd(s.ID[:]), born)
	if err != nil {
		return false, err
	}
	defer scan.Close()
	return scan.Next(), scan.Err()
}

// Fewer returns which of two intervals fewer versions of some strata are born
// in. It counts both in step, so it costs as much as the smaller.
func Fewer(snap kv.Snapshot, strata []*Stratum, a, b kv.Born) (kv.Born, error) {
	var scans [2][]kv.Scan
	defer func() {
		for _, ss := range scans {
			for _, s := range ss {
				s.Close()
			}
		}
	}()
	for i, born := range []kv.Born{a, b} {
		for _, s := range strata {
			scan, err := snap.Scan(s.ID[:], record.PrefixEnd(s.ID[:]), &born)
			if err != nil {
				return a, err
			}
			scans[i] = append(scans[i], scan)
		}
	}
	for {
		for i, born := range []kv.Born{a, b} {
			for len(scans[i]) > 0 && !scans[i][0].Next() {
				err := scans[i][0].Err()
				scans[i][0].Close()
				scans[i] = scans[i][1:]
				if err != nil {
					return a, err
				}
			}
			if len(scans[i]) == 0 {
				return born, nil
			}
		}
	}
}
