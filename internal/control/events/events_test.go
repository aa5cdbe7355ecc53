package events

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// clock is a hand that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func TestReaderFallsBehind(t *testing.T) {
	l := New(newClock().read)
	if b := l.After(0); len(b.Events) != 0 || b.Missed != 0 || b.Closed {
		t.Fatalf("of an empty log: %+v", b)
	}
	const n = capacity + 100
	for range n {
		l.Add(api.Event{Kind: "fork", Detail: strings.Repeat("x", 2*maxDetailBytes)})
	}
	if oldest, newest := l.Bounds(); oldest != 101 || newest != n {
		t.Errorf("holds %d to %d", oldest, newest)
	}
	b := l.After(0)
	if b.Missed != 100 || len(b.Events) != batchEvents || b.Events[0].Seq != 101 || len(b.Events[0].Detail) > maxDetailBytes+3 {
		t.Errorf("missed %d, got %d from %d", b.Missed, len(b.Events), b.Events[0].Seq)
	}
	seq, seen := uint64(100), uint64(0)
	for {
		b := l.After(seq)
		if b.Missed != 0 {
			t.Fatalf("missed %d after %d", b.Missed, seq)
		}
		if len(b.Events) == 0 {
			break
		}
		for _, e := range b.Events {
			if e.Seq != seq+1 {
				t.Fatalf("%d follows %d", e.Seq, seq)
			}
			seq, seen = e.Seq, seen+1
		}
	}
	if seen != capacity {
		t.Errorf("saw %d", seen)
	}
	if b := l.After(n + 5); len(b.Events) != 0 || b.Missed != 0 {
		t.Errorf("after the future: %+v", b)
	}
}

func TestFollowersAreWoken(t *testing.T) {
	l := New(newClock().read)
	got := make(chan api.Event)
	go func() {
		seq := uint64(0)
		for {
			b := l.After(seq)
			for _, e := range b.Events {
				got <- e
				seq = e.Seq
			}
			if b.Closed && len(b.Events) == 0 {
				close(got)
				return
			}
			<-b.Changed
		}
	}()
	for i := range 3 {
		l.Add(api.Event{Kind: "fork"})
		if e := <-got; e.Seq != uint64(i+1) {
			t.Fatalf("got %d", e.Seq)
		}
	}
	l.Close()
	if _, more := <-got; more {
		t.Error("an event after the end")
	}
	if New(newClock().read).Run() == l.Run() {
		t.Error("two runs have one name")
	}
}

func TestFaultsComeOnceAndAreCounted(t *testing.T) {
	c := newClock()
	l := New(c.read)
	f := NewFaults(l, func(tine.DiskID) string { return "work" })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	next := func(after uint64) api.Event {
		t.Helper()
		for {
			b := l.After(after)
			if len(b.Events) > 0 {
				return b.Events[0]
			}
			<-b.Changed
		}
	}
	disk := tine.NewID[tine.DiskID](c.read())
	f.Failed(disk, volume.OpWrite, tine.ErrNoSpace)
	if e := next(0); e.Kind != "full" || e.Disk != "work" || e.Detail != "write" || e.Error.Kind != "no_space" || e.Repeat != 0 {
		t.Errorf("%+v", e)
	}
	for range 1000 {
		f.Failed(disk, volume.OpWrite, tine.ErrNoSpace)
	}
	f.Failed(disk, volume.OpRead, tine.Errorf(tine.KindCorrupt, "block 7"))
	if e := next(1); e.Kind != "corrupt" || e.Detail != "read" {
		t.Errorf("another kind is held back: %+v", e)
	}
	c.pass(holdBack)
	f.Failed(disk, volume.OpWrite, tine.ErrNoSpace)
	if e := next(2); e.Kind != "full" || e.Repeat != 1000 {
		t.Errorf("%+v", e)
	}
	c.pass(-time.Hour) // a clock set back must not silence anything
	f.Failed(disk, volume.OpWrite, tine.ErrNoSpace)
	if e := next(3); e.Kind != "full" {
		t.Errorf("%+v", e)
	}
	cancel()
	<-ended
}

func TestErrorsOfTheLogAreEvents(t *testing.T) {
	l := New(newClock().read)
	f := NewFaults(l, nil)
	var out strings.Builder
	log := slog.New(f.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError + 4})))
	log.Warn("a warning")
	log.Error("a file operation failed", "op", "read", "error", tine.ErrNoSpace)
	log.With("tree", "t1").Error("background work failed", "error", tine.Errorf(tine.KindCorrupt, "a row of %d bytes", 3).WithHint("restore it"))
	log.Error("background work failed", "tree", "t2", "error", tine.ErrNoSpace)
	log.Error("a panic")
	b := l.After(0)
	if len(b.Events) != 2 {
		t.Fatalf("%+v", b.Events)
	}
	if e := b.Events[0]; e.Kind != "corrupt" || e.Detail != "background work failed (tree=t1)" || e.Error.Hint != "restore it" {
		t.Errorf("%+v", e)
	}
	if e := b.Events[1]; e.Kind != "error" || e.Detail != "a panic" {
		t.Errorf("%+v", e)
	}
	if out.Len() != 0 {
		t.Errorf("passed on below its level: %s", out.String())
	}
}
