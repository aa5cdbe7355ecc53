package rounds_test

import (
	"context"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/rounds"
)

// TestRounds: the first comes at once, others when they are asked for or due, and
// none after the end, for which the one under way is waited for.
func TestRounds(t *testing.T) {
	r := rounds.New()
	began, next := make(chan string), make(chan time.Duration)
	go r.Start(func() { began <- "first" }, func() time.Duration {
		began <- "round"
		return <-next
	})
	for _, want := range []string{"first", "round"} {
		if got := <-began; got != want {
			t.Fatalf("it begins with the %s, not the %s", got, want)
		}
	}
	next <- time.Hour
	r.Wake()
	<-began
	next <- time.Millisecond
	<-began // nobody has asked
	if stop, _ := r.Stopped(t.Context()); stop {
		t.Error("it is stopped")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if stop, err := r.Stopped(ctx); !stop || err == nil {
		t.Errorf("a context that is done: %v, %v", stop, err)
	}
	stopped := make(chan struct{})
	go func() { r.Stop(); close(stopped) }()
	<-r.Quit()
	select {
	case <-stopped:
		t.Error("it does not wait for the round under way")
	default:
	}
	next <- time.Hour
	<-stopped
	if stop, err := r.Stopped(t.Context()); !stop || err != nil {
		t.Errorf("after the end: %v, %v", stop, err)
	}
}

// TestMarks: a mark is taken once, and others stay.
func TestMarks(t *testing.T) {
	var m rounds.Marks
	m.Add(1 | 4)
	if !m.Take(1) || m.Take(1) || m.Take(2) || !m.Take(4) {
		t.Error("marks are not as they were set")
	}
}
