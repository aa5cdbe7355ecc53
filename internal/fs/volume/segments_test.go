package volume_test

import (
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// segmentFS is a file system on which the writes and flushes of segment files can
// be made to fail.
type segmentFS struct {
	vfs.FS
	mu     sync.Mutex
	made   []string                            // the segment files, in the order of their making
	refuse func(name string, flush bool) error // nil refuses nothing
	met    int                                 // how often something was refused
}

func newSegmentFS() *segmentFS { return &segmentFS{FS: vfs.NewMem()} }

// set says what is refused from now on.
func (f *segmentFS) set(refuse func(name string, flush bool) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// setWrites has all writes of segment files fail, and no flush; nil: none.
func (f *segmentFS) setWrites(err error) {
	f.set(func(_ string, flush bool) error {
		if flush {
			return nil
		}
		return err
	})
}

// last returns the segment file that was made last.
func (f *segmentFS) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[len(f.made)-1]
}

func (f *segmentFS) refused() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met
}

func (f *segmentFS) check(name string, flush bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse == nil {
		return nil
	}
	err := f.refuse(name, flush)
	if err != nil {
		f.met++
	}
	return err
}

// segmentFile is one of its segment files.
type segmentFile struct {
	vfs.File
	fs   *segmentFS
	name string
}

func isSegment(name string) bool { return strings.Contains(name, "/segments/") }

func (f *segmentFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err != nil || !isSegment(name) {
		return file, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made = append(f.made, name)
	return &segmentFile{file, f, name}, nil
}

func (f *segmentFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, o...)
	if err != nil || !isSegment(name) {
		return file, err
	}
	return &segmentFile{file, f, name}, nil
}

func (f *segmentFile) Write(p []byte) (int, error) {
	if err := f.fs.check(f.name, false); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *segmentFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.check(f.name, false); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *segmentFile) SyncTo(n int64) (bool, error) {
	if err := f.fs.check(f.name, true); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

func (f *segmentFile) Sync() error {
	if err := f.fs.check(f.name, true); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *segmentFile) SyncData() error {
	if err := f.fs.check(f.name, true); err != nil {
		return err
	}
	return f.File.SyncData()
}
