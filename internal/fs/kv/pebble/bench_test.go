package pebble_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

const benchRows = 200_000

func benchPrefix(dst []byte, i int) []byte {
	dst = append(dst[:0], "owner-of-16-byte"...)
	return fmt.Appendf(dst, "\x21\x00\x00\x00\x00\x00\x00\x00\x01file-%08d\x00", i)
}

// benchStore holds rows of two versions each, in tables, compacted.
func benchStore(b *testing.B) kv.Store {
	b.Helper()
	s := open(b, pebble.Options{Dir: b.TempDir(), CacheBytes: 256 << 20})
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	var p []byte
	for i := 0; i < benchRows; {
		batch := s.NewBatch()
		for ; batch.Len() < 1000; i++ {
			p = benchPrefix(p, i)
			for e := tine.Epoch(1); e <= 2; e++ {
				batch.Set(record.AppendEpoch(p[:len(p):len(p)], e), make([]byte, 60))
			}
		}
		if err := s.Commit(batch, false); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := s.Compact([]byte{0}, []byte{0xff}); err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkNewest(b *testing.B) {
	s := benchStore(b)
	run := func(name string, each bool, prefix func(*rand.Rand, []byte) []byte, found bool) {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			n := s.Snapshot()
			var p []byte
			b.ReportAllocs()
			for b.Loop() {
				if each {
					_ = n.Close()
					n = s.Snapshot()
				}
				p = prefix(rng, p)
				if _, _, ok, err := n.Newest(p, 1); ok != found || err != nil {
					b.Fatal(ok, err)
				}
			}
			_ = n.Close()
		})
	}
	hit := func(r *rand.Rand, p []byte) []byte { return benchPrefix(p, r.IntN(benchRows)) }
	miss := func(r *rand.Rand, p []byte) []byte {
		p = benchPrefix(p, r.IntN(benchRows))
		p[len(p)-2] = 'x'
		return p
	}
	run("hit", false, hit, true)
	run("miss", false, miss, false)
	run("hit, own snapshot", true, hit, true)
	run("miss, own snapshot", true, miss, false)
}

func BenchmarkCommit(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			s := open(b, pebble.Options{Dir: b.TempDir()})
			var p []byte
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				batch := s.NewBatch()
				for range 10 {
					p = benchPrefix(p, i)
					batch.Set(record.AppendEpoch(p, 1), make([]byte, 60))
					i++
				}
				if err := s.Commit(batch, sync); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	s := benchStore(b)
	for _, born := range []*kv.Born{nil, {After: 1, UpTo: 2}, {After: 2, UpTo: 3}} {
		b.Run(fmt.Sprintf("born=%v", born), func(b *testing.B) {
			rows := 0
			for b.Loop() {
				n := s.Snapshot()
				c, err := n.Scan(nil, nil, born)
				if err != nil {
					b.Fatal(err)
				}
				for c.Next() {
					rows++
				}
				_ = c.Close()
				_ = n.Close()
			}
			if rows > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
			}
		})
	}
}
