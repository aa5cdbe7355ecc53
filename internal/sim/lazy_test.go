package sim

import (
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lazy is a file system on which some files say that they are flushed and are
// not.
type lazy struct {
	vfs.FS
	is func(name string, dir bool) bool
}

type lazyFile struct{ vfs.File }

func (lazyFile) Sync() error                           { return nil }
func (lazyFile) SyncData() error                       { return nil }
func (lazyFile) SyncTo(int64) (fullSync bool, _ error) { return true, nil }

func (l lazy) file(name string, dir bool, f vfs.File, err error) (vfs.File, error) {
	if err == nil && l.is(name, dir) {
		f = lazyFile{f}
	}
	return f, err
}

func (l lazy) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.Create(name, c)
	return l.file(name, false, f, err)
}

func (l lazy) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := l.FS.OpenReadWrite(name, c, opts...)
	return l.file(name, false, f, err)
}

func (l lazy) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.ReuseForWrite(from, to, c)
	return l.file(to, false, f, err)
}

func (l lazy) OpenDir(name string) (vfs.File, error) {
	f, err := l.FS.OpenDir(name)
	return l.file(name, true, f, err)
}

// TestMissingFlushesAreFound takes flushes away. If the crash tests did not
// find that, they would find nothing.
func TestMissingFlushesAreFound(t *testing.T) {
	found := func(t *testing.T, cfg Config) {
		for cfg.Seed = 1; cfg.Seed <= 20; cfg.Seed++ {
			if f := Run(cfg); f != nil {
				t.Logf("seed %d: %.300v", cfg.Seed, f.Err)
				return
			}
		}
		t.Error("no run found it")
	}
	for name, is := range map[string]func(string, bool) bool{
		"of files":       func(_ string, dir bool) bool { return !dir },
		"of directories": func(_ string, dir bool) bool { return dir },
		"of segments":    func(name string, dir bool) bool { return !dir && strings.HasPrefix(name, "/data/segments/") },
		"of logs":        func(name string, dir bool) bool { return !dir && path.Ext(name) == ".log" },
		"of tables":      func(name string, dir bool) bool { return !dir && path.Ext(name) == ".sst" },
	} {
		wrap := func(fs vfs.FS) vfs.FS { return lazy{fs, is} }
		t.Run(name, func(t *testing.T) { found(t, Config{Steps: 300, Cuts: true, Small: true, Wrap: wrap}) })
		if name == "of files" {
			t.Run(name+", without cuts", func(t *testing.T) { found(t, Config{Steps: 1000, Crashes: true, Wrap: wrap}) })
		}
	}
}
