package importer

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// aclXattrs is what the names of the two ACLs start with.
const aclXattrs = "system.posix_acl_"

// capabilityXattr holds a file's capabilities. A change of owner takes it
// away, so it is set last.
const capabilityXattr = "security.capability"

// xattrs copies the extended attributes of an open file or directory, but for
// its capabilities.
func (w *walker) xattrs(fd int, node volume.Node, path string) error {
	return copyXattrs(w, node, path,
		func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
}

// linkXattrs copies those of an inode that cannot be opened. There is no call
// that takes a directory and a name; the parent's entry in /proc serves, and
// keeps a changed path from leading elsewhere.
func (w *walker) linkXattrs(dir *os.File, node volume.Node, name, path string) error {
	at := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
	return copyXattrs(w, node, path,
		func(b []byte) (int, error) { return unix.Llistxattr(at, b) },
		func(name string, b []byte) (int, error) { return unix.Lgetxattr(at, name, b) })
}

func copyXattrs(w *walker, node volume.Node, path string, list func([]byte) (int, error), get func(string, []byte) (int, error)) error {
	names, err := xattrNames(list)
	if err != nil {
		return oserr.Wrap(err, "list the extended attributes of %s", path)
	}
	for _, name := range names {
		if name == capabilityXattr {
			continue
		}
		if strings.HasPrefix(name, "system.") && !strings.HasPrefix(name, aclXattrs) {
			w.note(path, "the extended attribute "+name+" is of a kind that a disk does not keep; left out")
			continue
		}
		if err := setXattr(w, node, name, path, get); err != nil {
			return err
		}
	}
	return nil
}

// hasXattr reports whether the open file has the attribute.
func (w *walker) hasXattr(fd int, name string) bool {
	_, err := unix.Fgetxattr(fd, name, nil)
	return err == nil
}

// xattr copies one attribute of an open file.
func (w *walker) xattr(fd int, node volume.Node, name, path string) error {
	return setXattr(w, node, name, path, func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
}

func setXattr(w *walker, node volume.Node, name, path string, get func(string, []byte) (int, error)) error {
	value := make([]byte, tine.MaxXattrValueBytes)
	n, err := get(name, value)
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	if err != nil {
		return oserr.Wrap(err, "read the extended attribute %s of %s", name, path)
	}
	return made(w.session.SetXattr(root, node, name, value[:n], 0), path)
}

// xattrNames lists the names; none where the file system has no attributes.
func xattrNames(list func([]byte) (int, error)) ([]string, error) {
	n, err := list(nil)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || (err == nil && n == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, tine.MaxXattrListBytes)
	n, err = list(buf)
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 }), nil
}
