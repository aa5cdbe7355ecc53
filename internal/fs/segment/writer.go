package segment

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// writeCategory labels the writes for file systems that count them.
const writeCategory vfs.DiskWriteCategory = "tine-segment"

// Writer appends to one open segment. It is safe for concurrent use.
//
// The payload up to written lies in the file, the rest, less than a block, in
// block. Bytes below the published end never change, so a reader needs mu only
// to learn where they lie and to copy from block. The file is open twice
// because vfs.File allows one writing call at a time, and a flush must not
// stop appends: wr writes, file.rd flushes (and reads).
type Writer struct {
	s       *Store
	f       *file
	created int64

	hardenMu sync.Mutex // one Harden at a time; guards ridden
	ridden   int64      // payload below was handed out as tails

	appendMu sync.Mutex // one Append at a time; held while blocks are written
	wr       vfs.File   // nil once sealed or abandoned
	overhang bool       // a failed write may have left bytes beyond the last block
	pushed   int64      // written, when the device was last asked to start

	pushing atomic.Bool

	flushMu    sync.Mutex // one flush at a time
	entryMade  bool       // the directory entry is durable
	flushesEnd bool       // sealed or abandoned: rd is no longer the Writer's

	mu      sync.RWMutex // guards the rest; never held during input or output
	block   []byte       // the open block, with room for its checksum
	fill    int64        // payload bytes in block
	written int64        // payload bytes in the file; a block boundary
	durable int64        // of these, flushed; a block boundary
	synced  int64        // of these, reported by Harden; a block boundary
	failed  error        // a write or flush failed: every later call fails
	gone    bool         // abandoned
	sealed  *record.Segment
}

// Create makes a new segment, generation 0, and its Writer. created goes into
// the file's header. Nothing is durable: after a crash the file may be there
// or not, and no row names it.
// Errors: KindExists, KindNoSpace, KindIO, KindUnavailable after Close.
func (s *Store) Create(id tine.SegmentID, created time.Time) (*Writer, error) {
	f := s.newFile(fileKey{id: id})
	w := &Writer{s: s, f: f, created: created.UnixNano(), block: make([]byte, blockPhysical)}
	f.w, f.pins = w, 1
	w.appendMu.Lock() // a Close that comes now waits, and then abandons
	defer w.appendMu.Unlock()
	s.mu.Lock()
	closed, taken := s.closed, s.files[f.key] != nil
	if !closed && !taken {
		s.files[f.key] = f
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, tine.Errorf(tine.KindUnavailable, "the segment store is closed")
	case taken:
		return nil, tine.Errorf(tine.KindExists, "segment %s exists", id)
	}
	if err := w.open(); err != nil {
		s.mu.Lock()
		s.forget(f)
		s.mu.Unlock()
		return nil, err
	}
	s.bytes.Add(headerBytes)
	s.o.Crash.At(crashpoint.SegmentCreated)
	return w, nil
}

// open creates the file and writes its header. On an error nothing is left.
func (w *Writer) open() error {
	if err := w.s.makeShard(w.f.key.id); err != nil {
		return err
	}
	_, err := w.s.o.FS.Stat(w.f.path)
	if err == nil {
		return tine.Errorf(tine.KindExists, "segment file %s exists", w.f.path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return ioError("stat", w.f.path, err)
	}
	if w.wr, err = w.s.o.FS.Create(w.f.path, writeCategory); err != nil {
		w.wr = nil
		return ioError("create", w.f.path, err)
	}
	if w.f.rd, err = w.s.o.FS.Open(w.f.path); err != nil {
		w.discard()
		return ioError("open", w.f.path, err)
	}
	h := header{id: w.f.key.id, created: w.created}
	if _, err = w.wr.WriteAt(h.encode(), 0); err != nil {
		w.discard()
		return ioError("write", w.f.path, err)
	}
	return nil
}

// discard undoes open.
func (w *Writer) discard() {
	w.closeWriting()
	w.f.close()
	if err := w.s.o.FS.Remove(w.f.path); err != nil {
		w.s.o.Logger.Warn("a new segment file could not be removed", "path", w.f.path, "error", err)
	}
}

func (w *Writer) closeWriting() {
	if err := w.wr.Close(); err != nil {
		w.s.o.Logger.Warn("closing a segment file failed", "path", w.f.path, "error", err)
	}
	w.wr = nil
}

// ID returns the segment's id.
func (w *Writer) ID() tine.SegmentID { return w.f.key.id }

// End returns the logical length: all that Append has taken, in bytes.
func (w *Writer) End() int64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.written + w.fill
}

// Synced returns the logical offset that the last Harden reported as durable
// in the file. It is a block boundary.
func (w *Writer) Synced() int64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.synced
}

// Append adds p at the end of the segment, contiguous, and returns the logical
// offset of its first byte. The bytes can be read at once and are not durable.
// It may wait for a flush if too much is unsynced.
//
// Errors: KindNoSpace when the device is full: p is not in the segment, though
// some logical space may be used up, and a later Append works when space has
// returned. Any other error is for good: KindIO when a write or flush failed,
// KindInvalid after Seal or Abandon.
func (w *Writer) Append(p []byte) (off int64, err error) {
	w.appendMu.Lock()
	defer w.appendMu.Unlock()
	if err := w.mayAppend(); err != nil {
		return 0, err
	}
	off = w.written + w.fill
	total := w.fill + int64(len(p))
	switch {
	case off > maxEnd-int64(len(p)):
		return 0, tine.Errorf(tine.KindInvalid, "segment %s is full", w.ID())
	case total < BlockBytes:
		copy(w.block[w.fill:], p)
		w.publish(0, total)
		return off, nil
	case total < 2*BlockBytes:
		err = w.appendOne(p)
	default:
		err = w.appendMany(p)
	}
	if err != nil {
		return 0, err
	}
	w.push()
	return off, nil
}

// mayAppend reports what stops appends, and flushes if too much is unsynced.
// appendMu is held: written and fill cannot change.
func (w *Writer) mayAppend() error {
	w.mu.RLock()
	failed, unsynced := w.failed, w.written-w.durable
	w.mu.RUnlock()
	if w.wr == nil {
		return tine.Errorf(tine.KindInvalid, "segment %s takes no more bytes", w.ID())
	}
	if failed != nil {
		return failed
	}
	if unsynced > w.s.o.MaxUnsyncedBytes {
		return w.flush(w.written)
	}
	return nil
}

// publish makes blocks that were written, and the new fill of the open block,
// visible to readers.
func (w *Writer) publish(blocks, fill int64) {
	w.mu.Lock()
	w.written += blocks * BlockBytes
	w.fill = fill
	w.mu.Unlock()
}

// appendOne completes the open block in its place and starts the next with
// the rest of p. Bytes of block beyond fill are nobody's until published, so
// readers need not be kept out until block starts anew.
func (w *Writer) appendOne(p []byte) error {
	n := copy(w.block[w.fill:BlockBytes], p)
	b := w.written / BlockBytes
	putSum(w.f.seed, b, w.block)
	if err := w.write(w.block, b); err != nil {
		return err
	}
	w.mu.Lock()
	w.written += BlockBytes
	w.fill = int64(copy(w.block[:BlockBytes], p[n:]))
	w.mu.Unlock()
	return nil
}

// appendMany writes several blocks with one call each megabyte: the open block
// completed with the first of p, then full blocks of p. The rest of p starts
// the next open block. A batch that fails leaves the state before it.
func (w *Writer) appendMany(p []byte) error {
	pooled := w.s.large.Get().(*[]byte)
	defer w.s.large.Put(pooled)
	head := w.block[:w.fill]
	for {
		n := min(int64(len(head)+len(p))/BlockBytes, maxBatchBlocks)
		first := w.written / BlockBytes
		buf := (*pooled)[:n*blockPhysical]
		for i := range n {
			b := buf[i*blockPhysical : (i+1)*blockPhysical]
			c := copy(b, head)
			p = p[copy(b[c:BlockBytes], p):]
			head = nil
			putSum(w.f.seed, first+i, b)
		}
		if err := w.write(buf, first); err != nil {
			return err
		}
		if len(p) < BlockBytes {
			w.mu.Lock()
			w.written += n * BlockBytes
			w.fill = int64(copy(w.block[:BlockBytes], p))
			w.mu.Unlock()
			return nil
		}
		w.publish(n, 0)
	}
}

// write puts whole blocks at their place in the file. A full device is no
// failure of the Writer: nothing counts on the bytes yet, and whatever part of
// them has arrived is written over by the next try.
func (w *Writer) write(b []byte, block int64) error {
	_, err := w.wr.WriteAt(b, headerBytes+block*blockPhysical)
	if err == nil {
		w.s.bytes.Add(int64(len(b)))
		return nil
	}
	return w.writeError(err)
}

func (w *Writer) writeError(err error) error {
	w.overhang = true
	err = ioError("write", w.f.path, err)
	if tine.KindOf(err) != tine.KindNoSpace {
		w.fail(err)
	}
	return err
}

// fail breaks the Writer. The first failure is the one reported ever after.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	if w.failed == nil {
		w.failed = err
	}
	w.mu.Unlock()
}

// readable reports whether readers may still come.
func (w *Writer) readable() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.gone {
		return tine.Errorf(tine.KindUnavailable, "segment %s was abandoned and is not recovered", w.ID())
	}
	return nil
}

// readAt reads from the open segment: what lies in the open block from memory,
// the rest from the file. It is right after Seal too.
func (w *Writer) readAt(p []byte, off int64) error {
	w.mu.RLock()
	if w.gone {
		w.mu.RUnlock()
		return tine.Errorf(tine.KindStale, "segment %s was abandoned", w.ID())
	}
	written, end := w.written, w.written+w.fill
	if off < 0 || off > end || int64(len(p)) > end-off {
		w.mu.RUnlock()
		return w.f.rangeError(off, int64(len(p)), end)
	}
	if off+int64(len(p)) > written {
		inFile := max(0, written-off)
		copy(p[inFile:], w.block[off+inFile-written:w.fill])
		p = p[:inFile]
	}
	w.mu.RUnlock()
	if len(p) == 0 {
		return nil
	}
	whole := [1]run{{count: written / BlockBytes}}
	return w.f.readSpan(whole[:], written, p, off)
}
