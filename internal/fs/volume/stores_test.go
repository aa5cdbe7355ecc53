package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// machine is a host on a device of its own that knows a store.
func machine(t *testing.T, b *blob.Store) *volume.Host {
	t.Helper()
	return open(t, volume.Options{FS: vfs.NewMem(), Stores: []volume.Store{{Name: "bucket", Blob: b}}})
}

// TestAnotherMachineTakesUp: what has reached the store is there on a machine
// that has nothing but the store; the one that had the disk is told.
func TestAnotherMachineTakesUp(t *testing.T) {
	now := blobtest.NewClock(time.Now())
	b := blob.NewStore(mem.New(mem.Options{Now: now.Now}), blob.Options{})
	a := machine(t, b)
	if _, err := a.CreateDiskIn(ctx, me, "work", volume.NewDisk{Store: "bucket"}); err != nil {
		t.Fatal(err)
	}
	s := attach(t, a, "work")
	want := map[string][]byte{}
	for i := range 50 {
		name := fmt.Sprint("f", i)
		want[name] = bytes.Repeat([]byte{byte(i)}, i*i*10)
		write(t, s, name, want[name])
	}
	large := make([]byte, 9<<20)
	rand.NewChaCha8([32]byte{1}).Read(large)
	write(t, s, "large", large)
	want["large"] = large
	if _, err := a.Checkpoint(ctx, me, "work", "cp", "", volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	write(t, s, "later", []byte("later"))
	if err := s.Unlink(root, volume.Root, "f7"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Fork(ctx, me, volume.Ref{Disk: "work"}, []string{"fork"}, volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	if err := a.SyncStore(ctx, me, "work"); err != nil {
		t.Fatal(err)
	}
	write(t, s, "never shipped", nil) // unless the shipper is quick

	now.Pass(time.Hour) // the first machine is not heard of any more
	c := machine(t, b)
	if took, err := c.TakeUp(ctx, "bucket", false); err != nil || len(took) != 1 || took[0].Err != nil || !slices.Equal(took[0].Disks, []string{"fork", "work"}) {
		t.Fatal(took, err)
	}
	for ref, missing := range map[string]string{"work@cp": "later", "work": "f7", "fork": "f7"} {
		r := attach(t, c, ref)
		for name, p := range want {
			if name != missing && !bytes.Equal(read(t, r, name), p) {
				t.Errorf("%s of %s is not as it was", name, ref)
			}
		}
		if _, _, err := r.Lookup(volume.Root, missing); !errors.Is(err, tine.ErrNotFound) {
			t.Errorf("%s in %s: %v", missing, ref, err)
		}
		if err := r.Detach(ctx); err != nil {
			t.Error(err)
		}
	}
	r := attach(t, c, "work")
	write(t, r, "new", []byte("of the new machine"))
	if err := c.SyncStore(ctx, me, "work"); err != nil {
		t.Error(err)
	}

	// It may have learnt already, by what it wrote last.
	if f, _, _, err := s.Create(root, volume.Root, "zombie", 0o644, false); err == nil {
		_ = f.Close()
	}
	if err := a.SyncStore(ctx, me, "work"); !errors.Is(err, tine.ErrStale) {
		t.Errorf("a disk that was taken over still reaches the store: %v", err)
	}
	if _, _, _, err := s.Create(root, volume.Root, "more", 0o644, false); tine.KindOf(err) != tine.KindUnavailable {
		t.Errorf("a disk that was taken over still takes writes: %v", err)
	}
	_ = s.Detach(context.Background())
	_ = a.Close(ctx)
	if err := r.Detach(ctx); err != nil {
		t.Error(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}
