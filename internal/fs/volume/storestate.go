package volume

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/depot"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/timeline"
	"tine.dev/tine/internal/tine"
)

// Durability says where data is when a call that makes it durable returns. It
// belongs to the disk, wherever that is served, and forks start with their parent's.
type Durability = record.Durability

// The durabilities.
const (
	DurableLocal  = record.DurableLocal
	DurableBucket = record.DurableBucket
)

// DiskStore is what a disk's store has of it. Disks of one tree share it.
type DiskStore struct {
	ID      tine.StoreID
	Name    string // "" if the store is not known here
	Region  string // "" if that is not known
	Backlog uint64 // commits of the tree that the store does not have yet
	Failed  error  // why it does not take any now; nil if it does
	Since   time.Time
	Lost    error // not nil: another server has the disk
}

// disk returns what the store has of a tree.
func (s *stores) disk(tree tine.TreeID, store tine.StoreID) *DiskStore {
	out := &DiskStore{ID: store}
	s.mu.Lock()
	for _, x := range s.named {
		if x.ID == store {
			out.Name, out.Region, out.Failed, out.Since = x.Name, x.region(), x.failed, x.since
		}
	}
	t := s.trees[tree]
	s.mu.Unlock()
	if t != nil {
		st := t.Status()
		out.Backlog, out.Lost = behind(st), st.Lost
		if st.Failed != nil && st.Lost == nil {
			out.Failed, out.Since = st.Failed, st.Since
		}
	}
	return out
}

// behind is how many commits of a tree its store does not have; of one that is
// another server's, none will come.
func behind(st depot.Status) uint64 {
	if st.Lost != nil {
		return 0
	}
	return st.Newest - min(st.Newest, st.Shipped)
}

func (x *store) region() string {
	if x.Blob == nil {
		return ""
	}
	return x.Blob.Region()
}

// TreeBacklog is how far a store is behind with a tree.
type TreeBacklog struct {
	Tree    tine.TreeID
	Disk    string // the oldest living disk of the tree
	Commits uint64
}

// Backlogs returns how far stores are behind with the trees that are in use.
func (h *Host) Backlogs() []TreeBacklog {
	oldest := map[tine.TreeID]*timeline.Disk{}
	for _, d := range h.engine.Disks(tine.DefaultTenant, false) {
		id := d.ID()
		if o := oldest[d.Tree()]; o == nil || h.away.tree(d.Tree()) != nil && bytes.Compare(id[:], idOf(o)) < 0 {
			oldest[d.Tree()] = d
		}
	}
	var out []TreeBacklog
	for tree, d := range oldest {
		if t := h.away.tree(tree); t != nil {
			st := t.Status()
			rec, _ := d.Record()
			out = append(out, TreeBacklog{tree, rec.Name, behind(st)})
		}
	}
	return out
}

func idOf(d *timeline.Disk) []byte {
	id := d.ID()
	return id[:]
}

// SyncStore returns when the store of the disk has all that the disk shows now.
// Of a disk without a store it returns when all is durable here.
// Errors: KindInterrupted, KindUnavailable; KindStale if the disk is another server's.
func (h *Host) SyncStore(ctx context.Context, c Caller, name string) error {
	d, err := h.find(ctx, c, name, true)
	if err != nil {
		return err
	}
	if err := d.Sync(ctx); err != nil {
		return err
	}
	t := h.away.tree(d.Tree())
	if t == nil {
		return nil
	}
	err = t.Sync(ctx)
	if errors.Is(err, tine.ErrStale) {
		h.engine.Lose(d.Tree(), err) // who is told of it here must not be able to write after
	}
	return err
}

// harden makes what has become durable here durable as the disk wants it; an
// error of what came before is passed on.
func (h *Host) harden(ctx context.Context, d *timeline.Disk, err error) error {
	if err != nil {
		return err
	}
	if rec, _ := d.Record(); rec.Durable != DurableBucket {
		return nil
	}
	return h.away.reach(ctx, d.Tree())
}

// storePatience is how long a call waits for a store that does not take what is
// to be durable there. A process that waits in a call of a mount cannot be killed, so it
// is told instead; what it wrote is still shipped, and its next fsync may succeed.
const storePatience = time.Minute

// reach waits until the store has all that was committed of the tree.
func (s *stores) reach(ctx context.Context, tree tine.TreeID) error {
	t := s.tree(tree)
	if t == nil {
		return tine.Errorf(tine.KindUnavailable, "the store of the disk is not in use")
	}
	limited, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	err := t.Sync(limited)
	if err == nil || ctx.Err() != nil || limited.Err() == nil {
		return err
	}
	why := t.Status().Failed
	if why == nil {
		why = err
	}
	return tine.Errorf(tine.KindUnavailable, "the store has not taken it within %s; it is durable on this machine only: %w", storePatience, why).
		WithHint("see what is wrong with: tine store ls")
}

// StoreInfo describes a store.
type StoreInfo struct {
	Name    string
	ID      tine.StoreID // zero if it has never answered
	Place   string       // scheme, bucket and prefix; "" if that is not known yet
	Region  string       // "" if that is not known
	Ready   bool         // it has answered since the host was opened
	Failed  error        // why it does not take what is to be stored, or has not answered
	Since   time.Time    // since when
	Disks   int          // that live in it and are known here, those in the trash and the lost ones included
	Lost    int          // of these, those that another server has
	Backlog uint64       // commits that it does not have yet
}

// Stores returns the stores, in the order in which they became known.
func (h *Host) Stores() []StoreInfo {
	out := []StoreInfo{}
	s := h.away
	for _, x := range s.all() {
		out = append(out, h.storeInfo(x))
	}
	return out
}

func (h *Host) storeInfo(x *store) StoreInfo {
	s := h.away
	s.mu.Lock()
	i := StoreInfo{Name: x.Name, ID: x.ID, Region: x.region(), Ready: x.ready, Failed: x.failed, Since: x.since}
	if x.Blob != nil {
		i.Place = x.Blob.Name()
	}
	s.mu.Unlock()
	seen := map[tine.TreeID]depot.Status{}
	for _, d := range h.disksIn(i.ID) {
		i.Disks++
		st, ok := seen[d.Tree()]
		if t := s.tree(d.Tree()); !ok && t != nil {
			st = t.Status()
			seen[d.Tree()] = st
			i.Backlog += behind(st)
		}
		if st.Lost != nil {
			i.Lost++
		} else if st.Failed != nil && (i.Failed == nil || st.Since.Before(i.Since)) {
			i.Failed, i.Since = st.Failed, st.Since
		}
	}
	return i
}

// disksIn returns the disks that live in a store, those in the trash too.
func (h *Host) disksIn(store tine.StoreID) []*timeline.Disk {
	if store.IsZero() {
		return nil
	}
	ds := append(h.engine.Disks(tine.DefaultTenant, false), h.engine.Disks(tine.DefaultTenant, true)...)
	return slices.DeleteFunc(ds, func(d *timeline.Disk) bool {
		_, tree := d.Record()
		return tree.Store != store
	})
}

// AddStore makes a store known, once it has answered and shown that it keeps
// conditional writes.
// Errors: KindExists if the name, or the store under another name, is known
// already; KindUnsupported for a store that must not be used; those of o.Open
// and of blob.Store.
func (h *Host) AddStore(ctx context.Context, o Store) (StoreInfo, error) {
	if err := h.away.add(ctx, &store{Store: o, tried: make(chan struct{})}); err != nil {
		return StoreInfo{}, err
	}
	x, err := h.away.byName(o.Name)
	if err != nil {
		return StoreInfo{}, err
	}
	return h.storeInfo(x), nil
}

// RemoveStore makes the host forget a store. What is in the store stays.
// Errors: KindNotFound; KindBusy while disks live in it.
func (h *Host) RemoveStore(name string) error {
	x, err := h.away.byName(name)
	if err != nil {
		return err
	}
	h.away.taking.Lock()
	defer h.away.taking.Unlock()
	if ds := h.disksIn(h.storeInfo(x).ID); len(ds) > 0 {
		var names []string
		for _, d := range ds {
			rec, _ := d.Record()
			names = append(names, rec.Name)
		}
		slices.Sort(names)
		some := strings.Join(names[:min(len(names), 5)], ", ")
		if len(names) > 5 {
			some += ", ..."
		}
		return tine.Errorf(tine.KindBusy, "%d disks live in store %q: %s", len(names), name, some).
			WithHint("remove them for good first: tine disk rm --purge NAME")
	}
	h.away.forget(x)
	return nil
}

// StoreStep is one thing that was tried with a store.
type StoreStep struct {
	Name string
	Took time.Duration // of one request, the median of several
	Err  error
}

// StoreCheck is what was found out about a store.
type StoreCheck struct {
	Steps []StoreStep
	Ahead time.Duration // the store's clock before this machine's; S3 tells full seconds only
	Clock bool          // Ahead is known
}

// checkTries is how often a small object is written and read, for the latency.
const checkTries = 5

// CheckStore tries all that is done with a store, on objects of its own that it
// removes. What does not work is in the answer.
// Errors: KindNotFound for a store that is not known.
func (h *Host) CheckStore(ctx context.Context, name string) (StoreCheck, error) {
	var out StoreCheck
	x, err := h.away.byName(name)
	if err != nil {
		return out, err
	}
	s := h.away
	s.mu.Lock()
	b, id := x.Blob, s.server
	s.mu.Unlock()
	if b == nil {
		if b, err = x.Open(ctx, x.URL); err != nil {
			out.Steps = append(out.Steps, StoreStep{Name: "open", Err: err})
			return out, nil
		}
		defer b.Close()
	}
	key := blob.Key("tine/check-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + id.String())
	body := bytes.Repeat([]byte("tine"), 256)
	try := func(what string, times int, fn func() error) {
		st := StoreStep{Name: what}
		var took []time.Duration
		for range times {
			start := time.Now()
			if st.Err = fn(); st.Err != nil {
				break
			}
			took = append(took, time.Since(start))
		}
		if st.Err == nil {
			slices.Sort(took)
			st.Took = took[len(took)/2]
		}
		out.Steps = append(out.Steps, st)
	}
	try("write", checkTries, func() error {
		_, err := b.Put(ctx, key, bytes.NewReader(body), blob.Condition{})
		return err
	})
	if wrote := time.Now(); out.Steps[0].Err == nil {
		if info, err := b.Stat(ctx, key); err == nil {
			out.Ahead, out.Clock = info.Modified.Sub(wrote.Add(-out.Steps[0].Took/2)), true
		}
	}
	try("read", checkTries, func() error {
		p, _, err := b.Get(ctx, key, blob.Range{}, "")
		if err == nil && !bytes.Equal(p, body) {
			err = tine.Errorf(tine.KindCorrupt, "the bytes that were read are not those that were written")
		}
		return err
	})
	try("list", 1, func() error {
		_, err := b.List(ctx, blob.ListOptions{Prefix: "tine/"})
		return err
	})
	try("conditional writes", 1, func() error { return blob.Probe(ctx, b, key+"-probe") })
	try("delete", 1, func() error { return b.Delete(ctx, key) })
	return out, nil
}
