package dbfiles

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/sstable/block"

	"tine.dev/tine/internal/tine"
)

// byChecksum finds the blocks of a table whose index cannot be used. They lie one
// behind the other from the start of the file, those of rows first, each followed by
// a byte that says how it is packed and a checksum over both. So where a block
// begins, it ends at the first place where that checksum holds. That costs one
// look at each byte. Where a block is damaged too, the next one is looked for among
// all pairs of places; see blocksIn.
//
// It is worth it: what leads to the rows takes a few kilobytes of each table, and
// without it one flipped byte there would cost all rows of the table, up to
// several hundred thousand.
func (t *Table) byChecksum() error {
	t.data, t.ranges = nil, nil
	b := make([]byte, t.size)
	if n, err := t.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return tine.Errorf(tine.KindIO, "read a table: %w", err)
	} else if int64(n) < t.size {
		b = b[:n]
	}
	rows, open := true, false // no block of another kind was met; something before could not be read
	for at := 0; len(b)-at > tableEnd; {
		n := blockAt(b, at)
		if n < 0 {
			next := t.nextBlock(b, at)
			if rows {
				t.data = append(t.data, stretch{at: int64(at), length: int64(next - at), lost: true})
			}
			at, open = next, true
			continue
		}
		s := stretch{at: int64(at), length: int64(n)}
		at += n + block.TrailerLen
		u, err := unpack(b[s.at:s.at+s.length], b[s.at+s.length])
		if err != nil {
			continue
		}
		switch {
		case rows && t.schema.holdsRows(u):
			t.data, open = append(t.data, s), false
		case holdsRanges(u):
			t.ranges = append(t.ranges, s)
			rows, open = false, false
		case holdsPairs(u):
			rows, open = false, false // range deletions lie before
		default:
			rows = false
		}
	}
	if rows { // it was cut off
		t.data, open = append(t.data, stretch{at: int64(len(b)), lost: true}), true
	}
	t.Hidden = open && len(t.ranges) == 0
	return nil
}

// tableEnd is the length of a table's footer, which is no block.
const tableEnd = 61

// searchBytes is how far apart the two ends of a block may lie that is looked for
// by its checksum, and how far behind a damaged one the next may begin.
const searchBytes = 256 << 10

// blockAt returns the length of the block that begins at a place, without its
// trailer; -1 if no checksum holds for any.
func blockAt(b []byte, at int) int {
	table, kinds := castagnoli(), packings()
	state := ^uint32(0)
	for i := at; i+block.TrailerLen <= len(b) && i-at <= maxBlock; i++ {
		state = table[byte(state)^b[i]] ^ state>>8
		if slices.Contains(kinds, b[i]) && masked(^state) == binary.LittleEndian.Uint32(b[i+1:]) {
			return i - at
		}
	}
	return -1
}

// nextBlock finds the first block of a known kind behind a damaged one, or the end.
func (t *Table) nextBlock(b []byte, at int) int {
	for from := at + 1; from < len(b); from += searchBytes / 2 {
		to := min(len(b), from+searchBytes)
		found := -1
		for _, s := range blocksIn(b[from:to]) {
			u, err := unpack(b[from+int(s.at):from+int(s.at+s.length)], b[from+int(s.at+s.length)])
			if err == nil && (t.schema.holdsRows(u) || holdsRanges(u) || holdsPairs(u)) && (found < 0 || from+int(s.at) < found) {
				found = from + int(s.at)
			}
		}
		if found >= 0 {
			return found
		}
	}
	return len(b)
}

// blocksIn returns all pairs of places between which a block may lie, by its
// checksum. Trying all of them would take a time that grows with the square. But a
// checksum is linear: with P(i) the state after the first i bytes, begun at zero, and
// A the step for a byte of zero, the state at p of a checksum that began at s is
//
//	A^(p-s)(start ^ P(s)) ^ P(p)
//
// So the checksum stored at p belongs to a block that began at s if
//
//	A^-p(stored ^ P(p)) = A^-s(start ^ P(s))
//
// and both sides are worked out for one place at a time, and joined by a map.
func blocksIn(b []byte) []stretch {
	table := castagnoli()
	back := stepsBack(table)
	inverse := identity() // A^-i, as the images of the single bits
	begins := make(map[uint32]int32, len(b))
	kinds := packings()
	var out []stretch
	state := uint32(0)
	for i := 0; i+block.TrailerLen <= len(b); i++ {
		key := apply(&inverse, ^uint32(0)^state)
		if _, ok := begins[key]; !ok {
			begins[key] = int32(i)
		}
		state = table[byte(state)^b[i]] ^ state>>8
		for k := range inverse {
			inverse[k] = back(inverse[k])
		}
		if !slices.Contains(kinds, b[i]) {
			continue
		}
		stored := binary.LittleEndian.Uint32(b[i+1:]) - 0xa282ead8
		stored = stored<<15 | stored>>17
		if from, ok := begins[apply(&inverse, ^stored^state)]; ok && int(from) < i {
			out = append(out, stretch{at: int64(from), length: int64(i - int(from))})
		}
	}
	return out
}

// stepsBack returns the inverse of the step for a byte of zero. The highest byte of
// a table's entry tells which entry it is.
func stepsBack(table *crc32.Table) func(uint32) uint32 {
	var of [256]byte
	for i, v := range table {
		of[v>>24] = byte(i)
	}
	return func(state uint32) uint32 {
		i := of[state>>24]
		return (state^table[i])<<8 | uint32(i)
	}
}

func identity() (m [32]uint32) {
	for i := range m {
		m[i] = 1 << i
	}
	return m
}

func apply(m *[32]uint32, v uint32) (out uint32) {
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			out ^= m[i]
		}
	}
	return out
}
