package meta

import (
	"context"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// opened returns the open state of an inode; line.mu is held for writing.
func (l *line) opened(ino tine.Ino) *openInode {
	o := l.opens[ino]
	if o == nil {
		if l.opens == nil {
			l.opens = map[tine.Ino]*openInode{}
		}
		o = &openInode{}
		l.opens[ino] = o
	}
	return o
}

// Open counts a handle on the inode: until the last Close it stays readable
// and writable without a name.
func (v *View) Open(ino tine.Ino) (a Attr, err error) {
	if v.epoch != tine.Head {
		return v.Attr(ino)
	}
	l := v.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.commits.failed; err != nil {
		return a, err
	}
	r := v.reader()
	defer r.close()
	n, err := r.inode(ino)
	if err != nil {
		return a, err
	}
	if n.Nlink == 0 && l.opens[ino] == nil {
		return a, tine.ErrStale
	}
	l.opened(ino).count++
	return n.attr(), nil
}

// Close gives back a handle. The last one of an unlinked file takes the file.
func (v *View) Close(ino tine.Ino) error {
	if v.epoch != tine.Head {
		return nil
	}
	l := v.line
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.opens[ino]
	if o == nil {
		return nil
	}
	if o.count--; o.count > 0 {
		return nil
	}
	delete(l.opens, ino)
	if !o.orphan || l.commits.failed != nil {
		return nil
	}
	t, err := l.begin()
	if err != nil {
		return err
	}
	defer t.close()
	n, err := t.inode(ino)
	if err != nil {
		return err
	}
	if err := t.removeData(n); err != nil {
		return err
	}
	l.changed()
	return nil
}

// largeChunks is how many chunks are removed at once; a larger file is left to
// the janitor, which does so in steps.
const largeChunks = 64

// dropInode ends an inode that has no name left: at once, or, while handles
// are open on it or when it is large, later; the orphan row remembers it. Its
// bytes have left the counters already.
func (t *txn) dropInode(n *node) error {
	o := t.line.opens[n.ino]
	if o == nil && n.Bytes <= largeChunks*tine.ChunkBytes {
		return t.removeData(n)
	}
	t.put(record.OrphanKey(n.ino), found{}, emptyRow)
	t.putInode(n)
	if o != nil {
		o.orphan, o.bytes = true, n.Bytes
		return nil
	}
	t.line.state.reap = true
	t.line.tree.engine.janitor.wake()
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
				err = t.delChunk(c.key, c.at)
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
	if n.at.kind == foundValue && n.wasOrphan() {
		f, err := t.get(k)
		if err != nil {
			return err
		}
		if err := t.del(k, f); err != nil {
			return err
		}
	}
	return t.del(record.InodeKey(n.ino), n.at)
}

// wasOrphan reports whether the stored inode has no name, so that an orphan
// row stands beside it.
func (n *node) wasOrphan() bool {
	rec, err := record.DecodeInode(n.at.val)
	return err != nil || rec.Nlink == 0
}

// removeRows removes up to limit rows with the prefix; more says whether some
// are left.
func (t *txn) removeRows(p record.Logical, limit int) (more bool, err error) {
	type row struct {
		k record.Logical
		f found
	}
	var rs []row
	err = t.scan(p, prefixEnd(p), func(k record.Logical, f found) (bool, error) {
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
			err = t.delChunk(r.k, r.f)
		} else {
			err = t.del(r.k, r.f)
		}
		if err != nil {
			return false, err
		}
	}
	return more, nil
}

// reapOne removes unlinked files that nothing has open: what a crash left, and
// large ones. Those that the line inherits from its parent are its parent's;
// they are masked, for no name leads to them.
func (t *tree) reapOne(ctx context.Context) (bool, error) {
	t.mu.Lock()
	var l *line
	for _, x := range t.sorted() {
		if x.head != nil && x.needsReap() {
			l = x
			break
		}
	}
	t.mu.Unlock()
	if l == nil {
		return false, nil
	}
	for {
		more, err := l.reapStep()
		if err != nil {
			return false, err
		}
		if !more {
			return true, l.sync(ctx)
		}
		if err := l.sync(ctx); err != nil {
			return false, err
		}
	}
}

func (l *line) needsReap() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.state.reap
}

// reapStep removes a part of one unlinked file.
func (l *line) reapStep() (more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, err := l.begin()
	if err != nil {
		return false, err
	}
	defer t.close()
	var ino tine.Ino
	p := record.TableKey(record.TableOrphan)
	err = t.scan(p, prefixEnd(p), func(k record.Logical, f found) (bool, error) {
		if f.birth > l.branch && l.opens[k.Ino()] == nil {
			ino = k.Ino()
		}
		return ino == 0, nil
	})
	if err != nil || ino == 0 {
		l.state.reap = err != nil
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
	l.changed()
	return true, t.removeData(n)
}
