package stratum

import (
	"bytes"
	"cmp"
	"slices"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Version is one version of a row in a line.
type Version struct {
	Birth tine.Epoch
	Val   []byte // nil for a tombstone
	Tomb  bool   // the row was deleted at that epoch
}

// Extents returns the extents that a version of a chunk row names, none for a
// tombstone or a nil version.
func (v *Version) Extents() ([]record.Extent, error) {
	if v == nil || v.Tomb || len(v.Val) == 0 {
		return nil, nil
	}
	c, err := record.DecodeChunk(v.Val)
	return c.Extents, err
}

// tombstone is the stored value of a deleted row. Every other value starts
// with a format byte, which is never 0.
var tombstone = []byte{0}

// IsTombstone reports whether a stored value says that the row was deleted.
func IsTombstone(stored []byte) bool { return len(stored) == 1 && stored[0] == 0 }

// Encode returns what is stored for a value, or for a tombstone. It is to be
// copied, not changed.
func Encode(val []byte, tomb bool) []byte {
	if tomb {
		return tombstone
	}
	return val
}

// Decode returns the version that a stored value is; the value is copied.
func Decode(stored []byte, birth tine.Epoch) Version {
	if IsTombstone(stored) {
		return Version{Birth: birth, Tomb: true}
	}
	return Version{Birth: birth, Val: bytes.Clone(stored)}
}

func byBirth(a, b Version) int { return cmp.Compare(a.Birth, b.Birth) }

// Versions returns all versions that a row has in some strata, oldest first.
func Versions(snap kv.Snapshot, strata []*Stratum, l record.Logical) ([]Version, error) {
	var vs []Version
	for _, s := range strata {
		if s.lacks(l) {
			continue
		}
		prefix := record.AppendKey(nil, s.ID, l)
		scan, err := snap.Scan(prefix, record.PrefixEnd(prefix), nil)
		if err != nil {
			return nil, err
		}
		for scan.Next() {
			p, birth, ok := record.SplitEpoch(scan.Key())
			if ok && len(p) == len(prefix) {
				vs = append(vs, Decode(scan.Value(), birth))
			}
		}
		err = scan.Err()
		scan.Close()
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(vs, byBirth)
	return vs, nil
}

// EachRow calls fn for every row with a prefix of which any of the strata has a
// version, with all of its versions, oldest first, in the order of the keys. It
// walks the strata side by side, and reads each once from end to end.
func EachRow(snap kv.Snapshot, strata []*Stratum, p record.Logical, fn func(record.Logical, []Version) error) error {
	var ws []*walk
	defer func() {
		for _, w := range ws {
			w.scan.Close()
		}
	}()
	for _, s := range strata {
		lower := record.AppendKey(nil, s.ID, p)
		scan, err := snap.Scan(lower, record.PrefixEnd(lower), nil)
		if err != nil {
			return err
		}
		w := &walk{scan: scan}
		ws = append(ws, w)
		if err := w.next(); err != nil {
			return err
		}
	}
	for {
		var least *walk
		for _, w := range ws {
			if w.ok && (least == nil || w.key < least.key) {
				least = w
			}
		}
		if least == nil {
			return nil
		}
		k := least.key
		var vs []Version
		for _, w := range ws {
			for w.ok && w.key == k {
				vs = append(vs, Decode(w.scan.Value(), w.birth))
				if err := w.next(); err != nil {
					return err
				}
			}
		}
		slices.SortFunc(vs, byBirth)
		if err := fn(k, vs); err != nil {
			return err
		}
	}
}

// walk is where a walk through all versions of a stratum stands.
type walk struct {
	scan  kv.Scan
	key   record.Logical
	birth tine.Epoch
	ok    bool // false at the end
}

func (w *walk) next() (err error) {
	if w.ok = w.scan.Next(); !w.ok {
		return w.scan.Err()
	}
	_, w.key, w.birth, err = record.SplitKey(w.scan.Key())
	return err
}
