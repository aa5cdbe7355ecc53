package hosttree

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/tine"
)

// unpacker puts entries into a directory of the machine. The archive comes
// depth first, as tine writes it.
type unpacker struct {
	ctx    context.Context
	r      *archive.Reader
	as     []string // the name under which the archive's root goes; none for the directory itself
	at     string   // the directory, for people
	user   Owner
	note   Note
	totals Totals
	path   []level
	buf    []byte
}

// level is an open directory on the way to an entry.
type level struct {
	name  string
	dir   *os.File
	entry *archive.Entry // whose mode and times are set when it is left; nil: those it has
}

// Unpack puts an archive that has one root into the directory, under the name
// as. Where that is "." the root must be a directory, and its content goes into
// the directory, which keeps its own mode and times. What exists is merged
// if it is a directory on both sides and replaced if it is a file; a file is
// replaced in one moment, when it is complete. What was unpacked
// before an error stays.
func Unpack(ctx context.Context, r *archive.Reader, dir, as string, user Owner, note Note) (Totals, error) {
	d, err := os.Open(dir)
	if err != nil {
		return Totals{}, oserr.Wrap(bare(err), "open %s", dir)
	}
	u := &unpacker{ctx: ctx, r: r, at: dir, user: user, note: note, path: []level{{dir: d}}, buf: make([]byte, copyBytes)}
	if as != "." {
		u.as = []string{as}
	}
	err = u.all()
	for _, l := range u.path {
		_ = l.dir.Close()
	}
	return u.totals, err
}

func (u *unpacker) all() error {
	for first := true; ; first = false {
		if u.ctx.Err() != nil {
			return tine.Errorf(tine.KindInterrupted, "interrupted")
		}
		e, err := u.r.Next()
		if err == io.EOF {
			return u.leave(1)
		}
		if err != nil {
			return err
		}
		parts, err := archive.Path(e.Name)
		if err != nil {
			return err
		}
		if first && e.Type != archive.Directory {
			parts = nil // a root that is no directory stands under its own name, alone
		}
		if err := u.entry(e, slices.Concat(u.as, parts)); err != nil {
			return err
		}
	}
}

func (u *unpacker) where(parts []string) string {
	return filepath.Join(append([]string{u.at}, parts...)...)
}

func (u *unpacker) skip(parts []string, why string) {
	u.totals.Skipped++
	u.note(u.where(parts), why)
}

// entry makes one entry.
func (u *unpacker) entry(e *archive.Entry, parts []string) error {
	if len(parts) == 0 {
		if e.Type != archive.Directory {
			return tine.Errorf(tine.KindNotDir, "what is copied is no directory, so it needs a name in %s", u.at)
		}
		u.totals.Directories++
		return nil // it was there before, so it stays as it is
	}
	in, err := u.enter(parts[:len(parts)-1])
	if err != nil {
		return err
	}
	name := parts[len(parts)-1]
	if e.Type == archive.Directory {
		err = u.directory(e, in, name)
	} else {
		err = u.leaf(e, in, name, parts)
	}
	return oserr.Wrap(err, "make %s", u.where(parts))
}

// enter goes to the directory of an entry, which must be there.
func (u *unpacker) enter(parts []string) (*os.File, error) {
	same := 0
	for same < len(parts) && same+1 < len(u.path) && u.path[same+1].name == parts[same] {
		same++
	}
	if err := u.leave(same + 1); err != nil {
		return nil, err
	}
	for i, name := range parts[same:] {
		d, err := openDir(u.path[len(u.path)-1].dir, name)
		if err != nil {
			return nil, oserr.Wrap(err, "go to %s", u.where(parts[:same+i+1]))
		}
		u.path = append(u.path, level{name: name, dir: d})
	}
	return u.path[len(u.path)-1].dir, nil
}

func openDir(in *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// leave goes up until n levels are left. What is left gets its mode and times
// now: until then its user must be able to make files in it, and that changes
// its times.
func (u *unpacker) leave(n int) error {
	for _, l := range slices.Backward(u.path[n:]) {
		err := u.finish(l)
		_ = l.dir.Close()
		u.path = u.path[:len(u.path)-1]
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) finish(l level) error {
	if l.entry == nil {
		return nil
	}
	return oserr.Wrap(u.attributes(l.entry, l.dir), "finish the directory %s", l.name)
}

func (u *unpacker) directory(e *archive.Entry, in *os.File, name string) error {
	u.totals.Directories++
	err := unix.Mkdirat(int(in.Fd()), name, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	d, err := openDir(in, name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return tine.Errorf(tine.KindNotDir, "something that is no directory is in its place").WithHint("remove that first, or copy elsewhere")
	}
	if err != nil {
		return err
	}
	u.path = append(u.path, level{name, d, e})
	return nil
}

// leaf makes what is no directory, under a name of its own, and then puts it
// into its place.
func (u *unpacker) leaf(e *archive.Entry, in *os.File, name string, parts []string) error {
	if err := replaceable(in, name); err != nil {
		return err
	}
	temp := ".tine-" + rand.Text()
	made, err := u.make(e, in, temp, parts)
	if err == nil && made {
		err = unix.Renameat(int(in.Fd()), temp, int(in.Fd()), name)
		if err == nil && e.Type == archive.HardLink {
			// If both are one inode already, a rename leaves both names.
			_ = unix.Unlinkat(int(in.Fd()), temp, 0)
		}
	}
	if err != nil {
		_ = unix.Unlinkat(int(in.Fd()), temp, 0)
	}
	return err
}

// replaceable refuses to replace what was hardly meant to be: directories,
// devices, pipes.
func replaceable(in *os.File, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(in.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
		return tine.Errorf(tine.KindIsDir, "a directory is in its place").WithHint("remove that first, or copy elsewhere")
	}
	return tine.Errorf(tine.KindExists, "a device, pipe or socket is in its place").WithHint("remove that first; to write to standard output, copy to -")
}

// make makes an inode; made is false if it was skipped.
func (u *unpacker) make(e *archive.Entry, in *os.File, name string, parts []string) (made bool, err error) {
	dir := int(in.Fd())
	switch e.Type {
	case archive.Regular:
		return true, u.file(e, in, name)
	case archive.HardLink:
		u.totals.HardLinks++
		return true, u.hardLink(e, in, name)
	case archive.Symlink:
		u.totals.Symlinks++
		err = unix.Symlinkat(e.Link, dir, name)
	case archive.Fifo:
		u.totals.Specials++
		err = unix.Mkfifoat(dir, name, 0o600)
	case archive.Char, archive.Block:
		kind := uint32(unix.S_IFCHR)
		if e.Type == archive.Block {
			kind = unix.S_IFBLK
		}
		err = unix.Mknodat(dir, name, kind|0o600, int(unix.Mkdev(e.Major, e.Minor)))
		if errors.Is(err, unix.EPERM) {
			u.skip(parts, "a device; skipped, because only root can make one")
			return false, nil
		}
		u.totals.Specials++
	default:
		u.skip(parts, "of a kind that is not known here; skipped")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, u.unopened(e, in, name)
}

func (u *unpacker) file(e *archive.Entry, in *os.File, name string) error {
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for _, r := range e.Data() {
		for r.Len > 0 {
			if u.ctx.Err() != nil {
				return tine.Errorf(tine.KindInterrupted, "interrupted")
			}
			n, err := io.ReadFull(u.r, u.buf[:min(r.Len, copyBytes)])
			if err != nil {
				return err
			}
			if _, err := f.WriteAt(u.buf[:n], r.Off); err != nil {
				return bare(err)
			}
			u.totals.Bytes += int64(n)
			r.Off, r.Len = r.Off+int64(n), r.Len-int64(n)
		}
	}
	if err := unix.Ftruncate(fd, e.Size); err != nil {
		return err
	}
	u.totals.Files++
	if err := u.attributes(e, f); err != nil {
		return err
	}
	return bare(f.Close())
}

// hardLink gives an earlier entry another name.
func (u *unpacker) hardLink(e *archive.Entry, in *os.File, name string) error {
	parts, err := archive.Path(e.Link)
	if err != nil {
		return err
	}
	if parts = slices.Concat(u.as, parts); len(parts) == 0 {
		return tine.Errorf(tine.KindInvalid, "it is a hard link to a directory")
	}
	dir := u.path[0].dir
	for _, p := range parts[:len(parts)-1] {
		d, err := openDir(dir, p)
		if err != nil {
			return err
		}
		defer d.Close()
		dir = d
	}
	return unix.Linkat(int(dir.Fd()), parts[len(parts)-1], int(in.Fd()), name, 0)
}

// mode returns the permission bits that an entry gets. Set-user-ID and
// set-group-ID speak of the owner, so they go where that cannot be kept.
func (u *unpacker) mode(e *archive.Entry) uint32 {
	if u.user.UID != 0 && (e.UID != u.user.UID || e.GID != u.user.GID) && e.Type != archive.Directory {
		return e.Mode &^ 0o6000
	}
	return e.Mode
}

// attributes gives an open file or directory all that its entry says. The
// order matters: a change of owner takes set-user-ID and capabilities away.
func (u *unpacker) attributes(e *archive.Entry, f *os.File) error {
	fd := int(f.Fd())
	if u.user.UID == 0 {
		if err := unix.Fchown(fd, int(e.UID), int(e.GID)); err != nil {
			return err
		}
	}
	if n, err := unix.Fgetxattr(fd, aclXattr, nil); err == nil && n > 0 {
		_ = unix.Fremovexattr(fd, aclXattr) // it is its directory's default, not its own
	}
	for _, x := range e.Xattrs {
		u.xattr(x, e, unix.Fsetxattr(fd, x.Name, x.Value, 0))
	}
	if err := unix.Fchmod(fd, u.mode(e)); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), times(e), 0)
}

// unopened does the same for what cannot be opened, or had better not be.
func (u *unpacker) unopened(e *archive.Entry, in *os.File, name string) error {
	dir := int(in.Fd())
	if u.user.UID == 0 {
		if err := unix.Fchownat(dir, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	reach := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
	for _, x := range e.Xattrs {
		u.xattr(x, e, unix.Lsetxattr(reach, x.Name, x.Value, 0))
	}
	if e.Type != archive.Symlink {
		if err := unix.Fchmodat(dir, name, u.mode(e), 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(dir, name, times(e), unix.AT_SYMLINK_NOFOLLOW)
}

// xattr notes an attribute that could not be set: file systems and users
// differ in which they keep.
func (u *unpacker) xattr(x archive.Xattr, e *archive.Entry, err error) {
	if err == nil {
		return
	}
	u.note(e.Name, "the extended attribute "+x.Name+" was not kept: "+strings.ToLower(err.Error()))
}

func times(e *archive.Entry) []unix.Timespec {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(e.Mtime)}
	if e.Atime != nil {
		ts[0] = unix.NsecToTimespec(*e.Atime)
	}
	return ts
}
