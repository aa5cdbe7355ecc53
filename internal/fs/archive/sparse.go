package archive

import (
	"bytes"
	"strconv"
	"strings"
)

// This file reads the four forms in which GNU tar notes where a file has data:
// in the header itself (type S), in PAX records that repeat (0.0), in one PAX
// record (0.1), and in front of the data (1.0).

// runsOfHeader reads the old form, whose map goes on in blocks after the
// header.
func (r *Reader) runsOfHeader(h *block) (runs []Run, size int64, err error) {
	size, ok := h.number(gnuRealSize)
	if !ok || size < 0 {
		return nil, 0, r.damaged("the size of a sparse file is not a number")
	}
	pairs, more := h.get(gnuSparse), h[gnuExtended] != 0
	for {
		for ; len(pairs) >= 24; pairs = pairs[24:] {
			if pairs[0] == 0 {
				break
			}
			off, ok1 := parseNumber(pairs[:12])
			n, ok2 := parseNumber(pairs[12:24])
			if !ok1 || !ok2 {
				return nil, 0, r.damaged("the map of a sparse file is not numbers")
			}
			runs = append(runs, Run{off, n})
		}
		if !more {
			return runs, size, nil
		}
		if len(runs) > MaxRuns {
			return nil, 0, r.damaged("a sparse file has too many pieces")
		}
		var b block
		if err := r.full(b[:]); err != nil {
			return nil, 0, err
		}
		pairs, more = b.get(gnuMore), b[gnuMoreAgain] != 0
	}
}

// sparseRecords is what PAX records say of a sparse file.
type sparseRecords struct {
	present      bool
	major, minor string
	name         string
	size         int64 // -1: not given
	numbers      []int64
	bad          bool
}

// add takes over a record whose key starts with GNU.sparse.
func (s *sparseRecords) add(key, value string) {
	s.present = true
	s.bad = s.bad || len(s.numbers) > 2*(MaxRuns+1)
	number := func() int64 {
		n, err := strconv.ParseInt(value, 10, 64)
		s.bad = s.bad || err != nil || n < 0
		return n
	}
	switch key {
	case paxSparseMajor:
		s.major = value
	case paxSparseMinor:
		s.minor = value
	case paxSparseName:
		s.name = value
	case paxSparseRealSize, paxSparseSize:
		s.size = number()
	case paxSparseOffset:
		s.bad = s.bad || len(s.numbers)%2 != 0
		s.numbers = append(s.numbers, number())
	case paxSparseNumBytes:
		s.bad = s.bad || len(s.numbers)%2 != 1
		s.numbers = append(s.numbers, number())
	case paxSparseMap:
		s.numbers = nil
		s.bad = s.bad || strings.Count(value, ",") > 2*(MaxRuns+1)
		for d := range strings.SplitSeq(value, ",") {
			if value == "" || s.bad {
				break
			}
			n, err := strconv.ParseInt(d, 10, 64)
			s.bad = s.bad || err != nil
			s.numbers = append(s.numbers, n)
		}
	}
}

// inFront reports the form whose map stands before the data.
func (s *sparseRecords) inFront() bool { return s.major == "1" && s.minor == "0" }

// older reports the forms whose map is in the records.
func (s *sparseRecords) older() bool {
	return s.major == "" || s.major == "0" && (s.minor == "0" || s.minor == "1")
}

// runs returns the map in the records.
func (s *sparseRecords) runs() (runs []Run, ok bool) {
	if s.bad || len(s.numbers)%2 != 0 {
		return nil, false
	}
	for i := 0; i < len(s.numbers); i += 2 {
		runs = append(runs, Run{s.numbers[i], s.numbers[i+1]})
	}
	return runs, true
}

// runsInFront reads the map before the data, and returns how much of the data
// it takes.
func (r *Reader) runsInFront(data int64) (runs []Run, used int64, err error) {
	var buf []byte
	next := func() (int64, error) {
		for {
			if line, rest, found := bytes.Cut(buf, []byte("\n")); found {
				buf = rest
				n, err := strconv.ParseInt(string(line), 10, 64)
				if err != nil || n < 0 {
					return 0, r.damaged("the map of a sparse file is not numbers")
				}
				return n, nil
			}
			if len(buf) > 20 || used+blockBytes > data {
				return 0, r.damaged("the map of a sparse file has no end")
			}
			var b block
			if err := r.full(b[:]); err != nil {
				return 0, err
			}
			used += blockBytes
			buf = append(buf[:len(buf):len(buf)], b[:]...)
		}
	}
	n, err := next()
	if err != nil {
		return nil, 0, err
	}
	if n > MaxRuns+1 {
		return nil, 0, r.damaged("a sparse file has too many pieces")
	}
	for range n {
		var run Run
		if run.Off, err = next(); err == nil {
			run.Len, err = next()
		}
		if err != nil {
			return nil, 0, err
		}
		runs = append(runs, run)
	}
	return runs, used, nil
}

// checkRuns reports whether runs are in order, within the file, and as long
// together as the data; it leaves out the empty ones and joins neighbours.
func checkRuns(runs []Run, size, data int64) ([]Run, bool) {
	kept := []Run{}
	var at, sum int64
	for _, r := range runs {
		if r.Off < at || r.Len < 0 || r.Off > size || r.Len > size-r.Off {
			return nil, false
		}
		at, sum = r.End(), sum+r.Len
		switch n := len(kept); {
		case r.Len == 0:
		case n > 0 && kept[n-1].End() == r.Off:
			kept[n-1].Len += r.Len
		default:
			kept = append(kept, r)
		}
	}
	if len(kept) == 1 && kept[0] == (Run{0, size}) {
		kept = nil
	}
	return kept, sum == data
}
