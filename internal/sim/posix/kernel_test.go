package posix

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

var errnos = map[error]unix.Errno{
	tine.ErrNotFound: unix.ENOENT, tine.ErrExists: unix.EEXIST, tine.ErrNotDir: unix.ENOTDIR, tine.ErrIsDir: unix.EISDIR,
	tine.ErrNotEmpty: unix.ENOTEMPTY, tine.ErrPermission: unix.EPERM, tine.ErrInvalid: unix.EINVAL,
	tine.ErrNameTooLong: unix.ENAMETOOLONG,
}

// pair is the model and a directory of the machine, told the same.
type pair struct {
	t    *testing.T
	r    *rand.Rand
	fs   *FS
	root string
	log  []string
}

// path turns a directory of the model and a name into a path of the machine.
func (p *pair) path(dir tine.Ino, name string) string {
	for dir != tine.RootIno {
		d := p.fs.Get(dir)
		up := p.fs.Get(d.Parent)
		for _, e := range up.Names {
			if e.Ino == dir {
				name = e.Name + "/" + name
			}
		}
		dir = d.Parent
	}
	return p.root + "/" + name
}

func (p *pair) same(what string, got, want error) {
	p.log = append(p.log, what)
	if got == nil && want == nil {
		return
	}
	var errno unix.Errno
	if got == nil || want == nil || !errors.As(got, &errno) || errnos[want] != errno {
		p.t.Fatalf("%s: the machine says %v, the model %v; before it:\n%q", what, got, want, p.log)
	}
}

func (p *pair) dir() tine.Ino {
	var dirs []tine.Ino
	p.fs.Tree.All(func(n *Node) {
		if n.IsDir() {
			dirs = append(dirs, n.Ino)
		}
	})
	return dirs[p.r.IntN(len(dirs))]
}

func (p *pair) name() string { return fmt.Sprintf("n%d", p.r.IntN(6)) }

func (p *pair) step() {
	dir, name := p.dir(), p.name()
	path := p.path(dir, name)
	fresh := New{Ino: p.fs.NextIno, Mode: TypeRegular | 0o644}
	switch p.r.IntN(9) {
	case 0, 1:
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644)
		if err == nil {
			unix.Close(fd)
		}
		_, want := p.fs.Make(dir, name, fresh)
		p.same("create "+path, err, want)
	case 2:
		fresh.Mode = TypeDir | 0o755
		err := unix.Mkdir(path, 0o755)
		_, want := p.fs.Make(dir, name, fresh)
		p.same("mkdir "+path, err, want)
	case 3:
		fresh.Mode, fresh.Target = TypeSymlink|0o777, "target"
		err := unix.Symlink("target", path)
		_, want := p.fs.Make(dir, name, fresh)
		p.same("symlink "+path, err, want)
	case 4:
		p.same("unlink "+path, unix.Unlink(path), p.fs.Unlink(dir, name))
	case 5:
		p.same("rmdir "+path, unix.Rmdir(path), p.fs.Rmdir(dir, name))
	case 6:
		to, newName := p.dir(), p.name()
		if n, err := p.fs.Lookup(dir, name); err == nil {
			p.same("link "+path+" "+p.path(to, newName), unix.Link(path, p.path(to, newName)), p.fs.Link(n.Ino, to, newName))
		}
	case 7:
		to, newName := p.dir(), p.name()
		flags := []uint32{0, 0, NoReplace, Exchange, Exchange | NoReplace}[p.r.IntN(5)]
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, p.path(to, newName), uint(flags))
		want := p.fs.Rename(dir, name, to, newName, flags, New{})
		p.same(fmt.Sprintf("rename %s %s %d", path, p.path(to, newName), flags), err, want)
	case 8:
		if n, err := p.fs.Lookup(dir, name); err == nil && n.Type() == TypeRegular {
			p.change(path, n.Ino)
		}
	}
}

// change does something to the content of a file.
func (p *pair) change(path string, ino tine.Ino) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	off, length := p.r.Int64N(20000), 1+p.r.Int64N(9000)
	switch p.r.IntN(4) {
	case 0:
		data := bytes.Repeat([]byte{byte(1 + p.r.IntN(255))}, int(length))
		_, err := f.WriteAt(data, off)
		p.same("write", err, p.fs.Write(ino, off, data))
	case 1:
		p.same("truncate", unix.Ftruncate(int(f.Fd()), off), p.fs.Truncate(ino, off))
	case 2:
		mode := []uint32{0, KeepSize, PunchHole | KeepSize}[p.r.IntN(3)]
		p.same("fallocate", unix.Fallocate(int(f.Fd()), mode, off, length), p.fs.Allocate(ino, mode, off, length))
	case 3:
		in, out := p.r.Int64N(10000), 10000+p.r.Int64N(10000)
		a, b := in, out
		n, err := unix.CopyFileRange(int(f.Fd()), &a, int(f.Fd()), &b, int(length), 0)
		want, refused := p.fs.Copy(ino, in, ino, out, length)
		p.same("copy", err, refused)
		if int64(n) != want {
			p.t.Fatalf("copying %d bytes from %d to %d gives %d, in the model %d", length, in, out, n, want)
		}
	}
}

func (p *pair) compare() {
	p.fs.Tree.All(func(n *Node) {
		if !n.IsDir() {
			return
		}
		path := filepath.Clean(p.path(n.Ino, "."))
		entries, err := os.ReadDir(path)
		if err != nil {
			p.t.Fatal(err)
		}
		if len(entries) != len(n.Names) {
			p.t.Fatalf("%s has %d entries, in the model %d; %q", path, len(entries), len(n.Names), p.log)
		}
		for _, e := range n.Names {
			p.compareNode(filepath.Join(path, e.Name), p.fs.Get(e.Ino))
		}
	})
}

func (p *pair) compareNode(path string, n *Node) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	if st.Mode&TypeMask != n.Type() || uint32(st.Nlink) != n.Nlink || !n.IsDir() && st.Size != n.Size() {
		p.t.Fatalf("%s: mode %o, %d links, size %d; in the model %o, %d, %d; %q", path, st.Mode, st.Nlink, st.Size, n.Mode, n.Nlink, n.Size(), p.log)
	}
	if n.Type() != TypeRegular {
		return
	}
	data, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	if want := n.Content.Read(0, n.Content.Size); !bytes.Equal(data, want) {
		p.t.Fatalf("%s holds something else than in the model; %q", path, p.log)
	}
}

// TestAgainstTheKernel compares the model with a file system of this machine:
// what both say is what the engine must say.
func TestAgainstTheKernel(t *testing.T) {
	probe := t.TempDir()
	if err := unix.Mkdir(probe+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(probe, &st); err != nil || st.Nlink != 3 {
		t.Skipf("the file system under %s does not count subdirectories as links", probe)
	}
	for seed := uint64(1); seed <= 40; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		root := Node{Attr: Attr{Ino: tine.RootIno, Mode: TypeDir | 0o755, Nlink: 2}, Parent: tine.RootIno}
		p := &pair{t: t, r: r, fs: NewFS(root), root: t.TempDir(), log: []string{fmt.Sprintf("seed %d", seed)}}
		for range 300 {
			p.step()
		}
		p.compare()
	}
}
