package scale_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestIdleForks measures what a fork costs that nobody writes to: in the
// store, in memory, and in memory after a restart.
func TestIdleForks(t *testing.T) {
	const maxStore, maxMemory = 4 << 10, 16 << 10
	n := size(*forks, 1000, 10_000)
	dir := t.TempDir()
	h := openHost(t, dir)
	_, err := h.CreateDisk(ctx, me, "disk")
	check(t, err)
	s := attach(t, h, "disk")
	makeTree(t, s, 1000)
	check(t, s.Detach(ctx))
	check(t, h.Close(ctx))
	before := treeBytes(t, dir)
	h = openHost(t, dir)
	_, err = h.Disks(ctx, me, false)
	check(t, err)

	// The first fork finds something to freeze; the others do not.
	fork(t, h, "disk", "fork-first")
	heap := heapBytes()
	var one times
	for i := range n {
		one.timed(func() { fork(t, h, "disk", fmt.Sprintf("fork-%d", i)) })
	}
	check(t, h.SyncDisk(ctx, me, fmt.Sprintf("fork-%d", n-1)))
	memory := (heapBytes() - heap) / int64(n)
	var settle, ask times
	settle.timed(func() { check(t, h.ReclaimIdle(ctx)) })
	t.Logf("one fork: %v; the first hundred: %v; the last hundred: %v", one, one[:100], one[n-100:])
	t.Logf("background work after them: %v; %+v", settle, h.Stats())
	ask.timed(func() {
		ds, err := h.Disks(ctx, me, false)
		check(t, err)
		if len(ds) != n+2 {
			t.Errorf("%d disks, want %d", len(ds), n+2)
		}
	})
	var usage times
	usage.timed(func() {
		_, err := h.Usage(ctx, me, "disk")
		check(t, err)
	})
	t.Logf("listing them: %v; usage of the parent: %v", ask, usage)

	check(t, h.Close(ctx))
	h = nil
	empty := heapBytes()
	store := (treeBytes(t, dir) - before) / int64(n)
	start := time.Now()
	h = openHost(t, dir)
	_, err = h.Disks(ctx, me, false)
	check(t, err)
	loaded := time.Since(start)
	reloaded := (heapBytes() - empty) / int64(n)
	t.Logf("%d forks, each: %d bytes of store, %d of memory, %d of memory after a restart; opened in %v", n, store, memory, reloaded, loaded)
	if store > maxStore {
		t.Errorf("an idle fork costs %d bytes of store; at most %d", store, maxStore)
	}
	if m := max(memory, reloaded); m > maxMemory {
		t.Errorf("an idle fork costs %d bytes of memory; at most %d", m, maxMemory)
	}
	// Below some microseconds it is the garbage collector's.
	first, last := times(one[:100]).median(), times(one[n-100:]).median()
	if last > max(first*3/2, 100*time.Microsecond) {
		t.Errorf("the last forks took %v, the first %v", last, first)
	}
	runtime.KeepAlive(h)
	check(t, h.Close(ctx))
}
