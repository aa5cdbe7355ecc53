package record

import "tine.dev/tine/internal/tine"

// Segment is the location row of a segment: where and in what state its bytes
// lie. A repack changes this row and nothing that names the segment.
type Segment struct {
	Timeline   tine.TimelineID // the line that wrote it; may have become an alias
	State      SegmentState
	Generation uint64 // of the file: a repack writes the next one
	End        int64  // logical length; for an open segment, as of the last commit
	Synced     int64  // open segments: the logical offset up to which the file itself is durable
	Physical   int64  // sealed segments: length of the file
	Created    int64
}

// SegmentState tells how a segment's end is to be found.
type SegmentState uint8

// The states.
const (
	SegmentOpen   SegmentState = 1 // being appended to; what lies after Synced is in the tail rows
	SegmentSealed SegmentState = 2 // complete, with a footer
)

const segmentFormat = 1

// Append encodes the row.
func (s Segment) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(segmentFormat)
	e.id(s.Timeline)
	e.u8(uint8(s.State))
	e.uint(s.Generation)
	e.uint(uint64(s.End))
	e.uint(uint64(s.Synced))
	e.uint(uint64(s.Physical))
	e.int(s.Created)
	return e.b
}

// DecodeSegment reads the row.
func DecodeSegment(b []byte) (Segment, error) {
	d := decoder{b: b}
	if err := d.format("segment", segmentFormat); err != nil {
		return Segment{}, err
	}
	s := Segment{
		Timeline: d.id(), State: SegmentState(d.u8()), Generation: d.uint(), End: int64(d.uint()),
		Synced: int64(d.uint()), Physical: int64(d.uint()), Created: d.int(),
	}
	if s.State != SegmentOpen && s.State != SegmentSealed || s.End < 0 || s.Synced < 0 || s.Physical < 0 {
		d.fail()
	}
	return s, d.finish("segment")
}

// Tail is a run of a segment's bytes that rode in a commit because it was too
// small to be worth a flush of its own.
type Tail struct {
	Segment tine.SegmentID
	Off     int64
	Bytes   []byte
}

// Live is the row that counts how many of a segment's bytes rows still name.
type Live struct{ Bytes int64 }

const liveFormat = 1

// Append encodes the row.
func (l Live) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(liveFormat)
	e.int(l.Bytes)
	return e.b
}

// DecodeLive reads the row.
func DecodeLive(b []byte) (Live, error) {
	d := decoder{b: b}
	if err := d.format("live", liveFormat); err != nil {
		return Live{}, err
	}
	l := Live{Bytes: d.int()}
	return l, d.finish("live")
}

// Piece is the row of a run of a segment that several chunks may name since a
// reflink. Runs counts, over all chunks of the timeline, the maximal runs of
// neighbouring versions that name any byte of it; at zero the whole piece is
// free.
type Piece struct {
	Len  int64
	Runs int64
}

const pieceFormat = 1

// Append encodes the row.
func (p Piece) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(pieceFormat)
	e.uint(uint64(p.Len))
	e.int(p.Runs)
	return e.b
}

// DecodePiece reads the row.
func DecodePiece(b []byte) (Piece, error) {
	d := decoder{b: b}
	if err := d.format("piece", pieceFormat); err != nil {
		return Piece{}, err
	}
	p := Piece{Len: int64(d.uint()), Runs: d.int()}
	if p.Len <= 0 {
		d.fail()
	}
	return p, d.finish("piece")
}
