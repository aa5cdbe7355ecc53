package segment

import (
	"testing"

	"tine.dev/tine/internal/fs/record"
)

// segmentBytes is about what an engine puts into one segment.
const segmentBytes = 64 << 20

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"4KiB", 4096}, {"128KiB", 128 << 10}, {"1MiB", 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b, Options{Dir: b.TempDir()})
			p := random(c.n, 1)
			w := create(b, s)
			b.SetBytes(int64(c.n))
			b.ReportAllocs()
			for b.Loop() {
				if w.End() > segmentBytes {
					b.StopTimer()
					w.Abandon()
					if err := s.Remove(w.ID(), 0); err != nil {
						b.Fatal(err)
					}
					w = create(b, s)
					b.StartTimer()
				}
				mustAppend(b, w, p)
			}
		})
	}
}

func BenchmarkReadAt(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int64
	}{{"4KiB", 4096}, {"128KiB", 128 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b, Options{Dir: b.TempDir()})
			w := create(b, s)
			for i := range segmentBytes >> 20 {
				mustAppend(b, w, random(1<<20, uint64(i)))
			}
			row := mustSeal(b, w)
			p := make([]byte, c.n)
			b.SetBytes(c.n)
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				h, err := s.Acquire(w.ID(), row)
				if err != nil {
					b.Fatal(err)
				}
				if err := h.ReadAt(p, i*7919*c.n%(row.End-c.n)); err != nil {
					b.Fatal(err)
				}
				h.Release()
			}
		})
	}
}

// BenchmarkHarden is the small fsync: 4 KiB that ride, and 4 KiB that flush.
func BenchmarkHarden(b *testing.B) {
	for _, c := range []struct {
		name    string
		tailMax int64
		n       int
	}{{"ride4KiB", 1 << 62, 4096}, {"flush16KiB", 0, BlockBytes}} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b, Options{Dir: b.TempDir()})
			w := create(b, s)
			p := random(c.n, 1)
			b.ReportAllocs()
			for b.Loop() {
				mustAppend(b, w, p)
				if _, err := w.Harden(w.End(), c.tailMax); err != nil {
					b.Fatal(err)
				}
			}
			w.Abandon()
			if _, err := s.Acquire(w.ID(), record.Segment{}); err == nil {
				b.Fatal("an abandoned segment is served")
			}
		})
	}
}
