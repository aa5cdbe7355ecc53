package kvtest

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/mem"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Seed returns the seed of a random test and prints it: TINE_SEED if it is
// set, else a fresh one.
func Seed(t testing.TB) uint64 {
	seed := rand.Uint64()
	if v := os.Getenv("TINE_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("TINE_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("seed %d; replay with TINE_SEED=%d go test -count=1 -run '^%s$'", seed, seed, t.Name())
	return seed
}

// testRandom does the same to the driver and to the reference and compares
// all that can be read, in old snapshots too.
func testRandom(t *testing.T, d Driver) {
	steps := 400
	if f := flag.Lookup("test.short"); f != nil && testing.Short() {
		steps = 120
	}
	w := &world{t: t, d: d, rng: rand.New(rand.NewPCG(Seed(t), 1)), got: d.Open(t), want: mem.New(), epoch: 1}
	for range 60 {
		w.prefixes = append(w.prefixes, w.prefix())
	}
	for range steps {
		w.step()
	}
	w.check(200)
	for len(w.held) > 0 {
		w.drop()
	}
	must(t, w.got.Close())
}

type pair struct{ got, want kv.Snapshot }

type world struct {
	t         *testing.T
	d         Driver
	rng       *rand.Rand
	got, want kv.Store
	epoch     tine.Epoch
	prefixes  [][]byte
	held      []pair
}

// prefix draws one of few owners and one of the shapes of keys, or a table
// that no driver knows. Short alphabets make keys that are nearly equal, and
// bytes like those of epochs.
func (w *world) prefix() []byte {
	o := [tine.IDSize]byte{'o', byte('0' + w.rng.IntN(3)), 0xff, 0xff}
	ino := tine.Ino(1 + w.rng.IntN(2))
	var name []byte
	for range 1 + w.rng.IntN(12) {
		name = append(name, []byte{1, 'a', 'b', 0xfe, 0xff}[w.rng.IntN(5)])
	}
	var l record.Logical
	switch w.rng.IntN(8) {
	case 0:
		l = record.InodeKey(ino)
	case 1:
		l = record.ChunkKey(ino, w.rng.Uint64N(4))
	case 2:
		l = record.TableKey(record.TableCounters)
	case 3:
		l = record.LinkKey(ino, ino, string(name))
	case 4:
		l = record.Logical([]byte{0x7e, 0, 0, name[0]}[:2+w.rng.IntN(2)])
		if len(l) == 2 {
			l = record.Logical([]byte{0x7e, 1})
		}
	default:
		l = record.DentryKey(ino, string(name))
	}
	return record.AppendKey(nil, o, l)
}

func (w *world) pick() []byte { return w.prefixes[w.rng.IntN(len(w.prefixes))] }

func (w *world) born() tine.Epoch {
	if w.rng.IntN(4) > 0 {
		return w.epoch
	}
	return tine.Epoch(1 + w.rng.Uint64N(uint64(w.epoch)))
}

func (w *world) step() {
	switch r := w.rng.IntN(100); {
	case r < 60:
		w.commit()
	case r < 70:
		w.epoch += tine.Epoch(1 + w.rng.IntN(3))
	case r < 76:
		g, m := w.got.Snapshot(), w.want.Snapshot()
		w.compare(g, m, 5) // pins both at the same moment
		w.held = append(w.held, pair{g, m})
	case r < 80 && len(w.held) > 0:
		w.drop()
	case r < 86:
		must(w.t, w.got.Flush())
	case r < 89:
		a := w.pick()
		must(w.t, w.got.Compact(a[:1], record.PrefixEnd(a[:2])))
	case r < 91 && w.d.Reopen != nil:
		for len(w.held) > 0 {
			w.drop()
		}
		w.got = w.d.Reopen(w.t, w.got)
	case r < 95 && len(w.held) > 0:
		p := w.held[w.rng.IntN(len(w.held))]
		w.compare(p.got, p.want, 20)
	default:
		w.check(20)
	}
}

func (w *world) check(points int) {
	w.t.Helper()
	g, m := w.got.Snapshot(), w.want.Snapshot()
	w.compare(g, m, points)
	must(w.t, g.Close())
	must(w.t, m.Close())
}

func (w *world) drop() {
	i := w.rng.IntN(len(w.held))
	must(w.t, w.held[i].got.Close())
	must(w.t, w.held[i].want.Close())
	w.held = append(w.held[:i], w.held[i+1:]...)
}

func (w *world) commit() {
	g, m := w.got.NewBatch(), w.want.NewBatch()
	for range 1 + w.rng.IntN(30) {
		k := record.AppendEpoch(bytes.Clone(w.pick()), w.born())
		switch r := w.rng.IntN(100); {
		case r < 70:
			v := make([]byte, w.rng.IntN(300))
			for i := range v {
				v[i] = byte(w.rng.Uint32())
			}
			g.Set(k, v)
			m.Set(k, v)
		case r < 98:
			g.Delete(k)
			m.Delete(k)
		default:
			lo, hi := w.bounds()
			g.DeleteRange(lo, hi)
			m.DeleteRange(lo, hi)
		}
	}
	if g.Len() != m.Len() {
		w.t.Fatalf("a batch has %d changes, want %d", g.Len(), m.Len())
	}
	if w.rng.IntN(20) == 0 {
		g.Discard()
		m.Discard()
		return
	}
	sync := w.rng.IntN(8) == 0
	must(w.t, w.got.Commit(g, sync))
	must(w.t, w.want.Commit(m, sync))
}

// bounds draws a range for a deletion: an owner, a table, what starts like a
// row, a row with all its versions, or any two places that are not inside a row.
func (w *world) bounds() (lo, hi []byte) {
	switch w.rng.IntN(4) {
	case 0:
		lo = w.pick()[:tine.IDSize]
	case 1:
		lo = w.pick()[:tine.IDSize+1]
	case 2:
		lo, hi = w.edge(), w.edge()
		if bytes.Compare(lo, hi) > 0 {
			lo, hi = hi, lo
		}
		return lo, hi
	default:
		lo = w.edge()
	}
	return lo, record.PrefixEnd(lo)
}

// edge draws the prefix of a row, cut anywhere after the owner; in a table that no
// driver knows, after the table at the latest.
func (w *world) edge() []byte {
	p := w.pick()
	if p[tine.IDSize] == 0x7e {
		p = p[:tine.IDSize+1]
	}
	return p[:tine.IDSize+w.rng.IntN(len(p)-tine.IDSize+1)]
}

// cut draws the key of a row, cut anywhere after the owner, or longer by one.
func (w *world) cut() []byte {
	k := append(record.AppendEpoch(bytes.Clone(w.pick()), w.born()), 0)
	return k[:tine.IDSize+w.rng.IntN(len(k)-tine.IDSize)+1]
}

func (w *world) compare(g, m kv.Snapshot, points int) {
	w.t.Helper()
	for range points {
		p, limit := w.pick(), w.born()
		if w.rng.IntN(5) == 0 {
			p = w.prefix()
		}
		if w.rng.IntN(5) == 0 {
			limit = tine.Head
		}
		v1, e1, ok1, err1 := g.Newest(p, limit)
		v2, e2, ok2, err2 := m.Newest(p, limit)
		must(w.t, err1)
		must(w.t, err2)
		if ok1 != ok2 || e1 != e2 || !bytes.Equal(v1, v2) {
			w.t.Fatalf("newest %x at %d: %x born %d (%v), want %x born %d (%v)", p, limit, v1, e1, ok1, v2, e2, ok2)
		}
	}
	lo, hi := w.scanBounds()
	for _, born := range []*kv.Born{nil, {After: 0, UpTo: w.epoch}, w.interval()} {
		if a, b := rows(w.t, g, lo, hi, born), rows(w.t, m, lo, hi, born); a != b {
			w.t.Fatalf("scan [%x, %x) born %v differs:\n%s\nwant\n%s", lo, hi, born, a, b)
		}
		w.compareSeeks(g, m, lo, hi, born)
	}
}

func (w *world) interval() *kv.Born {
	a, b := w.born(), w.born()
	return &kv.Born{After: min(a, b) - 1, UpTo: max(a, b)}
}

// scanBounds need not be keys of rows, nor in order.
func (w *world) scanBounds() (lo, hi []byte) {
	if w.rng.IntN(3) == 0 {
		return nil, nil
	}
	lo, hi = w.cut(), w.cut()
	if w.rng.IntN(4) == 0 {
		hi = nil
	}
	return lo, hi
}

func (w *world) compareSeeks(g, m kv.Snapshot, lo, hi []byte, born *kv.Born) {
	a, err := g.Scan(lo, hi, born)
	must(w.t, err)
	defer a.Close()
	b, err := m.Scan(lo, hi, born)
	must(w.t, err)
	defer b.Close()
	for range 6 {
		k := w.cut()
		ok1, ok2 := a.Seek(k), b.Seek(k)
		for range 3 {
			at := fmt.Sprintf("seek %x in [%x, %x) born %v", k, lo, hi, born)
			if ok1 != ok2 {
				w.t.Fatalf("%s: %v, want %v", at, ok1, ok2)
			}
			if !ok1 {
				break
			}
			if !bytes.Equal(a.Key(), b.Key()) || !bytes.Equal(a.Value(), b.Value()) {
				w.t.Fatalf("%s: at %x, want %x", at, a.Key(), b.Key())
			}
			ok1, ok2 = a.Next(), b.Next()
		}
	}
	must(w.t, a.Err())
}
