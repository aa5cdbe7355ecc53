package run_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// objects is an object store whose requests are counted and can be made to fail.
type objects struct {
	*blob.Store
	faulty *faulty.Store
	count  *counter
}

// counter counts reads.
type counter struct {
	blob.Driver
	mu    sync.Mutex
	gets  int
	bytes int64
	byKey map[blob.Key]int // reads of each object
}

func (c *counter) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) ([]byte, blob.Info, error) {
	data, info, err := c.Driver.Get(ctx, key, opt)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets++
	c.bytes += int64(len(data))
	c.byKey[key]++
	return data, info, err
}

func (c *counter) reset() (gets int, read int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gets, read = c.gets, c.bytes
	c.gets, c.bytes, c.byKey = 0, 0, map[blob.Key]int{}
	return gets, read
}

func newObjects(t testing.TB) *objects {
	o := &objects{faulty: faulty.Wrap(mem.New(mem.Options{}), faulty.Plan{})}
	o.count = &counter{Driver: o.faulty, byKey: map[blob.Key]int{}}
	o.Store = blob.NewStore(o.count, blob.Options{Retry: blob.Policy{
		Attempts: 6, Budget: 1 << 30, Sleep: func(context.Context, time.Duration) error { return nil },
	}})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// memory is a cache of frames without a bound.
type memory struct {
	mu     sync.Mutex
	frames map[string][]byte
}

func (m *memory) Get(ctx context.Context, object string, frame int64, fetch func(context.Context) ([]byte, error)) ([]byte, error) {
	name := fmt.Sprintf("%s/%d", object, frame)
	m.mu.Lock()
	data, ok := m.frames[name]
	m.mu.Unlock()
	if ok {
		return data, nil
	}
	data, err := fetch(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frames[name] = data
	return data, nil
}

func newMemory() *memory { return &memory{frames: map[string][]byte{}} }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, what string, err error, k tine.ErrorKind) {
	t.Helper()
	if err == nil || tine.KindOf(err) != k {
		t.Fatalf("%s: %v, want the kind %v", what, err, k)
	}
}

// rows is a row store that can be opened again, and what it is compared with.
type rows struct {
	kv.Store
	opt pebble.Options
}

func openRows(t testing.TB, tables kv.Tables) *rows {
	r := &rows{opt: pebble.Options{Dir: "db", FS: vfs.NewMem(), MemTableBytes: 64 << 10, CacheBytes: 1 << 20, Tables: tables}}
	r.open(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rows) open(t testing.TB) {
	t.Helper()
	s, err := pebble.Open(r.opt)
	must(t, err)
	r.Store = s
}

func (r *rows) reopen(t testing.TB) {
	t.Helper()
	must(t, r.Close())
	r.open(t)
}

func (r *rows) adopt(t testing.TB, runs ...[]run.Table) {
	t.Helper()
	var groups [][]kv.Table
	for _, one := range runs {
		groups = append(groups, run.Adoptables(one))
	}
	must(t, r.Store.(kv.Adopter).Adopt(context.Background(), groups))
}

func (r *rows) commit(t testing.TB, changes []kv.Change) {
	t.Helper()
	b := r.NewBatch()
	for _, c := range changes {
		c.Apply(b)
	}
	must(t, r.Commit(b, false))
}

// source makes random changes. Few owners, short alphabets, many versions.
type source struct {
	rng      *rand.Rand
	prefixes [][]byte
	epoch    tine.Epoch
}

func newSource(seed uint64) *source {
	g := &source{rng: rand.New(rand.NewPCG(seed, 1)), epoch: 1}
	for range 80 {
		g.prefixes = append(g.prefixes, g.prefix())
	}
	return g
}

func (g *source) prefix() []byte {
	o := [tine.IDSize]byte{'o', byte('0' + g.rng.IntN(4)), 0xff, 0xff}
	if g.rng.IntN(3) == 0 {
		o[tine.IDSize-1] = 0xff
	}
	ino := tine.Ino(1 + g.rng.IntN(2))
	var name []byte
	for range 1 + g.rng.IntN(12) {
		name = append(name, []byte{1, 'a', 'b', 0xfe, 0xff}[g.rng.IntN(5)])
	}
	l := record.DentryKey(ino, string(name))
	switch g.rng.IntN(8) {
	case 0:
		l = record.InodeKey(ino)
	case 1:
		l = record.ChunkKey(ino, g.rng.Uint64N(40))
	case 2:
		l = record.TableKey(record.TableCounters)
	case 3:
		l = record.LinkKey(ino, ino, string(name))
	case 4:
		l = record.Logical([]byte{0x7e, 1})
	}
	return record.AppendKey(nil, o, l)
}

func (g *source) pick() []byte { return g.prefixes[g.rng.IntN(len(g.prefixes))] }

func (g *source) born() tine.Epoch {
	if g.rng.IntN(4) > 0 {
		return g.epoch
	}
	return tine.Epoch(1 + g.rng.Uint64N(uint64(g.epoch)))
}

func (g *source) key() []byte { return record.AppendEpoch(bytes.Clone(g.pick()), g.born()) }

func (g *source) batch() []kv.Change {
	if g.rng.IntN(3) == 0 {
		g.epoch++
	}
	var out []kv.Change
	for range 1 + g.rng.IntN(40) {
		switch r := g.rng.IntN(100); {
		case r < 75:
			v := make([]byte, g.rng.IntN(400))
			for i := range v {
				v[i] = byte(g.rng.Uint32())
			}
			out = append(out, kv.Change{Kind: kv.ChangeSet, Key: g.key(), Value: v})
		case r < 96:
			out = append(out, kv.Change{Kind: kv.ChangeDelete, Key: g.key()})
		default:
			lo, hi := g.bounds()
			if bytes.Compare(lo, hi) < 0 {
				out = append(out, kv.Change{Kind: kv.ChangeDeleteRange, Key: lo, Value: hi})
			}
		}
	}
	return out
}

// bounds draws a range for a deletion: an owner, a table, what starts like a row, a row with
// all its versions, or any two places that are not inside a row (see kv.Batch).
func (g *source) bounds() (lo, hi []byte) {
	switch g.rng.IntN(4) {
	case 0:
		lo = g.pick()[:tine.IDSize]
	case 1:
		lo = g.pick()[:tine.IDSize+1]
	case 2:
		lo, hi = g.edge(), g.edge()
		if bytes.Compare(lo, hi) > 0 {
			lo, hi = hi, lo
		}
		return lo, hi
	default:
		lo = g.edge()
	}
	return lo, record.PrefixEnd(lo)
}

// edge is a prefix of a row, cut anywhere after the owner.
func (g *source) edge() []byte {
	p, _ := pebble.RowPrefix(g.key())
	return p[:tine.IDSize+g.rng.IntN(len(p)-tine.IDSize+1)]
}

func (g *source) cut() []byte {
	k := append(g.key(), 0)
	return k[:tine.IDSize+g.rng.IntN(len(k)-tine.IDSize)+1]
}

// same compares all that can be read.
func (g *source) same(t testing.TB, what string, got, want kv.Store) {
	t.Helper()
	a, b := got.Snapshot(), want.Snapshot()
	defer a.Close()
	defer b.Close()
	lo, hi := g.cut(), g.cut()
	e1, e2 := g.born(), g.born()
	for _, s := range []struct {
		lo, hi []byte
		born   *kv.Born
	}{
		{nil, nil, nil}, {lo, hi, nil}, {nil, nil, &kv.Born{After: min(e1, e2) - 1, UpTo: max(e1, e2)}}, {lo, nil, &kv.Born{After: e1 - 1, UpTo: e1}},
	} {
		if x, y := dump(t, a, s.lo, s.hi, s.born), dump(t, b, s.lo, s.hi, s.born); x != y {
			t.Fatalf("%s: scan [%x, %x) born %v differs:%s", what, s.lo, s.hi, s.born, difference(x, y))
		}
	}
	for range 40 {
		p, limit := g.pick(), g.born()
		v1, b1, ok1, err1 := a.Newest(p, limit)
		v2, b2, ok2, err2 := b.Newest(p, limit)
		must(t, err1)
		must(t, err2)
		if ok1 != ok2 || b1 != b2 || !bytes.Equal(v1, v2) {
			t.Fatalf("%s: newest %x at %d: %x born %d (%v), want %x born %d (%v)", what, p, limit, v1, b1, ok1, v2, b2, ok2)
		}
	}
}

// difference shows the lines that only one of two dumps has, shortened.
func difference(got, want string) string {
	count := map[string]int{}
	for l := range strings.Lines(got) {
		count[l]++
	}
	for l := range strings.Lines(want) {
		count[l]--
	}
	var out strings.Builder
	for _, l := range slices.Sorted(maps.Keys(count)) {
		if count[l] != 0 && out.Len() < 4000 {
			fmt.Fprintf(&out, "\n%+d %.160s", count[l], strings.TrimSpace(l))
		}
	}
	return out.String()
}

func dump(t testing.TB, n kv.Snapshot, lo, hi []byte, born *kv.Born) string {
	t.Helper()
	c, err := n.Scan(lo, hi, born)
	must(t, err)
	defer c.Close()
	var out bytes.Buffer
	for c.Next() {
		fmt.Fprintf(&out, "%x=%x\n", c.Key(), c.Value())
	}
	must(t, c.Err())
	return out.String()
}

func config(o *objects, name string, tableBytes int64) run.Config {
	return run.Config{Store: o.Store, Prefix: blob.Key("trees/t/runs/" + name), TableBytes: tableBytes}
}
