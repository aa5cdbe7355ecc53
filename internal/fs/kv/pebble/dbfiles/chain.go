package dbfiles

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/batchrepr"
)

// firstSeq is the first sequence number of a store.
const firstSeq = 10

// Chain follows the logs of a store that have rows not yet in tables, in the order of
// their numbers, and notices what Pebble does not: a log that is missing, or empty though
// a later one was begun. Each batch begins with the number after the last of the one
// before. The zero Chain is not ready; see NewChain.
type Chain struct {
	next uint64 // no batch may begin beyond
	open string // the log before, if nothing says that it is whole
}

// NewChain begins behind the tables, as the manifest says.
func NewChain(m *Manifest) *Chain { return &Chain{next: max(firstSeq, m.LastSeq+1)} }

// Add takes in the next log, and says what is wrong: with that log, or, where it is
// missing, between it and the one before; "" if nothing is.
func (c *Chain) Add(name string, records [][]byte, end End) string {
	if len(records) > 0 && c.open != "" {
		return fmt.Sprintf("the log %s was not closed, and a later one was begun", c.open)
	}
	for _, r := range records {
		h, ok := batchrepr.ReadHeader(r)
		if !ok {
			continue
		}
		if uint64(h.SeqNum) > c.next {
			return fmt.Sprintf("a log is missing before %s, or the end of it: changes %d to %d are nowhere", name, c.next, uint64(h.SeqNum)-1)
		}
		c.next = max(c.next, uint64(h.SeqNum)+uint64(h.Count))
	}
	if !end.Closed {
		c.open = name
	}
	return ""
}
