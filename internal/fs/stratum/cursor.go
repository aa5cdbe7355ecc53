package stratum

import (
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Cursor walks the rows of a stratum as they were at an epoch: of each the
// newest version not after it, tombstones included.
type Cursor struct {
	scan  kv.Scan
	limit tine.Epoch
	key   record.Logical
	val   Version
	ok    bool
	err   error
}

// Cursor returns a cursor at the first row whose key is in [from, end) and that
// has a version not after limit. The caller closes it, before the snapshot.
func (s *Stratum) Cursor(snap kv.Snapshot, from, end record.Logical, limit tine.Epoch) (*Cursor, error) {
	scan, err := snap.Scan(record.AppendKey(nil, s.ID, from), record.AppendKey(nil, s.ID, end), nil)
	if err != nil {
		return nil, err
	}
	c := &Cursor{scan: scan, limit: limit}
	c.Next()
	return c, nil
}

// Peek returns the key that the cursor stands at; false at its end.
func (c *Cursor) Peek() (record.Logical, bool, error) { return c.key, c.ok, c.err }

// Version returns the version that the cursor stands at.
func (c *Cursor) Version() Version { return c.val }

// Value returns the same as a look-up finds it.
func (c *Cursor) Value() Found { return c.val.Found() }

// Close ends the walk.
func (c *Cursor) Close() { c.scan.Close() }

// Next moves to the next row that has a version not after the limit. The
// versions of a row lie side by side, newest first.
func (c *Cursor) Next() {
	last := c.key
	c.ok = false
	for c.scan.Next() {
		prefix, birth, ok := record.SplitEpoch(c.scan.Key())
		if !ok || birth > c.limit {
			continue
		}
		l := prefix[tine.IDSize:]
		if last != "" && string(l) == string(last) {
			continue
		}
		c.key, c.val, c.ok = record.Logical(l), Decode(c.scan.Value(), birth), true
		return
	}
	c.err = c.scan.Err()
}
