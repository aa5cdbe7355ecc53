package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// TestTheClockIsSet puts the wall clock forwards and back, while the server
// runs and while it does not.
func TestTheClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-100 * 24 * time.Hour, 100 * 24 * time.Hour} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprint(by, running), func(t *testing.T) {
				w := newWorld(t)
				w.disk("fork")
				w.set("work", Change{Every: ptr(10 * time.Minute), KeepFor: ptr(time.Hour)})
				w.set("fork", Change{TTL: ptr(2 * time.Hour)})
				for range 6 {
					w.write("work")
					w.run(10*time.Minute, 5*time.Minute)
				}
				before := w.names("work")
				w.write("work")
				if running {
					w.clock.set(by)
				} else {
					w.restart(by)
				}
				w.m.Look(t.Context())
				w.run(10*time.Minute, 5*time.Minute)
				after := w.names("work")
				made := slices.DeleteFunc(slices.Clone(after), func(n string) bool { return slices.Contains(before, n) })
				if len(made) != 1 || made[0] <= before[len(before)-1] {
					t.Errorf("made %q after %q", made, before)
				}
				if lost := len(before) + 1 - len(after); lost > 2*agedAtOnce {
					t.Errorf("%d of %d checkpoints were lost at once", lost, len(before))
				}
				// Nothing piles up for ever either.
				for range 30 {
					w.write("work")
					w.run(10*time.Minute, 5*time.Minute)
				}
				if n := len(w.names("work")); n > 8 {
					t.Errorf("%d checkpoints are kept: %q", n, w.names("work"))
				}
				if running || by < 0 {
					w.expireAt(30 * time.Hour)
				}
			})
		}
	}
}

// expireAt checks that the fork is gone, at the latest after so long.
func (w *world) expireAt(limit time.Duration) {
	w.t.Helper()
	for d := time.Duration(0); d < limit; d += 10 * time.Minute {
		if _, err := w.host.Disk(w.t.Context(), user, "fork"); tine.KindOf(err) == tine.KindNotFound {
			return
		}
		w.run(10*time.Minute, 10*time.Minute)
	}
	w.t.Error("the fork has outlived its time")
}

func TestADisksTimeIsOver(t *testing.T) {
	w := newWorld(t)
	if _, err := w.host.Fork(t.Context(), user, volume.Ref{Disk: "work"}, []string{"try"}, volume.WaitDurable); err != nil {
		t.Fatal(err)
	}
	if s := w.set("try", Change{TTL: ptr(2 * time.Hour)}); !s.Ends.Equal(w.clock.Now().Add(2 * time.Hour)) {
		t.Errorf("%+v", s)
	}
	w.clock.set(50 * time.Hour) // while it runs the wall clock says nothing
	w.m.Look(t.Context())
	if left := w.m.Of(w.id("try")).Ends.Sub(w.clock.Now()); left != 2*time.Hour {
		t.Errorf("%v is left", left)
	}
	w.run(time.Hour, 10*time.Minute)
	w.restart(30 * time.Minute)
	w.m.Look(t.Context())
	s, err := w.host.Attach(t.Context(), user, volume.Ref{Disk: "try"}, volume.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.host.RenameDisk(t.Context(), user, "try", "again"); err != nil {
		t.Fatal(err)
	}
	w.disk("try") // another disk of the old name
	w.took()
	w.run(2*time.Hour, 10*time.Minute)
	if got := w.took(); got != "" {
		t.Errorf("while it was in use: %s", got)
	}
	if st := w.m.Of(w.id("again")); st.Err != nil {
		t.Errorf("being in use is no failure: %v", st.Err)
	}
	if err := s.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.run(busyRetry, busyRetry)
	if got := w.took(); got != "disk-expire again" {
		t.Error(got)
	}
	if _, err := w.host.Disk(t.Context(), user, "try"); err != nil {
		t.Error(err)
	}
	// Brought back, it stays.
	if _, err := w.host.UndeleteDisk(t.Context(), user, "again"); err != nil {
		t.Fatal(err)
	}
	w.run(24*time.Hour, time.Hour)
	w.restart(time.Hour)
	w.run(time.Hour, time.Hour)
	if _, err := w.host.Disk(t.Context(), user, "again"); err != nil {
		t.Error(err)
	}
}

func (w *world) id(name string) tine.DiskID {
	w.t.Helper()
	d, err := w.host.Disk(w.t.Context(), user, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return d.ID
}
