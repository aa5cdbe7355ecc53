package reclaim

import (
	"bytes"

	"tine.dev/tine/internal/tine"
)

// Heir is a child that can continue a line without a head, as far as the choice
// among several looks at it. All of them branch off at the line's newest pin.
type Heir struct {
	ID       tine.TimelineID
	HasHead  bool
	Children int
}

// Before prefers the child with a head, then the one with most to repoint,
// then the older one, so that the choice does not hang on any other order.
func (a Heir) Before(b Heir) bool {
	if a.HasHead != b.HasHead {
		return a.HasHead
	}
	if a.Children != b.Children {
		return a.Children > b.Children
	}
	return bytes.Compare(a.ID[:], b.ID[:]) < 0
}
