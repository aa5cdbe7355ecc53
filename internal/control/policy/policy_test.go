package policy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// hands is a clock that a test moves.
type hands struct {
	mu     sync.Mutex
	wall   time.Time
	passed time.Duration
}

func (h *hands) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wall
}

func (h *hands) Passed() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.passed
}

func (h *hands) After(time.Duration) <-chan time.Time { return nil }

// pass lets time go by; set puts the wall clock elsewhere.
func (h *hands) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall, h.passed = h.wall.Add(d), h.passed+d
}

func (h *hands) set(by time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall = h.wall.Add(by)
}

var user = volume.Caller{Tenant: tine.DefaultTenant, Author: "me", Principal: "uid:0"}

// faultyHost fails checkpoints as it is told.
type faultyHost struct {
	*volume.Host
	fail error
}

func (f *faultyHost) Checkpoint(ctx context.Context, c volume.Caller, disk, name, message string, wait volume.Wait) (volume.CheckpointInfo, error) {
	if f.fail != nil {
		return volume.CheckpointInfo{}, f.fail
	}
	return f.Host.Checkpoint(ctx, c, disk, name, message, wait)
}

// world is a host and a manager over it, both with the test's clock.
type world struct {
	t     *testing.T
	clock *hands
	fs    vfs.FS
	host  *faultyHost
	m     *Manager
	mu    sync.Mutex
	deeds []string
	files int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, fs: vfs.NewMem(), clock: &hands{wall: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), passed: time.Hour}}
	w.open()
	t.Cleanup(w.close)
	w.disk("work")
	return w
}

func (w *world) open() {
	w.t.Helper()
	h, err := volume.Open(w.t.Context(), volume.Options{Dir: "/data", FS: w.fs, Clock: w.clock.Now, TrashKeep: -1, Manual: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.host = &faultyHost{Host: h}
	w.m, err = Open(Options{Host: w.host, Clock: w.clock, Log: slog.New(slog.DiscardHandler), Done: func(d Deed) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.deeds = append(w.deeds, strings.TrimSpace(d.Kind+" "+d.Disk+" "+d.Detail))
	}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.t.Helper()
	if err := w.host.Close(context.Background()); err != nil {
		w.t.Error(err)
	}
}

// restart opens everything anew; the machine's uptime starts again.
func (w *world) restart(away time.Duration) {
	w.t.Helper()
	w.close()
	w.clock.pass(away)
	w.clock.mu.Lock()
	w.clock.passed = time.Second
	w.clock.mu.Unlock()
	w.open()
}

func (w *world) disk(name string) {
	w.t.Helper()
	if _, err := w.host.CreateDisk(w.t.Context(), user, name); err != nil {
		w.t.Fatal(err)
	}
}

// write makes a file on the disk.
func (w *world) write(disk string) {
	w.t.Helper()
	s, err := w.host.Attach(w.t.Context(), user, volume.Ref{Disk: disk}, volume.AttachOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.files++
	if _, _, err := s.Mknod(volume.Cred{}, volume.Root, fmt.Sprint("f", w.files), 0o644, 0); err != nil {
		w.t.Fatal(err)
	}
	if err := s.Detach(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

func (w *world) set(disk string, c Change) State {
	w.t.Helper()
	s, err := w.m.Set(w.t.Context(), user, disk, c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.m.Look(w.t.Context())
	return s
}

// run lets time pass in steps, looking after each, as Run would.
func (w *world) run(total, step time.Duration) {
	w.t.Helper()
	for d := time.Duration(0); d < total; d += step {
		w.clock.pass(step)
		w.m.Look(w.t.Context())
	}
}

// names returns the disk's checkpoints in the order of their names.
func (w *world) names(disk string) []string {
	w.t.Helper()
	cps, err := w.host.Checkpoints(w.t.Context(), user, disk)
	if err != nil {
		w.t.Fatal(err)
	}
	var ns []string
	for _, c := range cps {
		ns = append(ns, c.Name)
	}
	slices.Sort(ns)
	return ns
}

func (w *world) expectNames(disk string, want ...string) {
	w.t.Helper()
	if got := w.names(disk); !slices.Equal(got, want) {
		w.t.Errorf("%s has %q, want %q", disk, got, want)
	}
}

func (w *world) took() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.Join(w.deeds, "; ")
	w.deeds = nil
	return s
}

func TestCheckpointsAreMadeWhenSomethingWasWritten(t *testing.T) {
	w := newWorld(t)
	s := w.set("work", Change{Every: ptr(10 * time.Minute)})
	if s.KeepFor != int64(DefaultKeep) || s.Next != w.clock.Now().Add(10*time.Minute) {
		t.Errorf("%+v", s)
	}
	w.run(9*time.Minute, time.Minute)
	w.expectNames("work")
	w.run(time.Minute, time.Minute)
	w.expectNames("work", "policy-20260102-001000")
	w.run(time.Hour, time.Minute) // nothing is written
	w.expectNames("work", "policy-20260102-001000")
	w.write("work")
	w.run(10*time.Minute, time.Minute)
	w.expectNames("work", "policy-20260102-001000", "policy-20260102-012000")
	if got := w.took(); got != "checkpoint work policy-20260102-001000; checkpoint work policy-20260102-012000" {
		t.Error(got)
	}
	cps, err := w.host.Checkpoints(t.Context(), user, "work")
	if err != nil || cps[0].Caller != Principal || cps[0].Message != "every 10m0s" {
		t.Errorf("%+v, %v", cps, err)
	}
}

func TestRetentionTakesOnlyItsOwn(t *testing.T) {
	w := newWorld(t)
	// A user's, of a name that the policy will want, and older than all.
	for _, name := range []string{"mine", "policy-20260102-002000"} {
		if _, err := w.host.Checkpoint(t.Context(), user, "work", name, "", volume.WaitDurable); err != nil {
			t.Fatal(err)
		}
	}
	w.set("work", Change{Every: ptr(10 * time.Minute), KeepCount: ptr(int64(2))})
	for range 4 {
		w.write("work")
		w.run(10*time.Minute, 5*time.Minute)
	}
	w.expectNames("work", "mine", "policy-20260102-002000", "policy-20260102-003000", "policy-20260102-004000")
	// By age.
	w.set("work", Change{KeepCount: ptr(int64(0)), KeepFor: ptr(25 * time.Minute)})
	for range 4 {
		w.write("work")
		w.run(10*time.Minute, 5*time.Minute)
	}
	w.expectNames("work", "mine", "policy-20260102-002000", "policy-20260102-010000", "policy-20260102-011000", "policy-20260102-012000")
	// A checkpoint that is in use stays, and goes later.
	s, err := w.host.Attach(t.Context(), user, volume.Ref{Disk: "work", Checkpoint: "policy-20260102-010000"}, volume.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.set("work", Change{KeepCount: ptr(int64(1)), KeepFor: ptr(time.Duration(0))})
	w.expectNames("work", "mine", "policy-20260102-002000", "policy-20260102-010000", "policy-20260102-012000")
	if err := s.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.run(10*time.Minute, 10*time.Minute)
	w.expectNames("work", "mine", "policy-20260102-002000", "policy-20260102-012000")
	// Without a policy everything stays.
	w.set("work", Change{Every: ptr(time.Duration(0))})
	w.write("work")
	w.run(24*time.Hour, time.Hour)
	w.expectNames("work", "mine", "policy-20260102-002000", "policy-20260102-012000")
}

func TestMissedTimesAreOneCheckpoint(t *testing.T) {
	w := newWorld(t)
	w.set("work", Change{Every: ptr(10 * time.Minute)})
	w.write("work")
	w.run(10*time.Minute, 10*time.Minute)
	w.write("work")
	w.restart(5 * time.Hour)
	w.m.Look(t.Context())
	w.expectNames("work", "policy-20260102-001000", "policy-20260102-051000")
	w.run(10*time.Minute, time.Minute)
	if n := len(w.names("work")); n > 2 {
		t.Errorf("a burst: %q", w.names("work"))
	}
	// A short restart puts nothing off.
	w.write("work")
	w.run(5*time.Minute, time.Minute)
	before := len(w.names("work"))
	w.restart(time.Minute)
	w.m.Look(t.Context())
	w.run(4*time.Minute, time.Minute)
	if after := len(w.names("work")); after != before+1 {
		t.Errorf("%d checkpoints, then %d", before, after)
	}
}

func TestTimeLimitChangedAndTakenAway(t *testing.T) {
	w := newWorld(t)
	w.set("work", Change{TTL: ptr(time.Hour)})
	w.run(50*time.Minute, 10*time.Minute)
	w.set("work", Change{TTL: ptr(time.Hour)})
	w.run(50*time.Minute, 10*time.Minute)
	w.set("work", Change{TTL: ptr(time.Duration(0))})
	w.run(5*time.Hour, 10*time.Minute)
	if _, err := w.host.Disk(t.Context(), user, "work"); err != nil {
		t.Error(err)
	}
	if ps, err := w.host.Policies(); err != nil || len(ps) != 0 {
		t.Errorf("rows are left: %v, %v", ps, err)
	}
	// Removed by hand in time, and brought back after it.
	w.set("work", Change{TTL: ptr(time.Hour)})
	if _, err := w.host.RemoveDisk(t.Context(), user, "work", false); err != nil {
		t.Fatal(err)
	}
	w.run(2*time.Hour, 10*time.Minute)
	if _, err := w.host.UndeleteDisk(t.Context(), user, "work"); err != nil {
		t.Fatal(err)
	}
	w.run(2*time.Hour, 10*time.Minute)
	if _, err := w.host.Disk(t.Context(), user, "work"); err != nil {
		t.Error(err)
	}
}

func TestAFailureIsShownAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.set("work", Change{Every: ptr(10 * time.Minute)})
	w.host.fail = tine.ErrNoSpace
	w.run(10*time.Minute, time.Minute)
	s := w.m.Of(w.id("work"))
	if tine.KindOf(s.Err) != tine.KindNoSpace || !s.Failed.Equal(w.clock.Now()) || !s.Next.Equal(w.clock.Now().Add(firstRetry)) {
		t.Errorf("%+v", s)
	}
	w.run(10*time.Minute, firstRetry)
	if got := w.took(); got != "policy-failed work" {
		t.Errorf("told: %s", got)
	}
	w.host.fail = nil
	w.run(lastRetry, time.Minute)
	if s := w.m.Of(w.id("work")); s.Err != nil || len(w.names("work")) != 1 {
		t.Errorf("%+v, %q", s, w.names("work"))
	}
}

func TestPoliciesOfDisksThatAreGone(t *testing.T) {
	w := newWorld(t)
	w.disk("gone")
	w.set("gone", Change{Every: ptr(time.Minute), TTL: ptr(time.Hour)})
	w.set("work", Change{Every: ptr(time.Minute)})
	if _, err := w.host.RemoveDisk(t.Context(), user, "gone", false); err != nil {
		t.Fatal(err)
	}
	if wait := w.m.Look(t.Context()); wait <= 0 || wait > longestWait {
		t.Errorf("waits %v", wait)
	}
	w.run(2*time.Minute, time.Minute)
	if got := w.took(); strings.Contains(got, "gone") {
		t.Errorf("in the trash: %s", got)
	}
	if _, err := w.host.RemoveDisk(t.Context(), user, "gone", true); err != nil {
		t.Fatal(err)
	}
	w.m.Look(t.Context())
	ps, err := w.host.Policies()
	if err != nil || len(ps) != 1 || ps[w.id("work")].Every == 0 {
		t.Errorf("%v, %v", ps, err)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]Change{
		"too often": {Every: ptr(time.Millisecond)}, "too short": {TTL: ptr(time.Millisecond)}, "keep nothing": {KeepFor: ptr(time.Hour)},
		"keep none": {KeepCount: ptr(int64(3))},
	} {
		if _, err := w.m.Set(t.Context(), user, "work", c); tine.KindOf(err) != tine.KindInvalid || tine.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.m.Set(t.Context(), user, "none", Change{Every: ptr(time.Hour)}); tine.KindOf(err) != tine.KindNotFound {
		t.Error(err)
	}
}

// TestRunEnds: Run does what is due when it is woken, and ends with its context.
func TestRunEnds(t *testing.T) {
	w := newWorld(t)
	did := make(chan Deed)
	w.m.Done = func(d Deed) { did <- d }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.m.Run(ctx)
	}()
	if _, err := w.m.Set(t.Context(), user, "work", Change{Every: ptr(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(time.Hour)
	w.m.Wake()
	if d := <-did; d.Kind != "checkpoint" {
		t.Errorf("%+v", d)
	}
	cancel()
	<-ended
}
