package events

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"tine.dev/tine/api"
)

const (
	// capacity is how many events are held.
	capacity = 4096
	// maxDetailBytes bounds what one event holds.
	maxDetailBytes = 1024
)

// Log is the ring of the last events of one run of the server. It is safe for
// concurrent use; its lock is a leaf.
type Log struct {
	run   string
	clock func() time.Time

	mu      sync.Mutex
	ring    []api.Event // the event with number n is at n % capacity
	newest  uint64      // 0 before the first
	changed chan struct{}
	closed  bool
}

// New returns an empty log whose events get the clock's time.
func New(clock func() time.Time) *Log {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // crypto/rand never fails
	return &Log{run: hex.EncodeToString(b), clock: clock, ring: make([]api.Event, capacity), changed: make(chan struct{})}
}

// Run names this run of the server.
func (l *Log) Run() string { return l.run }

// Add appends an event; its number and, if it has none, its time are set here.
func (l *Log) Add(e api.Event) {
	e.Detail = short(e.Detail)
	if e.Error != nil {
		short := api.Error{Kind: e.Error.Kind, Message: short(e.Error.Message), Hint: short(e.Error.Hint)}
		e.Error = &short
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Time.IsZero() {
		e.Time = l.clock()
	}
	l.newest++
	e.Seq = l.newest
	l.ring[e.Seq%capacity] = e
	close(l.changed)
	l.changed = make(chan struct{})
}

func short(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxDetailBytes {
		s = strings.ToValidUTF8(s[:maxDetailBytes], "") + "..."
	}
	return s
}

// Close tells those who follow that no more will come.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// Bounds returns the numbers of the oldest and the newest event that are
// held; of none, 1 and 0.
func (l *Log) Bounds() (oldest, newest uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.oldest(), l.newest
}

func (l *Log) oldest() uint64 {
	if l.newest < capacity {
		return 1
	}
	return l.newest - capacity + 1
}

// Batch is what a reader gets at once.
type Batch struct {
	Events  []api.Event
	Missed  uint64          // so many after the reader's place were dropped already
	Changed <-chan struct{} // closed when there may be more
	Closed  bool            // no more will come
}

// batchEvents is how many events a reader gets at most at once.
const batchEvents = 256

// After returns the events that follow the number.
func (l *Log) After(seq uint64) Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := Batch{Changed: l.changed, Closed: l.closed}
	first := l.oldest()
	if seq+1 < first {
		b.Missed = first - seq - 1
	} else {
		first = seq + 1
	}
	for n := first; n <= l.newest && len(b.Events) < batchEvents; n++ {
		b.Events = append(b.Events, l.ring[n%capacity])
	}
	return b
}
