package volume_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

func ptr[T any](v T) *T { return &v }

func setQuota(t *testing.T, h *volume.Host, disk string, bytes, inodes int64) {
	t.Helper()
	if _, err := h.SetQuota(ctx, me, disk, &bytes, &inodes); err != nil {
		t.Fatal(err)
	}
}

func statfs(t *testing.T, s *volume.Session) volume.FSStat {
	t.Helper()
	st, err := s.StatFS()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestQuotaSurvives: a quota is the disk's, through restarts, rollbacks and
// promotes, and a fork starts with its parent's.
func TestQuotaSurvives(t *testing.T) {
	fs := vfs.NewMem()
	h := open(t, volume.Options{FS: fs})
	want := volume.Quota{Bytes: 1 << 30, Inodes: 50}
	check := func(what, disk string, want volume.Quota) {
		t.Helper()
		i, err := h.Disk(ctx, me, disk)
		if err != nil || i.Quota != want {
			t.Errorf("%s: %+v, %v, want %+v", what, i.Quota, err, want)
		}
	}
	if _, err := h.CreateDiskWithin(ctx, me, "a", want); err != nil {
		t.Fatal(err)
	}
	if _, err := h.CreateDiskWithin(ctx, me, "b", volume.Quota{Bytes: -1}); tine.KindOf(err) != tine.KindInvalid {
		t.Errorf("a negative quota: %v", err)
	}
	check("created", "a", want)
	if err := h.Close(ctx); err != nil {
		t.Fatal(err)
	}
	h = open(t, volume.Options{FS: fs})
	defer h.Close(ctx)
	check("opened again", "a", want)
	if _, err := h.Checkpoint(ctx, me, "a", "cp", "", volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Fork(ctx, me, volume.Ref{Disk: "a", Checkpoint: "cp"}, []string{"f"}, volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	check("a fork", "f", want)
	setQuota(t, h, "f", 0, 3)
	if _, err := h.SetQuota(ctx, me, "a", ptr[int64](7), nil); err != nil {
		t.Fatal(err)
	}
	want.Bytes = 7
	check("one bound changed", "a", want)
	if _, err := h.Rollback(ctx, me, "a", "cp"); err != nil {
		t.Fatal(err)
	}
	check("rolled back", "a", want)
	if _, err := h.Promote(ctx, me, "f", "a", true); err != nil {
		t.Fatal(err)
	}
	check("promoted onto", "a", want)
	s := attach(t, h, "a")
	defer s.Detach(ctx)
	if f, _, _, err := s.Create(root, volume.Root, "x", 0o600, true); err != nil {
		t.Error(err)
	} else if _, err := f.WriteAt(root, make([]byte, 8), 0); tine.KindOf(err) != tine.KindQuota || tine.HintOf(err) == "" {
		t.Errorf("8 bytes into 7: %v", err)
	}
	es, err := h.Log(ctx, me, "a")
	if err != nil || es[len(es)-3].Op != "quota" || es[len(es)-3].Detail != "7 bytes, 50 inodes" {
		t.Errorf("%+v, %v", es, err)
	}
}

// TestQuotaIsExact does random operations on a disk with a quota, each first on
// a fork without one. An operation is refused exactly if it makes the disk
// larger than its quota, and then changes nothing.
func TestQuotaIsExact(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	h := open(t, volume.Options{FS: vfs.NewMem()})
	defer h.Close(ctx)
	limit := volume.Quota{Bytes: 3 << 20, Inodes: 8}
	if _, err := h.CreateDiskWithin(ctx, me, "d", limit); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	refused, done := 0, 0
	for i := range 400 {
		op, what := randomOp(r)
		if r.IntN(20) == 0 {
			limit = volume.Quota{Bytes: r.Int64N(4 << 20), Inodes: r.Int64N(10)}
			setQuota(t, h, "d", limit.Bytes, limit.Inodes)
		}
		fork := fmt.Sprintf("try-%d", i)
		if _, err := h.Fork(ctx, me, volume.Ref{Disk: "d"}, []string{fork}, volume.WaitRunnable); err != nil {
			t.Fatal(err)
		}
		setQuota(t, h, fork, 0, 0)
		free := attach(t, h, fork)
		before := statfs(t, s)
		freeErr := op(free)
		after := statfs(t, free)
		over := limit.Bytes > 0 && after.Bytes > before.Bytes && after.Bytes > limit.Bytes ||
			limit.Inodes > 0 && after.Inodes > before.Inodes && after.Inodes > limit.Inodes
		err := op(s)
		got := statfs(t, s)
		switch {
		case over && (tine.KindOf(err) != tine.KindQuota || got.Bytes != before.Bytes || got.Inodes != before.Inodes):
			t.Fatalf("step %d: %s with %+v of %+v: %v, then %+v", i, what, before, limit, err, got)
		case !over && (tine.KindOf(err) != tine.KindOf(freeErr) || got.Bytes != after.Bytes || got.Inodes != after.Inodes):
			t.Fatalf("step %d: %s with %+v of %+v: %v, then %+v; without a quota %v, %+v", i, what, before, limit, err, got, freeErr, after)
		case over:
			refused++
		case err == nil:
			done++
		}
		if err := free.Detach(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := h.RemoveDisk(ctx, me, fork, true); err != nil {
			t.Fatal(err)
		}
	}
	if refused < 10 || done < 10 {
		t.Errorf("%d operations refused, %d done: this shows nothing", refused, done)
	}
}

// randomOp returns an operation that does the same wherever it is run.
func randomOp(r *rand.Rand) (op func(*volume.Session) error, what string) {
	name, other := fmt.Sprintf("f%d", r.IntN(8)), fmt.Sprintf("f%d", r.IntN(8))
	off, length, from := r.Int64N(2<<20), 1+r.Int64N(1<<20), r.Int64N(1<<20)
	if r.IntN(3) == 0 {
		off, length = r.Int64N(4000), 1+r.Int64N(500)
	}
	at := fmt.Sprintf(" %s %d+%d", name, off, length)
	switch r.IntN(10) {
	case 0, 1:
		return func(s *volume.Session) error {
			f, _, _, err := s.Create(root, volume.Root, name, 0o600, true)
			if err != nil {
				return err
			}
			return f.Close()
		}, "create " + name
	case 2:
		return func(s *volume.Session) error { return s.Unlink(root, volume.Root, name) }, "unlink " + name
	case 3:
		return func(s *volume.Session) error {
			return s.Rename(root, volume.Root, name, volume.Root, other, 1|4)
		}, "rename with a whiteout " + name + " to " + other
	case 4:
		return onFile(name, func(f *volume.File) error { return f.Truncate(root, off) }), "truncate" + at
	case 5:
		return onFile(name, func(f *volume.File) error { return f.Allocate(3, off, length) }), "punch" + at
	case 6, 7:
		return func(s *volume.Session) error {
			return onFile(other, func(src *volume.File) error {
				return onFile(name, func(dst *volume.File) error {
					_, err := src.CopyTo(dst, from, off, length)
					return err
				})(s)
			})(s)
		}, fmt.Sprintf("copy %d of %s to%s", from, other, at)
	}
	return onFile(name, func(f *volume.File) error {
		_, err := f.WriteAt(root, make([]byte, length), off)
		return err
	}), "write" + at
}

func onFile(name string, fn func(*volume.File) error) func(*volume.Session) error {
	return func(s *volume.Session) error {
		_, n, err := s.Lookup(volume.Root, name)
		if err != nil {
			return err
		}
		f, err := s.Open(n)
		if err != nil {
			return err
		}
		return errors.Join(fn(f), f.Close())
	}
}

// TestQuotaLoweredBelowUse: what is there can be read, overwritten, truncated
// and removed, and nothing can be added until enough is gone.
func TestQuotaLoweredBelowUse(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem()})
	defer h.Close(ctx)
	if _, err := h.CreateDisk(ctx, me, "d"); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	write(t, s, "large", make([]byte, 3<<20))
	write(t, s, "small", make([]byte, 100))
	setQuota(t, h, "d", 1<<20, 2)
	if st := statfs(t, s); st.LimitBytes != 1<<20 || st.LimitInodes != 2 || st.Bytes != 3<<20+100 || st.Inodes != 3 {
		t.Errorf("%+v", st)
	}
	full := func(what string, err error) {
		t.Helper()
		if tine.KindOf(err) != tine.KindQuota {
			t.Errorf("%s: %v", what, err)
		}
	}
	fine := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	on := func(name string, fn func(*volume.File) error) error { return onFile(name, fn)(s) }
	put := func(off, n int64) func(*volume.File) error {
		return func(f *volume.File) error { _, err := f.WriteAt(root, make([]byte, n), off); return err }
	}
	fine("overwrite all", on("large", put(0, 3<<20)))
	fine("overwrite across chunks", on("large", put(1<<20-5, 10)))
	fine("overwrite in a small file", on("small", put(50, 50)))
	fine("copy over what is there", on("large", func(f *volume.File) error {
		n, err := f.CopyTo(f, 0, 2<<20, 1<<20)
		if err == nil && n != 1<<20 {
			err = fmt.Errorf("only %d bytes were copied", n)
		}
		return err
	}))
	full("copy past the end", on("large", func(f *volume.File) error { _, err := f.CopyTo(f, 0, 2<<20+1, 1<<20); return err }))
	full("one byte past the end", on("large", put(3<<20, 1)))
	full("across the end", on("large", put(3<<20-5, 6)))
	full("one byte more of a small file", on("small", put(100, 1)))
	full("allocate", on("large", func(f *volume.File) error { return f.Allocate(0, 3<<20, 1) }))
	fine("allocate what is there", on("large", func(f *volume.File) error { return f.Allocate(0, 0, 3<<20) }))
	fine("a larger size", on("large", func(f *volume.File) error { return f.Truncate(root, 9<<20) }))
	_, _, _, err := s.Create(root, volume.Root, "x", 0o600, true)
	full("a new file", err)
	_, _, _, err = s.Tmpfile(root, volume.Root, 0o600)
	full("a new file without a name", err)
	_, _, err = s.Symlink(root, volume.Root, "l", "t")
	full("a symbolic link", err)
	_, small, err := s.Lookup(volume.Root, "small")
	fine("look-up", err)
	_, err = s.Link(root, small, volume.Root, "hard")
	fine("another name", err)
	fine("rename", s.Rename(root, volume.Root, "hard", volume.Root, "small", 0))
	fine("punch", on("large", func(f *volume.File) error { return f.Allocate(3, 0, 1<<20) }))
	full("fill the hole", on("large", put(0, 1<<20)))
	fine("truncate", on("large", func(f *volume.File) error { return f.Truncate(root, 2<<20) }))
	full("still full", on("large", put(0, 1)))
	fine("unlink", s.Unlink(root, volume.Root, "large"))
	write(t, s, "small", make([]byte, 1<<20))
	full("full again", on("small", put(1<<20, 1)))
}

// TestQuotaCountsUnlinked: an open file without a name counts, as df shows,
// until it is closed.
func TestQuotaCountsUnlinked(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem()})
	defer h.Close(ctx)
	if _, err := h.CreateDiskWithin(ctx, me, "d", volume.Quota{Bytes: 1 << 20, Inodes: 3}); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	named, _, _, err := s.Create(root, volume.Root, "f", 0o600, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := named.WriteAt(root, make([]byte, 600<<10), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Unlink(root, volume.Root, "f"); err != nil {
		t.Fatal(err)
	}
	tmp, _, n, err := s.Tmpfile(root, volume.Root, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmp.WriteAt(root, make([]byte, 500<<10), 0); tine.KindOf(err) != tine.KindQuota {
		t.Errorf("with an unlinked file of 600 KiB: %v", err)
	}
	if _, _, _, err := s.Create(root, volume.Root, "g", 0o600, true); tine.KindOf(err) != tine.KindQuota {
		t.Errorf("a fourth inode: %v", err)
	}
	if err := named.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tmp.WriteAt(root, make([]byte, 500<<10), 0); err != nil {
		t.Errorf("after the close: %v", err)
	}
	if _, err := s.Link(root, n, volume.Root, "named"); err != nil {
		t.Error(err)
	}
	if st := statfs(t, s); st.Bytes != 500<<10 || st.Inodes != 2 {
		t.Errorf("%+v", st)
	}
	if err := tmp.Close(); err != nil {
		t.Fatal(err)
	}
	if st := statfs(t, s); st.Bytes != 500<<10 || st.Inodes != 2 {
		t.Errorf("after the last close: %+v", st)
	}
}

// TestQuotaBesideWriters: many writers at once fill a disk to its quota, never
// past it, and to less than one request below it.
func TestQuotaBesideWriters(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem()})
	defer h.Close(ctx)
	const limit, request, writers = 8<<20 + 12345, 48 << 10, 8
	if _, err := h.CreateDiskWithin(ctx, me, "d", volume.Quota{Bytes: limit, Inodes: 100}); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	var wg sync.WaitGroup
	var written, files atomic.Int64
	for w := range writers {
		write(t, s, fmt.Sprintf("%d-0", w), nil)
	}
	files.Add(writers)
	for w := range writers {
		wg.Go(func() {
			for i := 1; ; i++ {
				f, _, _, err := s.Create(root, volume.Root, fmt.Sprintf("%d-%d", w, i), 0o600, true)
				if err == nil {
					files.Add(1)
					err = f.Close()
				}
				if tine.KindOf(err) == tine.KindQuota {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			for i := 0; ; i++ {
				off, n, err := int64(i)*request, 0, error(nil)
				err = onFile(fmt.Sprintf("%d-0", w), func(f *volume.File) error {
					n, err = f.WriteAt(root, make([]byte, request), off)
					return err
				})(s)
				written.Add(int64(n))
				if tine.KindOf(err) == tine.KindQuota {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	st := statfs(t, s)
	if st.Bytes != written.Load() || st.Bytes > limit || st.Bytes <= limit-request {
		t.Errorf("%d bytes of %d, %d written", st.Bytes, limit, written.Load())
	}
	if st.Inodes != 100 || files.Load() != 99 {
		t.Errorf("%d inodes of 100, %d files made", st.Inodes, files.Load())
	}
}

// TestRefusedWritesLeaveNothing: a program that keeps trying does not fill the
// data directory with what it was not allowed to write.
func TestRefusedWritesLeaveNothing(t *testing.T) {
	h := open(t, volume.Options{FS: vfs.NewMem()})
	defer h.Close(ctx)
	if _, err := h.CreateDiskWithin(ctx, me, "d", volume.Quota{Bytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	s := attach(t, h, "d")
	defer s.Detach(ctx)
	write(t, s, "f", make([]byte, 1<<20))
	if err := h.SyncDisk(ctx, me, "d"); err != nil {
		t.Fatal(err)
	}
	before := h.Stats().SegmentBytes
	for range 50 {
		err := onFile("f", func(f *volume.File) error { _, err := f.WriteAt(root, make([]byte, 1<<20), 1<<20); return err })(s)
		if tine.KindOf(err) != tine.KindQuota {
			t.Fatal(err)
		}
	}
	if err := h.SyncDisk(ctx, me, "d"); err != nil {
		t.Fatal(err)
	}
	if after := h.Stats().SegmentBytes; after > before+64<<10 {
		t.Errorf("segments grew from %d to %d bytes", before, after)
	}
}
