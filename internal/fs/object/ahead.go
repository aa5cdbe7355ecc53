package object

import (
	"context"
	"sync"
)

const (
	// aheadFrames is how far a reader is read ahead for at most: 8 MiB.
	aheadFrames = 32
	// streams is how many readers are told apart that read one segment at a
	// time, each in order.
	streams = 8
	// trusted is the score from which a stream is read ahead for.
	trusted = 2
)

// ahead tells who reads in order. Positions are those of frames in the index.
type ahead struct {
	mu      sync.Mutex // a leaf
	clock   uint64
	streams [streams]stream
}

// stream is one reader that may read in order.
type stream struct {
	used  uint64 // ahead.clock of its last read; 0: none yet
	next  int64  // logical offset after its last read
	frame int    // the last one that it has reached
	score int    // how sure it is
	depth int    // frames to read ahead
	upto  int    // frames before this one were asked for
}

// note takes in a read of frames from to to-1, which are n bytes at off, of an
// object of so many frames, and returns which frames to get ahead.
//
// A read that goes on where a stream has stopped, to the byte, makes it
// trusted. The kernel sends reads side by side and they come in any order, so
// one that goes on to the next frame counts too, but it takes two. Each frame that a
// trusted stream reaches doubles its depth; more is asked for when half of it
// is used up, so that requests are large.
func (a *ahead) note(from, to int, off, n int64, frames int) (first, stop int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock++
	s := a.find(from, to, off)
	last := to - 1
	reached := last > s.frame
	switch {
	case s.used == 0:
		s.frame, s.upto = last, to
	case s.next == off:
		s.score = trusted
	case reached:
		s.score++
	}
	s.used = a.clock
	s.next = max(s.next, off+n)
	s.frame = max(s.frame, last)
	if s.score < trusted {
		return 0, 0
	}
	if reached || s.depth == 0 {
		s.depth = min(max(1, 2*s.depth), aheadFrames)
	}
	first = max(s.upto, s.frame+1)
	stop = min(s.frame+1+s.depth, frames)
	if first-s.frame-1 > s.depth/2 || first >= stop {
		return 0, 0
	}
	s.upto = stop
	return first, stop
}

// find returns the stream that the read belongs to, or a new one in place of
// the one that has not read for longest.
func (a *ahead) find(from, to int, off int64) *stream {
	oldest := &a.streams[0]
	var near *stream
	for i := range a.streams {
		s := &a.streams[i]
		if s.used < oldest.used {
			oldest = s
		}
		if s.used == 0 {
			continue
		}
		if s.next == off {
			return s
		}
		if from == s.frame || from == s.frame+1 {
			near = s
		}
	}
	if near != nil {
		return near
	}
	*oldest = stream{}
	return oldest
}

// readAhead gets in the background what the reader will want next.
func (r *Reader) readAhead(from, to int, off, n int64) {
	first, stop := r.ahead.note(from, to, off, n, len(r.index.frames))
	if first == stop {
		return
	}
	for _, sp := range r.spans(first, stop) {
		if sp.there {
			continue
		}
		for i := sp.from; i < sp.to; i++ {
			r.s.cache.Prefetch(r.cacheKey(i), func(ctx context.Context) ([]byte, error) { return sp.frame(ctx, i) })
		}
	}
}
