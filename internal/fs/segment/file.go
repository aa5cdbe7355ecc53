package segment

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// fileKey names one generation of one segment.
type fileKey struct {
	id         tine.SegmentID
	generation uint64
}

// file is one open segment file, shared by everyone who reads it. It is in
// Store.files while it is open, and in Store.idle while nobody has it pinned.
type file struct {
	key  fileKey
	path string
	seed uint32 // of its checksums
	s    *Store
	w    *Writer // of a file that this process appended to; nil for others

	loadMu sync.Mutex // held while the file is opened; no other lock is
	// rd reads, and flushes for the Writer. It is set before anyone reads and
	// closed when the last pin is gone.
	rd     vfs.File
	layout atomic.Pointer[layout] // nil until sealed
	away   atomic.Pointer[away]   // set instead of rd and layout if the file is not on this device

	// The rest belongs to Store.mu.
	pins       int
	doomed     bool // to be unlinked at the last release
	leaving    bool // the same, but it may be acquired until then
	detached   bool // no longer in Store.files: a recovery has taken the name
	prev, next *file
}

// idleList is a ring of the files that nobody has pinned, the one released
// last first. It is intrusive so that pinning and releasing allocate nothing.
type idleList struct{ ring file }

func (l *idleList) init() { l.ring.prev, l.ring.next = &l.ring, &l.ring }

func (l *idleList) push(f *file) {
	f.prev, f.next = &l.ring, l.ring.next
	f.prev.next, f.next.prev = f, f
}

func (l *idleList) remove(f *file) {
	if f.next != nil {
		f.prev.next, f.next.prev = f.next, f.prev
		f.prev, f.next = nil, nil
	}
}

func (l *idleList) oldest() *file {
	if l.ring.prev == &l.ring {
		return nil
	}
	return l.ring.prev
}

// forget takes the file out of the maps. Store.mu is held; the caller closes
// the file after releasing it.
func (s *Store) forget(f *file) {
	s.idle.remove(f)
	if !f.detached {
		delete(s.files, f.key)
	}
}

func (f *file) close() {
	if f.rd == nil {
		return
	}
	if err := f.rd.Close(); err != nil {
		f.s.o.Logger.Warn("closing a segment file failed", "path", f.path, "error", err)
	}
}

// Handle is a pin on one generation of a segment: as long as it is not
// released, its file is neither closed nor unlinked. It is safe for concurrent
// use, Release excepted.
type Handle struct{ f *file }

// Acquire pins the segment that the location row describes, so that it can be
// read. A row that is behind is fine as long as its generation exists: an open
// segment that has been sealed since is served as sealed.
//
// Errors: KindNotFound if the file is gone: the row has been replaced by a
// repack since the caller read it, and is to be read again; if it has not
// changed, the file is lost. KindCorrupt if header or footer are damaged or
// contradict the row; KindUnavailable for an open segment that has no Writer
// and is not recovered, and after Close; KindIO.
func (s *Store) Acquire(id tine.SegmentID, loc record.Segment) (*Handle, error) {
	return s.AcquireFrom(id, loc, nil)
}

// AcquireFrom is Acquire for a segment whose file may have been evicted, or
// never was on this device: if it is sealed and there is no file, the Handle
// reads from what remote opens. A nil remote opens nothing. It asks remote for
// nothing itself, so a segment that is not there either shows at the first read.
func (s *Store) AcquireFrom(id tine.SegmentID, loc record.Segment, remote Remote) (*Handle, error) {
	k := fileKey{id, loc.Generation}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, tine.Errorf(tine.KindUnavailable, "the segment store is closed")
	}
	f := s.files[k]
	switch {
	case f == nil:
		f = s.newFile(k)
		s.files[k] = f
	case f.doomed:
		s.mu.Unlock()
		return nil, tine.Errorf(tine.KindNotFound, "segment file %s is removed", f.path)
	}
	f.pins++
	s.idle.remove(f)
	victims := s.evict()
	s.mu.Unlock()
	for _, v := range victims {
		v.close()
	}
	if err := f.load(loc, remote); err != nil {
		s.unpin(f)
		return nil, err
	}
	return &Handle{f}, nil
}

func (s *Store) newFile(k fileKey) *file {
	return &file{key: k, path: s.path(k), seed: sumSeed(k.id), s: s}
}

// evict takes idle files out of the maps while there are too many, and
// returns them to be closed. Store.mu is held.
func (s *Store) evict() []*file {
	var victims []*file
	for len(s.files) > s.o.OpenFiles {
		f := s.idle.oldest()
		if f == nil {
			break
		}
		s.forget(f)
		victims = append(victims, f)
	}
	return victims
}

// unpin undoes one pin. The last one makes a sealed file idle, and ends the
// life of any other.
func (s *Store) unpin(f *file) {
	s.mu.Lock()
	f.pins--
	if f.pins > 0 {
		s.mu.Unlock()
		return
	}
	if f.loaded() && !f.doomed && !f.leaving && !f.detached && !s.closed {
		s.idle.push(f)
		victims := s.evict()
		s.mu.Unlock()
		for _, v := range victims {
			v.close()
		}
		return
	}
	s.forget(f)
	s.mu.Unlock()
	f.close()
	switch {
	case f.detached:
	case f.doomed:
		if err := s.unlink(f.path); err != nil {
			s.o.Logger.Warn("a dead segment file could not be removed; it is tried again at the next start", "path", f.path, "error", err)
		}
	case f.leaving:
		if err := s.unlinkEvicted(f.key); err != nil {
			s.o.Logger.Warn("a segment file that is in the store could not be removed", "path", f.path, "error", err)
		}
	}
}

// loaded reports whether a sealed segment can be read.
func (f *file) loaded() bool { return f.layout.Load() != nil || f.away.Load() != nil }

// load opens the file and reads its layout, or notes where else the bytes are,
// unless that is done. Several readers may come at once; one loads, the others
// wait.
func (f *file) load(loc record.Segment, remote Remote) error {
	if f.loaded() {
		return nil
	}
	if f.w != nil {
		if loc.State == record.SegmentSealed {
			return tine.Errorf(tine.KindInvalid, "segment %s is being written; its row says that it is sealed", f.key.id)
		}
		return f.w.readable()
	}
	f.loadMu.Lock()
	defer f.loadMu.Unlock()
	if f.loaded() {
		return nil
	}
	rd, err := f.s.o.FS.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) && remote != nil && loc.State == record.SegmentSealed {
		f.away.Store(&away{from: remote, loc: loc})
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return tine.Errorf(tine.KindNotFound, "segment file %s does not exist", f.path).
			WithHint("if this comes back, the file was lost: restore it from a backup of the data directory")
	}
	if err != nil {
		return ioError("open", f.path, err)
	}
	l, err := f.readLayout(rd, loc)
	if err != nil {
		if cerr := rd.Close(); cerr != nil {
			f.s.o.Logger.Warn("closing a segment file failed", "path", f.path, "error", cerr)
		}
		return err
	}
	f.rd = rd
	f.layout.Store(l)
	return nil
}

// readLayout checks header and footer of a sealed file against each other and
// against the row. A row that still says open has no length of the file: then
// the trailer is looked for at its very end.
func (f *file) readLayout(rd vfs.File, loc record.Segment) (*layout, error) {
	physical := loc.Physical
	if loc.State != record.SegmentSealed {
		st, err := rd.Stat()
		if err != nil {
			return nil, ioError("stat", f.path, err)
		}
		physical = st.Size()
	}
	if err := f.checkHeader(rd); err != nil {
		return nil, err
	}
	if physical < headerBytes+trailerBytes {
		return nil, f.footerError(loc, tine.Errorf(tine.KindCorrupt, "%d bytes are too few for a sealed segment", physical))
	}
	var tail [trailerBytes]byte
	if err := f.readFull(rd, tail[:], physical-trailerBytes); err != nil {
		return nil, f.footerError(loc, err)
	}
	t, err := decodeTrailer(tail[:], physical)
	if err != nil {
		return nil, f.footerError(loc, err)
	}
	off := physical - trailerBytes - t.runs*runBytes
	if off < headerBytes {
		return nil, f.footerError(loc, tine.Errorf(tine.KindCorrupt, "the segment footer is damaged"))
	}
	b := make([]byte, physical-off)
	if err := f.readFull(rd, b, off); err != nil {
		return nil, f.footerError(loc, err)
	}
	l, err := decodeFooter(b, t)
	if err != nil {
		return nil, f.footerError(loc, err)
	}
	if t.id != f.key.id || t.generation != f.key.generation {
		return nil, tine.Errorf(tine.KindCorrupt, "segment file %s ends in the footer of %s.%d", f.path, t.id, t.generation)
	}
	if t.end < loc.End || loc.State == record.SegmentSealed && t.end != loc.End {
		return nil, tine.Errorf(tine.KindCorrupt, "segment file %s ends at %d, its row at %d", f.path, t.end, loc.End)
	}
	return l, nil
}

func (f *file) footerError(loc record.Segment, err error) error {
	if loc.State != record.SegmentSealed && tine.KindOf(err) == tine.KindCorrupt {
		return tine.Errorf(tine.KindUnavailable, "segment file %s is open and has no writer: it is not recovered", f.path)
	}
	return tine.Errorf(tine.KindOf(err), "segment file %s: %w", f.path, err)
}

func (f *file) checkHeader(rd vfs.File) error {
	var b [headerBytes]byte
	if err := f.readFull(rd, b[:], 0); err != nil {
		return err
	}
	h, err := decodeHeader(b[:])
	if err != nil {
		return tine.Errorf(tine.KindOf(err), "segment file %s: %w", f.path, err)
	}
	if h.id != f.key.id || h.generation != f.key.generation {
		return tine.Errorf(tine.KindCorrupt, "segment file %s holds %s.%d", f.path, h.id, h.generation)
	}
	return nil
}

// readFull reads all of p, or says that the file is short (KindCorrupt) or the
// device failed (KindIO).
func (f *file) readFull(rd vfs.File, p []byte, off int64) error {
	n, err := rd.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return tine.Errorf(tine.KindCorrupt, "segment file %s is short: %d bytes at %d are not there", f.path, len(p)-n, off+int64(n)).
			WithHint("files with data in this segment cannot be read; an older checkpoint may still have them, else restore the file from a backup of the data directory")
	}
	return ioError("read", f.path, err)
}

// ReadAt reads len(p) bytes of payload from the logical offset off: all of
// them, or an error and nothing to be used of p. Every block that is touched
// is verified.
// A segment that is not on this device may take as long as its store tries;
// Close of the Store ends that.
// Errors: KindCorrupt for a damaged, missing or short block, for a range
// beyond the end, and for an object that is not in the store; KindIO;
// KindUnavailable if the store does not answer or lets nobody in, and KindVersion
// if its object is of a newer program; KindStale if the segment's Writer was
// abandoned.
func (h *Handle) ReadAt(p []byte, off int64) error {
	if a := h.f.away.Load(); a != nil {
		return h.f.readAway(a, p, off)
	}
	if l := h.f.layout.Load(); l != nil {
		return h.f.readSpan(l.runs, l.end, p, off)
	}
	return h.f.w.readAt(p, off)
}

// Release gives the pin back. The Handle must not be used afterwards.
func (h *Handle) Release() {
	f := h.f
	h.f = nil
	f.s.unpin(f)
}
