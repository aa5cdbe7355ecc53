package dbfiles

import (
	"encoding/binary"
	"errors"

	"tine.dev/tine/internal/tine"
)

// The tags of a manifest's edits that this program's stores have. Others end the
// reading of their edit, for what follows them cannot be found.
const (
	tagComparer    = 1
	tagLog         = 2
	tagNextFile    = 3
	tagLastSeq     = 4
	tagCompactFrom = 5
	tagDeleted     = 6
	tagPrevLog     = 9
	tagAdded       = 103 // with fields of its own
	tagAddedRanges = 104 // the same, of a table with ranges

	fieldEnd     = 1
	fieldVirtual = 66 // from here on fields are not of one form
)

// Manifest is what the manifests of a store say, all of them together: a number of
// a file is never used again.
type Manifest struct {
	// Tables are those of the newest state, by number, as far as it can be read.
	Tables map[uint64]Bounds
	// Gone are the numbers of tables that were removed.
	Gone map[uint64]bool
	// FirstLog is the number of the first log that has rows not yet in tables.
	FirstLog uint64
	// LastSeq is the sequence number that the tables go up to, or one beyond.
	LastSeq uint64
	// Unread is how many stretches or edits cannot be read.
	Unread int
	// Virtual is set if a table stands for a part of a file, which this program's
	// stores never have.
	Virtual bool
}

// Bounds are the smallest and the largest key of a table.
type Bounds struct{ Smallest, Largest []byte }

// ReadManifest adds what a manifest says to what older ones do. With current unset
// only which tables are gone is taken from it.
func (m *Manifest) ReadManifest(b []byte, current bool) {
	if m.Tables == nil {
		m.Tables, m.Gone = map[uint64]Bounds{}, map[uint64]bool{}
	}
	records, unread := AllRecords(b)
	if !current {
		for _, r := range records {
			old := Manifest{Tables: map[uint64]Bounds{}, Gone: m.Gone}
			_ = old.edit(r) // an old one's damage matters to nobody
		}
		return
	}
	m.Unread += unread
	for _, r := range records {
		if err := m.edit(r); err != nil {
			m.Unread++
		}
	}
}

var errEdit = errors.New("the edit cannot be read")

// cursor reads the fields of an edit.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) number() uint64 {
	n, k := binary.Uvarint(c.b)
	if k <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[k:]
	return n
}

func (c *cursor) bytes() []byte {
	n := c.number()
	if n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

// edit takes one edit in: removals before additions, for a table that moves to
// another level has both.
func (m *Manifest) edit(record []byte) error {
	c := &cursor{b: record}
	added := map[uint64]Bounds{}
	for len(c.b) > 0 && !c.bad {
		switch c.number() {
		case tagComparer:
			c.bytes()
		case tagLog:
			m.FirstLog = c.number()
		case tagLastSeq:
			m.LastSeq = max(m.LastSeq, c.number())
		case tagNextFile, tagPrevLog:
			c.number()
		case tagCompactFrom:
			c.number()
			c.bytes()
		case tagDeleted:
			c.number() // level
			if n := c.number(); !c.bad {
				delete(m.Tables, n)
				m.Gone[n] = true
			}
		case tagAdded:
			n, b := m.added(c, false)
			added[n] = b
		case tagAddedRanges:
			n, b := m.added(c, true)
			added[n] = b
		default:
			c.bad = true
		}
	}
	if c.bad {
		return tine.Errorf(tine.KindCorrupt, "manifest: %w", errEdit)
	}
	for n, b := range added {
		m.Tables[n] = b
		delete(m.Gone, n)
	}
	return nil
}

// added reads the rest of an addition.
func (m *Manifest) added(c *cursor, ranges bool) (uint64, Bounds) {
	c.number() // level
	n := c.number()
	c.number() // size
	points := true
	if ranges {
		if len(c.b) == 0 {
			c.bad = true
			return n, Bounds{}
		}
		points = c.b[0]&1 != 0
		c.b = c.b[1:]
	}
	var b Bounds
	if points {
		b = Bounds{userKey(c.bytes()), userKey(c.bytes())}
	}
	if ranges {
		c.bytes()
		c.bytes()
	}
	c.number() // smallest sequence number
	c.number() // largest
	for !c.bad {
		switch field := c.number(); {
		case field == fieldEnd:
			return n, b
		case field == fieldVirtual:
			m.Virtual = true
			c.number()
		case field > fieldVirtual:
			c.bad = true
		default:
			c.bytes()
		}
	}
	return n, b
}

// trailerLen is the length of what follows a user key in an internal one: kind and
// sequence number.
const trailerLen = 8

func userKey(internal []byte) []byte { return internal[:max(0, len(internal)-trailerLen)] }
