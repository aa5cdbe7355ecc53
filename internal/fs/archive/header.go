package archive

import (
	"bytes"
	"strconv"
)

const blockBytes = 512

// Where a header has single bytes.
const (
	fieldType    = 156
	gnuExtended  = 482 // whether the sparse map goes on in a further block
	gnuMoreAgain = 504 // likewise, in that block
)

// block is a header as it lies in the archive.
type block [blockBytes]byte

// field is where a header has something.
type field struct{ off, len int }

// The fields of a header: those of v7, ustar's, and what star and GNU have in
// ustar's place.
var (
	fieldName     = field{0, 100}
	fieldMode     = field{100, 8}
	fieldUID      = field{108, 8}
	fieldGID      = field{116, 8}
	fieldSize     = field{124, 12}
	fieldMtime    = field{136, 12}
	fieldSum      = field{148, 8}
	fieldLink     = field{157, 100}
	fieldMagic    = field{257, 8}
	fieldDevMajor = field{329, 8}
	fieldDevMinor = field{337, 8}
	fieldPrefix   = field{345, 155}

	starPrefix  = field{345, 131}
	starTrailer = field{508, 4}
	gnuSparse   = field{386, 96} // four pairs of 12 and 12 bytes
	gnuRealSize = field{483, 12}
	gnuMore     = field{0, 504} // of a further block: 21 pairs
)

func (b *block) get(f field) []byte { return b[f.off : f.off+f.len] }

// text reads a field up to its first NUL.
func (b *block) text(f field) string {
	s, _, _ := bytes.Cut(b.get(f), []byte{0})
	return string(s)
}

func (b *block) setText(f field, s string) { copy(b.get(f), s) }

// number reads a number: octal digits, or, with the highest bit set, base 256.
func (b *block) number(f field) (int64, bool) { return parseNumber(b.get(f)) }

func parseNumber(p []byte) (int64, bool) {
	if len(p) > 0 && p[0]&0x80 != 0 {
		// Two's complement, of which the first bit only marks the form.
		negative := p[0]&0x40 != 0
		var x uint64
		if negative {
			x = ^uint64(0)
		}
		for i, c := range p {
			if i == 0 {
				c &= 0x7f
				if negative {
					c |= 0x80
				}
			}
			if top := x >> 55; top != 0 && top != 1<<9-1 {
				return 0, false // does not fit
			}
			x = x<<8 | uint64(c)
		}
		return int64(x), true
	}
	s := bytes.Trim(p, " \x00")
	if len(s) == 0 {
		return 0, true
	}
	n, err := strconv.ParseUint(string(s), 8, 63)
	return int64(n), err == nil
}

// setNumber writes octal digits, and reports whether they fit.
func (b *block) setNumber(f field, n int64) bool {
	digits := f.len - 1
	if n < 0 || n >= 1<<(3*digits) {
		return false
	}
	s := strconv.FormatInt(n, 8)
	p := b.get(f)
	for i := range digits {
		p[i] = '0'
	}
	copy(p[digits-len(s):], s)
	return true
}

// sums returns the sum of the header's bytes, with its sum taken for spaces,
// and what some old programs computed instead.
func (b *block) sums() (unsigned, signed int64) {
	for i, c := range b {
		if i >= fieldSum.off && i < fieldSum.off+fieldSum.len {
			c = ' '
		}
		unsigned += int64(c)
		signed += int64(int8(c))
	}
	return unsigned, signed
}

func (b *block) sumHolds() bool {
	want, ok := b.number(fieldSum)
	unsigned, signed := b.sums()
	return ok && (want == unsigned || want == signed)
}

func (b *block) setSum() {
	sum, _ := b.sums()
	copy(b.get(fieldSum), strconv.FormatInt(1<<18|sum, 8)[1:]+"\x00 ")
}

// format says which fields behind those of v7 a header has.
type format uint8

const (
	formatV7 format = iota
	formatUstar
	formatStar
	formatGNU
)

func (b *block) format() format {
	switch magic := string(b.get(fieldMagic)); {
	case magic == "ustar  \x00":
		return formatGNU
	case magic[:6] != "ustar\x00":
		return formatV7
	case string(b.get(starTrailer)) == "tar\x00":
		return formatStar
	}
	return formatUstar
}

// fullName joins the name with its prefix.
func (b *block) fullName() string {
	name, prefix := b.text(fieldName), ""
	switch b.format() {
	case formatUstar:
		prefix = b.text(fieldPrefix)
	case formatStar:
		prefix = b.text(starPrefix)
	}
	if prefix != "" {
		return prefix + "/" + name
	}
	return name
}
