package blob_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/tine"
)

// down returns a store that always refuses, and the waits between attempts.
func down(opt blob.Options) (*blob.Store, *faulty.Store, *[]time.Duration) {
	d := faulty.Wrap(mem.New(mem.Options{}), faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.All, What: faulty.Busy, Every: 1}}})
	var waits []time.Duration
	opt.Retry.Sleep = func(ctx context.Context, d time.Duration) error {
		waits = append(waits, d)
		return ctx.Err()
	}
	return blob.NewStore(d, opt), d, &waits
}

func TestWaitsGrowWithJitter(t *testing.T) {
	for draw, want := range map[float64][]time.Duration{
		0:      {50, 100, 200, 400, 500, 500},
		0.9999: {99, 199, 399, 799, 999, 999},
	} {
		s, d, waits := down(blob.Options{Retry: blob.Policy{Attempts: 7, Longest: time.Second, Random: func() float64 { return draw }}})
		_, err := s.Stat(t.Context(), "k")
		if tine.KindOf(err) != tine.KindUnavailable || tine.HintOf(err) == "" || d.Requests() != 7 {
			t.Fatalf("%d requests, then %v", d.Requests(), err)
		}
		for i, w := range *waits {
			if w.Truncate(time.Millisecond) != want[i]*time.Millisecond {
				t.Errorf("draw %v: wait %d is %v, want %v ms", draw, i, w, want[i])
			}
		}
	}
}

// TestAskedToWait: a store that says how long to wait gets that, with what is
// drawn on top, but no more than half a minute.
func TestAskedToWait(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: 75 * time.Millisecond, 50 * time.Millisecond: 75 * time.Millisecond, 3 * time.Second: 3025 * time.Millisecond, time.Hour: 30025 * time.Millisecond,
	} {
		var waits []time.Duration
		d := asking{Driver: mem.New(mem.Options{}), wait: asked}
		s := blob.NewStore(d, blob.Options{Retry: blob.Policy{Attempts: 2, Random: func() float64 { return 0.5 },
			Sleep: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }}})
		if _, err := s.Stat(t.Context(), "k"); tine.KindOf(err) != tine.KindUnavailable || len(waits) != 1 || waits[0] != want {
			t.Errorf("asked to wait %v: waited %v, want %v: %v", asked, waits, want, err)
		}
	}
}

// asking is a store that asks to wait.
type asking struct {
	blob.Driver
	wait time.Duration
}

func (a asking) Stat(context.Context, blob.Key) (blob.Info, error) {
	return blob.Info{}, blob.Answer{Op: "stat", Store: "asking", Status: 429, Wait: a.wait}.Err()
}

// TestBudget: a store that is down gets one request a call once the budget is
// spent, and success earns it back.
func TestBudget(t *testing.T) {
	s, d, _ := down(blob.Options{Retry: blob.Policy{Attempts: 5, Budget: 10}})
	for range 100 {
		if _, err := s.Stat(t.Context(), "k"); err == nil {
			t.Fatal("the store is down")
		}
	}
	if d.Requests() != 110 {
		t.Errorf("%d requests for 100 calls with a budget of 10", d.Requests())
	}
	d.SetPlan(faulty.Plan{})
	if _, err := s.Put(t.Context(), "k", bytes.NewReader(nil), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	for range 39 {
		if _, err := s.Stat(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	d.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.All, What: faulty.Busy, Every: 1}}})
	before := d.Requests()
	for range 10 {
		_, _ = s.Stat(t.Context(), "k")
	}
	if made := d.Requests() - before; made < 13 || made > 14 {
		t.Errorf("%d requests for 10 calls after 40 successes, which earn 4 retries", made)
	}
}

func TestCancelledBetweenAttempts(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the disk is closed")
	s, d, _ := down(blob.Options{Retry: blob.Policy{Random: func() float64 { cancel(why); return 0 }}})
	_, err := s.Stat(ctx, "k")
	if tine.KindOf(err) != tine.KindInterrupted || !errors.Is(err, why) || d.Requests() != 1 {
		t.Errorf("%d requests, then %v", d.Requests(), err)
	}
}

// TestDeleteTriesAgain: only the keys that may yet go are tried again, and
// each that stays is told of.
func TestDeleteTriesAgain(t *testing.T) {
	s, d, _ := down(blob.Options{})
	err := s.Delete(t.Context(), "a", "b")
	var partial *blob.PartialError
	if !errors.As(err, &partial) || len(partial.Failed) != 2 || tine.KindOf(err) != tine.KindUnavailable || d.Requests() != 6 {
		t.Errorf("after %d requests: %v", d.Requests(), err)
	}
}

// TestWrongBytesAtRest: damage that no further attempt mends is an error.
func TestWrongBytesAtRest(t *testing.T) {
	for _, what := range []faulty.What{faulty.WrongBytes, faulty.Truncated} {
		s, d, _ := down(blob.Options{})
		d.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Get, What: what, Every: 1}}})
		if _, err := s.Put(t.Context(), "k", bytes.NewReader([]byte("some text")), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if data, _, err := s.Get(t.Context(), "k", blob.Range{}, ""); tine.KindOf(err) != tine.KindCorrupt || data != nil {
			t.Errorf("damage %d: %q, %v", what, data, err)
		}
		if what != faulty.Truncated {
			continue // of a range only the length can be checked
		}
		if data, _, err := s.Get(t.Context(), "k", blob.Range{Offset: 1, Length: 4}, ""); tine.KindOf(err) != tine.KindCorrupt || data != nil {
			t.Errorf("half a range: %q, %v", data, err)
		}
	}
}
