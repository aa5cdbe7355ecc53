package blobtest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faultproxy"
	"tine.dev/tine/internal/tine"
)

// faults is one test of RunFaults: a store behind a proxy.
type faults struct {
	world
	proxy *faultproxy.Proxy
	data  []byte
	waits []time.Duration
}

// RunFaults shows what a store does about each fault of the wire. The places
// that the maker makes are reached through the proxy.
func RunFaults(t *testing.T, proxy *faultproxy.Proxy, mk Maker) {
	for _, c := range []struct {
		name string
		run  func(*faults)
	}{
		{"Busy", func(f *faults) { f.refusedOnce(faultproxy.Busy) }},
		{"Throttled", throttled}, {"Slow", slow}, {"Truncated", truncated}, {"LostAnswers", lostAnswers}, {"LostRefusal", lostRefusal},
		{"LostForGood", lostForGood}, {"LostComplete", lostComplete}, {"WrongBytes", wrongBytes}, {"WrongUpload", wrongUpload}, {"Expired", expired},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy.Set(faultproxy.Fault{})
			f := &faults{proxy: proxy, data: noise(random(t), 100_000)}
			f.world = world{T: t, place: mk(t)}
			f.reopen(blob.Policy{})
			c.run(f)
		})
	}
}

// reopen makes the test's store one that does not wait between attempts.
func (f *faults) reopen(p blob.Policy) {
	p.Sleep = func(ctx context.Context, d time.Duration) error {
		f.waits = append(f.waits, d)
		return ctx.Err()
	}
	f.opt = blob.Options{Retry: p}
	f.Store = open(f.T, f.place, f.opt)
}

// write puts the test's data under a key.
func (f *faults) write(key blob.Key, cond blob.Condition) (blob.Info, error) {
	return f.Put(f.Context(), key, bytes.NewReader(f.data), cond)
}

// holds fails the test unless the object under key is the test's data.
func (f *faults) holds(key blob.Key) blob.Info {
	f.Helper()
	f.proxy.Set(faultproxy.Fault{})
	got, info, err := f.Get(f.Context(), key, blob.Range{}, "")
	f.must(err)
	if !bytes.Equal(got, f.data) {
		f.Fatalf("%s holds %d other bytes", key, len(got))
	}
	return info
}

// calls are one of each kind, with what must be there for them.
func (f *faults) calls() map[string]func() error {
	f.must1(f.write("there", blob.Condition{}))
	f.must1(f.write("gone", blob.Condition{}))
	return map[string]func() error{
		"get": func() error { _, _, err := f.Get(f.Context(), "there", blob.Range{}, ""); return err },
		"range": func() error {
			_, _, err := f.Get(f.Context(), "there", blob.Range{Offset: 5, Length: 100}, "")
			return err
		},
		"stat":   func() error { _, err := f.Stat(f.Context(), "there"); return err },
		"put":    func() error { _, err := f.write("new", blob.Condition{Absent: true}); return err },
		"list":   func() error { _, err := f.List(f.Context(), blob.ListOptions{}); return err },
		"copy":   func() error { _, err := f.Copy(f.Context(), "there", "copy"); return err },
		"delete": func() error { return f.Delete(f.Context(), "gone") },
	}
}

// injected fails the test unless n requests went wrong.
func (f *faults) injected(what string, n int) {
	f.Helper()
	if _, injected := f.proxy.Counts(); injected != n {
		f.Errorf("%s: %d requests went wrong, want %d", what, injected, n)
	}
}

// refusedOnce: each call succeeds if its first request is refused for now.
func (f *faults) refusedOnce(what faultproxy.What) {
	for name, call := range f.calls() {
		f.proxy.Set(faultproxy.Fault{What: what, Only: faultproxy.All, Times: 1})
		if err := call(); err != nil {
			f.Errorf("%s: %v", name, err)
		}
		f.injected(name, 1)
	}
	f.holds("new")
}

// throttled: the store waits as long as it is asked to.
func throttled(f *faults) {
	f.refusedOnce(faultproxy.Throttled)
	if len(f.waits) != 7 || slices.Min(f.waits) < time.Second {
		f.Errorf("asked to wait a second each time, waited %v", f.waits)
	}
}

// slow: an attempt without an answer ends, and another one is made.
func slow(f *faults) {
	calls := f.calls()
	f.reopen(blob.Policy{Patience: 500 * time.Millisecond})
	for _, name := range []string{"range", "put", "list"} {
		f.proxy.Set(faultproxy.Fault{What: faultproxy.Slow, Only: faultproxy.All, Times: 1})
		if err := calls[name](); err != nil {
			f.Errorf("%s: %v", name, err)
		}
		f.injected(name, 1)
	}
	f.holds("new")
}

// truncated: half an answer is no answer.
func truncated(f *faults) {
	calls := f.calls()
	for _, name := range []string{"get", "range", "list"} {
		f.proxy.Set(faultproxy.Fault{What: faultproxy.Truncated, Only: faultproxy.Reads, Times: 1})
		if err := calls[name](); err != nil {
			f.Errorf("%s: %v", name, err)
		}
		f.injected(name, 1)
	}
	f.proxy.Set(faultproxy.Fault{What: faultproxy.Truncated, Only: faultproxy.Reads, Times: 100})
	for _, name := range []string{"get", "range", "list"} {
		f.want(tine.KindUnavailable, calls[name]())
	}
	f.holds("there")
}

// lostAnswers: a write that happened is recognised by its mark when the answer
// is lost, and each other call happens once more.
func lostAnswers(f *faults) {
	for name, call := range f.calls() {
		if name == "put" {
			continue
		}
		f.proxy.Set(faultproxy.Fault{What: faultproxy.Cut, Only: faultproxy.All, Times: 1})
		if err := call(); err != nil {
			f.Errorf("%s: %v", name, err)
		}
		f.injected(name, 1)
	}
	var last blob.Info
	for _, cond := range []func() blob.Condition{
		func() blob.Condition { return blob.Condition{Absent: true} },
		func() blob.Condition { return blob.Condition{Version: last.Version} },
		func() blob.Condition { return blob.Condition{} },
	} {
		f.data[0]++ // equal bytes may be an equal version
		f.proxy.Set(faultproxy.Fault{What: faultproxy.Cut, Only: faultproxy.Writes, Times: 1})
		info, err := f.write("mine", cond())
		f.must(err)
		f.injected("put", 1)
		if got := f.holds("mine"); got.Version != info.Version || got.Mark != info.Mark {
			f.Errorf("put told of %+v, there is %+v", info, got)
		}
		last = info
	}
}

// lostRefusal: a write that was refused does not take another's object for its
// own.
func lostRefusal(f *faults) {
	first, err := f.write("theirs", blob.Condition{})
	f.must(err)
	for kind, cond := range map[tine.ErrorKind]blob.Condition{tine.KindExists: {Absent: true}, tine.KindConflict: {Version: f.someVersion()}} {
		f.proxy.Set(faultproxy.Fault{What: faultproxy.Cut, Only: faultproxy.Writes, Times: 1})
		_, err := f.write("theirs", cond)
		f.want(kind, err)
		f.injected("put", 1)
	}
	if got := f.holds("theirs"); got.Mark != first.Mark {
		f.Errorf("there is %+v, was %+v", got, first)
	}
}

// lostForGood: without another attempt a write is in doubt.
func lostForGood(f *faults) {
	f.reopen(blob.Policy{Attempts: 1})
	f.proxy.Set(faultproxy.Fault{What: faultproxy.Cut, Only: faultproxy.Writes, Times: 1})
	_, err := f.write("new", blob.Condition{Absent: true})
	f.want(tine.KindUnavailable, err)
	if !blob.MayHaveHappened(err) {
		f.Errorf("no doubt: %v", err)
	}
	f.holds("new")
}

// lostComplete: the same for an upload in parts, which leaves nothing behind.
func lostComplete(f *faults) {
	s, part := f.inParts()
	f.data = noise(random(f.T), part+1)
	for _, cond := range []blob.Condition{{Absent: true}, {}} {
		f.proxy.Set(faultproxy.Fault{What: faultproxy.Cut, Only: f.proxy.Dialect.Completes, Times: 1})
		info, err := s.Put(f.Context(), "big", bytes.NewReader(f.data), cond)
		f.must(err)
		f.injected("put", 1)
		if got := f.holds("big"); got.Version != info.Version || got.Mark != info.Mark {
			f.Errorf("put told of %+v, there is %+v", info, got)
		}
		f.nothingLeft()
	}
}

// wrongBytes: damage on the way back is found, and mended by another attempt
// if one can.
func wrongBytes(f *faults) {
	f.must1(f.write("k", blob.Condition{}))
	f.proxy.Set(faultproxy.Fault{What: faultproxy.WrongBytes, Only: faultproxy.Reads, Times: 1})
	got, _, err := f.Get(f.Context(), "k", blob.Range{}, "")
	f.must(err)
	f.injected("get", 1)
	if !bytes.Equal(got, f.data) {
		f.Error("damaged bytes were taken")
	}
	f.proxy.Set(faultproxy.Fault{What: faultproxy.WrongBytes, Only: faultproxy.Reads, Times: 100})
	got, _, err = f.Get(f.Context(), "k", blob.Range{}, "")
	f.want(tine.KindCorrupt, err)
	if got != nil {
		f.Error("damaged bytes were returned")
	}
}

// wrongUpload: damage on the way there is found by the store, in one request
// and in parts.
func wrongUpload(f *faults) {
	f.proxy.Set(faultproxy.Fault{What: faultproxy.WrongUpload, Only: faultproxy.Writes, Times: 1})
	f.must1(f.write("k", blob.Condition{Absent: true}))
	f.injected("put", 1)
	f.holds("k")
	f.proxy.Set(faultproxy.Fault{What: faultproxy.WrongUpload, Only: faultproxy.Writes, Times: 100})
	_, err := f.write("never", blob.Condition{Absent: true})
	f.want(tine.KindCorrupt, err)
	s, part := f.inParts()
	f.data = noise(random(f.T), part+1)
	sent := func(r *http.Request) bool { return faultproxy.Writes(r) && r.ContentLength >= part }
	f.proxy.Set(faultproxy.Fault{What: faultproxy.WrongUpload, Only: sent, Times: 1})
	f.must1(s.Put(f.Context(), "big", bytes.NewReader(f.data), blob.Condition{}))
	f.injected("parts", 1)
	f.holds("big")
	_, err = f.Stat(f.Context(), "never")
	f.want(tine.KindNotFound, err)
}

// expired: a refusal for good is told at once, with what to do.
func expired(f *faults) {
	for name, call := range f.calls() {
		f.proxy.Set(faultproxy.Fault{What: faultproxy.Expired, Only: faultproxy.All, Times: 100})
		err := call()
		if err == nil || tine.KindOf(err) != tine.KindAccess || tine.HintOf(err) == "" || blob.MayHaveHappened(err) {
			f.Errorf("%s: %v, hint %q", name, err, tine.HintOf(err))
		}
		f.injected(name, 1)
	}
	var partial *blob.PartialError
	f.proxy.Set(faultproxy.Fault{What: faultproxy.Expired, Only: faultproxy.All, Times: 100})
	if err := f.Delete(f.Context(), "a", "b"); !errors.As(err, &partial) || len(partial.Failed) != 2 {
		f.Errorf("two keys: %v", err)
	}
}
