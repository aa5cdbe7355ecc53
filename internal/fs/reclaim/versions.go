package reclaim

import (
	"sort"

	"tine.dev/tine/internal/tine"
)

// Forever is the death of a version that nothing has replaced: after every
// pin, the head included.
const Forever = tine.Head + 1

// Needed reports whether any pin still shows a version (I9): birth is the epoch in
// which it was written, death the birth of the next newer version of the same
// key in the same line, or Forever. pins are in ascending order; a line with
// a head has tine.Head last.
func Needed(birth, death tine.Epoch, pins []tine.Epoch) bool {
	i := sort.Search(len(pins), func(i int) bool { return pins[i] >= birth })
	return i < len(pins) && pins[i] < death
}

// DropInterval says where versions can have become unneeded when the pin p
// lost its last holder: among those born in (after, upTo]. pins are the pins
// that remain, in ascending order, tine.Head last if the line has a head; p is
// tine.Head when the head itself was discarded. Births start at 1, so after
// is 0 where no lower pin is left; upTo is tine.Head where no higher one is.
// If p is among the pins, somebody else holds it still and the interval is
// empty.
func DropInterval(pins []tine.Epoch, p tine.Epoch) (after, upTo tine.Epoch) {
	i := sort.Search(len(pins), func(i int) bool { return pins[i] >= p })
	if i < len(pins) && pins[i] == p {
		return p, p
	}
	if i > 0 {
		after = pins[i-1]
	}
	if i == len(pins) {
		return after, tine.Head
	}
	return after, p
}
