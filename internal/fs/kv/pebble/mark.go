package pebble

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/tine"
)

// Pebble ends the replay of its newest log at the first piece that is not valid,
// for that is what a crash leaves of a write under way. A piece that has rotted
// looks the same, and all that was acknowledged behind it would be lost without a
// word. What tells the two apart is how far the log was durable. Pebble writes that
// down in the log too, but counts only the bytes of blocks that were not full when
// they were written, far too few.
//
// So the fence keeps it, in a file of its own: after every flush of a log its number
// and its length then. The file itself is never flushed. After the death of the
// process it is exact; after that of the machine it may be an older one, which is
// less than is true and never more.
const markName = "SYNCED"

// markBytes is a mark: log number, length, and a checksum over both.
const markBytes = 20

// mark keeps how far the newest log is durable.
type mark struct {
	mu   sync.Mutex // a leaf
	file vfs.File   // nil if there can be none
}

// openMark opens the file for writing. Going without it is no error.
func openMark(fs vfs.FS, dir string) *mark {
	f, err := fs.OpenReadWrite(fs.PathJoin(dir, markName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return &mark{}
	}
	return &mark{file: f}
}

// note says that a log is durable up to a length.
func (m *mark) note(log uint64, length int64) {
	var b [markBytes]byte
	binary.LittleEndian.PutUint64(b[0:], log)
	binary.LittleEndian.PutUint64(b[8:], uint64(length))
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli()))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		if _, err := m.file.WriteAt(b[:], 0); err != nil {
			_ = m.file.Close()
			m.file = nil
		}
	}
}

func (m *mark) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		_ = m.file.Close()
		m.file = nil
	}
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// readMark returns what the file says; ok is false if it says nothing.
func readMark(fs vfs.FS, dir string) (log uint64, length int64, ok bool) {
	b, err := readAll(fs, fs.PathJoin(dir, markName))
	if err != nil || len(b) < markBytes || crc32.Checksum(b[:16], castagnoli()) != binary.LittleEndian.Uint32(b[16:]) {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), true
}

func readAll(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// logNumber returns the number of a log by its name.
func logNumber(base string) (n uint64, ok bool) {
	digits, ok := strings.CutSuffix(base, ".log")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// checkLog looks whether the log is whole as far as it was durable. If it is not
// and cut is set, the log is cut off where the damage begins, so that the store
// opens at the state before it.
// Errors: KindCorrupt, without cut; KindIO.
func checkLog(fsys vfs.FS, dir string, cut bool) error {
	log, length, ok := readMark(fsys, dir)
	if !ok {
		return nil
	}
	base := strconv.FormatUint(log, 10)
	name := fsys.PathJoin(dir, strings.Repeat("0", max(0, 6-len(base)))+base+".log")
	b, err := readAll(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all of it has gone into tables
	}
	if err != nil {
		return translate("read "+name, err)
	}
	at := firstBad(b, log, length)
	switch {
	case at < 0:
		return nil
	case !cut:
		return tine.Errorf(tine.KindCorrupt, "the log %s is damaged at byte %d; %d bytes of it were durable", name, at, length).
			WithHint("check the device, and restore the data directory from a backup; or have `tine fsck --repair` cut the log off there, which loses what was written last")
	}
	f, err := fsys.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(b[:at])
		err = errors.Join(err, f.Sync(), f.Close(), fsys.Remove(fsys.PathJoin(dir, markName)))
	}
	return translate("cut off "+name, err)
}

// The log is made of blocks, and each of them of pieces; none crosses the end of a
// block. A piece begins with a checksum (4 bytes) over what follows the next
// field, the length of its payload (2), its type (1), and, by its type, the log's
// number (4) and an offset (8).
const logBlock = 32 << 10

// pieceHead returns the length of a piece's header by its type, 0 for an unknown one.
func pieceHead(kind byte) int {
	switch {
	case kind >= 1 && kind <= 4:
		return 7
	case kind >= 5 && kind <= 8:
		return 11
	case kind >= 9 && kind <= 12:
		return 19
	}
	return 0
}

// firstBad returns where the first piece of a log begins that is not valid, of
// those below length; -1 if all are.
func firstBad(b []byte, log uint64, length int64) int64 {
	const shortest, longest = 7, 19
	for at := 0; int64(at) < length; {
		rest := logBlock - at%logBlock
		if rest < longest && (at+rest > len(b) || allZero(b[at:at+rest])) {
			at += rest // the end of a block that no piece fits into
			continue
		}
		if at+shortest > len(b) {
			return int64(at)
		}
		head := pieceHead(b[at+6])
		size := head + int(binary.LittleEndian.Uint16(b[at+4:]))
		if head == 0 || size > rest || at+size > len(b) {
			return int64(at)
		}
		if head > shortest {
			switch of := uint64(binary.LittleEndian.Uint32(b[at+7:])); of {
			case log & 0xffffffff:
			case (log + 1) & 0xffffffff:
				return -1 // the mark of the end of a log that was closed
			default:
				return int64(at)
			}
		}
		sum := crc32.Checksum(b[at+6:at+size], castagnoli())
		if (sum>>15|sum<<17)+0xa282ead8 != binary.LittleEndian.Uint32(b[at:]) {
			return int64(at)
		}
		at += size
	}
	return -1
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
