package fsck

import (
	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// node is an inode that a step from one view to the next touches.
type node struct {
	was, is brief
	d       sums // what the rows add
	broken  bool // its row cannot be decoded: told of already
	lost    bool // some of its data is lost, so its bytes cannot be counted
	told    bool // that it does not exist
}

// pass is the step from one view to the next. The first view of a tree has
// none before it.
type pass struct {
	w      *world
	to     view
	from   *view
	before *ledger
	nodes  map[tine.Ino]*node

	maxIno    tine.Ino
	maxCookie uint64
	removed   []tine.Ino // directories that are none any more
}

// checkViews checks all views of a line, each from the one before.
func (w *world) checkViews(l *line) error {
	var from *view
	var known *ledger
	if l.parent != nil {
		from = &view{l.parent, l.rec.Branch}
		known = l.parent.known[l.rec.Branch]
	}
	for _, p := range l.pins {
		w.rep.Stats.Views++
		w.rep.phase("file systems", "rows")
		s := &pass{w: w, to: view{l, p}, from: from, before: known, nodes: map[tine.Ino]*node{}}
		next, err := s.run()
		if err != nil {
			return err
		}
		known = next
		if l.holds[p] > 0 {
			l.known[p] = known
		}
		from = &view{l, p}
		if w.ended() != nil {
			return nil
		}
	}
	w.mendIn(l.tree, func(r *repairer) { r.considerViews(l) })
	return nil
}

// hops are the rows to look at: those born since the view before, or all.
func (p *pass) hops() []hop {
	hs := p.to.hops()
	if p.from == nil {
		return hs
	}
	after := p.from.at
	if p.from.line != p.to.line {
		after = p.to.line.rec.Branch
	}
	return []hop{{p.to.line, kv.Born{After: after, UpTo: p.to.at}}}
}

// run takes the step and returns what does not come out in the new view.
func (p *pass) run() (*ledger, error) {
	m, err := p.w.newMerger(p.hops(), "")
	if err != nil {
		return nil, err
	}
	defer m.close()
	for m.next() {
		p.w.rep.tick("file systems", "rows", 1)
		p.w.rep.Stats.ViewRows++
		l := record.Logical(m.key)
		if good, _ := rowform.Shape(l); !good || !rowform.FileTable(l.Table()) {
			continue
		}
		after := m.value(m.vers[0])
		if rowform.IsTombstone(after) {
			after = nil
		}
		var before []byte
		if p.from != nil {
			if before, _, _, err = p.w.lookup(*p.from, l); err != nil {
				return nil, err
			}
		}
		if err := p.row(l, before, after); err != nil {
			return nil, err
		}
	}
	if err := m.err(); err != nil {
		return nil, err
	}
	return p.settle()
}

// row takes in one row that was born in the step.
func (p *pass) row(l record.Logical, before, after []byte) error {
	switch l.Table() {
	case record.TableInode:
		p.inode(l.Ino(), before, after)
	case record.TableDentry:
		return p.dentry(l, before, after)
	case record.TableCookie:
		return p.cookie(l, before, after)
	case record.TableChunk:
		return p.chunk(l, before, after)
	case record.TableXattr:
		return p.xattr(l, after)
	case record.TableLink:
		return p.link(l, before, after)
	case record.TableOrphan:
		n, err := p.node(l.Ino())
		if err == nil {
			n.d.orphan -= exists(after) - exists(before)
		}
		return err
	}
	return nil
}

func exists(v []byte) int64 {
	if v == nil {
		return 0
	}
	return 1
}

// node returns an inode of the step; one whose row was not born in it is what
// it was before.
func (p *pass) node(ino tine.Ino) (*node, error) {
	n := p.nodes[ino]
	if n != nil {
		return n, nil
	}
	n = &node{}
	p.nodes[ino] = n
	if p.from == nil {
		return n, nil
	}
	v, _, ok, err := p.w.lookup(p.to, record.InodeKey(ino))
	if err != nil || !ok {
		return n, err
	}
	rec, err := record.DecodeInode(v)
	if err != nil {
		n.broken = true
		return n, nil
	}
	n.is = briefOf(&rec)
	n.was = n.is
	return n, nil
}

// inode takes in an inode. All of them come before all else.
func (p *pass) inode(ino tine.Ino, before, after []byte) {
	n := &node{}
	p.nodes[ino] = n
	if before != nil {
		if rec, err := record.DecodeInode(before); err == nil {
			n.was = briefOf(&rec)
		}
	}
	if after == nil {
		if n.was.isDir() {
			p.removed = append(p.removed, ino)
		}
		return
	}
	rec, err := record.DecodeInode(after)
	if err != nil {
		n.broken = true
		return
	}
	n.is = briefOf(&rec)
	p.maxIno = max(p.maxIno, ino)
	if what := impossible(ino, &rec); what != "" {
		p.tell("N016", ino, "inode %d: %s", ino, what)
	}
}

// impossible says what of an inode cannot be.
func impossible(ino tine.Ino, n *record.Inode) string {
	switch n.Mode & modeType {
	case modeDir, modeFile, modeSymlink, 0o010000, 0o020000, 0o060000, 0o140000:
	default:
		return "its mode has no type that exists"
	}
	switch {
	case ino == 0 || ino > tine.MaxIno:
		return "its number is out of range"
	case n.Size > tine.MaxFileBytes:
		return "it is too large"
	case n.Mode&modeType == modeSymlink && (n.Size != int64(len(n.Target)) || n.Size > tine.MaxSymlinkBytes):
		return "the length of its target is wrong"
	case n.Mode&modeType != modeDir && n.Nlink > tine.MaxLinks:
		return "it has too many links"
	}
	return ""
}

// tell adds a finding about an inode of the new view.
func (p *pass) tell(code string, ino tine.Ino, format string, args ...any) {
	v := p.to
	p.w.add(code, place{line: v.line, view: &v, ino: ino}, format, args...)
}

// tellName adds a finding about a name of the new view.
func (p *pass) tellName(code string, dir tine.Ino, name, format string, args ...any) {
	v := p.to
	p.w.add(code, place{line: v.line, view: &v, in: dir, name: name}, format, args...)
}

func (p *pass) dentry(l record.Logical, before, after []byte) error {
	dir, name := l.Ino(), l.Name()
	d, err := p.node(dir)
	if err != nil {
		return err
	}
	for _, side := range []struct {
		val  []byte
		sign int64
	}{{before, -1}, {after, 1}} {
		if side.val == nil {
			continue
		}
		e, err := record.DecodeDentry(side.val)
		if err != nil {
			continue // told of with the rows
		}
		n, err := p.node(e.Ino)
		if err != nil {
			return err
		}
		n.d.names -= side.sign
		n.d.parents += uint64(side.sign) * hashParent(e.Ino, dir)
		if e.Type == typeDir {
			d.d.subdirs -= side.sign
		}
		d.d.cookies += uint64(side.sign) * hashEntry(e.Cookie, name, e.Ino, e.Type)
		if side.sign > 0 {
			p.maxCookie = max(p.maxCookie, e.Cookie)
			p.checkName(d, n, dir, name, e)
		}
	}
	return nil
}

// checkName checks a name by itself.
func (p *pass) checkName(d, n *node, dir tine.Ino, name string, e record.Dentry) {
	if !validName(name) {
		p.tellName("N015", dir, name, "%q in directory %d", name, dir)
	}
	if !d.is.living() && !d.broken {
		p.tellName("N005", dir, name, "%q stands in inode %d", name, dir)
	}
	switch {
	case n.broken:
	case !n.is.exists:
		n.told = true
		p.tellName("N001", dir, name, "%q in directory %d names inode %d", name, dir, e.Ino)
	case uint32(e.Type) != n.is.mode&modeType>>12:
		p.tellName("N002", dir, name, "%q in directory %d has type %d; inode %d has mode %#o", name, dir, e.Type, e.Ino, n.is.mode)
	}
}

// validName: what a directory may hold.
func validName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > tine.MaxNameBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '/' || s[i] == 0 {
			return false
		}
	}
	return true
}

func (p *pass) cookie(l record.Logical, before, after []byte) error {
	d, err := p.node(l.Ino())
	if err != nil {
		return err
	}
	for _, side := range []struct {
		val  []byte
		sign uint64
	}{{before, 1}, {after, ^uint64(0)}} {
		if side.val == nil {
			continue
		}
		if c, err := record.DecodeCookie(side.val); err == nil {
			d.d.cookies += side.sign * hashEntry(l.Number(), c.Name, c.Ino, c.Type)
		}
	}
	return nil
}

func (p *pass) chunk(l record.Logical, before, after []byte) error {
	ino := l.Ino()
	n, err := p.node(ino)
	if err != nil {
		return err
	}
	if before != nil {
		if c, err := record.DecodeChunk(before); err == nil {
			n.d.bytes += c.Bytes()
		}
	}
	if after == nil {
		return nil
	}
	c, err := record.DecodeChunk(after)
	if err != nil {
		n.lost = true
		return nil
	}
	n.d.bytes -= c.Bytes()
	for _, x := range c.Extents {
		n.lost = n.lost || isLost(x)
	}
	p.checkChunk(n, ino, l.Number(), &c)
	return nil
}

// checkChunk checks a chunk against its inode.
func (p *pass) checkChunk(n *node, ino tine.Ino, index uint64, c *record.Chunk) {
	if !n.is.isFile() {
		if !n.broken && !n.told {
			n.told = true
			p.tell("D003", ino, "inode %d has data", ino)
		}
		return
	}
	end := int64(len(c.Inline))
	if k := len(c.Extents); k > 0 {
		end = c.Extents[k-1].End()
	}
	if index > tine.MaxFileBytes/tine.ChunkBytes || int64(index)*tine.ChunkBytes+end > n.is.size {
		p.tell("D001", ino, "inode %d has %d bytes, and data up to %d of chunk %d", ino, n.is.size, end, index)
	}
	inline := n.is.flags&record.FlagInline != 0
	if inline != (len(c.Extents) == 0) || inline && index != 0 {
		p.tell("D004", ino, "inode %d: marked as inline %v, chunk %d has %d bytes in the row and %d extents", ino, inline, index, len(c.Inline), len(c.Extents))
	}
}

func (p *pass) xattr(l record.Logical, after []byte) error {
	if after == nil {
		return nil
	}
	n, err := p.node(l.Ino())
	switch {
	case err != nil || n.broken:
	case !n.is.exists:
		p.tell("X001", l.Ino(), "%q of inode %d", l.Name(), l.Ino())
	case n.is.flags&record.FlagXattrs == 0:
		p.tell("X002", l.Ino(), "%q of inode %d", l.Name(), l.Ino())
	}
	return err
}

func (p *pass) link(l record.Logical, before, after []byte) error {
	ino, dir := l.Ino(), l.LinkParent()
	n, err := p.node(ino)
	if err != nil {
		return err
	}
	n.d.parents -= uint64(exists(after)-exists(before)) * hashParent(ino, dir)
	if after == nil || n.broken {
		return nil
	}
	v, _, ok, err := p.w.lookup(p.to, record.DentryKey(dir, l.Name()))
	if err != nil {
		return err
	}
	e := record.Dentry{}
	if ok {
		if e, err = record.DecodeDentry(v); err != nil {
			return nil
		}
	}
	switch {
	case e.Ino != ino:
		p.tell("N011", ino, "inode %d is said to be called %q in directory %d", ino, l.Name(), dir)
	case n.is.flags&record.FlagLinks == 0:
		p.tell("N011", ino, "inode %d is not marked as having several names", ino)
	}
	return nil
}
