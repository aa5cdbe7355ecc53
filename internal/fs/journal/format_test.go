package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

func text(c kv.Change) string { return fmt.Sprintf("%d %x %x", c.Kind, c.Key, c.Value) }

// randomList makes a list and says what is in it.
func randomList(rng *rand.Rand, n int) (l List, want []string) {
	key := []byte{1}
	for range n {
		key = slices.Concat(key[:rng.IntN(len(key)+1)], make([]byte, 1+rng.IntN(30)))
		for i := len(key) - 1; i >= 0 && rng.IntN(3) > 0; i-- {
			key[i] = byte(rng.Uint32())
		}
		c := kv.Change{Kind: kv.ChangeKind(1 + rng.IntN(3)), Key: key}
		if c.Kind != kv.ChangeDelete {
			c.Value = bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(200))
		}
		l.Add(c)
		want = append(want, text(c))
	}
	return l, want
}

func read(c *Codec, packed []byte) (got []string, err error) {
	err = c.Each(packed, func(c kv.Change) error { got = append(got, text(c)); return nil })
	return got, err
}

func TestListsComeBack(t *testing.T) {
	c := NewCodec()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l, want := randomList(rng, rng.IntN(100))
		got, err := read(c, c.Pack(nil, &l))
		if err != nil || !slices.Equal(got, want) || l.Len() != len(want) {
			t.Fatalf("seed %d: %v, %d changes of %d", seed, err, len(got), len(want))
		}
	}
}

// TestObjectsDamaged: every flipped bit and every shortened object is noticed,
// and what is whole comes back.
func TestObjectsDamaged(t *testing.T) {
	c := NewCodec()
	rng := rand.New(rand.NewPCG(7, 7))
	l, want := randomList(rng, 40)
	h := Header{Tree: tine.TreeID{1}, Server: tine.ServerID{2}, Number: 3, Term: 4, First: 5, Last: 9, Created: -1, Previous: 77}
	b := c.Encode(h, &l)
	back, packed, err := Decode(b)
	if err != nil || back != h {
		t.Fatalf("%+v, %v", back, err)
	}
	if got, err := read(c, packed); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%d changes, %v", len(got), err)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1 << rng.IntN(8)
		if _, _, err := Decode(bad); err == nil {
			t.Errorf("a flipped bit in byte %d is not noticed", i)
		}
		if _, _, err := Decode(b[:i]); !errors.Is(err, &tine.Error{Kind: tine.KindCorrupt}) {
			t.Errorf("%d of %d bytes: %v", i, len(b), err)
		}
	}
}

func TestNewerObjectsAreRefused(t *testing.T) {
	c := NewCodec()
	b := c.Encode(Header{Number: 1}, &List{})
	if len(b) != EmptyBytes {
		t.Errorf("an object without changes has %d bytes", len(b))
	}
	b[8] = 2
	sum := Checksum(b[:92])
	b[92], b[93], b[94], b[95] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	if _, _, err := Decode(b); !errors.Is(err, &tine.Error{Kind: tine.KindVersion}) {
		t.Errorf("format 2: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	c := NewCodec()
	l, _ := randomList(rand.New(rand.NewPCG(1, 1)), 5)
	f.Add(c.Encode(Header{Number: 1}, &l))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, packed, err := Decode(b); err == nil {
			_, _ = read(c, packed)
		}
	})
}

func FuzzEach(f *testing.F) {
	c := NewCodec()
	for _, n := range []int{0, 3, 100} {
		l, _ := randomList(rand.New(rand.NewPCG(2, uint64(n))), n)
		f.Add(c.Pack(nil, &l))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := read(c, b)
		if err == nil {
			return
		}
		if k := tine.KindOf(err); k != tine.KindCorrupt && k != tine.KindVersion {
			t.Errorf("after %d changes: %v", len(got), err)
		}
	})
}

func BenchmarkPack(b *testing.B) {
	c := NewCodec()
	for _, n := range []int{5, 100, 10000} {
		l, _ := randomList(rand.New(rand.NewPCG(3, 3)), n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(l.Size()))
			for b.Loop() {
				c.Pack(nil, &l)
			}
		})
	}
}
