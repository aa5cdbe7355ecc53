package dbfiles

import (
	"encoding/binary"
	"hash/crc32"
)

// A log is made of blocks, and each of them of pieces; none crosses the end of a
// block. A piece begins with a checksum (4 bytes) over what follows the next
// field, the length of its payload (2), its type (1), and, by its type, the log's
// number (4) and an offset (8). Manifests have pieces without number and offset.
const (
	logBlock  = 32 << 10
	shortHead = 7
	longHead  = 19
)

// headOf returns the length of a piece's header by its type, 0 for an unknown one,
// and which part of a record it is.
func headOf(kind byte) (head int, part byte) {
	switch {
	case kind >= 1 && kind <= 4:
		return shortHead, kind - 1
	case kind >= 5 && kind <= 8:
		return 11, kind - 5
	case kind >= 9 && kind <= 12:
		return longHead, kind - 9
	}
	return 0, 0
}

// The parts of a record.
const (
	whole = iota
	first
	middle
	last
)

// piece is what lies at a place of a log.
type piece struct {
	state   byte
	part    byte
	payload []byte
	next    int // where the one after it begins, or is to be looked for
}

const (
	valid  = iota
	gap    // the end of a block that no piece fits into
	closed // the mark of the end of a log that was closed
	bad
)

// pieceAt reads the piece at a place.
func pieceAt(b []byte, at int, log uint64) piece {
	rest := logBlock - at%logBlock
	if rest < longHead && (at+rest > len(b) || allZero(b[at:at+rest])) {
		return piece{state: gap, next: at + rest}
	}
	wrong := piece{state: bad, next: at + rest}
	if at+shortHead > len(b) {
		return wrong
	}
	head, part := headOf(b[at+6])
	size := head + int(binary.LittleEndian.Uint16(b[at+4:]))
	if head == 0 || size > rest || at+size > len(b) {
		return wrong
	}
	if head > shortHead {
		switch of := uint64(binary.LittleEndian.Uint32(b[at+7:])); of {
		case log & 0xffffffff:
		case (log + 1) & 0xffffffff:
			return piece{state: closed, next: len(b)}
		default:
			return wrong
		}
	}
	sum := crc32.Checksum(b[at+6:at+size], castagnoli())
	if (sum>>15|sum<<17)+0xa282ead8 != binary.LittleEndian.Uint32(b[at:]) {
		return wrong
	}
	return piece{state: valid, part: part, payload: b[at+head : at+size], next: at + size}
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// FirstBad returns where the first piece of a log begins that is not valid, of
// those below length; -1 if all are. A log that ends before length is bad there. The
// number of a manifest is 0.
func FirstBad(b []byte, log uint64, length int64) int64 {
	for at := 0; int64(at) < length; {
		switch p := pieceAt(b, at, log); p.state {
		case bad:
			return int64(at)
		case closed:
			return -1
		default:
			at = p.next
		}
	}
	return -1
}

// End says how a log ends.
type End struct {
	// At is where the records end, in bytes.
	At int64
	// Closed: the log was closed, and nothing can have followed.
	Closed bool
	// Later is how many whole records lie behind what could not be read. A crash
	// leaves none: so if there are any, the log is damaged.
	Later int
}

// Records returns the records of a log up to the first piece that cannot be read,
// and how it ends. They share memory with b where they can.
func Records(b []byte, log uint64) (records [][]byte, end End) {
	r := reader{b: b, log: log}
	for r.next() {
		records = append(records, r.record)
		end.At = int64(r.at)
	}
	end.Closed = r.closed
	if !r.closed {
		for skip := r; skip.skip(); {
			for skip.next() {
				end.Later++
			}
			r = skip
		}
	}
	return records, end
}

// AllRecords returns all records of a manifest that can be read, also those behind
// what cannot be, and how many stretches cannot.
func AllRecords(b []byte) (records [][]byte, unread int) {
	r := reader{b: b}
	for {
		for r.next() {
			records = append(records, r.record)
		}
		if r.closed || !r.skip() {
			return records, unread
		}
		unread++
	}
}

// reader walks the records of a log.
type reader struct {
	b      []byte
	log    uint64
	at     int
	record []byte
	closed bool
}

// next moves to the next record. It stays where it is before what cannot be read.
func (r *reader) next() bool {
	var parts []byte
	started := false
	for at := r.at; at < len(r.b); {
		p := pieceAt(r.b, at, r.log)
		switch p.state {
		case bad:
			return false
		case closed:
			r.closed = true
			return false
		case valid:
			if started != (p.part == middle || p.part == last) {
				return false
			}
			if p.part == whole {
				r.record, r.at = p.payload, p.next
				return true
			}
			parts, started = append(parts, p.payload...), true
			if p.part == last {
				r.record, r.at = parts, p.next
				return true
			}
		}
		at = p.next
	}
	return false
}

// skip moves behind what cannot be read, to the next piece that begins a record:
// the one that follows by the length in the damaged one, or the first of a later
// block. False if there is none.
func (r *reader) skip() bool {
	at := r.at
	for at < len(r.b) {
		p := pieceAt(r.b, at, r.log)
		if p.state == closed {
			return false
		}
		if p.state == valid && at > r.at && p.part <= first {
			r.at = at
			return true
		}
		next := p.next
		if p.state == bad && at+shortHead <= len(r.b) {
			if hop := at + shortHead + int(binary.LittleEndian.Uint16(r.b[at+4:])); hop < next {
				for _, head := range []int{0, 4, 12} { // the lengths of headers, beyond the shortest
					if pieceAt(r.b, hop+head, r.log).state == valid && hop+head < next {
						next = hop + head
						break
					}
				}
			}
		}
		at = next
	}
	return false
}
