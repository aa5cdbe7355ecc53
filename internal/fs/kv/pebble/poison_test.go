package pebble_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// failing fails, from the moment it is armed, the changes to files whose path
// contains part; the zero part is every file.
type failing struct {
	armed atomic.Bool
	part  string
	err   error
	hit   atomic.Int64
	limit atomic.Int64 // 0 is no limit
}

func (f *failing) MaybeError(op errorfs.Op) error {
	if !f.armed.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || !strings.Contains(op.Path, f.part) {
		return nil
	}
	if limit := f.limit.Load(); limit > 0 && f.hit.Load() >= limit {
		return nil
	}
	f.hit.Add(1)
	return f.err
}

func wrapErrors(fs vfs.FS, f *failing) vfs.FS { return errorfs.Wrap(fs, f) }

func (f *failing) String() string { return "failing " + f.part }

func prefix(name string) []byte {
	return record.AppendKey(nil, [tine.IDSize]byte{'o'}, record.DentryKey(1, name))
}

func key(name string, e tine.Epoch) []byte { return record.AppendEpoch(prefix(name), e) }

func put(s kv.Store, name string, e tine.Epoch, sync bool) error {
	b := s.NewBatch()
	b.Set(key(name, e), []byte("value"))
	return s.Commit(b, sync)
}

// within fails the test when f has not returned after a time that no healthy
// run comes near.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

func wantKind(t *testing.T, what string, err error, k tine.ErrorKind) {
	t.Helper()
	if err == nil || tine.KindOf(err) != k {
		t.Errorf("%s: %v, want the kind %v", what, err, k)
	}
}

// TestPoison breaks the device under the log, the manifest or the tables and
// checks that every call comes back, that nothing hangs, and that the
// directory can be opened again in the same process with all that was durable.
func TestPoison(t *testing.T) {
	for _, tc := range []struct {
		name, part string
		provoke    func(kv.Store) error
	}{
		{"log, synced commit", ".log", func(s kv.Store) error { return put(s, "b0", 1, true) }},
		{"log, until seen", ".log", func(s kv.Store) error {
			for {
				if err := put(s, "b0", 1, false); err != nil {
					return err
				}
			}
		}},
		{"manifest, flush", "MANIFEST", func(s kv.Store) error { return s.Flush() }},
		{"table, flush", ".sst", func(s kv.Store) error { return s.Flush() }},
		{"all, commits until stalled", "", func(s kv.Store) error {
			for {
				if err := put(s, strings.Repeat("b", 1000), 1, false); err != nil {
					return err
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { testPoison(t, tc.part, tc.provoke) })
	}
}

func testPoison(t *testing.T, part string, provoke func(kv.Store) error) {
	mem := vfs.NewMem()
	inj := &failing{part: part, err: syscall.EIO}
	struck := make(chan error, 2)
	s := open(t, pebble.Options{
		Dir: "db", FS: wrapErrors(mem, inj), MemTableBytes: 64 << 10,
		OnPoison: func(err error) { struck <- err },
	})
	if err := put(s, "a0", 1, true); err != nil {
		t.Fatal(err)
	}
	old := s.Snapshot()
	if _, _, ok, err := old.Newest(prefix("a0"), 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	c, err := old.Scan(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	inj.armed.Store(true)
	within(t, "the call that meets the fault", func() {
		if err := provoke(s); err == nil {
			t.Error("the fault is not seen")
		}
	})
	within(t, "OnPoison", func() { wantKind(t, "OnPoison", <-struck, tine.KindUnavailable) })
	within(t, "calls on a poisoned store", func() {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				wantKind(t, "commit", put(s, "c0", 1, true), tine.KindUnavailable)
				wantKind(t, "commit", put(s, "c0", 1, false), tine.KindUnavailable)
				wantKind(t, "flush", s.Flush(), tine.KindUnavailable)
				wantKind(t, "compact", s.Compact([]byte{0}, []byte{0xff}), tine.KindUnavailable)
				_, _, _, err := s.Snapshot().Newest(prefix("a0"), 1)
				wantKind(t, "newest", err, tine.KindUnavailable)
				_ = s.Metrics()
			})
		}
		all.Wait()
		if c.Next() || tine.KindOf(c.Err()) != tine.KindUnavailable {
			t.Errorf("an open scan goes on: %v", c.Err())
		}
		_ = c.Close()
		_ = old.Close()
		wantKind(t, "close", s.Close(), tine.KindUnavailable)
	})
	if inj.hit.Load() == 0 {
		t.Error("nothing was injected")
	}
	inj.armed.Store(false)
	again := open(t, pebble.Options{Dir: "db", FS: mem})
	n := again.Snapshot()
	if _, _, ok, err := n.Newest(prefix("a0"), 1); !ok || err != nil {
		t.Errorf("a durable row is lost: %v", err)
	}
	_ = n.Close()
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-struck:
		t.Errorf("OnPoison is called twice: %v", err)
	default:
	}
}

// TestPoisonInFlight has commits and readers under way when the device fails.
func TestPoisonInFlight(t *testing.T) {
	inj := &failing{part: "MANIFEST", err: syscall.EIO}
	s := open(t, pebble.Options{Dir: "db", FS: wrapErrors(vfs.NewMem(), inj), MemTableBytes: 64 << 10})
	within(t, "work on a store that fails", func() {
		var all sync.WaitGroup
		for w := range 6 {
			all.Go(func() {
				for i := tine.Epoch(1); ; i++ {
					if i == 50 {
						inj.armed.Store(true)
					}
					if err := put(s, strings.Repeat("x", 500), i, w%2 == 0); err != nil {
						wantKind(t, "commit", err, tine.KindUnavailable)
						return
					}
					n := s.Snapshot()
					if _, _, _, err := n.Newest(prefix("x"), i); err != nil {
						wantKind(t, "newest", err, tine.KindUnavailable)
					}
					_ = n.Close()
				}
			})
		}
		all.Wait()
		wantKind(t, "close", s.Close(), tine.KindUnavailable)
	})
}

// TestOpenFails covers what an operator meets at the start.
func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	s := open(t, pebble.Options{Dir: dir, ReserveBytes: -1})
	_, err := pebble.Open(pebble.Options{Dir: dir})
	wantKind(t, "a second open", err, tine.KindBusy)
	if tine.HintOf(err) == "" {
		t.Error("no hint")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	inj := &failing{err: syscall.EIO}
	inj.armed.Store(true)
	within(t, "open on a broken device", func() {
		_, err = pebble.Open(pebble.Options{Dir: "db", FS: wrapErrors(vfs.NewMem(), inj)})
	})
	if err == nil {
		t.Error("a broken device opens")
	}
	inj = &failing{part: "MANIFEST", err: syscall.EIO}
	inj.armed.Store(true)
	mem := vfs.NewMem()
	within(t, "open with a fatal error", func() {
		_, err = pebble.Open(pebble.Options{Dir: "db", FS: wrapErrors(mem, inj)})
	})
	if err == nil {
		t.Error("a broken manifest opens")
	}
	again, err := pebble.Open(pebble.Options{Dir: "db", FS: mem})
	if err != nil {
		t.Fatalf("open after a failed open: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestCorruptTable flips bits in a table: the read says so and the store
// lives on for the rows that are whole.
func TestCorruptTable(t *testing.T) {
	fs := vfs.NewMem()
	o := pebble.Options{Dir: "db", FS: fs, OnPoison: func(err error) { t.Errorf("poisoned: %v", err) }}
	s := open(t, o)
	for _, p := range []string{"a0", "m0"} {
		if err := put(s, p, 1, true); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	damaged := false
	for _, name := range names {
		if !damaged && strings.HasSuffix(name, ".sst") {
			f, err := fs.OpenReadWrite(fs.PathJoin("db", name), vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{0xde, 0xad, 0xbe, 0xef}, 8); err != nil {
				t.Fatal(err)
			}
			damaged = true
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !damaged {
		t.Fatal("no table to damage")
	}
	s = open(t, o)
	kinds := map[tine.ErrorKind]int{}
	n := s.Snapshot()
	for _, p := range []string{"a0", "m0"} {
		_, _, ok, err := n.Newest(prefix(p), 1)
		if err == nil && !ok {
			t.Errorf("row %s is silently gone", p)
		}
		if err != nil {
			kinds[tine.KindOf(err)]++
		}
	}
	if kinds[tine.KindCorrupt] == 0 || len(kinds) != 1 {
		t.Errorf("errors by kind: %v", kinds)
	}
	_ = n.Close()
	if err := put(s, "z0", 1, true); err != nil {
		t.Errorf("a commit after a corrupt read: %v", err)
	}
	if err := s.Close(); err != nil && !errors.Is(err, &tine.Error{Kind: tine.KindCorrupt}) {
		t.Error(err)
	}
}

// TestTooManyOpenFiles: a store that stops because no more files can be opened does
// not send anybody to the device.
func TestTooManyOpenFiles(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		inj := &failing{part: "MANIFEST", err: errno}
		struck := make(chan error, 1)
		s := open(t, pebble.Options{Dir: "db", FS: wrapErrors(vfs.NewMem(), inj), OnPoison: func(err error) { struck <- err }})
		if err := put(s, "a0", 1, true); err != nil {
			t.Fatal(err)
		}
		inj.armed.Store(true)
		within(t, "a flush", func() { _ = s.Flush() })
		within(t, "OnPoison", func() {
			if err := <-struck; !strings.Contains(tine.HintOf(err), "limit of open files") || strings.Contains(tine.HintOf(err), "device") {
				t.Errorf("%v: %v, %s", errno, err, tine.HintOf(err))
			}
		})
		within(t, "close", func() { _ = s.Close() })
	}
}
