package depot

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// The manifest of a tree, format 1: what need not be replayed of its journal. It is
// the one object of a tree that changes, and it does so rarely, by its owner alone,
// from one version to the next (J4). A tree that was not cut yet has none.
//
// Integers are little-endian; a length is 8 bytes.
//
//	offset size
//	 0      8   magic "tineman1"
//	 8      4   format: 1
//	12      4   checksum (CRC-32C) of the journal object before the first to replay
//	16     16   tree
//	32     16   server that wrote it
//	48      8   number, which grows with each version, so that none comes back
//	56      8   term
//	64      8   number of the first journal object to replay
//	72      8   how many runs
//	80      8   length, and the rows that make tree and disks be seen, as a packed list of changes
//	...         of each run, oldest first: its id (16), a length, and its tables as package run has them
//	end-4   4   checksum of everything before it
type manifest struct {
	tree     tine.TreeID
	server   tine.ServerID
	number   uint64
	term     uint64
	start    uint64
	previous uint32
	catalog  catalog
	runs     []sortedRun // oldest first

	version blob.Version // of the object that it was read from; "" for none
}

// sortedRun is one run of a tree.
type sortedRun struct {
	id     tine.RunID
	tables []run.Table
}

// bytes is the length of the run's objects.
func (r sortedRun) bytes() (n int64) {
	for _, t := range r.tables {
		n += t.ObjectBytes
	}
	return n
}

const (
	manifestMagic  = "tineman1"
	manifestFormat = 1
	manifestHeader = 80
)

func manifestKey(id tine.TreeID) blob.Key { return blob.Key(treePrefix(id) + "manifest") }

func runsPrefix(id tine.TreeID) string { return treePrefix(id) + "runs/" }

func runKey(id tine.TreeID, r tine.RunID) blob.Key { return blob.Key(runsPrefix(id) + r.String()) }

func (m *manifest) encode(c *journal.Codec) []byte {
	b := make([]byte, manifestHeader)
	copy(b, manifestMagic)
	binary.LittleEndian.PutUint32(b[8:], manifestFormat)
	binary.LittleEndian.PutUint32(b[12:], m.previous)
	copy(b[16:], m.tree[:])
	copy(b[32:], m.server[:])
	for i, v := range []uint64{m.number, m.term, m.start, uint64(len(m.runs))} {
		binary.LittleEndian.PutUint64(b[48+8*i:], v)
	}
	b = appendPart(b, c.Pack(nil, m.catalog.list()))
	for _, r := range m.runs {
		b = append(b, r.id[:]...)
		b = appendPart(b, run.AppendTables(nil, r.tables))
	}
	return binary.LittleEndian.AppendUint32(b, journal.Checksum(b))
}

func appendPart(b, p []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p)))
	return append(b, p...)
}

// cutPart takes a length and so many bytes off b.
func cutPart(b []byte) (p, rest []byte, ok bool) {
	if len(b) < 8 {
		return nil, nil, false
	}
	n := binary.LittleEndian.Uint64(b)
	if b = b[8:]; n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// decodeManifest reads a manifest. Errors: KindCorrupt, KindVersion.
func decodeManifest(c *journal.Codec, b []byte) (*manifest, error) {
	damaged := tine.Errorf(tine.KindCorrupt, "it is damaged")
	if len(b) < manifestHeader+4 || string(b[:8]) != manifestMagic {
		return nil, tine.Errorf(tine.KindCorrupt, "it is no manifest")
	}
	end := len(b) - 4
	if journal.Checksum(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, damaged
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != manifestFormat {
		return nil, tine.Errorf(tine.KindVersion, "it has format %d; this program knows %d", v, manifestFormat).WithHint("run a newer tine on this store")
	}
	m := &manifest{previous: binary.LittleEndian.Uint32(b[12:]), catalog: catalog{}}
	copy(m.tree[:], b[16:])
	copy(m.server[:], b[32:])
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	m.number, m.term, m.start = u(48), u(56), u(64)
	runs := u(72)
	list, rest, ok := cutPart(b[manifestHeader:end])
	if !ok || m.number == 0 || m.start == 0 || runs > uint64(len(rest)/(tine.IDSize+8)) {
		return nil, damaged
	}
	if err := c.Each(list, func(ch kv.Change) error { m.catalog.note(ch); return nil }); err != nil {
		return nil, err
	}
	for range runs {
		var r sortedRun
		if len(rest) < tine.IDSize {
			return nil, damaged
		}
		copy(r.id[:], rest)
		var p []byte
		if p, rest, ok = cutPart(rest[tine.IDSize:]); !ok {
			return nil, damaged
		}
		var err error
		if r.tables, err = run.DecodeTables(p); err != nil {
			return nil, err
		}
		m.runs = append(m.runs, r)
	}
	if len(rest) > 0 {
		return nil, damaged
	}
	return m, nil
}

// manifest reads the manifest of a tree; one that says nothing if there is none.
// Errors: KindCorrupt, KindVersion, those of blob.Store.
func (d *Depot) manifest(ctx context.Context, id tine.TreeID) (*manifest, error) {
	key := manifestKey(id)
	b, info, err := d.o.Blob.Get(ctx, key, blob.Range{}, "")
	if tine.KindOf(err) == tine.KindNotFound && err != nil {
		return &manifest{tree: id, start: 1, catalog: catalog{}}, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(d.o.Codec, b)
	if err == nil && m.tree != id {
		err = tine.Errorf(tine.KindCorrupt, "it is that of tree %s", m.tree)
	}
	if err != nil {
		return nil, tine.Errorf(tine.KindOf(err), "manifest %s in store %s: %w", key, d.o.Blob.Name(), err)
	}
	m.version = info.Version
	return m, nil
}

// replaceManifest writes a manifest in the place of the one that it was made from.
// Errors: KindConflict if that is not there any more; those of blob.Store.
func (d *Depot) replaceManifest(ctx context.Context, m *manifest) error {
	cond := blob.Condition{Version: m.version, Absent: m.version == ""}
	info, err := d.o.Blob.Put(ctx, manifestKey(m.tree), bytes.NewReader(m.encode(d.o.Codec)), cond)
	if err != nil {
		return err
	}
	m.version = info.Version
	return nil
}

// catalog is the rows by which a tree and its disks are seen. They are kept apart
// from the others, so that a tree that is being taken up is not seen before all
// of it is there.
type catalog map[string][]byte

// note takes in a change if it is one of such a row, and reports whether it is.
func (c catalog) note(ch kv.Change) bool {
	if ch.Kind == kv.ChangeDeleteRange || !seen(ch.Key) {
		return false
	}
	if ch.Kind == kv.ChangeSet {
		c[string(ch.Key)] = bytes.Clone(ch.Value)
	} else {
		delete(c, string(ch.Key))
	}
	return true
}

// changes returns the rows as changes that set them, in the order of their keys.
func (c catalog) changes() (cs []kv.Change) {
	for _, k := range slices.Sorted(maps.Keys(c)) {
		cs = append(cs, kv.Change{Kind: kv.ChangeSet, Key: []byte(k), Value: c[k]})
	}
	return cs
}

func (c catalog) list() *journal.List {
	l := &journal.List{}
	for _, ch := range c.changes() {
		l.Add(ch)
	}
	return l
}
