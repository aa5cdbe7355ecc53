package object

import (
	"context"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/cache"
	"tine.dev/tine/internal/fs/segment"
)

// BenchmarkWrite puts a segment of 64 MiB into a store in memory: of noise,
// and of bytes that compress to about a third.
func BenchmarkWrite(b *testing.B) {
	const n = 64 << 20
	noise := wholeModel(n)
	text := wholeModel(n)
	for i := range text.data {
		if i>>6%3 != 0 {
			text.data[i] = text.data[i>>6%1000]
		}
	}
	for _, c := range []struct {
		name string
		m    *model
	}{{"noise", noise}, {"compressible", text}} {
		b.Run(c.name, func(b *testing.B) {
			s := newStore(b, mem.New(mem.Options{}), blob.Options{})
			b.SetBytes(n)
			b.ReportAllocs()
			for b.Loop() {
				info := write(b, s, c.m)
				b.StopTimer()
				b.ReportMetric(float64(info.Bytes)/float64(info.Payload), "stored/payload")
				if err := s.blobs.Delete(context.Background(), info.Key); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkReadAt reads frames that are in memory, on the device, and in the
// store only.
func BenchmarkReadAt(b *testing.B) {
	const n = 64 << 20
	for _, c := range []struct {
		name   string
		memory int64
		size   int64
		forget bool
	}{{"memory4KiB", 256 << 20, 4096, false}, {"memory128KiB", 256 << 20, 128 << 10, false}, {"device128KiB", -1, 128 << 10, false}, {"store128KiB", -1, 128 << 10, true}} {
		b.Run(c.name, func(b *testing.B) {
			o := cache.Options{Dir: b.TempDir(), MaxBytes: 1 << 30, MemoryBytes: c.memory}
			if c.forget {
				o.MaxBytes = 0
			}
			frames, err := cache.Open(o)
			if err != nil {
				b.Fatal(err)
			}
			defer frames.Close()
			s, err := New(Options{Blobs: blob.NewStore(mem.New(mem.Options{}), blob.Options{}), Cache: frames})
			if err != nil {
				b.Fatal(err)
			}
			m := wholeModel(n)
			for i := range m.data {
				if i/segment.BlockBytes%2 == 0 {
					m.data[i] = byte(i >> 6)
				}
			}
			write(b, s, m)
			r := open(b, s, m, 0)
			read(b, r, m, 0, n)
			p := make([]byte, c.size)
			b.SetBytes(c.size)
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				if err := r.ReadAt(context.Background(), p, i*7919*c.size%(n-c.size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
