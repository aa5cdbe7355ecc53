package volume_test

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// TestFailedDataHarmsItsDiskOnly: where the device does not take the data of one
// disk, no handle of it, nor of its forks, hears that anything became durable any
// more (P4), and no other disk notices. Opened again, the disk is as it was at its
// last durable state.
func TestFailedDataHarmsItsDiskOnly(t *testing.T) {
	fs := newSegmentFS()
	h := open(t, volume.Options{FS: fs})
	sessions := map[string]*volume.Session{}
	for _, name := range []string{"good", "bad"} {
		if _, err := h.CreateDisk(ctx, me, name); err != nil {
			t.Fatal(err)
		}
		sessions[name] = attach(t, h, name)
		write(t, sessions[name], "durable", bytes.Repeat([]byte(name), 50_000))
		if err := sessions[name].Sync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Fork(ctx, me, volume.Ref{Disk: "bad"}, []string{"fork"}, volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	sessions["fork"] = attach(t, h, "fork")
	write(t, sessions["bad"], "lost", bytes.Repeat([]byte("lost"), 100_000))
	bad := fs.last()
	fs.set(func(name string, _ bool) error {
		if name == bad {
			return syscall.EIO
		}
		return nil
	})
	// What had gone to the file before it broke is durable only if this says so.
	if err := sessions["bad"].Sync(ctx); tine.KindOf(err) != tine.KindIO && tine.KindOf(err) != tine.KindUnavailable {
		t.Fatalf("sync on a broken device: %v", err)
	}
	for round := range 3 {
		for _, name := range []string{"bad", "fork"} {
			if err := sessions[name].Sync(ctx); err == nil {
				t.Errorf("round %d: fsync on %s says that it is durable", round, name)
			}
		}
	}
	if _, _, _, err := sessions["bad"].Create(root, volume.Root, "more", 0o644, false); err == nil {
		t.Error("a failed disk takes a new file")
	} else if tine.HintOf(err) == "" {
		t.Errorf("no hint: %v", err)
	}
	if _, err := h.Checkpoint(ctx, me, "bad", "cp", "", volume.WaitDurable); err == nil {
		t.Error("a failed disk takes a checkpoint")
	}

	write(t, sessions["good"], "after", bytes.Repeat([]byte("after"), 100_000))
	if err := sessions["good"].Sync(ctx); err != nil {
		t.Errorf("the other disk: %v", err)
	}
	if _, err := h.Fork(ctx, me, volume.Ref{Disk: "good"}, []string{"good-fork"}, volume.WaitDurable); err != nil {
		t.Errorf("a fork of the other disk: %v", err)
	}
	if err := h.ReclaimIdle(ctx); err != nil {
		t.Errorf("background work: %v", err)
	}
	for _, s := range sessions {
		_ = s.Detach(ctx)
	}
	if err := h.Close(ctx); err == nil {
		t.Error("the end of a host with a failed disk is told as a success")
	}

	h = open(t, volume.Options{FS: fs.FS})
	defer h.Close(ctx)
	for _, want := range []struct{ disk, file, begin string }{
		{"good", "durable", "good"}, {"good", "after", "after"}, {"good-fork", "durable", "good"}, {"good-fork", "after", "after"},
		{"bad", "durable", "bad"}, {"fork", "durable", "bad"},
	} {
		s := attach(t, h, want.disk)
		if got := read(t, s, want.file); !strings.HasPrefix(string(got), want.begin) {
			t.Errorf("%s has %.20q in %s", want.disk, got, want.file)
		}
		_ = s.Detach(ctx)
	}
}
