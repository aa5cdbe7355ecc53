package depot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/outbox"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// shipAll ships until nothing is left that can be.
func (t *Tree) shipAll(ctx context.Context) error {
	for {
		settled, _ := t.box.Settled()
		if t.Status().Shipped >= settled {
			return nil
		}
		// What was committed without a flush must not be in the store and, after
		// a crash, not here.
		if err := t.box.Firm(settled); err != nil {
			return err
		}
		c := &cargo{t: t, last: t.shipped.Sequence, settled: settled, segs: map[tine.SegmentID]*record.Segment{}, stays: map[tine.SegmentID]bool{}}
		whole, err := c.fill(ctx)
		if err != nil {
			return err
		}
		if !whole {
			t.waits++
			return nil // what is missing comes with a commit that is under way, and that tells
		}
		t.waits = 0
		if err := t.put(ctx, c); err != nil {
			return err
		}
	}
}

// maxWaits is how often the shipper waits for large tails to be sealed before
// it sends them as they are. A line that is written fast may have filled the
// next segment by the time that the last one is sealed.
const maxWaits = 3

// cargo is what goes into one journal object.
type cargo struct {
	t       *Tree
	list    journal.List
	last    uint64                             // newest sequence in it
	settled uint64                             // newest sequence that may be
	segs    map[tine.SegmentID]*record.Segment // segments that its rows change, as they are at its end; nil: gone
	stays   map[tine.SegmentID]bool            // those of which the store may have had something before
	tails   []tail
	own     []kv.Change // rows of the shipper's own
}

// tail is what the store does not have yet of an open segment.
type tail struct {
	id  tine.SegmentID
	loc record.Segment
	off int64
}

// errFull ends the reading of entries.
var errFull = tine.Errorf(tine.KindInternal, "the object is full")

// fill takes in entries until the object is large, and then as few more as it
// needs to name no file data that is only to be had with them (J1). whole is
// false when the entries end before.
func (c *cargo) fill(ctx context.Context) (whole bool, err error) {
	if err := c.take(func() bool { return c.list.Size() > c.t.d.o.ObjectBytes }); err != nil {
		return false, err
	}
	for {
		missing, err := c.bring(ctx)
		if err != nil || len(missing) == 0 {
			return err == nil, err
		}
		if c.last >= c.settled {
			return false, nil
		}
		settles := func() bool {
			for id, loc := range missing {
				if now := c.segs[id]; now != nil && now.State == loc.State && now.Generation == loc.Generation {
					return false
				}
			}
			return true
		}
		if err := c.take(settles); err != nil {
			return false, err
		}
	}
}

// take adds entries, at least one, until enough says so.
func (c *cargo) take(enough func() bool) error {
	taken := 0
	err := c.t.box.Each(c.last, c.settled, func(e outbox.Entry) error {
		if taken > 0 && enough() {
			return errFull
		}
		taken++
		c.last = e.Sequence
		return c.t.d.o.Codec.Each(e.Packed, func(ch kv.Change) error {
			c.list.Add(ch)
			return c.look(ch)
		})
	})
	if err == errFull {
		return nil
	}
	if err == nil {
		c.last = c.settled // the numbers up to it that are not there were refused
	}
	return err
}

// look notes what a change says of a segment.
func (c *cargo) look(ch kv.Change) error {
	k := ch.Key
	if len(k) <= tine.IDSize || tine.TreeID(k[:tine.IDSize]) != c.t.id || record.Table(k[tine.IDSize]) != record.TableSegment {
		return nil
	}
	_, l, _, err := record.SplitKey(k)
	if err != nil {
		return err
	}
	id, _ := l.ID()
	var now *record.Segment
	if ch.Kind == kv.ChangeSet {
		loc, err := record.DecodeSegment(ch.Value)
		if err != nil {
			return err
		}
		now = &loc
	}
	if _, met := c.segs[id]; !met {
		_, sent := c.t.sent[id]
		c.stays[id] = sent || now == nil || now.State == record.SegmentSealed
	}
	c.segs[id] = now
	return nil
}

// bring sees that the store has the file data that the rows name: sealed
// segments as objects, what is new of open ones as tails, which go into the list
// last. It returns the segments whose data is not to be had any more, or soon in a
// better form.
func (c *cargo) bring(ctx context.Context) (missing map[tine.SegmentID]*record.Segment, err error) {
	t := c.t
	missing = map[tine.SegmentID]*record.Segment{}
	c.tails = nil
	up := uploads{missing: missing}
	for id, loc := range c.segs {
		switch {
		case loc == nil || loc.End == 0:
		case loc.State == record.SegmentSealed:
			up.list = append(up.list, upload{id, loc})
		case loc.End-t.sent[id] > t.d.o.TailBytes && t.waits < maxWaits:
			t.segs.Roll(id)
			missing[id] = loc
		default:
			c.tails = append(c.tails, tail{id, *loc, t.sent[id]})
		}
	}
	if len(missing) > 0 {
		return missing, nil
	}
	if err := up.run(ctx, t); err != nil {
		return nil, err
	}
	var rows []kv.Change
	for _, x := range c.tails {
		p := make([]byte, x.loc.End-x.off)
		switch err := t.segs.Read(x.id, x.loc, p, x.off); {
		case err == nil:
			rows = append(rows, kv.Change{Kind: kv.ChangeSet, Key: record.Key(t.id, record.OffsetKey(record.TableTail, x.id, x.off), 0), Value: p})
		case tine.KindOf(err) == tine.KindNotFound:
			missing[x.id] = c.segs[x.id]
		default:
			return nil, err
		}
	}
	if len(missing) > 0 {
		return missing, nil
	}
	for _, r := range rows {
		c.list.Add(r)
	}
	return nil, nil
}

// upload is a sealed segment that the store must have.
type upload struct {
	id  tine.SegmentID
	loc *record.Segment
}

func (x upload) file() generation { return generation{x.id, x.loc.Generation} }

// uploads are segments to be sent, several at a time.
type uploads struct {
	mu      sync.Mutex
	list    []upload
	missing map[tine.SegmentID]*record.Segment // those whose file is gone are added
	err     error
}

// run sends those that this cargo, tried before, has not sent already.
func (u *uploads) run(ctx context.Context, t *Tree) error {
	var all sync.WaitGroup
	for range min(t.d.o.Uploads, len(u.list)) {
		all.Go(func() {
			for x, ok := u.next(ctx, t); ok; x, ok = u.next(ctx, t) {
				u.note(t, x, t.segs.Upload(ctx, x.id, *x.loc))
			}
		})
	}
	all.Wait()
	if u.err == nil && ctx.Err() != nil {
		return tine.Errorf(tine.KindInterrupted, "shipping was stopped: %w", context.Cause(ctx))
	}
	return u.err
}

func (u *uploads) next(ctx context.Context, t *Tree) (x upload, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.list) > 0 && u.err == nil && ctx.Err() == nil {
		x, u.list = u.list[0], u.list[1:]
		if !t.there[x.file()] {
			return x, true
		}
	}
	return x, false
}

func (u *uploads) note(t *Tree, x upload, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case err == nil:
		t.there[x.file()] = true
	case tine.KindOf(err) == tine.KindNotFound:
		u.missing[x.id] = x.loc
	case u.err == nil:
		u.err = err
	}
}

// put creates the journal object (J2), and then removes what it carries from
// the outbox.
func (t *Tree) put(ctx context.Context, c *cargo) error {
	s := t.shipped
	h := journal.Header{
		Tree: t.id, Server: t.d.o.Server, Number: s.Number + 1, Term: s.Term, First: s.Sequence + 1, Last: c.last,
		Created: t.d.o.Clock().UnixNano(), Previous: s.Checksum,
	}
	c.bury(t.d.now())
	for _, r := range c.own {
		c.list.Add(r)
	}
	b := t.d.o.Codec.Encode(h, &c.list)
	_, err := t.d.o.Blob.Put(ctx, journalKey(t.id, h.Number), bytes.NewReader(b), blob.Condition{Absent: true})
	if tine.KindOf(err) == tine.KindExists && err != nil {
		return t.meet(ctx, h)
	}
	if err != nil {
		return err
	}
	for id := range c.segs {
		delete(t.sent, id)
	}
	for _, x := range c.tails {
		t.sent[x.id] = x.loc.End
	}
	clear(t.there)
	if err := t.took(h, b, c.own); err != nil {
		return err
	}
	t.wrote(ctx, int64(len(b)))
	return nil
}

// took notes that the store has an object of this server.
func (t *Tree) took(h journal.Header, b []byte, own []kv.Change) error {
	s := record.Shipped{Number: h.Number, Term: h.Term, Sequence: h.Last, Checksum: journal.Checksum(b)}
	if err := t.box.Remove(s, own...); err != nil {
		return err
	}
	for _, r := range own {
		if r.Kind == kv.ChangeDelete {
			_, l, _, _ := record.SplitKey(r.Key)
			id, _ := l.ID()
			delete(t.buried, id)
		}
	}
	t.arrived(s)
	return nil
}

// meet looks at the object that stands where one was to be created. It may be
// this server's own, of which it has not heard: then that one counts.
// Errors: KindStale if another server wrote it (J3); those of blob.Store.
func (t *Tree) meet(ctx context.Context, mine journal.Header) error {
	h, b, err := t.d.read(ctx, t.id, mine.Number)
	if err != nil {
		return err
	}
	if err := own(h, mine); err != nil {
		return err
	}
	graves, err := t.recognise(h, b)
	if err != nil {
		return err
	}
	return t.took(h, b, graves) // how far its tails reach is not known: some are sent again
}

// recognise checks that an object which says that it is this server's carries the
// entries of this outbox, and returns the graves in it. A copy of the data directory
// has the same server and term, and goes on with other commits.
func (t *Tree) recognise(h journal.Header, b []byte) (graves []kv.Change, err error) {
	entries, ours := 0, sha256.New()
	err = t.box.Each(h.First-1, h.Last, func(e outbox.Entry) error {
		return t.d.o.Codec.Each(e.Packed, func(ch kv.Change) error {
			entries++
			return digest(ours, ch)
		})
	})
	if err != nil {
		return nil, err
	}
	_, packed, err := journal.Decode(b)
	if err != nil {
		return nil, err
	}
	n, theirs := 0, sha256.New()
	err = t.d.o.Codec.Each(packed, func(ch kv.Change) error {
		if n++; n <= entries {
			return digest(theirs, ch)
		}
		if t.isGrave(ch.Key) {
			graves = append(graves, kv.Change{Kind: ch.Kind, Key: bytes.Clone(ch.Key), Value: bytes.Clone(ch.Value)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, newest := t.box.Settled(); h.Last > newest || n < entries || !bytes.Equal(ours.Sum(nil), theirs.Sum(nil)) {
		return nil, tine.Errorf(tine.KindStale, "number %d of the journal of tree %s is of this server, and not of this data directory: another copy of it has written on", h.Number, t.id).
			WithHint("use the data directory that goes on; remove the file server in this one before it is used with a store again")
	}
	return graves, nil
}

func digest(h hash.Hash, ch kv.Change) error {
	var n [9]byte
	n[0] = byte(ch.Kind)
	binary.BigEndian.PutUint64(n[1:], uint64(len(ch.Key)))
	h.Write(n[:])
	h.Write(ch.Key)
	h.Write(ch.Value)
	return nil
}

// own refuses an object that another server wrote, or this one in another life.
func own(h, mine journal.Header) error {
	if h.Server == mine.Server && h.Term == mine.Term && h.First == mine.First {
		return nil
	}
	return tine.Errorf(tine.KindStale, "server %s has written number %d of the journal of tree %s, in term %d; this server (%s) was in term %d",
		h.Server, h.Number, mine.Tree, h.Term, mine.Server, mine.Term).
		WithHint("the tree is served there now; what this server had not yet shipped is not part of it")
}

// read reads a journal object and checks that it is the one that its key says.
func (d *Depot) read(ctx context.Context, tree tine.TreeID, number uint64) (journal.Header, []byte, error) {
	key := journalKey(tree, number)
	b, _, err := d.o.Blob.Get(ctx, key, blob.Range{}, "")
	if err != nil {
		return journal.Header{}, nil, err
	}
	h, _, err := journal.Decode(b)
	if err == nil && (h.Tree != tree || h.Number != number) {
		err = tine.Errorf(tine.KindCorrupt, "it is number %d of tree %s", h.Number, h.Tree)
	}
	if err != nil {
		return h, nil, tine.Errorf(tine.KindOf(err), "journal object %s in store %s: %w", key, d.o.Blob.Name(), err)
	}
	return h, b, nil
}
