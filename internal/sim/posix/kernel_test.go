package posix

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/tine"
)

var errnos = map[error]unix.Errno{
	tine.ErrNotFound: unix.ENOENT, tine.ErrExists: unix.EEXIST, tine.ErrNotDir: unix.ENOTDIR, tine.ErrIsDir: unix.EISDIR,
	tine.ErrNotEmpty: unix.ENOTEMPTY, tine.ErrPermission: unix.EPERM, tine.ErrInvalid: unix.EINVAL,
	tine.ErrNameTooLong: unix.ENAMETOOLONG, tine.ErrAccess: unix.EACCES, tine.ErrUnsupported: unix.EOPNOTSUPP,
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
	mode := []uint32{0o644, 0o666, 0o777, 0o600}[p.r.IntN(4)]
	fresh := New{Who: Who{Umask: umask}, Ino: p.fs.NextIno, Mode: TypeRegular | mode}
	switch p.r.IntN(12) {
	case 0, 1:
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, mode)
		if err == nil {
			unix.Close(fd)
		}
		_, want := p.fs.Make(dir, name, fresh)
		p.same("create "+path, err, want)
	case 2:
		fresh.Mode = TypeDir | mode | 0o700
		err := unix.Mkdir(path, mode|0o700)
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
	case 9, 10:
		if n, err := p.fs.Lookup(dir, name); err == nil && n.Type() != TypeSymlink {
			p.changeACL(path, n.Ino)
		}
	case 11:
		if n, err := p.fs.Lookup(dir, name); err == nil && n.Type() != TypeSymlink {
			mode |= 0o700
			p.same(fmt.Sprintf("chmod %s %o", path, mode), unix.Chmod(path, mode), p.fs.SetAttr(n.Ino, Change{Mode: &mode}))
		}
	}
}

// umask is that of the test.
const umask = 0o022

// changeACL sets or removes a list of any shape, good or not.
func (p *pair) changeACL(path string, ino tine.Ino) {
	name := []string{AccessACL, DefaultACL}[p.r.IntN(2)]
	if p.r.IntN(5) == 0 {
		p.same("removexattr "+name+" "+path, unix.Removexattr(path, name), p.fs.RemoveXattr(ino, name))
		return
	}
	entries := []ACE{{Tag: TagOwner, Perm: 7}}
	add := func(tag uint16, id uint32) { entries = append(entries, ACE{tag, uint16(p.r.IntN(8)), id}) }
	named := p.r.IntN(3)
	for i := range named {
		add(TagUser, uint32(1000+i))
	}
	add(TagOwnerGroup, 0)
	if p.r.IntN(2) == 0 {
		named++
		add(TagGroup, 2000)
	}
	if named > 0 || p.r.IntN(4) == 0 {
		add(TagMask, 0)
	}
	add(TagOther, 0)
	switch i := p.r.IntN(len(entries)); p.r.IntN(16) {
	case 0:
		entries = slices.Delete(entries, i, i+1)
	case 1:
		entries = slices.Insert(entries, i, entries[i])
	case 2:
		entries[i].Tag = []uint16{0, 3, 0x40}[p.r.IntN(3)]
	case 3:
		entries[i].Perm |= 8
	case 4:
		entries[0], entries[i] = entries[i], entries[0]
	case 5:
		entries[i].ID = 0xffffffff
	}
	value := EncodeACL(entries...)
	switch p.r.IntN(40) {
	case 0:
		value = value[:p.r.IntN(len(value))]
	case 1:
		value = "\x01" + value[1:]
	}
	p.same(fmt.Sprintf("setxattr %s %s %q", name, path, value), unix.Setxattr(path, name, []byte(value), 0), p.fs.SetXattr(ino, name, value, 0))
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
	if st.Mode != n.Mode || uint32(st.Nlink) != n.Nlink || !n.IsDir() && st.Size != n.Size() {
		p.t.Fatalf("%s: mode %o, %d links, size %d; in the model %o, %d, %d; %q", path, st.Mode, st.Nlink, st.Size, n.Mode, n.Nlink, n.Size(), p.log)
	}
	for _, name := range []string{AccessACL, DefaultACL} {
		buf := make([]byte, 4096)
		size, err := unix.Lgetxattr(path, name, buf)
		want := ""
		if i, ok := n.xattr(name); ok {
			want = n.Xattrs[i].Value
		}
		if got := string(buf[:max(size, 0)]); got != want || (err == nil) != (want != "") {
			p.t.Fatalf("%s: %s is %q, %v; in the model %q; %q", path, name, got, err, want, p.log)
		}
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
	if err := unix.Setxattr(probe, DefaultACL, []byte(EncodeACL(ACE{Tag: TagOwner}, ACE{Tag: TagOwnerGroup}, ACE{Tag: TagOther})), 0); err != nil {
		t.Skipf("the file system under %s has no ACLs: %v", probe, err)
	}
	defer unix.Umask(unix.Umask(umask))
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
