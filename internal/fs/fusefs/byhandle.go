package fusefs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// reopen answers a request that only file handles lead to: open_by_handle_at(2)
// and the kernel's NFS server may name a node that the kernel has forgotten, and
// the kernel then looks up "." in that node to have it again, and ".." for the
// directory that a directory lies in.
//
// A node id is an inode number with a slot for the generation, and numbers are
// never used again; so a handle outlives the kernel's memory, an unmount and a
// restart of the server. After a rollback it answers ESTALE, as open files do,
// until the disk is mounted anew: then it means the file with its number, which
// is the same file in its older state, or ESTALE.
func (fs *fileSystem) reopen(id uint64, name string, out *fuse.EntryOut) fuse.Status {
	err := fs.giveOut(out, fs.timeouts(), func() (a volume.Attr, n volume.Node, err error) {
		n = fs.ids.node(id)
		if name == ".." {
			if n, err = fs.above(n); err != nil {
				return a, n, err
			}
		}
		if a, err = fs.s.GetAttr(n); err == nil && a.Nlink == 0 {
			err = tine.ErrStale // the kernel asks only for what nobody has open
		}
		return a, n, err
	})
	return fs.status("lookup", id, err)
}

// above returns the directory that a directory lies in.
func (fs *fileSystem) above(n volume.Node) (volume.Node, error) {
	d, err := fs.s.OpenDir(n)
	if err != nil {
		return n, err
	}
	above, err := d.Parent()
	return above, errors.Join(err, d.Close())
}
