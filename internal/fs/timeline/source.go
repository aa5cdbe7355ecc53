package timeline

import (
	"github.com/tidwall/btree"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/stratum"
	"tine.dev/tine/internal/tine"
)

// source is one ordered run of rows that a scan merges.
type source = stratum.Source[Found]

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

func (s *layerSource) Peek() (record.Logical, bool, error) {
	if !s.ok || s.iter.Key() >= s.end {
		return "", false, nil
	}
	return s.iter.Key(), true, nil
}

func (s *layerSource) Value() Found {
	e := s.iter.Value()
	return e.found(s.epoch)
}

func (s *layerSource) Next()  { s.ok = s.iter.Next() }
func (s *layerSource) Close() {}
