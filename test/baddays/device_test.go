package baddays

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deviceDay is a device that fails in one way.
type deviceDay struct {
	name, op, files string
	large           bool   // the file that is written is too large for the rows
	place           string // what the log must name
	alone           bool   // other disks do not notice
}

// flushDays are failures after which nothing can be said of what was written.
var flushDays = []deviceDay{
	{"a flush of the rows' log", "fsync", `^rows/.*\.log$`, false, ".log", false},
	{"a write to the rows' log", "write", `^rows/.*\.log$`, false, ".log", false},
	{"a flush of a segment", "fsync", `^segments/..`, true, "segments/", true},
	{"a write to a segment", "write", `^segments/..`, true, "segments/", true},
	{"all changes", "change", `.`, true, "data", true}, // the data comes before the rows that name it
}

// deviceWorld is a server on a faultfs with two disks that are mounted.
func deviceWorld(t *testing.T) (w *world, f *faults, work, other string) {
	t.Helper()
	f = &faults{t: t}
	w = newWorld(t, f.serve, "--commit-interval", "10m")
	w.start()
	w.tine("disk", "create", "work")
	w.tine("disk", "create", "other")
	work, other = w.mount("work"), w.mount("other")
	for _, mnt := range []string{work, other} {
		for i := range 3 {
			must(t, writeSynced(filepath.Join(mnt, fmt.Sprint("file", i)), bytesOf(fmt.Sprint(i), 200_000)))
		}
		must(t, writeSynced(filepath.Join(mnt, "small"), []byte("small")))
	}
	return w, f, work, other
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeviceFailsFlushes: a failed write or flush is told on every handle that
// was open, again and again, and a new server opens at what was durable.
func TestDeviceFailsFlushes(t *testing.T) {
	for _, d := range flushDays {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			d.live(t)
		})
	}
}

func (d deviceDay) live(t *testing.T) {
	w, f, work, other := deviceWorld(t)
	before, _, err := look(work)
	must(t, err)
	handles, spared := openAll(t, work), openAll(t, other)
	if !d.alone {
		handles, spared = append(handles, spared...), nil
	}
	f.fail(d.op, d.files)
	size := 100
	if d.large {
		size = 1 << 20
	}
	lost := filepath.Join(work, "lost")
	err = w.within("write and fsync", func() error { return writeSynced(lost, bytesOf("lost", size)) })
	if !errors.Is(err, unix.EIO) {
		t.Fatalf("write and fsync on a device that fails: %v", err)
	}
	if hits := f.heal(); hits == 0 {
		t.Fatal("nothing has failed")
	}
	// The device works again, which must not be believed.
	for range 3 {
		for _, h := range handles {
			if err := w.within("fsync", h.Sync); !errors.Is(err, unix.EIO) {
				t.Errorf("fsync of %s, open since before the failure: %v", h.Name(), err)
			}
		}
	}
	for _, h := range spared {
		must(t, w.within("fsync", h.Sync))
	}
	err = w.within("fsync", func() error { return writeSynced(filepath.Join(other, "new"), bytesOf("new", 1<<20)) })
	if d.alone != (err == nil) || !d.alone && !errors.Is(err, unix.EIO) {
		t.Errorf("fsync on the other disk: %v", err)
	}
	failed := "other"
	if d.alone {
		w.tine("sync", "other")
		failed = "work"
	}
	if out, code := w.run("sync", failed); code != 10 && code != 11 || !strings.Contains(out, "restart") {
		t.Errorf("tine sync ends with %d and says: %s", code, out)
	}
	if l := w.log(); !strings.Contains(l, "level=ERROR") || !strings.Contains(l, d.place) || !strings.Contains(l, "input/output error") || !strings.Contains(l, "restart") {
		t.Errorf("the log does not say what has failed, where, and what to do (%q):\n%s", d.place, l)
	}
	if !strings.Contains(w.tine("events"), "failed ") {
		t.Errorf("it is no event: %s", w.tine("events"))
	}
	w.kill()
	w.start()
	for _, h := range handles {
		if err := h.Sync(); err == nil {
			t.Errorf("fsync of %s, open since before the failure, succeeds on the new server", h.Name())
		}
	}
	after, damaged, err := look(work)
	must(t, err)
	delete(after, "lost") // it was never acknowledged
	if diff := differ(after, before, nil); diff != "" || len(damaged) > 0 {
		t.Errorf("what was durable:\n%s%v", diff, damaged)
	}
	must(t, writeSynced(filepath.Join(work, "after"), bytesOf("after", 1<<20)))
	must(t, w.rig.Stop(t.Context()))
	w.clean()
}

// openAll opens files and directories of both mounts, for reading and writing.
func openAll(t *testing.T, mnts ...string) (all []*os.File) {
	t.Helper()
	for _, mnt := range mnts {
		for _, o := range []struct {
			name  string
			flags int
		}{{"file0", os.O_RDWR}, {"file1", os.O_RDONLY}, {"small", os.O_WRONLY}, {"small", os.O_RDWR}, {".", os.O_RDONLY}} {
			h, err := os.OpenFile(filepath.Join(mnt, o.name), o.flags, 0)
			must(t, err)
			t.Cleanup(func() { _ = h.Close() })
			all = append(all, h)
		}
	}
	return all
}

// TestDeviceFailsReads: a place that cannot be read is EIO for what lies there,
// with the place in the log, and a matter of nothing else.
func TestDeviceFailsReads(t *testing.T) {
	t.Parallel()
	w, f, work, other := deviceWorld(t)
	mark := bytesOf("of work alone", 100_000)
	must(t, writeSynced(filepath.Join(work, "mark"), mark))
	must(t, w.rig.Stop(t.Context()))
	w.start()
	// The disks have segments of their own; that of work fails.
	segments, err := filepath.Glob(filepath.Join(w.rig.Data(), "segments", "*", "*"))
	must(t, err)
	if len(segments) != 2 {
		t.Fatalf("%d segments", len(segments))
	}
	bad := ""
	for _, s := range segments {
		b, err := os.ReadFile(s)
		must(t, err)
		if bytes.Contains(b, mark[:1000]) {
			bad = s
		}
	}
	if bad == "" {
		t.Fatalf("none of %q holds what was written to work", segments)
	}
	rel, err := filepath.Rel(w.rig.Data(), bad)
	must(t, err)
	f.fail("read", "^"+rel+"$")
	if _, err := os.ReadFile(filepath.Join(work, "file0")); !errors.Is(err, unix.EIO) {
		t.Errorf("reading what cannot be read: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(work, "small")); err != nil || string(b) != "small" {
		t.Errorf("reading what lies elsewhere: %q, %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(other, "file0")); err != nil || string(b) != string(bytesOf("0", 200_000)) {
		t.Errorf("reading the other disk: %v", err)
	}
	must(t, writeSynced(filepath.Join(other, "new"), bytesOf("new", 1<<20)))
	must(t, writeSynced(filepath.Join(work, "new"), bytesOf("new", 1<<20)))
	if l := w.log(); !strings.Contains(l, filepath.Base(bad)) {
		t.Errorf("the log does not name %s:\n%s", bad, l)
	}
	if f.heal() == 0 {
		t.Error("nothing has failed")
	}
	if b, err := os.ReadFile(filepath.Join(work, "file0")); err != nil || string(b) != string(bytesOf("0", 200_000)) {
		t.Errorf("reading when the device works again: %v", err)
	}
	must(t, w.rig.Stop(t.Context()))
	w.clean()
}

// TestDeviceFailsStart: a server that cannot read or write what it needs says
// what, and starts when it can.
func TestDeviceFailsStart(t *testing.T) {
	t.Parallel()
	w, f, work, _ := deviceWorld(t)
	before, _, err := look(work)
	must(t, err)
	for _, d := range []deviceDay{
		{op: "read", files: `^rows/MANIFEST`, place: "rows"},
		{op: "read", files: `^rows/.*\.log$`, place: "rows"},
		{op: "open", files: `^mounts.json$`, place: "mounts.json"},
		{op: "create", files: `^rows/`, place: "rows"},
		{op: "fsync", files: `^rows/`, place: "rows"},
	} {
		w.kill()
		f.fail(d.op, d.files)
		said := len(w.log())
		_, err := w.rig.Start(t.Context())
		l := w.log()[said:]
		if hits := f.heal(); hits == 0 {
			t.Errorf("%s of %s: nothing has failed", d.op, d.files)
		}
		if err == nil {
			t.Errorf("the server starts although it cannot %s %s", d.op, d.files)
			continue
		}
		if !strings.Contains(l, "tine: ") || !strings.Contains(l, d.place) || !strings.Contains(l, "input/output error") || !strings.Contains(l, "\n      ") || strings.Contains(l, "goroutine ") {
			t.Errorf("%s of %s fails; the server says:\n%s", d.op, d.files, l)
		}
		w.start()
	}
	after, damaged, err := look(work)
	must(t, err)
	if diff := differ(after, before, nil); diff != "" || len(damaged) > 0 {
		t.Errorf("after all that:\n%s%v", diff, damaged)
	}
	must(t, w.rig.Stop(t.Context()))
	w.clean()
}
