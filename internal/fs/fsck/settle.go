package fsck

import (
	"slices"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// settle adds up the step: what does not come out as zero is wrong.
func (p *pass) settle() (*ledger, error) {
	next := p.before.next()
	if err := p.checkRoot(); err != nil {
		return nil, err
	}
	inos := make([]tine.Ino, 0, len(p.nodes))
	for ino := range p.nodes {
		inos = append(inos, ino)
	}
	slices.Sort(inos)
	var inodes, bytes int64
	for _, ino := range inos {
		n := p.nodes[ino]
		i1, b1 := n.is.counts()
		i0, b0 := n.was.counts()
		inodes, bytes = inodes+i1-i0, bytes+b1-b0
		had := next.sums[ino]
		s := had.plus(n.is.sums(ino)).minus(n.was.sums(ino)).plus(n.d)
		if n.lost {
			s.bytes = had.bytes
		}
		next.set(ino, s)
		if s != had && s != (sums{}) && !n.broken {
			if err := p.explain(ino, n, s, had); err != nil {
				return nil, err
			}
		}
		if p.from != nil {
			if err := p.checkChanged(ino, n); err != nil {
				return nil, err
			}
		}
	}
	if err := p.checkReach(inos); err != nil {
		return nil, err
	}
	return next, p.checkCounters(next, inodes, bytes)
}

func (p *pass) checkRoot() error {
	if p.from != nil && p.nodes[tine.RootIno] == nil {
		return nil
	}
	n, err := p.node(tine.RootIno)
	if err == nil && !n.is.living() && (p.from == nil || n.was.living()) {
		p.tell("N010", tine.RootIno, "it has mode %#o and %d links", n.is.mode, n.is.nlink)
	}
	return err
}

// explain tells what a sum that is not zero means.
func (p *pass) explain(ino tine.Ino, n *node, s, had sums) error {
	if s.names != had.names && s.names != 0 {
		p.explainNames(ino, n, s.names)
	}
	if s.subdirs != had.subdirs && s.subdirs != 0 && n.is.living() {
		p.tell("N012", ino, "directory %d has %d links; with its subdirectories it should have %d", ino, n.is.nlink, int64(n.is.nlink)-s.subdirs)
	}
	if s.parents != had.parents && s.parents != 0 && s.names == 0 && n.is.exists {
		code := "N011"
		if n.is.isDir() {
			code = "N007"
		}
		p.tell(code, ino, "inode %d says that its directory is %d", ino, n.is.parent)
	}
	if s.orphan != had.orphan && s.orphan != 0 {
		if s.orphan > 0 {
			p.tell("N013", ino, "inode %d", ino)
		} else {
			p.tell("N014", ino, "inode %d: it exists %v, with %d links", ino, n.is.exists, n.is.nlink)
		}
	}
	if s.bytes != had.bytes && s.bytes != 0 {
		if n.is.isFile() {
			p.tell("D002", ino, "inode %d is counted with %d bytes and has %d", ino, n.is.bytes, n.is.bytes-s.bytes)
		} else if !n.told {
			n.told = true
			p.tell("D003", ino, "inode %d has %d bytes of data", ino, n.is.bytes-s.bytes)
		}
	}
	if s.cookies != had.cookies && s.cookies != 0 && n.is.living() {
		return p.explainCookies(ino)
	}
	return nil
}

func (p *pass) explainNames(ino tine.Ino, n *node, left int64) {
	switch {
	case !n.is.exists:
		if !n.told {
			n.told = true
			p.tell("N001", ino, "%d names lead to inode %d", -left, ino)
		}
	case n.is.isDir() && ino == tine.RootIno:
		p.tell("N006", ino, "the root has %d names", -left)
	case n.is.isDir() && n.is.nlink == 0:
		p.tell("N014", ino, "directory %d has no links and %d names", ino, -left)
	case n.is.isDir() && left > 0:
		p.tell("N009", ino, "directory %d", ino)
	case n.is.isDir():
		p.tell("N006", ino, "directory %d has %d names", ino, 1-left)
	case int64(n.is.nlink) == left:
		p.tell("N009", ino, "inode %d, with %d bytes", ino, n.is.bytes)
	default:
		p.tell("N012", ino, "inode %d has %d links and %d names", ino, n.is.nlink, int64(n.is.nlink)-left)
	}
}

// explainCookies compares a directory's names with its paging order.
func (p *pass) explainCookies(dir tine.Ino) error {
	names, order, err := p.w.readDir(p.to, dir)
	if err != nil {
		return err
	}
	for name, e := range names {
		if c, ok := order[e.Cookie]; !ok || c != (record.Cookie{Ino: e.Ino, Type: e.Type, Name: name}) {
			p.tellName("N003", dir, name, "%q in directory %d, cookie %d", name, dir, e.Cookie)
		}
	}
	for cookie, c := range order {
		if e, ok := names[c.Name]; !ok || e.Cookie != cookie {
			p.tellName("N004", dir, c.Name, "%q in directory %d, cookie %d", c.Name, dir, cookie)
		}
	}
	return nil
}

// readDir reads a directory's names and its paging order.
func (w *world) readDir(v view, dir tine.Ino) (map[string]record.Dentry, map[uint64]record.Cookie, error) {
	names, order := map[string]record.Dentry{}, map[uint64]record.Cookie{}
	err := w.eachIn(v, record.InoPrefix(record.TableDentry, dir), func(l record.Logical, val []byte) bool {
		if e, err := record.DecodeDentry(val); err == nil {
			names[l.Name()] = e
		}
		return true
	})
	if err == nil {
		err = w.eachIn(v, record.InoPrefix(record.TableCookie, dir), func(l record.Logical, val []byte) bool {
			if c, err := record.DecodeCookie(val); err == nil {
				order[l.Number()] = c
			}
			return true
		})
	}
	return names, order, err
}

// checkChanged checks rows that were not born in the step against an inode that
// was.
func (p *pass) checkChanged(ino tine.Ino, n *node) error {
	if n.was == n.is || n.broken {
		return nil
	}
	left := func(table record.Table) (any bool, err error) {
		err = p.w.eachIn(p.to, record.InoPrefix(table, ino), func(record.Logical, []byte) bool { any = true; return false })
		return any, err
	}
	if n.was.isDir() && !n.is.living() {
		if any, err := left(record.TableDentry); err != nil || any {
			if any {
				p.tell("N005", ino, "names stand in inode %d, which was a directory", ino)
			}
			return err
		}
	}
	if n.was.flags&record.FlagXattrs != 0 && !n.is.exists {
		if any, err := left(record.TableXattr); err != nil || any {
			if any {
				p.tell("X001", ino, "of inode %d", ino)
			}
			return err
		}
	}
	shrunk := n.is.size < n.was.size || n.is.flags&record.FlagInline != n.was.flags&record.FlagInline
	if !n.is.isFile() || !n.was.exists || !shrunk {
		return nil
	}
	var first uint64
	if n.is.flags&record.FlagInline == n.was.flags&record.FlagInline {
		first = uint64(n.is.size / tine.ChunkBytes)
	}
	return p.w.eachIn(p.to, record.InoPrefix(record.TableChunk, ino), func(l record.Logical, val []byte) bool {
		if c, err := record.DecodeChunk(val); err == nil && l.Number() >= first {
			p.checkChunk(n, ino, l.Number(), &c)
		}
		return true
	})
}

// How far the way from a directory to the root is known.
const (
	reachUnknown = iota
	reachUnderWay
	reachRoot
	reachNothing
)

// checkReach follows the parents of each directory whose place has changed:
// directories may lie in a circle that no name from outside leads to.
func (p *pass) checkReach(inos []tine.Ino) error {
	reach := map[tine.Ino]uint8{tine.RootIno: reachRoot}
	for _, ino := range inos {
		n := p.nodes[ino]
		if !n.is.living() || n.was.living() && n.was.parent == n.is.parent {
			continue
		}
		var way []tine.Ino
		at, how := ino, uint8(reachUnknown)
		for how == reachUnknown {
			if how = reach[at]; how != reachUnknown {
				break
			}
			reach[at] = reachUnderWay
			way = append(way, at)
			x, err := p.node(at)
			if err != nil {
				return err
			}
			if !x.is.living() {
				how = reachNothing
			}
			at = x.is.parent
		}
		if how == reachUnderWay {
			p.tell("N008", ino, "directory %d", ino)
			how = reachNothing
		}
		for _, x := range way {
			reach[x] = how
		}
	}
	return nil
}

// checkCounters compares the disk's counters with the files.
func (p *pass) checkCounters(next *ledger, inodes, bytes int64) error {
	read := func(v view) (c record.Counters, ok bool, err error) {
		val, _, ok, err := p.w.lookup(v, record.TableKey(record.TableCounters))
		if err == nil && ok {
			c, err = record.DecodeCounters(val)
			if err != nil {
				return c, false, nil
			}
		}
		return c, ok, err
	}
	var was record.Counters
	had := true
	if p.from != nil {
		var err error
		if was, had, err = read(*p.from); err != nil {
			return err
		}
	}
	is, ok, err := read(p.to)
	if err != nil {
		return err
	}
	if !ok {
		if had {
			p.tell("N018", 0, "there is no row with the counters")
		}
		return nil
	}
	di, db := is.Inodes-was.Inodes-inodes, is.Bytes-was.Bytes-bytes
	next.inodes, next.bytes = next.inodes+di, next.bytes+db
	if (di != 0 || db != 0) && (next.inodes != 0 || next.bytes != 0) {
		p.tell("N017", 0, "the counters say %d inodes and %d bytes; there are %d and %d", is.Inodes, is.Bytes, is.Inodes-next.inodes, is.Bytes-next.bytes)
	}
	if p.maxIno >= is.NextIno || p.maxCookie >= is.NextCookie {
		p.tell("N018", 0, "the next inode is %d and the next cookie %d; %d and %d are in use", is.NextIno, is.NextCookie, p.maxIno, p.maxCookie)
	}
	return nil
}
