// Package dir keeps objects in a directory of a file system: one file an
// object, at a path that is its key, part by part, escaped.
//
// An object is durable when the call returns: its bytes are in a file of its
// own and synced before the name is made, and the folder is synced after. The
// name is made by link(2) for a conditional create, which fails if the name
// is there, and by rename(2) otherwise; so no reader, in this process or
// another, ever sees half an object, and a reader that has opened one keeps
// it. What must look before it writes (compare and swap, and with it plain
// writes and deletes, which must not come between the look and the write)
// holds a file lock that is shared by all keys with the same hash.
//
// Each file ends in a trailer with the object's size, checksum, version and
// mark. A version is random, so it never repeats.
//
// The file system must have link(2), flock(2) among all machines that use the
// directory, and directories that can be synced: ext4, xfs, btrfs, and NFS v4.
package dir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// The driver's own folder. No key has a part that starts with a dot.
const (
	ownDir  = ".tine"
	tmpDir  = ownDir + "/tmp"
	lockDir = ownDir + "/locks"
)

// Options set up a store.
type Options struct {
	// ReadOnly opens a directory that must already be a store and makes no
	// file in it; every write is tine.KindReadOnly.
	ReadOnly bool
	// PageLimit is how many entries a page of a listing has at most; 0: 1,000.
	PageLimit int
}

// Store is a blob.Driver. Safe for concurrent use, by many processes too.
type Store struct {
	root  *os.Root
	opt   Options
	name  string
	locks locks
}

// Open opens the store in the directory at path, which must exist, and makes
// it one if it is not yet.
func Open(path string, opt Options) (*Store, error) {
	if opt.PageLimit <= 0 {
		opt.PageLimit = 1000
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, failure("open", "", err).WithHint("the directory of a store must exist: make it, or mount what holds it")
	}
	s := &Store{root: root, opt: opt, name: "file://" + path}
	for i := range s.locks.turns {
		s.locks.turns[i] = make(chan struct{}, 1)
	}
	if opt.ReadOnly {
		err = s.present("open", "")
	} else {
		err = s.prepare()
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return s, nil
}

// prepare makes the driver's own folder, durably.
func (s *Store) prepare() error {
	for _, d := range []string{tmpDir, lockDir} {
		if err := s.mkdirs(d); err != nil {
			return failure("open", "", err)
		}
	}
	return nil
}

// Traits implements blob.Driver.
func (s *Store) Traits() blob.Traits {
	return blob.Traits{Name: s.name, MinPartBytes: 1, MaxSingleBytes: 1 << 40, MaxParts: 1 << 20, DeleteBatch: 1000}
}

// Close implements blob.Driver.
func (s *Store) Close() error { return s.root.Close() }

// present returns an error if the directory is no store any more: what was
// mounted there is gone. Without the check every object would look deleted.
func (s *Store) present(op string, key blob.Key) error {
	if _, err := s.root.Stat(tmpDir); err != nil {
		return tine.Errorf(tine.KindUnavailable, "%s %q in store %s: the directory is not a store now", op, key, s.name).
			WithHint("check that what holds %s is mounted", s.name)
	}
	return nil
}

// missing returns the error for a file that is not there.
func (s *Store) missing(op string, key blob.Key, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		if gone := s.present(op, key); gone != nil {
			return gone
		}
		return tine.Errorf(tine.KindNotFound, "%s %q in store %s: there is no such object", op, key, s.name)
	}
	return failure(op, key, err)
}

// kinds says what the errors of a file system mean for the contract.
var kinds = map[syscall.Errno]tine.ErrorKind{
	syscall.ENOSPC: tine.KindNoSpace, syscall.EDQUOT: tine.KindNoSpace, syscall.EROFS: tine.KindReadOnly,
	syscall.EACCES: tine.KindAccess, syscall.EPERM: tine.KindAccess,
	syscall.ENOENT: tine.KindUnavailable, syscall.ESTALE: tine.KindUnavailable, syscall.EMFILE: tine.KindUnavailable,
	syscall.ENFILE: tine.KindUnavailable, syscall.EINTR: tine.KindUnavailable, syscall.ETIMEDOUT: tine.KindUnavailable,
	syscall.ENAMETOOLONG: tine.KindNameTooLong, syscall.EFBIG: tine.KindTooBig,
	// One key is a folder of the other: not in the contract.
	syscall.ENOTDIR: tine.KindInvalid, syscall.EISDIR: tine.KindInvalid,
}

// failure returns the error for what the file system said.
func failure(op string, key blob.Key, err error) *tine.Error {
	kind := tine.KindIO
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if k, ok := kinds[errno]; ok {
			kind = k
		}
	}
	return tine.Errorf(kind, "%s %q: %w", op, key, err)
}

// escaped reports whether a byte of a part is written as %XX: what some file
// system refuses or reads in another way, and the escape itself.
func escaped(b byte) bool { return strings.IndexByte(`%:*?"<>|~`, b) >= 0 }

const hexDigits = "0123456789ABCDEF"

// toPath returns the path of a key below the root.
func toPath(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; escaped(c) {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// fromName is the reverse of toPath for one part. ok is false for a file that
// is not of a key: those are not objects, and listings leave them out.
func fromName(name string) (part string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' {
			if i+2 >= len(name) {
				return "", false
			}
			hi, lo := strings.IndexByte(hexDigits, name[i+1]), strings.IndexByte(hexDigits, name[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c, i = byte(hi<<4|lo), i+2
		}
		b.WriteByte(c)
	}
	part = b.String()
	return part, blob.Key(part).Check() == nil && toPath(part) == name
}

// mkdirs makes a folder and those above it, and syncs each name that it makes.
func (s *Store) mkdirs(dir string) error {
	if dir == "." {
		return nil
	}
	if _, err := s.root.Stat(dir); err == nil {
		return nil
	}
	if err := s.mkdirs(path.Dir(dir)); err != nil {
		return err
	}
	if err := s.root.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return s.syncDir(path.Dir(dir))
}

// syncDir makes the names in a folder durable.
func (s *Store) syncDir(dir string) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Sweep implements blob.Driver: it removes the temporary files of processes
// that died.
func (s *Store) Sweep(ctx context.Context, before time.Time) (int, error) {
	if err := s.writable(ctx, "sweep", ""); err != nil {
		return 0, err
	}
	f, err := s.root.Open(tmpDir)
	if err != nil {
		return 0, s.missing("sweep", "", err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return 0, failure("sweep", "", err)
	}
	n := 0
	for _, name := range names {
		if err := blob.Interrupted(ctx, "sweep", ""); err != nil {
			return n, err
		}
		file := path.Join(tmpDir, name)
		st, err := s.root.Lstat(file)
		if err != nil || !st.ModTime().Before(before) {
			continue
		}
		if err := s.root.Remove(file); err == nil {
			n++
		} else if !errors.Is(err, fs.ErrNotExist) {
			return n, failure("sweep", "", err)
		}
	}
	return n, nil
}
