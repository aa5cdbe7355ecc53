package object

import (
	"sync/atomic"
	"testing"
)

// TestNoReadAheadAtRandom has a reader that never goes on to the next frame.
func TestNoReadAheadAtRandom(t *testing.T) {
	s, w := watched(t)
	const frames = 120
	m := wholeModel(frames * FrameBytes)
	write(t, s, m)
	r := open(t, s, m, 0)
	w.taken()
	random := newRand(t)
	seen := map[int64]bool{}
	for range 40 {
		i := random.Int64N(frames/3) * 3
		seen[i] = true
		read(t, r, m, i*FrameBytes+random.Int64N(FrameBytes/4)*4, 3)
	}
	if got := w.taken(); total(got) != int64(len(seen))*FrameBytes {
		t.Fatalf("%d frames were read at random, %d bytes asked for", len(seen), total(got))
	}
}

// late is a store whose answers come when the test says so.
type late struct {
	asked  chan request
	turn   chan struct{}
	ahead  int64 // frames asked for so far
	flying int   // requests without an answer
}

func makeLate(w *watch) *late {
	l := &late{asked: make(chan request), turn: make(chan struct{})}
	w.mu.Lock()
	w.gate = func(q request) {
		l.asked <- q
		<-l.turn
	}
	w.mu.Unlock()
	return l
}

// collect waits until so many requests have come.
func (l *late) collect(requests int) {
	for range requests {
		q := <-l.asked
		l.ahead = max(l.ahead, q.frame())
		l.flying++
	}
}

func (l *late) answer() {
	for ; l.flying > 0; l.flying-- {
		l.turn <- struct{}{}
	}
}

// frame is the one after the last that is asked for, of those of wholeModel.
func (q request) frame() int64 { return (q.off + q.n - headerBytes) / FrameBytes }

// pump answers at once until stop, and returns how far ahead of frame at was
// asked at most.
func (l *late) pump(at *atomic.Int64, stop <-chan struct{}) (most int64) {
	for {
		select {
		case q := <-l.asked:
			most = max(most, q.frame()-at.Load())
		case l.turn <- struct{}{}:
		case <-stop:
			return most
		}
	}
}

// TestReadAhead has a reader in order, by half frames.
func TestReadAhead(t *testing.T) {
	s, w := watched(t)
	const frames = 120
	m := wholeModel(frames * FrameBytes)
	write(t, s, m)
	r := open(t, s, m, 0)
	w.taken()
	l := makeLate(w)
	half := func(i, part int64) { read(t, r, m, i*FrameBytes+part*FrameBytes/2, FrameBytes/2) }
	first := make(chan struct{})
	go func() {
		half(0, 0)
		close(first)
	}()
	l.collect(1)
	l.answer()
	<-first
	half(0, 1)
	// What is asked for once the reader has reached frame i, and in how many
	// requests: depth 1, 2, 4, 8, 16, 32, and then half of it at a time.
	want := []struct{ upto, requests int }{{2, 1}, {4, 1}, {7, 1}, {12, 1}, {21, 2}, {38, 3}}
	for i, c := range want {
		if i > 0 {
			half(int64(i), 0)
		}
		l.collect(c.requests)
		if l.ahead != int64(c.upto) || l.flying != c.requests {
			t.Fatalf("at frame %d: asked for all before frame %d in %d requests, want %d in %d", i, l.ahead, l.flying, c.upto, c.requests)
		}
		l.answer()
		half(int64(i), 1)
	}
	var at atomic.Int64
	stop, most := make(chan struct{}), make(chan int64, 1)
	go func() { most <- l.pump(&at, stop) }()
	for i := int64(len(want)); i < frames; i++ {
		at.Store(i)
		half(i, 0)
		half(i, 1)
	}
	close(stop)
	if n := <-most; n > 1+aheadFrames || n < aheadFrames/2 {
		t.Fatalf("%d frames ahead", n)
	}
	if got := w.taken(); total(got) != frames*FrameBytes {
		t.Fatalf("%d bytes asked for in all", total(got))
	}
}
