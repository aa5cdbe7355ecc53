package rarely_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/rarely"
)

// TestAStateIsToldRarely: once at its beginning, then once a minute with its
// number, and once at its end; a state that never was has no end.
func TestAStateIsToldRarely(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	lines := func() int { return strings.Count(out.String(), "\n") }
	var s rarely.Teller
	s.Over(log, "room again")
	if lines() != 0 {
		t.Fatalf("it ends before it has begun: %s", out.String())
	}
	now := time.Now()
	for range 100 { // 50 s
		s.Met(log, now, "full", "device", "x")
		now = now.Add(500 * time.Millisecond)
	}
	if lines() != 1 {
		t.Fatalf("within a minute: %s", out.String())
	}
	s.Met(log, now.Add(20*time.Second), "full", "device", "x")
	if lines() != 2 || !strings.Contains(out.String(), "device=x times=100") {
		t.Errorf("after a minute: %s", out.String())
	}
	s.Over(log, "room again")
	s.Over(log, "room again")
	if lines() != 3 {
		t.Errorf("at the end: %s", out.String())
	}
	s.Met(log, now, "full")
	if lines() != 4 {
		t.Errorf("the next time: %s", out.String())
	}
}
