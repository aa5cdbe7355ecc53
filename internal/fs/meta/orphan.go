package meta

import (
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Open counts a handle on the inode: until the last Close it stays readable
// and writable without a name.
func (v View) Open(ino tine.Ino) (a Attr, err error) {
	if v.Frozen() {
		return v.Attr(ino)
	}
	err = v.change(func(t *txn) error {
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		if n.Nlink == 0 && t.Handles(ino) == nil {
			return tine.ErrStale
		}
		t.Opened(ino).Count++
		a = n.attr()
		return nil
	})
	return a, err
}

// Close gives back a handle. The last one of an unlinked file takes the file.
func (v View) Close(ino tine.Ino) error {
	if v.Frozen() {
		return nil
	}
	return v.change(func(t *txn) error {
		h := t.Handles(ino)
		if h == nil {
			return nil
		}
		if h.Count--; h.Count > 0 {
			return nil
		}
		orphan := h.Orphan
		t.Closed(ino)
		if !orphan {
			return nil
		}
		n, err := t.inode(ino)
		if err != nil {
			return err
		}
		return t.removeData(n)
	})
}

// largeChunks is how many chunks are removed at once; a larger file is left to
// the janitor, which does so in steps.
const largeChunks = 64

// dropInode ends an inode that has no name left: at once, or, while handles
// are open on it or when it is large, later; the orphan row remembers it. Its
// bytes have left the counters already.
func (t *txn) dropInode(n *node) error {
	h := t.Handles(n.ino)
	if h == nil && n.Bytes <= largeChunks*tine.ChunkBytes {
		return t.removeData(n)
	}
	t.Put(record.OrphanKey(n.ino), timeline.Found{}, emptyRow)
	t.putInode(n)
	if h != nil {
		t.SetOrphan(h, true, n.Bytes)
		return nil
	}
	t.ReapLater()
	return nil
}

// removeData removes all rows of an inode.
func (t *txn) removeData(n *node) error {
	tables := []record.Table{}
	if n.Mode&modeType == modeRegular && n.Bytes > 0 {
		tables = append(tables, record.TableChunk)
	}
	if n.Flags&record.FlagXattrs != 0 {
		tables = append(tables, record.TableXattr)
	}
	if n.Flags&record.FlagLinks != 0 {
		tables = append(tables, record.TableLink)
	}
	for _, table := range tables {
		if table == record.TableChunk && n.Size <= tine.ChunkBytes {
			c, err := t.chunk(n.ino, 0)
			if err == nil {
				err = t.DelChunk(c.key, c.at)
			}
			if err != nil {
				return err
			}
			continue
		}
		if _, err := t.removeRows(record.InoPrefix(table, n.ino), 1<<30); err != nil {
			return err
		}
	}
	k := record.OrphanKey(n.ino)
	if n.at.Kind == timeline.Value && n.wasOrphan() {
		f, err := t.Get(k)
		if err != nil {
			return err
		}
		if err := t.Del(k, f); err != nil {
			return err
		}
	}
	return t.Del(record.InodeKey(n.ino), n.at)
}

// wasOrphan reports whether the stored inode has no name, so that an orphan
// row stands beside it.
func (n *node) wasOrphan() bool {
	rec, err := record.DecodeInode(n.at.Val)
	return err != nil || rec.Nlink == 0
}

// removeRows removes up to limit rows with the prefix; more says whether some
// are left.
func (t *txn) removeRows(p record.Logical, limit int) (more bool, err error) {
	type row struct {
		k record.Logical
		f timeline.Found
	}
	var rs []row
	err = t.Scan(p, prefixEnd(p), func(k record.Logical, f timeline.Found) (bool, error) {
		if len(rs) == limit {
			more = true
			return false, nil
		}
		rs = append(rs, row{k, f})
		return true, nil
	})
	if err != nil {
		return false, err
	}
	for _, r := range rs {
		if r.k.Table() == record.TableChunk {
			err = t.DelChunk(r.k, r.f)
		} else {
			err = t.Del(r.k, r.f)
		}
		if err != nil {
			return false, err
		}
	}
	return more, nil
}

// Reap removes a part of one unlinked file that nothing has open, if there is
// one: what a stop left, and large ones. Those that the line inherits are its
// parent's; they are masked here, for no name leads to them.
func Reap(w *timeline.Txn) (more bool, err error) {
	t := newTxn(w)
	var ino tine.Ino
	p := record.TableKey(record.TableOrphan)
	err = t.Scan(p, prefixEnd(p), func(k record.Logical, f timeline.Found) (bool, error) {
		if !t.Inherited(f) && t.Handles(k.Ino()) == nil {
			ino = k.Ino()
		}
		return ino == 0, nil
	})
	if err != nil || ino == 0 {
		return false, err
	}
	n, err := t.inode(ino)
	if err != nil {
		return false, err
	}
	more, err = t.removeRows(record.InoPrefix(record.TableChunk, ino), largeChunks)
	if err != nil || more {
		return more, err
	}
	n.Bytes = 0
	return true, t.removeData(n)
}
