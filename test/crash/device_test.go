package crash_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/test/crash/recorder"
)

// device is the data directory as the recorded program sees it, together with
// what of it would survive a power cut. Events are applied in their order.
type device struct {
	root *inode
	inos map[uint64]*inode
}

// inode is a file or, with names, a directory.
type inode struct {
	data, synced     []byte
	from, to         int64 // the bytes that differ, at most; to is 0 if none do
	names, syncNames map[string]*inode
}

func newDir() *inode { return &inode{names: map[string]*inode{}, syncNames: map[string]*inode{}} }

func newDevice() *device { return &device{root: newDir(), inos: map[uint64]*inode{}} }

// find returns what a path leads to.
func (d *device) find(p string) (*inode, error) {
	n := d.root
	for name := range pathNames(p) {
		if n = n.names[name]; n == nil {
			return nil, fmt.Errorf("%q is not there", p)
		}
	}
	return n, nil
}

func pathNames(p string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for p != "" {
			name, rest, _ := cut(p)
			if !yield(name) {
				return
			}
			p = rest
		}
	}
}

func cut(p string) (name, rest string, more bool) {
	for i := range p {
		if p[i] == '/' {
			return p[:i], p[i+1:], true
		}
	}
	return p, "", false
}

// parent returns the directory of a path.
func (d *device) parent(p string) (*inode, error) {
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	return d.find(dir)
}

// apply does one event. An error means that the recording makes no sense.
func (d *device) apply(e recorder.Event) error {
	switch e.Op {
	case recorder.Write, recorder.Truncate, recorder.Fsync:
		n := d.inos[e.Ino]
		if n == nil {
			return errors.New("no such inode")
		}
		switch e.Op {
		case recorder.Write:
			n.write(e.Data, e.Off)
		case recorder.Truncate:
			n.truncate(e.Off)
		case recorder.Fsync:
			n.sync()
		}
		return nil
	case recorder.FsyncDir:
		n, err := d.find(e.Path)
		if err != nil {
			return err
		}
		n.syncNames = maps.Clone(n.names)
		return nil
	}
	return d.applyName(e)
}

// applyName does an event that changes names.
func (d *device) applyName(e recorder.Event) error {
	if e.Op == recorder.Link {
		to, err := d.parent(e.To)
		if err != nil {
			return err
		}
		to.names[path.Base(e.To)] = d.inos[e.Ino]
		return nil
	}
	dir, err := d.parent(e.Path)
	if err != nil {
		return err
	}
	name := path.Base(e.Path)
	old := dir.names[name]
	switch e.Op {
	case recorder.Create:
		if old != nil {
			old.truncate(0)
			return nil
		}
		n := &inode{}
		dir.names[name], d.inos[e.Ino] = n, n
		return nil
	case recorder.Mkdir:
		dir.names[name] = newDir()
		return nil
	}
	if old == nil {
		return errors.New("no such name")
	}
	delete(dir.names, name)
	if e.Op == recorder.Rename {
		to, err := d.parent(e.To)
		if err != nil {
			return err
		}
		to.names[path.Base(e.To)] = old
	}
	return nil
}

func (n *inode) touch(from, to int64) {
	if n.to == 0 {
		n.from, n.to = from, to
	}
	n.from, n.to = min(n.from, from), max(n.to, to)
}

func (n *inode) write(p []byte, off int64) {
	end := off + int64(len(p))
	if end > int64(len(n.data)) {
		n.truncate(end)
	}
	copy(n.data[off:], p)
	n.touch(off, end)
}

func (n *inode) truncate(size int64) {
	old := int64(len(n.data))
	if size <= old {
		n.data = n.data[:size]
	} else {
		n.data = append(n.data, make([]byte, size-old)...)
	}
	n.touch(min(size, old), max(size, old, 1))
}

func (n *inode) sync() {
	if n.to > 0 {
		keep := min(n.from, int64(len(n.synced)), int64(len(n.data)))
		n.synced = append(n.synced[:keep], n.data[keep:min(max(n.to, keep), int64(len(n.data)))]...)
		n.synced = append(n.synced, n.data[len(n.synced):]...)
	}
	n.from, n.to = 0, 0
}

// model is what a power cut leaves of what was not flushed.
type model uint8

const (
	exact   model = iota // all
	dropped              // nothing
	torn                 // any block and any name, or not
)

func (m model) String() string { return [...]string{"exact", "dropped", "torn"}[m] }

const dataDir = "/data"

// after returns the data directory as the cut leaves it, at dataDir.
func (d *device) after(m model, rnd *rand.Rand) (*vfs.MemFS, error) {
	fs := vfs.NewMem()
	return fs, d.root.copyTo(fs, dataDir, m, rnd)
}

func (n *inode) copyTo(fs vfs.FS, at string, m model, rnd *rand.Rand) error {
	if n.names == nil {
		f, err := fs.Create(at, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		_, err = f.Write(n.left(m, rnd))
		return errors.Join(err, f.Close())
	}
	if err := fs.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for name, child := range n.leftNames(m, rnd) {
		if err := child.copyTo(fs, path.Join(at, name), m, rnd); err != nil {
			return err
		}
	}
	return nil
}

// left is what the cut leaves of a file.
func (n *inode) left(m model, rnd *rand.Rand) []byte {
	switch {
	case m == exact:
		return n.data
	case m == dropped || n.to == 0:
		return n.synced
	}
	const block = 4096
	data := append([]byte(nil), n.synced...)
	for off := n.from / block * block; off < int64(len(n.data)); off += block {
		if rnd.IntN(2) == 0 {
			continue
		}
		end := min(off+block, int64(len(n.data)))
		if grow := end - int64(len(data)); grow > 0 {
			data = append(data, make([]byte, grow)...)
		}
		copy(data[off:end], n.data[off:end])
	}
	return data
}

func (n *inode) leftNames(m model, rnd *rand.Rand) map[string]*inode {
	switch m {
	case exact:
		return n.names
	case dropped:
		return n.syncNames
	}
	left := maps.Clone(n.syncNames)
	names := maps.Clone(n.names)
	for name := range n.syncNames {
		if names[name] == nil {
			names[name] = nil // removed since
		}
	}
	for _, name := range sortedKeys(names) {
		if rnd.IntN(2) == 0 {
			continue
		}
		if child := names[name]; child != nil {
			left[name] = child
		} else {
			delete(left, name)
		}
	}
	return left
}

// export writes a data directory from memory to the machine's file system.
func export(fs vfs.FS, from, to string) error {
	names, err := fs.List(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		src, dst := path.Join(from, name), filepath.Join(to, name)
		fi, err := fs.Stat(src)
		if err != nil {
			return err
		}
		if fi.IsDir() {
			if err := os.MkdirAll(dst, 0o755); err != nil {
				return err
			}
			if err := export(fs, src, dst); err != nil {
				return err
			}
			continue
		}
		f, err := fs.Open(src)
		if err != nil {
			return err
		}
		p := make([]byte, fi.Size())
		if len(p) > 0 {
			_, err = f.ReadAt(p, 0)
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.WriteFile(dst, p, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
