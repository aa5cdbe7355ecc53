package timeline

import (
	"github.com/tidwall/btree"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// source is one ordered run of rows that a scan merges.
type source interface {
	// peek returns the key that the source stands at; false at its end.
	peek() (record.Logical, bool, error)
	value() Found
	next()
	close()
}

// layerSource walks a layer.
type layerSource struct {
	iter  btree.MapIter[record.Logical, entry]
	epoch tine.Epoch
	end   record.Logical
	ok    bool
}

func newLayerSource(y *layer, from, end record.Logical) *layerSource {
	s := &layerSource{iter: y.rows.Iter(), epoch: y.epoch, end: end}
	s.ok = s.iter.Seek(from)
	return s
}

func (s *layerSource) peek() (record.Logical, bool, error) {
	if !s.ok || s.iter.Key() >= s.end {
		return "", false, nil
	}
	return s.iter.Key(), true, nil
}

func (s *layerSource) value() Found {
	e := s.iter.Value()
	return e.found(s.epoch)
}

func (s *layerSource) next()  { s.ok = s.iter.Next() }
func (s *layerSource) close() {}

// stratumSource walks the newest versions not after limit of a stratum.
type stratumSource struct {
	scan  kv.Scan
	limit tine.Epoch
	key   record.Logical
	val   Found
	ok    bool
	err   error
}

func newStratumSource(snap kv.Snapshot, s tine.StratumID, from, end record.Logical, limit tine.Epoch) (*stratumSource, error) {
	scan, err := snap.Scan(record.AppendKey(nil, s, from), record.AppendKey(nil, s, end), nil)
	if err != nil {
		return nil, err
	}
	src := &stratumSource{scan: scan, limit: limit}
	src.next()
	return src, nil
}

func (s *stratumSource) peek() (record.Logical, bool, error) { return s.key, s.ok, s.err }
func (s *stratumSource) value() Found                        { return s.val }
func (s *stratumSource) close()                              { s.scan.Close() }

// next moves to the next row that has a version not after the limit. The
// versions of a row lie side by side, newest first.
func (s *stratumSource) next() {
	last := s.key
	s.ok = false
	for s.scan.Next() {
		prefix, birth, ok := record.SplitEpoch(s.scan.Key())
		if !ok || birth > s.limit {
			continue
		}
		l := prefix[tine.IDSize:]
		if last != "" && string(l) == string(last) {
			continue
		}
		s.key, s.val, s.ok = record.Logical(l), decodeRow(s.scan.Value(), birth), true
		return
	}
	s.err = s.scan.Err()
}

// prefixEnd is the first logical key after all that start with p.
func prefixEnd(p record.Logical) record.Logical {
	return record.Logical(record.PrefixEnd([]byte(p)))
}
