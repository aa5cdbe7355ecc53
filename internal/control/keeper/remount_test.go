package keeper

import (
	"context"
	"strings"
	"sync"
	"testing"

	"tine.dev/tine/internal/tine"
)

// told collects what a keeper tells of.
type told struct {
	mu   sync.Mutex
	news []string
	some chan struct{}
}

func observe(k *Keeper) *told {
	n := &told{some: make(chan struct{}, 100)}
	k.Observe(func(c Change) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.news = append(n.news, string(c.Kind)+" "+c.Dir)
		n.some <- struct{}{}
	})
	return n
}

// next waits for the next news and returns all so far.
func (n *told) next() string {
	<-n.some
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.news, "; ")
}

func TestRemount(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	news := observe(k)
	for _, r := range []Record{{Disk: "a", Dir: "/m/a"}, {Disk: "a", Checkpoint: "c", Dir: "/m/c"}} {
		if _, err := k.Mount(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		news.next()
	}
	yes, no := true, false
	if _, err := k.Remount(t.Context(), "/m/none", Access{ReadOnly: &yes}); tine.KindOf(err) != tine.KindNotFound {
		t.Errorf("nothing is mounted there: %v", err)
	}
	s, err := k.Remount(t.Context(), "/m/a/", Access{ReadOnly: &yes, AllowDev: &yes})
	if err != nil || !s.ReadOnly || !s.AllowDev || s.AllowSUID || !f.mounts["/m/a"].shown.ReadOnly {
		t.Fatalf("%+v, %v; mounted %+v", s, err, f.mounts["/m/a"].shown)
	}
	if got := news.next(); !strings.HasSuffix(got, "; remount /m/a") {
		t.Error(got)
	}
	// What is not named stays, and a refusal changes nothing.
	if s, err = k.Remount(t.Context(), "/m/a", Access{NoExec: &yes}); err != nil || !s.ReadOnly || !s.AllowDev || !s.NoExec {
		t.Fatalf("%+v, %v", s, err)
	}
	f.mounts["/m/a"].busy = true
	if _, err := k.Remount(t.Context(), "/m/a", Access{ReadOnly: &no}); tine.KindOf(err) != tine.KindBusy {
		t.Errorf("busy: %v", err)
	}
	f.mounts["/m/a"].busy = false
	if _, err := k.Remount(t.Context(), "/m/c", Access{ReadOnly: &no}); tine.KindOf(err) != tine.KindReadOnly || !strings.Contains(tine.HintOf(err), "tine fork a@c") {
		t.Errorf("a checkpoint: %v, %s", err, tine.HintOf(err))
	}
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs, err := readRecords(data)
	if err != nil || len(rs) != 2 || !rs[0].ReadOnly || !rs[0].AllowDev || !rs[0].NoExec || rs[1].ReadOnly {
		t.Errorf("recorded %+v, %v", rs, err)
	}
	if _, err := k.Remount(t.Context(), "/m/a", Access{ReadOnly: &no}); tine.KindOf(err) != tine.KindUnavailable {
		t.Errorf("after Close: %v", err)
	}
}

// TestLateUnmount has the kernel let go of a mount only when the unmount that was
// asked for has been given up: nobody took it away from outside, and it does not
// come back, also if the server ends before.
func TestLateUnmount(t *testing.T) {
	for _, c := range []struct {
		what   string
		hidden bool // umount2(2) has returned: it is the connection that lasts
		again  bool // somebody asks once more, and again for nothing
		crash  bool // the server ends first
	}{
		{"gone from the table", true, false, false},
		{"umount2 has not returned", false, false, false},
		{"asked twice", true, true, false},
		{"the server ends first", true, false, true},
	} {
		data := t.TempDir()
		k, f := start(t, data)
		news := observe(k)
		if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); err != nil {
			t.Fatal(err)
		}
		news.next()
		m := f.mounts["/m/a"]
		m.stuck, m.hidden = true, c.hidden
		for range map[bool]int{false: 1, true: 2}[c.again] {
			hurry, cancel := context.WithCancel(t.Context())
			m.asked = cancel // the time is over as soon as it was asked
			if err := k.Unmount(hurry, "/m/a", false); tine.KindOf(err) != tine.KindBusy || !strings.Contains(tine.HintOf(err), "--force") {
				t.Fatalf("%s: %v", c.what, err)
			}
		}
		if got := states(k); got != "a /m/a unmounting" || len(k.On("a")) != 1 {
			t.Errorf("%s: %s", c.what, got)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel() // or it waits for the end of the one before
		if _, err := k.Mount(over, Record{Disk: "b", Dir: "/m/a"}); tine.KindOf(err) != tine.KindBusy || !strings.Contains(err.Error(), "being unmounted") {
			t.Errorf("%s: a mount in its place: %v", c.what, err)
		}
		if rs, err := readRecords(data); err != nil || len(rs) != 0 {
			t.Errorf("%s: recorded %v, %v", c.what, rs, err)
		}
		if c.crash {
			if k, _ = start(t, data); states(k) != "" {
				t.Errorf("%s: it has come back: %s", c.what, states(k))
			}
			continue
		}
		m.gone()
		if got := news.next(); got != "mount /m/a; unmount /m/a" {
			t.Errorf("%s: told of %s", c.what, got)
		}
		if got := states(k); got != "" {
			t.Errorf("%s: %s", c.what, got)
		}
	}
}

// TestRefusedUnmountIsNoWish: whoever was refused has not unmounted, and a mount
// that goes later was taken away by somebody else.
func TestRefusedUnmountIsNoWish(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	news := observe(k)
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	news.next()
	f.mounts["/m/a"].busy = true
	if err := k.Unmount(t.Context(), "/m/a", false); tine.KindOf(err) != tine.KindBusy {
		t.Fatal(err)
	}
	f.mounts["/m/a"].gone()
	if got := news.next(); got != "mount /m/a; mount-lost /m/a" {
		t.Error(got)
	}
	if got := states(k); got != "a /m/a down" {
		t.Error(got)
	}
}

// TestEndsDuringUnmount: the kernel lets go while the unmount is under way, and
// what was written last may be lost. That is told, and the mount is forgotten.
func TestEndsDuringUnmount(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	news := observe(k)
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	news.next()
	m := f.mounts["/m/a"]
	m.hidden, m.lossy = true, true
	if err := k.Unmount(t.Context(), "/m/a", false); tine.KindOf(err) != tine.KindIO {
		t.Fatal(err)
	}
	if got := news.next(); got != "mount /m/a; unmount /m/a" {
		t.Error(got)
	}
	if rs, err := readRecords(data); err != nil || len(rs) != 0 || states(k) != "" {
		t.Errorf("%v, %v, %s", rs, err, states(k))
	}
}
