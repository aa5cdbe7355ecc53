package fsck

import (
	"bytes"
	"fmt"
	"slices"

	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// considerViews mends what a line's head shows. Where rows were lost, it mends what its
// checkpoints and branch points show first, and of those the first in which something
// was found, no other in the same round: those after it inherit what is mended.
func (r *repairer) considerViews(l *line) {
	if r.mending == nil {
		r.mending = map[*tree]bool{}
	}
	if r.w.salvaged() {
		for _, p := range l.pins {
			v := view{l, p}
			if p != tine.Head && p > l.rec.Branch && !r.mending[l.tree] && slices.Contains(r.w.hurt, v) {
				r.mending[l.tree] = r.mendView(v)
			}
		}
	}
	if l.head() != nil && !r.mending[l.tree] {
		r.considerHead(l)
	}
}

// considerHead mends a head that shows something wrong: found in it, or in a
// view that it inherits from.
func (r *repairer) considerHead(l *line) {
	hurt := false
	for _, h := range (view{l, tine.Head}).hops() {
		hurt = hurt || slices.ContainsFunc(r.w.hurt, func(v view) bool { return v.line == h.line && v.at <= h.born.UpTo })
	}
	if hurt {
		r.mendView(view{l, tine.Head})
	}
}

// mendView plans what a view should show, and reports whether that differs.
func (r *repairer) mendView(v view) bool {
	l := v.line
	h := &head{r: r, l: l, v: v, inodes: map[tine.Ino]*fix{}, entries: map[tine.Ino]map[string]*record.Dentry{},
		order: map[tine.Ino]map[uint64]record.Cookie{}, old: map[record.Logical][]byte{}, want: map[record.Logical][]byte{}}
	if err := h.load(); err != nil {
		r.w.fail(place{line: l}, err)
		return false
	}
	h.mend()
	return h.plan()
}

// epoch is that of the rows that are written.
func (h *head) epoch() tine.Epoch {
	if h.v.at == tine.Head {
		return h.l.rec.Epoch
	}
	return h.v.at
}

// head is what a head, or another view, shows, all of it, and what it should show.
type head struct {
	r       *repairer
	l       *line
	v       view
	inodes  map[tine.Ino]*fix
	entries map[tine.Ino]map[string]*record.Dentry
	order   map[tine.Ino]map[uint64]record.Cookie
	counts  record.Counters

	old   map[record.Logical][]byte // rows as they are, of those that may change
	want  map[record.Logical][]byte // rows as they should be; nil: not there
	found tine.Ino                  // /lost+found
	notes []string                  // what was done, for people
	lost  int                       // how many inodes came to /lost+found
}

// fix is one inode.
type fix struct {
	record.Inode
	ino     tine.Ino
	exists  bool
	made    bool // anew: its row was lost
	orphan  bool
	reached bool
	names   []nameAt
	links   []nameAt
	chunks  int
	bytes   int64
	end     int64
	inline  bool // chunk 0 is
	extents bool // any chunk has extents
	blurred bool // some data is lost, so its size must stay
	real    bool // some data is not
	xattrs  []string
	index   []uint64 // of its chunks, where rows were lost
}

type nameAt struct {
	dir  tine.Ino
	name string
}

func (f *fix) isDir() bool { return f.Mode&modeType == modeDir }

func (h *head) fix(ino tine.Ino) *fix {
	f := h.inodes[ino]
	if f == nil {
		f = &fix{ino: ino}
		h.inodes[ino] = f
	}
	return f
}

// load reads all rows that the head shows.
func (h *head) load() error {
	return h.r.w.eachIn(h.v, "", func(k record.Logical, val []byte) bool {
		if !rowform.FileTable(k.Table()) {
			return true
		}
		h.old[k] = nil
		if k.Table() != record.TableChunk && k.Table() != record.TableXattr {
			h.old[k] = bytes.Clone(val)
		}
		h.take(k, bytes.Clone(val))
		return true
	})
}

func (h *head) take(k record.Logical, val []byte) {
	if k.Table() == record.TableCounters {
		if c, err := record.DecodeCounters(val); err == nil {
			h.counts = c
		}
		return
	}
	f := h.fix(k.Ino())
	switch k.Table() {
	case record.TableInode:
		n, err := record.DecodeInode(val)
		for limit := h.v.at; err != nil; {
			// An older state of the inode is better than none.
			older, birth, ok, lerr := h.r.w.lookup(view{h.l, limit}, k)
			if lerr != nil || !ok || birth == 0 {
				return
			}
			n, err = record.DecodeInode(older)
			limit = birth - 1
		}
		f.Inode, f.exists = n, true
	case record.TableDentry:
		if d, err := record.DecodeDentry(val); err == nil {
			h.setEntry(k.Ino(), k.Name(), &d)
		}
	case record.TableCookie:
		if c, err := record.DecodeCookie(val); err == nil {
			if h.order[k.Ino()] == nil {
				h.order[k.Ino()] = map[uint64]record.Cookie{}
			}
			h.order[k.Ino()][k.Number()] = c
		}
	case record.TableChunk:
		f.takeChunk(k.Number(), val)
		if h.r.w.salvaged() {
			f.index = append(f.index, k.Number())
		}
	case record.TableXattr:
		f.xattrs = append(f.xattrs, k.Name())
	case record.TableLink:
		f.links = append(f.links, nameAt{k.LinkParent(), k.Name()})
	case record.TableOrphan:
		f.orphan = true
	}
}

func (f *fix) takeChunk(index uint64, val []byte) {
	f.chunks++
	c, err := record.DecodeChunk(val)
	if err != nil || index > tine.MaxFileBytes/tine.ChunkBytes {
		f.blurred, f.real = true, true
		return
	}
	f.real = f.real || len(c.Extents) == 0 || slices.ContainsFunc(c.Extents, func(x record.Extent) bool { return !isLost(x) })
	f.bytes += c.Bytes()
	end := int64(len(c.Inline))
	if n := len(c.Extents); n > 0 {
		end = c.Extents[n-1].End()
		f.extents = true
	} else if index == 0 {
		f.inline = true
	}
	f.end = max(f.end, int64(index)*tine.ChunkBytes+end)
}

func (h *head) setEntry(dir tine.Ino, name string, d *record.Dentry) {
	if h.entries[dir] == nil {
		h.entries[dir] = map[string]*record.Dentry{}
	}
	h.entries[dir][name] = d
}

func (h *head) note(format string, args ...any) {
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}

// mend works out what the head should show.
func (h *head) mend() {
	h.mendRoot()
	h.mendMissing()
	h.mendEntries()
	h.nameAll()
	h.mendDirs()
	h.mendFiles()
	h.numbers()
	h.write()
}

func (h *head) sortedInos() []tine.Ino {
	inos := make([]tine.Ino, 0, len(h.inodes))
	for ino := range h.inodes {
		inos = append(inos, ino)
	}
	slices.Sort(inos)
	return inos
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (h *head) make(f *fix, mode uint32) {
	now := h.r.now.UnixNano()
	f.Inode = record.Inode{Mode: mode, Nlink: 1, Mtime: now, Ctime: now, Atime: now, Btime: now}
	f.exists, f.made = true, true
}

func (h *head) mendRoot() {
	root := h.fix(tine.RootIno)
	if !root.exists || !root.isDir() {
		h.make(root, modeDir|0o755)
		h.note("made the root anew")
	}
	root.Parent, root.Nlink = tine.RootIno, max(root.Nlink, 2)
}

// mendMissing makes inodes anew that have lost their row, where something is
// left of them: directories with entries, files with data.
func (h *head) mendMissing() {
	for _, ino := range h.sortedInos() {
		f := h.inodes[ino]
		if f.exists && f.Mode&modeType == 0 {
			f.Mode |= modeFile
		}
		if f.exists || ino == 0 || ino > tine.MaxIno {
			continue
		}
		switch {
		case len(h.entries[ino]) > 0:
			h.make(f, modeDir|0o700)
			h.note("made directory %d anew", ino)
		case f.real: // marks of what is lost are no reason
			h.make(f, modeFile|0o600)
			f.Size = f.end
			h.note("made file %d anew, with its data", ino)
		}
	}
}

// mendEntries drops names that cannot be, and writes names that only the
// paging order has.
func (h *head) mendEntries() {
	for dir, es := range h.entries {
		d := h.fix(dir)
		for name, e := range es {
			t := h.inodes[e.Ino]
			if t == nil || !t.exists || !validName(name) || !d.exists || !d.isDir() || e.Ino == tine.RootIno {
				h.note("dropped the name %q of inode %d", name, e.Ino)
				delete(es, name)
			}
		}
	}
	named := map[tine.Ino]bool{}
	for _, es := range h.entries {
		for _, e := range es {
			named[e.Ino] = true
		}
	}
	for dir, cs := range h.order {
		d := h.fix(dir)
		for cookie, c := range cs {
			t := h.inodes[c.Ino]
			if h.entries[dir][c.Name] != nil || named[c.Ino] || t == nil || !t.exists || t.orphan || !validName(c.Name) ||
				!d.exists || !d.isDir() || c.Ino == tine.RootIno {
				continue
			}
			h.setEntry(dir, c.Name, &record.Dentry{Ino: c.Ino, Type: c.Type, Cookie: cookie})
			named[c.Ino] = true
			h.note("wrote the name %q anew", c.Name)
		}
	}
}

// nameAll gathers the names of each inode, leaves directories one, and gives
// those without any, and those that cannot be reached, one in /lost+found.
func (h *head) nameAll() {
	for _, ino := range h.sortedInos() {
		for _, name := range sortedNames(h.entries[ino]) {
			t := h.inodes[h.entries[ino][name].Ino]
			t.names = append(t.names, nameAt{ino, name})
		}
	}
	inos := h.sortedInos()
	for _, ino := range inos {
		f := h.inodes[ino]
		if !f.exists || !f.isDir() || len(f.names) < 2 {
			continue
		}
		keep := max(0, slices.IndexFunc(f.names, func(n nameAt) bool { return n.dir == f.Parent }))
		for i, n := range f.names {
			if i != keep {
				delete(h.entries[n.dir], n.name)
				h.note("dropped the name %q: directory %d has another", n.name, ino)
			}
		}
		f.names = []nameAt{f.names[keep]}
	}
	h.reach(tine.RootIno)
	for _, ino := range inos {
		f := h.inodes[ino]
		if f.exists && len(f.names) == 0 && ino != tine.RootIno && f.Nlink > 0 {
			h.adopt(f)
		}
	}
	// What is left lies in circles: a directory of each is cut out.
	for _, ino := range inos {
		if f := h.inodes[ino]; f.exists && f.isDir() && !f.reached && len(f.names) > 0 {
			n := f.names[0]
			delete(h.entries[n.dir], n.name)
			f.names = nil
			h.adopt(f)
		}
	}
}

// reach marks all directories below one.
func (h *head) reach(ino tine.Ino) {
	todo := []tine.Ino{ino}
	for len(todo) > 0 {
		ino, todo = todo[len(todo)-1], todo[:len(todo)-1]
		f := h.inodes[ino]
		if f.reached {
			continue
		}
		f.reached = true
		for _, e := range h.entries[ino] {
			if t := h.inodes[e.Ino]; t.isDir() && !t.reached {
				todo = append(todo, e.Ino)
			}
		}
	}
}

// adopt gives an inode a name in /lost+found.
func (h *head) adopt(f *fix) {
	dir := h.lostAndFound()
	name := fmt.Sprintf("#%d", f.ino)
	for n := 1; h.entries[dir][name] != nil; n++ {
		name = fmt.Sprintf("#%d.%d", f.ino, n)
	}
	h.setEntry(dir, name, &record.Dentry{Ino: f.ino})
	f.names = []nameAt{{dir, name}}
	f.orphan = false
	h.lost++
	if f.isDir() {
		h.reach(f.ino)
	}
}

// lostAndFound finds or makes the directory.
func (h *head) lostAndFound() tine.Ino {
	if h.found != 0 {
		return h.found
	}
	name := "lost+found"
	for n := 1; ; n++ {
		e := h.entries[tine.RootIno][name]
		if e == nil {
			break
		}
		if h.inodes[e.Ino].isDir() {
			h.found = e.Ino
			return h.found
		}
		name = fmt.Sprintf("lost+found.%d", n)
	}
	ino := max(h.counts.NextIno, tine.RootIno+1)
	if h.v.at != tine.Head { // what a later view has must not meet it
		ino = max(ino, h.l.tree.maxIno+1)
	}
	for i := range h.inodes {
		ino = max(ino, i+1)
	}
	f := h.fix(ino)
	h.make(f, modeDir|0o700)
	f.reached = true
	f.names = []nameAt{{tine.RootIno, name}}
	h.setEntry(tine.RootIno, name, &record.Dentry{Ino: ino})
	h.found = ino
	return ino
}
