package faulty_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/tine"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0: another one each time")

func newSeed(t *testing.T) uint64 {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -run '^%s$' -seed=%d", t.Name(), s)
	return s
}

// patient tries so often that a fault now and then never shows.
func patient() blob.Options {
	return blob.Options{Retry: blob.Policy{Attempts: 40, First: time.Microsecond, Longest: time.Microsecond, Budget: 1 << 30}}
}

// TestContractOnABadStore: with all faults that retries can make good, callers
// see the contract all the same. Late writes are not among them: a plain write
// that comes late replaces what was written since, which only conditions prevent.
func TestContractOnABadStore(t *testing.T) {
	plan := faulty.Plan{Seed: newSeed(t)}
	for _, what := range []faulty.What{faulty.Busy, faulty.Throttled, faulty.Truncated, faulty.LostAck} {
		// Sweep counts what it removes, and a lost answer loses the count; an
		// upload whose begin is lost is for Sweep to find.
		ops := faulty.All &^ (faulty.Sweep | faulty.Begin)
		plan.Faults = append(plan.Faults, faulty.Fault{Ops: ops, What: what, Percent: 8})
	}
	injected := 0
	t.Cleanup(func() {
		if injected < 300 {
			t.Errorf("only %d faults", injected)
		}
	})
	blobtest.Run(t, func(testing.TB) blobtest.Place {
		s := mem.New(mem.Options{})
		return func(t testing.TB) blob.Driver {
			f := faulty.Wrap(s, plan)
			t.Cleanup(func() { injected += f.Injected() })
			return f
		}
	}, patient())
}

// one returns a store whose first request of ops goes wrong.
func one(f faulty.Fault) (*blob.Store, *faulty.Store, *blob.Store) {
	m := mem.New(mem.Options{})
	d := faulty.Wrap(m, faulty.Plan{Faults: []faulty.Fault{f}})
	return blob.NewStore(d, patient()), d, blob.NewStore(m, patient())
}

func put(ctx context.Context, s *blob.Store, key blob.Key, text string, cond blob.Condition) (blob.Info, error) {
	return s.Put(ctx, key, bytes.NewReader([]byte(text)), cond)
}

func holds(t *testing.T, s *blob.Store, key blob.Key, text string) {
	t.Helper()
	got, _, err := s.Get(t.Context(), key, blob.Range{}, "")
	if err != nil || string(got) != text {
		t.Fatalf("%s holds %q, %v; want %q", key, got, err, text)
	}
}

// TestLateWrites: a conditional write that arrives after its retry, or after
// others have gone on, changes nothing.
func TestLateWrites(t *testing.T) {
	s, d, plain := one(faulty.Fault{Ops: faulty.Put, What: faulty.Late, At: 1, After: 1 << 30})
	first, err := put(t.Context(), s, "k", "one", blob.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	d.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Put, What: faulty.Late, At: 1, After: 1 << 30}}})
	second, err := put(t.Context(), s, "k", "two", blob.Condition{Version: first.Version})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(t.Context(), plain, "k", "three", blob.Condition{Version: second.Version}); err != nil {
		t.Fatal(err)
	}
	d.Release()
	holds(t, plain, "k", "three")
	if d.Injected() != 2 {
		t.Errorf("%d faults", d.Injected())
	}
}

// TestLateBetween: the late write happens between two attempts of its own
// call. The call finds its own object and succeeds.
func TestLateBetween(t *testing.T) {
	s, _, _ := one(faulty.Fault{Ops: faulty.Put, What: faulty.Late, At: 1})
	info, err := put(t.Context(), s, "k", "mine", blob.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := s.Stat(t.Context(), "k"); err != nil || stat.Version != info.Version {
		t.Errorf("put told of version %q, there is %+v, %v", info.Version, stat, err)
	}
}

// TestDoubt: of two writers with lost answers one is told that it won. The
// other is refused, and told that there is a doubt, for its object may have
// been there before.
func TestDoubt(t *testing.T) {
	s, d, plain := one(faulty.Fault{Ops: faulty.Put, What: faulty.Busy, At: 1})
	if _, err := put(t.Context(), plain, "k", "theirs", blob.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	_, err := put(t.Context(), s, "k", "mine", blob.Condition{Absent: true})
	if tine.KindOf(err) != tine.KindExists || !blob.MayHaveHappened(err) {
		t.Errorf("after an answer that was lost: %v", err)
	}
	_, err = put(t.Context(), s, "k", "mine", blob.Condition{Absent: true})
	if tine.KindOf(err) != tine.KindExists || blob.MayHaveHappened(err) {
		t.Errorf("after a clear answer: %v", err)
	}
	d.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Put, What: faulty.LostAck, Every: 1}}})
	_, err = put(t.Context(), s, "k", "mine", blob.Condition{})
	if tine.KindOf(err) != tine.KindUnavailable || !blob.MayHaveHappened(err) {
		t.Errorf("with every answer lost: %v", err)
	}
	holds(t, plain, "k", "mine")
}

// TestFinalFaults: what no retry can mend is told at once, with its kind.
func TestFinalFaults(t *testing.T) {
	for _, c := range []struct {
		what faulty.What
		kind tine.ErrorKind
	}{{faulty.Denied, tine.KindAccess}, {faulty.Full, tine.KindNoSpace}, {faulty.ReadOnly, tine.KindReadOnly}} {
		s, d, _ := one(faulty.Fault{Ops: faulty.All, What: c.what, Every: 1})
		_, err := put(t.Context(), s, "k", "text", blob.Condition{})
		if tine.KindOf(err) != c.kind || blob.MayHaveHappened(err) || tine.HintOf(err) == "" || d.Requests() != 1 {
			t.Errorf("fault %d: %v, hint %q, after %d requests", c.what, err, tine.HintOf(err), d.Requests())
		}
		d.SetPlan(faulty.Plan{})
		if _, err := put(t.Context(), s, "k", "text", blob.Condition{}); err != nil {
			t.Errorf("when the store has recovered: %v", err)
		}
	}
	s, _, plain := one(faulty.Fault{Ops: faulty.Get, What: faulty.Vanished, At: 1})
	if _, err := put(t.Context(), plain, "k", "text", blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), "k", blob.Range{}, ""); tine.KindOf(err) != tine.KindNotFound {
		t.Errorf("vanished: %v", err)
	}
	holds(t, s, "k", "text")
}

// TestWrongBytesOnTheWay: bytes that were damaged on the way are read again.
func TestWrongBytesOnTheWay(t *testing.T) {
	s, d, plain := one(faulty.Fault{Ops: faulty.Get, What: faulty.WrongBytes, At: 1})
	if _, err := put(t.Context(), plain, "k", "text", blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "k", "text")
	if d.Injected() != 1 || d.Requests() != 2 {
		t.Errorf("%d faults in %d requests", d.Injected(), d.Requests())
	}
}

// TestSlow: an attempt that hangs is given up and made again; when the caller
// gives up, the call ends at once.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New(mem.Options{})
		d := faulty.Wrap(m, faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.All, What: faulty.Slow, At: 1}}})
		s := blob.NewStore(d, blob.Options{})
		start := time.Now()
		if _, err := put(t.Context(), s, "k", "text", blob.Condition{Absent: true}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("took %v", took)
		}
		d.SetPlan(faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.All, What: faulty.Slow, Every: 1}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := put(ctx, s, "k", "other", blob.Condition{})
		if tine.KindOf(err) != tine.KindInterrupted || !blob.MayHaveHappened(err) {
			t.Errorf("given up: %v", err)
		}
		if took := time.Since(start); took > 23*time.Second {
			t.Errorf("gave up after %v", took)
		}
	})
}

// TestHistory: writers that swap a counter through bad stores lose no step
// that they were told of, and make none that they were told was refused.
func TestHistory(t *testing.T) {
	s := newSeed(t)
	rng := rand.New(rand.NewPCG(s, 2))
	for range 30 {
		m := mem.New(mem.Options{})
		plan := faulty.Plan{Seed: rng.Uint64()}
		for _, what := range []faulty.What{faulty.Busy, faulty.LostAck, faulty.Late} {
			plan.Faults = append(plan.Faults, faulty.Fault{Ops: faulty.All, What: what, Percent: 10, After: rng.IntN(6)})
		}
		d := faulty.Wrap(m, plan)
		opt := patient()
		opt.Retry.Attempts = 3
		stores := []*blob.Store{blob.NewStore(d, opt), blob.NewStore(d, opt)}
		sure, most := count(t, rng, stores)
		d.Release()
		final, _, err := blob.NewStore(m, patient()).Get(t.Context(), "counter", blob.Range{}, "")
		if err != nil {
			t.Fatal(err)
		}
		var got int
		if _, err := fmt.Sscanf(string(final), "%d", &got); err != nil {
			t.Fatal(err)
		}
		if got < sure || got > most {
			t.Fatalf("the counter is at %d; %d steps were acknowledged, %d may have been made", got, sure, most)
		}
	}
}

// count makes steps through stores that take turns, and returns how many were
// acknowledged and how many may have been made.
func count(t *testing.T, rng *rand.Rand, stores []*blob.Store) (sure, most int) {
	for step := range 100 {
		s := stores[rng.IntN(len(stores))]
		data, info, err := s.Get(t.Context(), "counter", blob.Range{}, "")
		value, cond := 0, blob.Condition{Absent: true}
		if err == nil {
			cond = blob.Condition{Version: info.Version}
			if _, err := fmt.Sscanf(string(data), "%d", &value); err != nil {
				t.Fatal(err)
			}
		} else if tine.KindOf(err) != tine.KindNotFound {
			continue
		}
		_, err = put(t.Context(), s, "counter", fmt.Sprintf("%d of step %d", value+1, step), cond)
		switch {
		case err == nil:
			sure, most = sure+1, most+1
		case blob.MayHaveHappened(err):
			most++
		}
	}
	return sure, most
}
