package exporter_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/exporter"
	"tine.dev/tine/internal/control/importer"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

var (
	me   = volume.Caller{Tenant: tine.DefaultTenant, Author: "me", Principal: "uid:0"}
	root = volume.Cred{}
)

// bench is a host with what imports and exports.
type bench struct {
	t    *testing.T
	host *volume.Host
	im   *importer.Importer
	ex   *exporter.Exporter
	data string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, data: t.TempDir()}
	log := slog.New(slog.DiscardHandler)
	var err error
	b.host, err = volume.Open(t.Context(), volume.Options{Dir: b.data, Logger: log})
	b.ok(err)
	t.Cleanup(func() {
		if err := b.host.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b.im, err = importer.Open(b.host, b.data, log)
	b.ok(err)
	b.ex, err = exporter.Open(b.host, b.data, log)
	b.ok(err)
	return b
}

func (b *bench) ok(errs ...error) {
	b.t.Helper()
	for _, err := range errs {
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// export returns an archive.
func (b *bench) export(f exporter.From) ([]byte, api.ExportDone) {
	b.t.Helper()
	x, err := b.ex.Begin(b.t.Context(), me, f)
	b.ok(err)
	defer x.Close()
	var out bytes.Buffer
	done, err := x.Write(&out)
	b.ok(err)
	return out.Bytes(), done
}

// unpack imports an archive and returns the notes.
func (b *bench) unpack(to importer.Tar, archive io.Reader) ([]string, string, error) {
	b.t.Helper()
	var notes []string
	to.Interrupt = func() {}
	_, _, cp, err := b.im.ImportTar(b.t.Context(), me, to, archive, func(l api.ImportLine) {
		if l.Note != nil {
			notes = append(notes, l.Note.Path+": "+l.Note.Note)
		}
	})
	return notes, cp, err
}

// run runs a program and returns what it prints.
func (b *bench) run(stdin io.Reader, name string, args ...string) []byte {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), name, args...)
	cmd.Stdin = stdin
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		b.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return out
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("owners and devices can be set by root only")
	}
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("there is no tar here")
	}
}

// makeTree fills dir with one of everything that an archive can hold.
func (b *bench) makeTree(dir string) {
	b.t.Helper()
	in := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	long := strings.Repeat("l", 200)
	b.ok(os.Mkdir(in("sub"), 0o751), os.MkdirAll(in("empty", "deep"), 0o700), os.MkdirAll(in(long, long, long), 0o755))
	b.ok(
		os.WriteFile(in("none"), nil, 0o600),
		os.WriteFile(in("small"), []byte("hello"), 0o640),
		os.WriteFile(in("large"), bytes.Repeat([]byte("0123456789abcdef"), 3<<16), 0o644),
		os.WriteFile(in("sub", "not utf-8 \xff\xfe"), []byte("x"), 0o604),
		os.WriteFile(in("sub", "\xc3\xa4 and a\nnew line"), []byte("y"), 0o604),
		os.WriteFile(in(long, long, long, long), []byte("deep"), 0o644),
		os.WriteFile(in("setuid"), []byte("#!"), 0o700),
		os.Link(in("small"), in("sub", "hard")), os.Link(in("small"), in("zz")),
		os.Symlink("small", in("link")), os.Symlink(strings.Repeat("y", 3000), in("dangling")), os.Symlink("\xff", in("odd link")),
		os.Link(in("link"), in("link too")),
		unix.Mkfifo(in("fifo"), 0o620),
		unix.Mknod(in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mknod(in("block"), unix.S_IFBLK|0o600, int(unix.Mkdev(259, 300))),
	)
	b.sparse(in("holes"), 9<<30, [][2]int64{{0, 4096}, {1 << 20, 8192}, {8 << 30, 100}})
	b.sparse(in("all hole"), 5<<20, nil)
	b.sparse(in("hole at the end"), 1<<20+7, [][2]int64{{0, 5000}})
	var many [][2]int64
	for i := range int64(300) {
		many = append(many, [2]int64{i * 16384, 4096})
	}
	b.sparse(in("many holes"), 300*16384, many)
	b.ok(os.Chown(in("setuid"), 12, 34), os.Lchown(in("link"), 3000000, 4000000000), os.Chmod(in("setuid"), 0o755|os.ModeSetuid),
		os.Chmod(in("sub"), 0o755|os.ModeSetgid|os.ModeSticky))
	set := func(path, name string, value []byte) {
		b.t.Helper()
		b.ok(unix.Lsetxattr(in(path), name, value, 0))
	}
	set("small", "user.note", []byte("kept\x00\n=%\xff"))
	set("small", "user.a=b%3D", []byte("odd name"))
	set("sub", "trusted.t", nil)
	set("link", "trusted.on a link", []byte("x"))
	set("setuid", "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	acl := func(perms ...uint16) []byte { // owner, user 1000, group, mask, other
		v := []byte{2, 0, 0, 0}
		for i, tag := range []uint16{1, 2, 4, 0x10, 0x20} {
			id := uint32(0xffffffff)
			if tag == 2 {
				id = 1000
			}
			v = append(v, byte(tag), 0, byte(perms[i]), 0, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
		}
		return v
	}
	set("large", "system.posix_acl_access", acl(6, 5, 4, 5, 0))
	set("sub", "system.posix_acl_default", acl(7, 7, 5, 7, 1))
	for i, name := range []string{"small", "link", "fifo", "null", "holes", "sub", "empty", "."} {
		ts := []unix.Timespec{{Sec: 1e9 + int64(i), Nsec: 123456789}, {Sec: 15e8 - int64(i), Nsec: 987654321}}
		if name == "fifo" {
			ts[1] = unix.Timespec{Sec: -5, Nsec: 250000000}
		}
		b.ok(unix.UtimesNanoAt(unix.AT_FDCWD, in(name), ts, unix.AT_SYMLINK_NOFOLLOW))
	}
}

func (b *bench) sparse(path string, size int64, runs [][2]int64) {
	b.t.Helper()
	f, err := os.Create(path)
	b.ok(err)
	for i, r := range runs {
		_, err := f.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, int(r[1])), r[0])
		b.ok(err)
	}
	b.ok(f.Truncate(size), f.Close())
}

// describe returns one line for each inode below dir: all that an archive has
// to keep of it.
func describe(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	inos := map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			return nil
		}
		line := fmt.Sprintf("%q mode %o owner %d:%d mtime %d.%09d rdev %d", rel, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, st.Rdev)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			if inos[st.Ino] == "" {
				inos[st.Ino] = rel
			}
			line += fmt.Sprintf(" is %q", inos[st.Ino])
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" to %q", target)
		case unix.S_IFREG:
			text, err := describeData(path, st.Size)
			if err != nil {
				return err
			}
			line += text
		}
		lines = append(lines, line+describeXattrs(t, path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

// describeData says where a file has data and what.
func describeData(path string, size int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text := fmt.Sprintf(" size %d", size)
	for off := int64(0); off < size; {
		start, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err != nil {
			break
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return "", err
		}
		p := make([]byte, end-start)
		if _, err := f.ReadAt(p, start); err != nil {
			return "", err
		}
		var sum uint64
		for i, c := range p {
			sum += uint64(c) * uint64(i+1)
		}
		text += fmt.Sprintf(" %d+%d:%x", start, end-start, sum)
		off = end
	}
	return text, nil
}

func describeXattrs(t *testing.T, path string) string {
	t.Helper()
	list := make([]byte, 65536)
	n, err := unix.Llistxattr(path, list)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		v := make([]byte, 65536)
		n, err := unix.Lgetxattr(path, name, v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf(" %q=%q", name, v[:n]))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, l := range got {
		if !slices.Contains(want, l) {
			t.Errorf("%s: unexpected %.400s", what, l)
		}
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			t.Errorf("%s: missing %.400s", what, l)
		}
	}
}

// tarFlags are what GNU tar needs to keep everything.
var tarFlags = []string{"--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls"}

// TestThroughGNUTar takes a tree into a disk by GNU tar's archive, out of it by
// our own, and back to the machine by GNU tar: it is the same tree.
func TestThroughGNUTar(t *testing.T) {
	needRoot(t)
	for _, format := range []string{"posix", "posix --sparse-version=0.0", "posix --sparse-version=0.1", "gnu"} {
		t.Run(format, func(t *testing.T) {
			b := newBench(t)
			src, dst := t.TempDir(), t.TempDir()
			b.makeTree(src)
			flags := slices.Concat([]string{"-C", src, "-cf", "-", "--sparse"}, strings.Fields("--format="+format), tarFlags[:1])
			if strings.HasPrefix(format, "posix") {
				flags = append(flags, tarFlags...)
			}
			archive := b.run(nil, "tar", append(flags, ".")...)
			notes, _, err := b.unpack(importer.Tar{Disk: "d"}, bytes.NewReader(archive))
			if err != nil || len(notes) > 0 {
				t.Fatalf("%v, %q", err, notes)
			}
			ours, done := b.export(exporter.From{Ref: volume.Ref{Disk: "d"}})
			if len(done.Notes) > 0 || done.Totals.HardLinks != 3 {
				t.Errorf("%+v", done)
			}
			b.run(bytes.NewReader(ours), "tar", slices.Concat([]string{"-C", dst, "-xpf", "-", "--warning=no-timestamp", "--warning=no-unknown-keyword"}, tarFlags)...)
			want := describe(t, src)
			if format == "gnu" {
				// That format has whole seconds and no attributes.
				want = withoutAttributes(want)
			}
			got := describe(t, dst)
			if format == "gnu" {
				got = withoutAttributes(got)
			}
			compare(t, format, got, want)
			if len(ours) > 20<<20 {
				t.Errorf("the archive has %d bytes: the holes too", len(ours))
			}
		})
	}
}

func withoutAttributes(lines []string) []string {
	var out []string
	for _, l := range lines {
		head, _, _ := strings.Cut(l, " mtime ")
		_, tail, _ := strings.Cut(l, " rdev ")
		if i := strings.Index(tail, " \""); i >= 0 && !strings.Contains(tail, " is \"") && !strings.Contains(tail, " to \"") {
			tail = tail[:i]
		}
		tail, _, _ = strings.Cut(tail, ` "user.`)
		tail, _, _ = strings.Cut(tail, ` "trusted.`)
		out = append(out, head+" rdev "+tail)
	}
	return out
}

// TestDirectoryAndBack imports a directory, exports it, and imports that again:
// the second archive is the first to the byte.
func TestDirectoryAndBack(t *testing.T) {
	needRoot(t)
	b := newBench(t)
	src := t.TempDir()
	b.makeTree(src)
	l, err := net.Listen("unix", filepath.Join(src, "socket"))
	b.ok(err)
	defer l.Close()
	_, _, err = b.im.Import(t.Context(), me, "a", src, func(api.ImportLine) {})
	b.ok(err)
	s, err := b.host.Attach(t.Context(), me, volume.Ref{Disk: "a"}, volume.AttachOptions{})
	b.ok(err)
	_, _, err = s.Mknod(root, volume.Root, "socket", unix.S_IFSOCK|0o600, 0)
	b.ok(err, s.Detach(t.Context()))
	first, done := b.export(exporter.From{Ref: volume.Ref{Disk: "a"}})
	if done.Skipped != 1 || done.Notes[0].Path != "./socket" {
		t.Errorf("%+v", done)
	}
	_, _, err = b.unpack(importer.Tar{Disk: "b"}, bytes.NewReader(first))
	b.ok(err)
	second, _ := b.export(exporter.From{Ref: volume.Ref{Disk: "b"}})
	if !bytes.Equal(first, second) {
		t.Errorf("the archive of the copy differs: %d bytes, %d bytes", len(first), len(second))
	}
	cps, err := b.host.Checkpoints(t.Context(), me, "a")
	if err != nil || len(cps) != 0 {
		t.Errorf("checkpoints are left: %+v, %v", cps, err)
	}
	if left, err := os.ReadFile(filepath.Join(b.data, "exports.json")); err != nil || strings.Contains(string(left), "@") {
		t.Errorf("a note is left: %s, %v", left, err)
	}
}
