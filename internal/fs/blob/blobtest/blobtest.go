// Package blobtest is the contract of package blob as tests: Run holds a
// driver to it through the Store that all callers use, RunDriver holds it to
// what only a driver by itself shows. Every driver runs both, on the real thing.
package blobtest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// Place is somewhere objects are kept. Each call opens one more client of the
// same place, as another process would.
type Place func(t testing.TB) blob.Driver

// Maker makes an empty place.
type Maker func(t testing.TB) Place

// Prefixes returns a maker of places that are prefixes below name in one bucket;
// mk opens a driver for a prefix.
func Prefixes(name string, mk func(t testing.TB, prefix string) blob.Driver) Maker {
	var made atomic.Int64
	return func(testing.TB) Place {
		prefix := fmt.Sprintf("%s/%d", name, made.Add(1))
		return func(t testing.TB) blob.Driver { return mk(t, prefix) }
	}
}

var seed = flag.Uint64("blob.seed", 0, "seed of the random tests; 0: another one each time")

// random returns a source and logs how to get the same again.
func random(t testing.TB) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -run '^%s$' -blob.seed=%d", t.Name(), s)
	return rand.New(rand.NewPCG(s, 1))
}

// Run holds what the maker makes to the contract. opt is for the stores.
func Run(t *testing.T, mk Maker, opt blob.Options) {
	for _, c := range []struct {
		name string
		run  func(*world)
	}{
		{"Objects", objects}, {"Conditions", conditions}, {"CreateRace", createRace}, {"SwapRace", swapRace},
		{"Ranges", ranges}, {"Parts", parts}, {"PartsConditions", partsConditions}, {"PartsRace", partsRace}, {"Names", names}, {"Listing", listing},
		{"ListingRandom", listingRandom}, {"DeleteMany", deleteMany}, {"Copy", copying}, {"IllegalKeys", illegalKeys}, {"Cancelled", cancelled},
		{"Probe", func(w *world) { w.must(blob.Probe(w.Context(), w.Store, "probe/one")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			place := mk(t)
			c.run(&world{T: t, place: place, opt: opt, Store: open(t, place, opt)})
		})
	}
}

// world is one test: a place and a store on it.
type world struct {
	*testing.T
	*blob.Store
	place Place
	opt   blob.Options
}

// Name is the test's: both that are embedded have one.
func (w *world) Name() string { return w.T.Name() }

func open(t testing.TB, place Place, opt blob.Options) *blob.Store {
	s := blob.NewStore(place(t), opt)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// must fails the test if err is not nil.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// want fails the test unless err is of the kind.
func (w *world) want(kind tine.ErrorKind, err error) {
	w.Helper()
	if err == nil || tine.KindOf(err) != kind {
		w.Fatalf("want an error of kind %v, got %v: %v", kind, tine.KindOf(err), err)
	}
}

// put stores text under a key.
func (w *world) put(key blob.Key, text string, cond blob.Condition) (blob.Info, error) {
	return w.Put(w.Context(), key, bytes.NewReader([]byte(text)), cond)
}

// have fails the test unless the object under key is text.
func (w *world) have(key blob.Key, text string) blob.Info {
	w.Helper()
	got, info, err := w.Get(w.Context(), key, blob.Range{}, "")
	if err != nil {
		w.Fatal(err)
	}
	if string(got) != text {
		w.Fatalf("%s holds %.60q, want %.60q", key, got, text)
	}
	return info
}

func objects(w *world) {
	_, _, err := w.Get(w.Context(), "a/b", blob.Range{}, "")
	w.want(tine.KindNotFound, err)
	_, err = w.Stat(w.Context(), "a/b")
	w.want(tine.KindNotFound, err)
	for _, text := range []string{"first", "", "second, longer than the first"} {
		info, err := w.put("a/b", text, blob.Condition{})
		w.must(err)
		got := w.have("a/b", text)
		stat, err := w.Stat(w.Context(), "a/b")
		w.must(err)
		for what, i := range map[string]blob.Info{"put": info, "get": got, "stat": stat} {
			if i.Key != "a/b" || i.Size != int64(len(text)) || i.Version == "" || i.Version != info.Version {
				w.Fatalf("%s says %+v of %q, version %q", what, i, text, info.Version)
			}
		}
		if !stat.Checked || stat.CRC32C != blob.Checksum([]byte(text)) || stat.Mark == (blob.Mark{}) || got.Mark != stat.Mark {
			w.Fatalf("checksum or mark are not kept: %+v, %+v", stat, got)
		}
		if age := time.Since(stat.Modified); age > time.Hour || age < -time.Hour {
			w.Fatalf("modified %v", stat.Modified)
		}
		again := open(w.T, w.place, w.opt)
		other, err := again.Stat(w.Context(), "a/b")
		w.must(err)
		if other.Version != stat.Version || other.Mark != stat.Mark {
			w.Fatalf("another client sees %+v, not %+v", other, stat)
		}
	}
	w.must(w.Delete(w.Context(), "a/b"))
	_, err = w.Stat(w.Context(), "a/b")
	w.want(tine.KindNotFound, err)
	w.must(w.Delete(w.Context(), "a/b"))
}

func conditions(w *world) {
	_, err := w.put("k", "swapped", blob.Condition{Version: w.someVersion()})
	w.want(tine.KindConflict, err)
	first, err := w.put("k", "1", blob.Condition{Absent: true})
	w.must(err)
	_, err = w.put("k", "other", blob.Condition{Absent: true})
	w.want(tine.KindExists, err)
	w.have("k", "1")
	second, err := w.put("k", "2", blob.Condition{Version: first.Version})
	w.must(err)
	if second.Version == first.Version {
		w.Fatalf("other bytes, the same version %q", first.Version)
	}
	_, err = w.put("k", "3", blob.Condition{Version: first.Version})
	w.want(tine.KindConflict, err)
	if blob.MayHaveHappened(err) && w.opt.Retry.Attempts < 20 {
		w.Fatalf("a clear refusal leaves a doubt: %v", err)
	}
	w.have("k", "2")
	_, _, err = w.Get(w.Context(), "k", blob.Range{}, first.Version)
	w.want(tine.KindConflict, err)
	_, _, err = w.Get(w.Context(), "k", blob.Range{Length: 1}, second.Version)
	w.must(err)
	w.must(w.Delete(w.Context(), "k"))
	_, err = w.put("k", "4", blob.Condition{Version: second.Version})
	w.want(tine.KindConflict, err)
	_, err = w.put("k", "5", blob.Condition{Absent: true})
	w.must(err)
	_, err = w.put("k", "6", blob.Condition{Absent: true, Version: second.Version})
	w.want(tine.KindInvalid, err)
	w.have("k", "5")
}

// someVersion returns a version that the store could have, of no object that
// is there.
func (w *world) someVersion() blob.Version {
	w.Helper()
	info, err := w.put("version/of", "some bytes", blob.Condition{})
	w.must(err)
	w.must(w.Delete(w.Context(), "version/of"))
	return info.Version
}

const (
	writers = 8
	rounds  = 20
)

// race lets each writer, a client of its own, do one thing at once, and
// returns their errors.
func race(clients []*blob.Store, f func(i int, s *blob.Store) error) []error {
	errs := make([]error, len(clients))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, s := range clients {
		wg.Go(func() {
			<-start
			errs[i] = f(i, s)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func (w *world) clients() []*blob.Store {
	var list []*blob.Store
	for range writers {
		list = append(list, open(w.T, w.place, w.opt))
	}
	return list
}

// winner fails the test unless one writer won and the others were refused in
// the right way.
func (w *world) winner(errs []error, refused tine.ErrorKind) int {
	w.Helper()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			w.Fatalf("writers %d and %d both won", won, i)
		case err == nil:
			won = i
		case tine.KindOf(err) != refused:
			w.Fatalf("writer %d: want kind %v, got %v", i, refused, err)
		}
	}
	if won < 0 {
		w.Fatalf("no writer won: %v", errs)
	}
	return won
}

func createRace(w *world) {
	clients := w.clients()
	for round := range rounds {
		key := blob.Key(fmt.Sprintf("race/%04d", round))
		errs := race(clients, func(i int, s *blob.Store) error {
			_, err := s.Put(w.Context(), key, text("%d of writer %d", round, i), blob.Condition{Absent: true})
			return err
		})
		won := w.winner(errs, tine.KindExists)
		w.have(key, fmt.Sprintf("%d of writer %d", round, won))
	}
}

func swapRace(w *world) {
	clients := w.clients()
	info, err := w.put("manifest", "start", blob.Condition{})
	w.must(err)
	for round := range rounds {
		errs := race(clients, func(i int, s *blob.Store) error {
			_, err := s.Put(w.Context(), "manifest", text("%d of writer %d", round, i), blob.Condition{Version: info.Version})
			return err
		})
		won := w.winner(errs, tine.KindConflict)
		info = w.have("manifest", fmt.Sprintf("%d of writer %d", round, won))
	}
}

// partsRace is both races for uploads in parts, which are many requests each.
func partsRace(w *world) {
	var clients []*blob.Store
	var part int64
	for range 3 {
		var s *blob.Store
		s, part = w.inParts()
		clients = append(clients, s)
	}
	body := func(i, round int) *bytes.Reader {
		p := make([]byte, part+1)
		p[0], p[part] = byte(i), byte(round)
		return bytes.NewReader(p)
	}
	var last blob.Info
	for round := range 4 {
		cond, refused := blob.Condition{Version: last.Version}, tine.KindConflict
		if round == 0 {
			cond, refused = blob.Condition{Absent: true}, tine.KindExists
		}
		errs := race(clients, func(i int, s *blob.Store) error {
			_, err := s.Put(w.Context(), "big", body(i, round), cond)
			return err
		})
		won := w.winner(errs, refused)
		got, info, err := w.Get(w.Context(), "big", blob.Range{Offset: part}, "")
		w.must(err)
		first, _, err := w.Get(w.Context(), "big", blob.Range{Length: 1}, info.Version)
		w.must(err)
		if got[0] != byte(round) || first[0] != byte(won) {
			w.Fatalf("round %d: the object is of writer %d and round %d, writer %d won", round, first[0], got[0], won)
		}
		last = info
	}
	w.nothingLeft()
}

func text(format string, args ...any) *bytes.Reader {
	return bytes.NewReader(fmt.Appendf(nil, format, args...))
}

func illegalKeys(w *world) {
	for _, k := range []blob.Key{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.tine", "end.", " a", "a ",
		"new\nline", "nul\x00", "\x7f", "back\\slash", "\xc3\xa9", "\xff"} {
		_, err := w.put(k, "x", blob.Condition{})
		w.want(tine.KindInvalid, err)
		_, _, err = w.Get(w.Context(), k, blob.Range{}, "")
		w.want(tine.KindInvalid, err)
		w.want(tine.KindInvalid, w.Delete(w.Context(), "fine", k))
	}
	_, err := w.put(blob.Key(bytes.Repeat([]byte("a"), blob.MaxPartBytes+1)), "x", blob.Condition{})
	w.want(tine.KindNameTooLong, err)
	_, err = w.put(blob.Key(bytes.Repeat([]byte("a/"), blob.MaxKeyBytes/2+1)), "x", blob.Condition{})
	w.want(tine.KindNameTooLong, err)
}

func cancelled(w *world) {
	w.must1(w.put("k", "text", blob.Condition{}))
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	body := bytes.NewReader(make([]byte, 2*w.partBytes()))
	for what, call := range map[string]func() error{
		"get":    func() error { _, _, err := w.Get(ctx, "k", blob.Range{}, ""); return err },
		"put":    func() error { _, err := w.Put(ctx, "k", text("new"), blob.Condition{}); return err },
		"parts":  func() error { _, err := w.Put(ctx, "k", body, blob.Condition{}); return err },
		"stat":   func() error { _, err := w.Stat(ctx, "k"); return err },
		"list":   func() error { _, err := w.List(ctx, blob.ListOptions{}); return err },
		"copy":   func() error { _, err := w.Copy(ctx, "k", "l"); return err },
		"delete": func() error { return w.Delete(ctx, "k") },
		"sweep":  func() error { _, err := w.Sweep(ctx, time.Now()); return err },
	} {
		if err := call(); tine.KindOf(err) != tine.KindInterrupted {
			w.Errorf("%s with a cancelled context: %v", what, err)
		}
	}
	w.have("k", "text")
}

func (w *world) must1(_ blob.Info, err error) {
	w.Helper()
	w.must(err)
}
