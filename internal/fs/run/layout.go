package run

import (
	"encoding/binary"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// FrameBytes is the size of the pieces in which objects are read and cached; the
// last of an object is shorter.
const FrameBytes = 256 << 10

// An object is a table and its trailer: the CRC32C of the table's bytes in each of its
// frames (4 bytes each), the bytes of the table (8), the size of a frame (4), the
// CRC32C of all of the trailer before it (4) and the magic (8). Numbers are little-endian.
//
// A range of an object comes without a checksum of the store's. The trailer gives one to
// each frame, so that damage is found before a frame gets into a cache, and is told
// from damage that the table was written with.
//
// The trailer lies in one frame, with zeros before it where the table would leave too
// little room. So who reads the last frame of an object has the trailer, and the
// table's own footer mostly.
const (
	trailerMagic = "tinerun1"
	trailerFixed = 8 + 4 + 4 + len(trailerMagic)
)

func trailerBytes(frames int) int64 { return int64(4*frames + trailerFixed) }

func framesOf(size int64) int { return int((size + FrameBytes - 1) / FrameBytes) }

// layout is what the trailer says.
type layout struct {
	table int64    // bytes of the table
	sums  []uint32 // of its frames
}

// seal appends padding and trailer to a table.
func seal(table []byte) []byte {
	size := int64(len(table))
	l := layout{table: size}
	for off := int64(0); off < size; off += FrameBytes {
		l.sums = append(l.sums, blob.Checksum(table[off:min(off+FrameBytes, size)]))
	}
	object := table
	if room := (FrameBytes - size%FrameBytes) % FrameBytes; room < trailerBytes(len(l.sums)) {
		object = append(object, make([]byte, room)...)
	}
	start := len(object)
	for _, sum := range l.sums {
		object = binary.LittleEndian.AppendUint32(object, sum)
	}
	object = binary.LittleEndian.AppendUint64(object, uint64(size))
	object = binary.LittleEndian.AppendUint32(object, FrameBytes)
	object = binary.LittleEndian.AppendUint32(object, blob.Checksum(object[start:]))
	return append(object, trailerMagic...)
}

// openLayout reads the trailer from the last frame of an object.
func openLayout(last []byte, objectBytes int64) (*layout, error) {
	damaged := tine.Errorf(tine.KindCorrupt, "its trailer is damaged")
	if int64(len(last)) != objectBytes-(objectBytes-1)/FrameBytes*FrameBytes || len(last) < trailerFixed {
		return nil, damaged
	}
	fixed := last[len(last)-trailerFixed:]
	size := int64(binary.LittleEndian.Uint64(fixed))
	if string(fixed[16:]) != trailerMagic || size < 0 || size > objectBytes {
		return nil, damaged
	}
	n := framesOf(size)
	start := int64(len(last)) - trailerBytes(n)
	if start < 0 || binary.LittleEndian.Uint32(fixed[8:]) != FrameBytes ||
		blob.Checksum(last[start:len(last)-len(trailerMagic)-4]) != binary.LittleEndian.Uint32(fixed[12:]) {
		return nil, damaged
	}
	l := &layout{table: size, sums: make([]uint32, n)}
	for i := range l.sums {
		l.sums[i] = binary.LittleEndian.Uint32(last[start+int64(4*i):])
	}
	return l, l.check(int64(framesOf(objectBytes))-1, last)
}

// check compares a frame with its checksum. Of what is behind the table nothing
// is left to check.
func (l *layout) check(frame int64, data []byte) error {
	if frame >= int64(len(l.sums)) {
		return nil
	}
	inside := min(l.table-frame*FrameBytes, FrameBytes)
	if int64(len(data)) < inside || blob.Checksum(data[:inside]) != l.sums[frame] {
		return tine.Errorf(tine.KindCorrupt, "its bytes from %d on do not match their checksum", frame*FrameBytes)
	}
	return nil
}
