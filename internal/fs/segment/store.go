package segment

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/crashpoint"
	"tine.dev/tine/internal/tine"
)

// Options say where segments lie and how much may be in flight.
type Options struct {
	FS        vfs.FS          // default vfs.Default
	Dir       string          // made if missing; no other store may use it
	OpenFiles int             // how many sealed files stay open while nobody reads them; default 256
	Crash     crashpoint.Hook // told of every crash point; may be nil
	Logger    *slog.Logger    // default: nothing is logged

	// PushBytes is how much is written before the device is asked to start on
	// it, so that a later flush finds little to do. Default 4 MiB.
	PushBytes int64
	// MaxUnsyncedBytes is how much written data may await its flush; past it
	// Append waits for one. Default 64 MiB.
	MaxUnsyncedBytes int64
}

const (
	defaultOpenFiles   = 256
	defaultPush        = 4 << 20
	defaultMaxUnsynced = 64 << 20
)

// Store is all segments of one server. It is safe for concurrent use.
type Store struct {
	o     Options
	bytes atomic.Int64    // of all files
	life  context.Context // of reads from elsewhere; ends at Close
	end   context.CancelFunc

	mu        sync.Mutex // a leaf: taken last, no input or output under it
	files     map[fileKey]*file
	idle      idleList
	repacking map[tine.SegmentID]struct{}
	closed    bool

	dirMu sync.Mutex // a leaf; held over flushes of directories
	dirs  map[string]dirState

	small sync.Pool // *[]byte of smallBlocks blocks
	large sync.Pool // *[]byte of maxBatchBlocks blocks
}

// dirState is what is known of a directory in this life of the process.
type dirState struct {
	durable bool  // its own entry in its parent is
	failed  error // a flush of it failed; never try again and believe the answer
}

// Open opens the store in o.Dir, making the directory if it is missing, and
// counts what lies in it. Nothing is recovered or removed by it: call Recover
// for every location row in state open, and Remove for every file that Files
// names and no row does.
// Errors: KindIO, KindNoSpace.
func Open(o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.OpenFiles <= 0 {
		o.OpenFiles = defaultOpenFiles
	}
	if o.PushBytes <= 0 {
		o.PushBytes = defaultPush
	}
	if o.MaxUnsyncedBytes <= 0 {
		o.MaxUnsyncedBytes = defaultMaxUnsynced
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		o:         o,
		files:     map[fileKey]*file{},
		repacking: map[tine.SegmentID]struct{}{},
		dirs:      map[string]dirState{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.idle.init()
	s.small.New = func() any { b := make([]byte, smallBlocks*blockPhysical); return &b }
	s.large.New = func() any { b := make([]byte, maxBatchBlocks*blockPhysical); return &b }
	if err := s.makeRoot(); err != nil {
		return nil, err
	}
	err := s.Files(func(_ tine.SegmentID, _ uint64, n int64) error {
		s.bytes.Add(n)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// makeRoot makes Dir and whatever is missing above it, and flushes each new
// entry. The parent of Dir is flushed in any case: an earlier process may have
// died between making and flushing.
func (s *Store) makeRoot() error {
	var missing []string
	for d := s.o.Dir; ; d = s.o.FS.PathDir(d) {
		if _, err := s.o.FS.Stat(d); err == nil || s.o.FS.PathDir(d) == d {
			break
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := s.o.FS.MkdirAll(missing[i], 0o700); err != nil {
			return ioError("make the directory", missing[i], err)
		}
		if err := s.flushDir(s.o.FS.PathDir(missing[i])); err != nil {
			return err
		}
	}
	return s.flushDir(s.o.FS.PathDir(s.o.Dir))
}

func (s *Store) flushDir(path string) error {
	d, err := s.o.FS.OpenDir(path)
	if err != nil {
		return ioError("open the directory", path, err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return &flushDirError{ioError("flush the directory", path, err)}
	}
	return nil
}

// flushDirError marks a flush that was tried and failed, as against one that
// could not be tried.
type flushDirError struct{ error }

func (e *flushDirError) Unwrap() error { return e.error }

// shard is the directory of a segment's files below Dir: the last two
// characters of the id, which are random, so that 256 directories share the
// files evenly and two of one time do not meet.
func shard(id tine.SegmentID) string {
	t := id.String()
	return t[len(t)-2:]
}

func (s *Store) path(k fileKey) string {
	return s.o.FS.PathJoin(s.o.Dir, shard(k.id), k.id.String()+"."+strconv.FormatUint(k.generation, 10))
}

// parseName is the reverse of the last element of path.
func parseName(name string) (fileKey, bool) {
	text, num, ok := strings.Cut(name, ".")
	if !ok {
		return fileKey{}, false
	}
	var k fileKey
	var err error
	if err = k.id.Parse(text); err != nil {
		return fileKey{}, false
	}
	k.generation, err = strconv.ParseUint(num, 10, 64)
	return k, err == nil && strconv.FormatUint(k.generation, 10) == num
}

// makeShard makes the directory for a segment's files.
func (s *Store) makeShard(id tine.SegmentID) error {
	d := s.o.FS.PathJoin(s.o.Dir, shard(id))
	if err := s.o.FS.MkdirAll(d, 0o700); err != nil {
		return ioError("make the directory", d, err)
	}
	return nil
}

// flushEntry makes the name of a file in the segment's directory durable, and
// the directory's own name once in the life of the process.
func (s *Store) flushEntry(id tine.SegmentID) error {
	name := shard(id)
	s.dirMu.Lock()
	defer s.dirMu.Unlock()
	st := s.dirs[name]
	err := st.failed
	if err == nil && !st.durable {
		err = s.flushDir(s.o.Dir)
		st.durable = err == nil
	}
	if err == nil {
		err = s.flushDir(s.o.FS.PathJoin(s.o.Dir, name))
	}
	if tried := (*flushDirError)(nil); errors.As(err, &tried) {
		st.failed = err
	}
	s.dirs[name] = st
	return err
}

// Files calls fn for every segment file on the device, in no order, with its
// length in bytes. Names that are not a segment's are skipped and logged. An
// error of fn ends the walk and is returned. Files made or removed meanwhile
// may or may not be seen.
// Errors: KindIO, and those of fn.
func (s *Store) Files(fn func(id tine.SegmentID, generation uint64, bytes int64) error) error {
	shards, err := s.o.FS.List(s.o.Dir)
	if err != nil {
		return ioError("list", s.o.Dir, err)
	}
	for _, sh := range shards {
		dir := s.o.FS.PathJoin(s.o.Dir, sh)
		names, err := s.o.FS.List(dir)
		if err != nil {
			if st, serr := s.o.FS.Stat(dir); serr == nil && !st.IsDir() {
				s.o.Logger.Warn("a file that is no segment lies among the segments", "path", dir)
				continue
			}
			return ioError("list", dir, err)
		}
		for _, name := range names {
			path := s.o.FS.PathJoin(dir, name)
			k, ok := parseName(name)
			if !ok || shard(k.id) != sh {
				s.o.Logger.Warn("a file that is no segment lies among the segments", "path", path)
				continue
			}
			st, err := s.o.FS.Stat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return ioError("stat", path, err)
			}
			if err := fn(k.id, k.generation, st.Size()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove unlinks the file of one generation of a segment: at once if nobody
// has it pinned, else when its last Handle, or its Writer, lets go. It waits
// for no one. A file that does not exist is no error. The removal is not
// flushed: a file that comes back after a crash is named by Files and by no
// row.
// Errors: KindIO; of a removal put off, they are logged.
func (s *Store) Remove(id tine.SegmentID, generation uint64) error {
	k := fileKey{id, generation}
	s.mu.Lock()
	f := s.files[k]
	if f != nil && f.pins > 0 {
		f.doomed = true
		s.mu.Unlock()
		return nil
	}
	if f != nil {
		s.forget(f)
	}
	s.mu.Unlock()
	if f != nil {
		f.close()
	}
	return s.unlink(s.path(k))
}

func (s *Store) unlink(path string) error {
	st, err := s.o.FS.Stat(path)
	if err == nil {
		err = s.o.FS.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return ioError("remove", path, err)
	}
	s.bytes.Add(-st.Size())
	return nil
}

// DiskBytes returns the length of all segment files together.
func (s *Store) DiskBytes() int64 { return s.bytes.Load() }

// Close abandons every Writer that is not sealed and closes every file that
// nobody has pinned; pinned ones are closed when they are released. Acquire
// and Create fail afterwards, and so do reads of what is not on this device. It
// always returns nil.
func (s *Store) Close() error {
	s.end()
	s.mu.Lock()
	s.closed = true
	var writers []*Writer
	var idle []*file
	for _, f := range s.files {
		if f.w != nil && f.layout.Load() == nil {
			writers = append(writers, f.w)
		}
		if f.pins == 0 {
			s.forget(f)
			idle = append(idle, f)
		}
	}
	s.mu.Unlock()
	for _, w := range writers {
		w.Abandon()
	}
	for _, f := range idle {
		f.close()
	}
	return nil
}

// openFilesHint is for a process, or a machine, that has too many files open: the
// device is well.
const openFilesHint = "raise the limit of open files: of the server LimitNOFILE= in its unit or `ulimit -n` before it is started, of the machine the sysctl fs.file-max"

// ioError gives an error of the file system its kind and says what to do.
func ioError(op, path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return tine.Errorf(tine.KindNoSpace, "%s %s: %w", op, path, err).
			WithHint("free space on the device that holds the data directory")
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return tine.Errorf(tine.KindIO, "%s %s: %w", op, path, err).WithHint("%s", openFilesHint)
	}
	return tine.Errorf(tine.KindIO, "%s %s: %w", op, path, err).
		WithHint("check the device that holds the data directory and the kernel's log")
}
