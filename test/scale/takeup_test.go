package scale_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/dir"
	"tine.dev/tine/internal/fs/volume"
)

// far is a store each request to which takes a while longer, and which is counted.
type far struct {
	blob.Driver
	away            time.Duration
	requests, bytes *atomic.Int64
}

func (f far) wait(ctx context.Context) {
	f.requests.Add(1)
	t := time.NewTimer(f.away)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (f far) Get(ctx context.Context, key blob.Key, o blob.GetOptions) ([]byte, blob.Info, error) {
	f.wait(ctx)
	b, info, err := f.Driver.Get(ctx, key, o)
	f.bytes.Add(int64(len(b)))
	return b, info, err
}

func (f far) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	f.wait(ctx)
	return f.Driver.Stat(ctx, key)
}

func (f far) Put(ctx context.Context, key blob.Key, data []byte, h blob.Head) (blob.Info, error) {
	f.wait(ctx)
	return f.Driver.Put(ctx, key, data, h)
}

func (f far) List(ctx context.Context, o blob.ListOptions) (blob.Page, error) {
	f.wait(ctx)
	return f.Driver.List(ctx, o)
}

// TestTakeUp has a machine that knows nothing but a store, 20 ms away, take up a disk
// of many files, list a directory, and read the files of one part of the tree.
func TestTakeUp(t *testing.T) {
	n := size(*files, 20_000, 1_000_000)
	const subdirs, away = 100, 20 * time.Millisecond
	place := t.TempDir()
	driver := func() blob.Driver {
		d, err := dir.Open(place, dir.Options{})
		check(t, err)
		return d
	}
	a := hostWith(t, driver())
	_, err := a.CreateDiskIn(ctx, me, "work", volume.NewDisk{Store: "store"})
	check(t, err)
	s := attach(t, a, "work")
	noise := rand.NewChaCha8([32]byte{1})
	for i := range subdirs {
		name := fmt.Sprint("d", i)
		_, sub, err := s.Mkdir(root, volume.Root, name, 0o755)
		check(t, err)
		for f := range n / subdirs {
			content := make([]byte, 4<<10+f%8<<10) // 8 KiB or so
			_, _ = noise.Read(content)
			put(t, s, sub, fmt.Sprint("f", f), content)
		}
	}
	check(t, s.Detach(ctx))
	began := time.Now()
	check(t, a.SyncStore(ctx, me, "work"))
	t.Logf("the store had the rest of %d files %v after they were written", n, time.Since(began).Round(time.Millisecond))
	check(t, a.Close(ctx))
	total := treeBytes(t, place)

	var requests, bytes atomic.Int64
	b := hostWith(t, far{driver(), away, &requests, &bytes})
	requests.Store(0)
	bytes.Store(0)
	began = time.Now()
	_, err = b.TakeUp(ctx, "store", false)
	check(t, err)
	up := time.Since(began)
	s = attach(t, b, "work")
	_, sub, err := s.Lookup(volume.Root, "d7")
	check(t, err)
	names := 0
	eachName(t, s, sub, func(string) { names++ })
	listed := time.Since(began)
	share := float64(bytes.Load()) / float64(total)
	t.Logf("%d files, %d MB in the store, %v away: taken up after %v, %d names listed after %v; %d requests, %.2f %% of the bytes",
		n, total>>20, away, up.Round(time.Millisecond), names, listed.Round(time.Millisecond), requests.Load(), 100*share)
	if limit := time.Duration(bound(1, 3) * float64(time.Second)); listed > limit {
		t.Errorf("the first listing came after %v; at most %v", listed, limit)
	}
	if limit := bound(0.02, 0.2); share > limit {
		t.Errorf("%.2f %% of the store's bytes were read; at most %.0f %%", 100*share, 100*limit)
	}

	readCold(t, s, subdirs)
	check(t, s.Detach(ctx))
	check(t, b.Close(ctx))
}

// readCold reads the files of some directories, which nobody here has read before.
func readCold(t *testing.T, s *volume.Session, subdirs int) {
	t.Helper()
	began := time.Now()
	read := 0
	for i := 0; i < subdirs && read < 5000; i++ {
		_, sub, err := s.Lookup(volume.Root, fmt.Sprint("d", 20+i))
		check(t, err)
		var names []string
		eachName(t, s, sub, func(name string) { names = append(names, name) })
		for _, name := range names {
			at, node, err := s.Lookup(sub, name)
			check(t, err)
			f, err := s.Open(node)
			check(t, err)
			p := make([]byte, at.Size)
			if k, err := f.ReadAt(p, 0); k != len(p) || err != nil && err != io.EOF {
				t.Fatalf("%s: %d of %d bytes, %v", name, k, len(p), err)
			}
			check(t, f.Close())
			read++
		}
	}
	rate := float64(read) / time.Since(began).Seconds()
	t.Logf("%d of those files read cold, one after the other: %.0f a second", read, rate)
	if limit := bound(2000, 300); rate < limit {
		t.Errorf("%.0f files a second; at least %.0f", rate, limit)
	}
}

// hostWith opens a host on an empty data directory, with a store.
func hostWith(t *testing.T, d blob.Driver) *volume.Host {
	t.Helper()
	data, err := os.MkdirTemp(t.TempDir(), "data")
	check(t, err)
	h, err := volume.Open(ctx, volume.Options{Dir: data, Stores: []volume.Store{{Name: "store", Blob: blob.NewStore(d, blob.Options{})}}})
	check(t, err)
	return h
}
