package keeper

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"tine.dev/tine/internal/tine"
)

// fakeMount is a mount that does as it is told.
type fakeMount struct {
	done   chan struct{}
	once   sync.Once
	busy   bool
	forced bool
	hidden bool // the kernel's table has it no more
	shown  Record
	stuck  bool // an unmount does not end before its time is over
	lossy  bool // an unmount ends with an error
	asked  func()
}

func (m *fakeMount) gone() { m.once.Do(func() { close(m.done) }) }

func (m *fakeMount) Unmount(ctx context.Context) error {
	if m.stuck {
		m.asked()
		<-ctx.Done()
		return tine.Errorf(tine.KindBusy, "not all programs have let go of it").WithHint("end them")
	}
	if m.lossy {
		m.gone()
		return tine.Errorf(tine.KindIO, "what was written last may be lost")
	}
	if m.busy {
		return tine.Errorf(tine.KindBusy, "in use by vi").WithHint("end vi")
	}
	m.gone()
	return nil
}

func (m *fakeMount) ForceUnmount(context.Context) error {
	m.forced = true
	m.gone()
	return nil
}

func (m *fakeMount) Remount(_ context.Context, r Record) error {
	if m.busy {
		return tine.Errorf(tine.KindBusy, "files are open for writing")
	}
	m.shown = r
	return nil
}

func (m *fakeMount) Done() <-chan struct{} { return m.done }

func (m *fakeMount) Shown() bool { return !m.hidden }

// fakeMounter notes what it is asked for.
type fakeMounter struct {
	data   string
	mounts map[string]*fakeMount
	order  []string
	fail   error
	// seen is what the record's file held when a mount was asked for.
	seen []string
}

func (f *fakeMounter) Mount(_ context.Context, r Record) (Mounted, error) {
	b, err := os.ReadFile(filepath.Join(f.data, fileName))
	if err != nil {
		return nil, err
	}
	f.seen = append(f.seen, string(b))
	if f.fail != nil {
		return nil, f.fail
	}
	m := &fakeMount{done: make(chan struct{})}
	f.mounts[r.Dir] = m
	f.order = append(f.order, "mount "+r.Dir)
	return m, nil
}

func (f *fakeMounter) CleanStale(dir string) error {
	f.order = append(f.order, "clean "+dir)
	return nil
}

func start(t *testing.T, data string) (*Keeper, *fakeMounter) {
	t.Helper()
	f := &fakeMounter{data: data, mounts: map[string]*fakeMount{}}
	k, err := Open(data, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k.Restore(t.Context())
	return k, f
}

func states(k *Keeper) string {
	var out []string
	for _, s := range k.List() {
		out = append(out, s.Disk+" "+s.Dir+" "+string(s.State))
	}
	return strings.Join(out, "; ")
}

func TestMountsComeBackOldestFirst(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	for _, dir := range []string{"/m/a", "/m/a/b"} {
		if _, err := k.Mount(t.Context(), Record{Disk: filepath.Base(dir), Dir: dir}); err != nil {
			t.Fatal(err)
		}
		if last := f.seen[len(f.seen)-1]; !strings.Contains(last, dir+`"`) {
			t.Fatalf("the record of %s was not durable before the mount: %s", dir, last)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Mount(t.Context(), Record{Disk: "c", Dir: "/m/c"}); tine.KindOf(err) != tine.KindUnavailable {
		t.Errorf("a mount after Close: %v", err)
	}

	k, f = start(t, data)
	want := []string{"clean /m/a/b", "clean /m/a", "mount /m/a", "mount /m/a/b"}
	if !slices.Equal(f.order, want) {
		t.Errorf("got %v, want %v", f.order, want)
	}
	if got := states(k); got != "a /m/a mounted; b /m/a/b mounted" {
		t.Error(got)
	}
}

func TestUnmountForgets(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	f.mounts["/m/a"].busy = true
	err := k.Unmount(t.Context(), "/m/a", false)
	if tine.KindOf(err) != tine.KindBusy || !strings.Contains(tine.HintOf(err), "tine umount --force /m/a") || !strings.Contains(tine.HintOf(err), "end vi") {
		t.Fatalf("busy: %v, hint %q", err, tine.HintOf(err))
	}
	if got := states(k); got != "a /m/a mounted" {
		t.Fatal(got)
	}
	if err := k.Unmount(t.Context(), "/m/a/", true); err != nil || !f.mounts["/m/a"].forced {
		t.Fatalf("forced: %v", err)
	}
	if got := states(k); got != "" {
		t.Error(got)
	}
	if rs, err := readRecords(data); err != nil || len(rs) != 0 {
		t.Errorf("%v, %v", rs, err)
	}
	if err := k.Unmount(t.Context(), "/m/a", false); tine.KindOf(err) != tine.KindNotFound {
		t.Errorf("a second unmount: %v", err)
	}
}

func TestFailedMountLeavesNoRecord(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	f.fail = tine.Errorf(tine.KindUnsupported, "no /dev/fuse")
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); !errors.Is(err, f.fail) {
		t.Fatal(err)
	}
	if rs, err := readRecords(data); err != nil || len(rs) != 0 {
		t.Errorf("%v, %v", rs, err)
	}
}

func TestRestoreKeepsWhatFails(t *testing.T) {
	data := t.TempDir()
	if err := writeRecords(data, []Record{{Disk: "a", Dir: "/m/a"}}); err != nil {
		t.Fatal(err)
	}
	f := &fakeMounter{data: data, mounts: map[string]*fakeMount{}, fail: tine.Errorf(tine.KindNotFound, "no such disk")}
	k, err := Open(data, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Unmount(t.Context(), "/m/a", false); tine.KindOf(err) != tine.KindBusy {
		t.Errorf("an unmount before Restore: %v", err)
	}
	k.Restore(t.Context())
	if got := states(k); got != "a /m/a failed" {
		t.Fatal(got)
	}
	f.fail = nil
	if _, err := k.Mount(t.Context(), Record{Disk: "b", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	if got := states(k); got != "b /m/a mounted" {
		t.Error(got)
	}
}

func TestTakenAwayFromOutside(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	f.mounts["/m/a"].gone()
	for len(k.On("a")) > 0 {
		runtime.Gosched()
	}
	if got := states(k); got != "a /m/a down" {
		t.Error(got)
	}
	if err := k.Removed("a"); err != nil {
		t.Fatal(err)
	}
	if rs, err := readRecords(data); err != nil || len(rs) != 0 {
		t.Errorf("%v, %v", rs, err)
	}
}

// TestMountedAgainAtOnce has a mount follow umount(8) before the server has
// heard of that: it must be made, not be taken for the one that is going.
func TestMountedAgainAtOnce(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	record := k.External(Record{Disk: "a", Dir: "/m/a"}, false)
	if _, err := k.Mount(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	old := f.mounts["/m/a"]
	old.hidden = true
	hurry, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Mount(hurry, record); tine.KindOf(err) != tine.KindBusy {
		t.Fatalf("while programs hold on to the old mount: %v", err)
	}
	result := make(chan error)
	go func() {
		_, err := k.Mount(t.Context(), record)
		result <- err
	}()
	old.gone()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if f.mounts["/m/a"] == old {
		t.Error("nothing was mounted")
	}
	if got := states(k); got != "a /m/a mounted" {
		t.Error(got)
	}
	if rs, err := readRecords(data); err != nil || len(rs) != 1 {
		t.Errorf("%v, %v", rs, err)
	}
}

func TestRefusals(t *testing.T) {
	data := t.TempDir()
	k, _ := start(t, data)
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	for dir, kind := range map[string]tine.ErrorKind{
		"/m/a": tine.KindBusy, "m/b": tine.KindInvalid, data: tine.KindInvalid, filepath.Join(data, "x"): tine.KindInvalid,
		filepath.Dir(data): tine.KindInvalid, "/": tine.KindInvalid,
	} {
		if _, err := k.Mount(t.Context(), Record{Disk: "b", Dir: dir}); tine.KindOf(err) != kind || tine.HintOf(err) == "" && dir != "m/b" {
			t.Errorf("%s: %v (%s)", dir, err, tine.KindOf(err))
		}
	}
}

func TestCloseForcesBusyMounts(t *testing.T) {
	data := t.TempDir()
	k, f := start(t, data)
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	f.mounts["/m/a"].busy = true
	if err := k.Close(t.Context()); err != nil || !f.mounts["/m/a"].forced {
		t.Errorf("%v, forced %v", err, f.mounts["/m/a"].forced)
	}
	if rs, err := readRecords(data); err != nil || len(rs) != 1 {
		t.Errorf("%v, %v", rs, err)
	}
}

func TestRenameAndForget(t *testing.T) {
	data := t.TempDir()
	k, _ := start(t, data)
	if _, err := k.Mount(t.Context(), Record{Disk: "a", Checkpoint: "c", Dir: "/m/a"}); err != nil {
		t.Fatal(err)
	}
	if err := k.Renamed("a", "b"); err != nil {
		t.Fatal(err)
	}
	if got := k.On("b"); len(got) != 1 || len(k.On("a")) != 0 {
		t.Error(got)
	}
	rs, err := readRecords(data)
	if err != nil || len(rs) != 1 || rs[0].Ref().String() != "b@c" {
		t.Fatalf("%v, %v", rs, err)
	}
	if was, err := Forget(data, "/m/x"); was || err != nil {
		t.Error(was, err)
	}
	if was, err := Forget(data, "/m/a"); !was || err != nil {
		t.Error(was, err)
	}
	if rs, err := readRecords(data); err != nil || len(rs) != 0 {
		t.Errorf("%v, %v", rs, err)
	}
}

func TestRecordsOfANewerFormat(t *testing.T) {
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, fileName), []byte(`{"format":2,"mounts":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(data, nil, nil); tine.KindOf(err) != tine.KindVersion {
		t.Error(err)
	}
}

func TestParseMountInfo(t *testing.T) {
	table := parseMountInfo("22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n" +
		"40 22 0:50 / /mnt/with\\040blank rw - fuse.tine tine:work rw\n" +
		"41 22 0:51 / /mnt/two rw - tmpfs tmpfs rw\n42 22 0:52 / /mnt/two rw master:3 propagate_from:2 - fuse.tine tine rw\nbroken\n")
	want := map[string]string{"/": "ext4", "/mnt/with blank": "fuse.tine", "/mnt/two": "fuse.tine"}
	for dir, typ := range want {
		if table[dir] != typ {
			t.Errorf("%s: %q, want %q", dir, table[dir], typ)
		}
	}
	if len(table) != len(want) {
		t.Error(table)
	}
	if is, err := IsTineMount("/proc"); is || err != nil {
		t.Error(is, err)
	}
}
