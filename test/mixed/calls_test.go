package mixed

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/sim/posix"
)

// target is a random name in a random directory: often one that is there.
type target struct {
	place
	path string // below the root
	at   string // for system calls
	node *posix.Node
}

const (
	names    = 10 // in each directory
	maxBytes = 400 << 10
)

func (j *modelJob) pick() (target, error) {
	var dirs []inode
	j.fs.Tree.All(func(n *posix.Node) {
		if n.IsDir() {
			dirs = append(dirs, n.Ino)
		}
	})
	t := target{place: place{dirs[j.rnd.IntN(len(dirs))], fmt.Sprintf("n%d", j.rnd.IntN(names))}}
	var err error
	if t.path, err = t.place.path(j.fs.Tree); err != nil {
		return t, err
	}
	t.at = j.root.path(t.path)
	if n, err := j.fs.Lookup(t.dir, t.name); err == nil {
		t.node = n
	}
	return t, nil
}

// file is a target that is a regular file, if one is met soon.
func (j *modelJob) file() (target, bool, error) {
	for range 30 {
		t, err := j.pick()
		if err != nil || t.node != nil && t.node.Type() == posix.TypeRegular {
			return t, err == nil, err
		}
	}
	return target{}, false, nil
}

// act makes one random call.
func (j *modelJob) act(ctx context.Context) error {
	t, err := j.pick()
	if err != nil {
		return err
	}
	switch k := j.rnd.IntN(100); {
	case k < 22:
		return j.create(t)
	case k < 30:
		return j.do(func() (inode, error) { return 0, unix.Unlink(t.at) }, change{"unlink " + t.path, nil,
			func(fs *posix.FS, _ inode) error { return fs.Unlink(t.dir, t.name) }})
	case k < 33:
		return j.do(func() (inode, error) { return 0, unix.Rmdir(t.at) }, change{"rmdir " + t.path, nil,
			func(fs *posix.FS, _ inode) error { return fs.Rmdir(t.dir, t.name) }})
	case k < 45:
		return j.twoNames(t)
	case k < 52:
		return j.attribute(t)
	case k < 90:
		t, ok, err := j.file()
		if err != nil || !ok {
			return err
		}
		return j.content(t)
	case k < 97:
		return j.sync(t)
	default:
		if err := j.w.api.SyncDisk(ctx, j.name); err != nil {
			return err
		}
		j.durable()
		return nil
	}
}

// create makes a file of any type.
func (j *modelJob) create(t target) error {
	mode := []uint32{0o644, 0o666, 0o600, 0o700}[j.rnd.IntN(4)]
	fresh := posix.New{Who: posix.Who{Umask: umask}}
	var what string
	var call func() error
	switch k := j.rnd.IntN(10); {
	case k < 6:
		what, fresh.Mode = "create ", posix.TypeRegular|mode
		call = func() error {
			fd, err := unix.Open(t.at, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, mode)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}
	case k < 8:
		what, fresh.Mode = "mkdir ", posix.TypeDir|mode|0o700
		call = func() error { return unix.Mkdir(t.at, mode|0o700) }
	case k < 9:
		what, fresh.Mode, fresh.Target = "symlink ", posix.TypeSymlink|0o777, fmt.Sprint("to/", j.rnd.Uint32())
		call = func() error { return unix.Symlink(fresh.Target, t.at) }
	default:
		what, fresh.Mode = "mkfifo ", posix.TypeFifo|mode
		call = func() error { return unix.Mkfifo(t.at, mode) }
	}
	return j.do(func() (inode, error) {
		if err := call(); err != nil {
			return 0, err
		}
		var st unix.Stat_t
		err := unix.Lstat(t.at, &st)
		return inode(st.Ino), err
	}, change{what + t.path, &t.place, func(fs *posix.FS, ino inode) error {
		w := fresh
		w.Ino = ino
		_, err := fs.Make(t.dir, t.name, w)
		return err
	}})
}

// twoNames renames or links.
func (j *modelJob) twoNames(t target) error {
	to, err := j.pick()
	if err != nil {
		return err
	}
	if j.rnd.IntN(4) == 0 && t.node != nil {
		ino := t.node.Ino
		return j.do(func() (inode, error) { return 0, unix.Link(t.at, to.at) }, change{"link " + t.path + " to " + to.path, nil,
			func(fs *posix.FS, _ inode) error { return fs.Link(ino, to.dir, to.name) }})
	}
	flags := []uint32{0, 0, 0, posix.NoReplace, posix.Exchange}[j.rnd.IntN(5)]
	return j.do(func() (inode, error) {
		return 0, unix.Renameat2(unix.AT_FDCWD, t.at, unix.AT_FDCWD, to.at, uint(flags))
	}, change{fmt.Sprintf("rename %s to %s, flags %d", t.path, to.path, flags), nil, func(fs *posix.FS, _ inode) error {
		return fs.Rename(t.dir, t.name, to.dir, to.name, flags, posix.New{})
	}})
}

// attribute changes a mode, an owner or an extended attribute.
func (j *modelJob) attribute(t target) error {
	if t.node == nil || t.node.Type() == posix.TypeSymlink {
		return nil
	}
	ino, mode, id := t.node.Ino, uint32(0o600|j.rnd.IntN(0o200)), uint32(j.rnd.IntN(3))
	if t.node.IsDir() {
		mode |= 0o700
	}
	name, value := fmt.Sprint("user.", j.rnd.IntN(4)), fmt.Sprint(j.rnd.Uint64())
	flags := j.rnd.IntN(3)
	var call func() error
	var c change
	switch j.rnd.IntN(4) {
	case 0:
		call = func() error { return unix.Chmod(t.at, mode) }
		c.what = fmt.Sprintf("chmod %o %s", mode, t.path)
		c.apply = func(fs *posix.FS, _ inode) error { return fs.SetAttr(ino, posix.Change{Mode: &mode}) }
	case 1:
		call = func() error { return unix.Lchown(t.at, int(id), int(id)) }
		c.what = fmt.Sprintf("chown %d %s", id, t.path)
		c.apply = func(fs *posix.FS, _ inode) error { return fs.SetAttr(ino, posix.Change{UID: &id, GID: &id}) }
	default:
		if t.node.Type() == posix.TypeFifo {
			return nil // the kernel allows them no attributes of users
		}
		if j.rnd.IntN(3) == 0 {
			call = func() error { return unix.Lremovexattr(t.at, name) }
			c.what = fmt.Sprintf("removexattr %s %s", name, t.path)
			c.apply = func(fs *posix.FS, _ inode) error { return fs.RemoveXattr(ino, name) }
			break
		}
		call = func() error { return unix.Lsetxattr(t.at, name, []byte(value), flags) }
		c.what = fmt.Sprintf("setxattr %s %s, flags %d", name, t.path, flags)
		c.apply = func(fs *posix.FS, _ inode) error { return fs.SetXattr(ino, name, value, uint32(flags)) }
	}
	return j.do(func() (inode, error) { return 0, call() }, c)
}

// content changes what a file holds.
func (j *modelJob) content(t target) error {
	ino, size := t.node.Ino, t.node.Size()
	flags, dsync := os.O_RDWR, j.rnd.IntN(10) == 0
	if dsync {
		flags |= unix.O_DSYNC
	}
	f, err := os.OpenFile(t.at, flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	off, length := j.rnd.Int64N(max(1, min(size+9000, maxBytes))), 1+j.rnd.Int64N([]int64{100, 5000, 5000, 60_000}[j.rnd.IntN(4)])
	switch k := j.rnd.IntN(20); {
	case k < 12:
		if err := j.write(t, f, off, length); err != nil {
			return err
		}
		if dsync {
			j.durable()
		}
		return nil
	case k < 15:
		return j.do(func() (inode, error) { return 0, unix.Ftruncate(fd, off) }, change{fmt.Sprintf("truncate %s from %d to %d", t.path, size, off), nil,
			func(fs *posix.FS, _ inode) error { return fs.Truncate(ino, off) }})
	case k < 17:
		mode := []uint32{0, posix.KeepSize, posix.PunchHole | posix.KeepSize, posix.ZeroRange}[j.rnd.IntN(4)]
		return j.do(func() (inode, error) { return 0, unix.Fallocate(fd, mode, off, length) }, change{fmt.Sprintf("fallocate %x %d bytes at %d of %s", mode, length, off, t.path), nil,
			func(fs *posix.FS, _ inode) error { return fs.Allocate(ino, mode, off, length) }})
	}
	return j.copy(t, f, off, length)
}

// write writes in one call. The kernel may pass on what lies in the first page
// as a request of its own if the write does not start at a page: then the disk
// has one more state in between.
func (j *modelJob) write(t target, f *os.File, off, length int64) error {
	const page = 4096
	ino, data := t.node.Ino, make([]byte, length)
	if j.rnd.IntN(5) == 0 {
		off = t.node.Size()
	}
	for i := range data {
		data[i] = byte(j.rnd.Uint32())
	}
	part := func(what string, from, to int64) change {
		return change{fmt.Sprintf("%s%d bytes at %d of %s", what, length, off, t.path), nil,
			func(fs *posix.FS, _ inode) error { return fs.Write(ino, off+from, data[from:to]) }}
	}
	changes := []change{part("write ", 0, length)}
	if first := page - off%page; first < page && first < length {
		changes = []change{part("the first page of write ", 0, first), part("write ", first, length)}
	}
	return j.do(func() (inode, error) {
		_, err := f.WriteAt(data, off)
		return 0, err
	}, changes...)
}

// copy copies to another file, or inside this one.
func (j *modelJob) copy(t target, f *os.File, off, length int64) error {
	to, ok, err := j.file()
	if err != nil || !ok {
		return err
	}
	out, err := os.OpenFile(to.at, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	from, at := t.node.Ino, j.rnd.Int64N(max(1, min(to.node.Size()+9000, maxBytes)))
	return j.do(func() (inode, error) {
		in, out64 := off, at
		_, err := unix.CopyFileRange(int(f.Fd()), &in, int(out.Fd()), &out64, int(length), 0)
		return 0, err
	}, change{fmt.Sprintf("copy %d bytes at %d of %s to %d of %s", length, off, t.path, at, to.path), nil, func(fs *posix.FS, _ inode) error {
		_, err := fs.Copy(from, off, to.node.Ino, at, length)
		return err
	}})
}

// sync makes the disk durable by fsync of a file or a directory.
func (j *modelJob) sync(t target) error {
	at := t.at
	if t.node == nil || t.node.Type() != posix.TypeRegular {
		at = j.root.path(".")
	}
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	j.durable()
	return nil
}
