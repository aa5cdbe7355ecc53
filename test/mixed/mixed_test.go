package mixed

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/test/rig"
)

// TestMixed has everybody work at once, and kills the server again and again
// unless it is told not to.
func TestMixed(t *testing.T) {
	w := newWorld(t)
	w.hire()
	began := time.Now()
	w.together(func(k *worker) error { return named(k, "prepare", k.job.prepare(w.ctx)) })
	t.Logf("prepared in %v", time.Since(began).Round(time.Millisecond))

	w.gate.set(true, false)
	failed := make(chan error, len(w.workers))
	for _, k := range w.workers {
		go func() { failed <- w.run(k) }()
	}
	samples, left := w.live(failed)
	w.gate.set(true, true)
	for range left {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	for _, k := range w.workers {
		t.Logf("%s: %d steps, went on after %d crashes, met %v", k.name, k.steps, k.lives, k.met)
		if k.steps == 0 && k.lives == 0 {
			t.Errorf("%s has done nothing", k.name)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	w.flat(samples)
	w.end()
}

// hire gives the world its workers.
func (w *world) hire() {
	for _, job := range []struct {
		name string
		job  job
	}{
		{"git", &gitJob{w: w, rnd: w.random(1)}},
		{"builds", &buildJob{w: w, rnd: w.random(2)}},
		{"SQLite, wal", &databaseJob{w: w, rnd: w.random(3), mode: "wal"}},
		{"SQLite, delete", &databaseJob{w: w, rnd: w.random(4), mode: "delete"}},
		{"model 1", &modelJob{w: w, rnd: w.random(5), name: "model-1"}},
		{"model 2", &modelJob{w: w, rnd: w.random(6), name: "model-2"}},
		{"lines", &linesJob{w: w, rnd: w.random(7)}},
	} {
		w.workers = append(w.workers, &worker{name: job.name, job: job.job, met: map[string]int{}})
	}
}

// together has all workers do something at once and returns what went wrong.
func (w *world) together(fn func(k *worker) error) {
	w.t.Helper()
	ended := make(chan error, len(w.workers))
	for _, k := range w.workers {
		go func() { ended <- fn(k) }()
	}
	for range w.workers {
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

func named(k *worker, what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %s: %w", k.name, what, err)
	}
	return nil
}

// enough is how many samples there must be, however long they take.
const enough = 5

// live lets the workers work for as long as they are to, with kills or without,
// and returns what was seen on the way, and how many workers are still at
// work. The server lives undisturbed through the last tenth.
func (w *world) live(failed <-chan error) (samples []sample, left int) {
	w.t.Helper()
	rnd := w.random(0)
	began := time.Now()
	left = len(w.workers)
	for {
		worked := time.Since(began)
		if worked >= w.length && len(samples) >= enough {
			return samples, left
		}
		// Not at the same point of what is done at intervals.
		next := w.every
		if *kills {
			next += time.Duration((rnd.Float64() - 0.5) * float64(w.every) / 2)
		}
		last := len(samples) >= enough-1 && worked+next > w.length-w.length/10
		select {
		case err := <-failed:
			w.t.Error(err)
			return samples, left - 1
		case <-time.After(next):
		}
		s, err := w.watch(w.ctx)
		must(w.t, err)
		samples = append(samples, s)
		text := fmt.Sprintf("memory %.0f MB, %.0f descriptors and %.0f of segments, %.0f goroutines, %.0f MB live, %.0f MB of space", s.memory/1e6, s.descriptors, s.segments, s.goroutines, s.live/1e6, s.space/1e6)
		if *kills && !last {
			text += fmt.Sprintf("; killed, back after %v", w.kill().Round(time.Millisecond))
		}
		w.t.Log(text)
	}
}

// end checks everything: what the workers know, what the checker finds in the
// running server's directory and in the stopped one's, what is shown after
// another start, and that nothing is left when all disks are gone.
func (w *world) end() {
	t := w.t
	t.Helper()
	finish := func(k *worker) error { return named(k, "finish", k.job.finish(w.ctx)) }
	w.together(finish)
	w.idle()
	report := w.fsck()
	t.Logf("fsck of the running server: %+v", report)
	w.usage(report)

	must(t, w.rig.Stop(w.ctx))
	report = w.fsck("--data", w.rig.Data())
	t.Logf("fsck of the stopped server: %+v", report)
	w.start()
	w.together(finish)
	w.remove()
}

// fsck runs the checker, which must find nothing, not even a leak.
func (w *world) fsck(args ...string) api.CheckReport {
	w.t.Helper()
	// Not rig.Tine, for which a minute is too long.
	cmd := rig.Command(w.ctx, w.rig.Binary(), append([]string{"fsck", "--json", "--read-data"}, args...)...)
	cmd.Env = append(os.Environ(), "TINE_SOCKET="+filepath.Join(w.rig.Dir(), "tine.sock"))
	out, err := rig.Output(cmd)
	must(w.t, err)
	var report api.CheckReport
	must(w.t, json.Unmarshal([]byte(out), &report))
	if report.Errors+report.Leaks > 0 || report.Incomplete || report.Disks == 0 {
		w.t.Errorf("fsck %v: %s", args, out)
	}
	report.Counts = nil
	return report
}

// idle waits until the server has nothing left to do in the background.
func (w *world) idle() {
	w.t.Helper()
	w.soon("the server has nothing more to do", func() bool {
		a, err := w.api.Activity(w.ctx)
		must(w.t, err)
		b := a.Background
		return b.Tasks == 0 && b.DirtyBytes == 0 && b.Layers == 0
	})
}

// soon waits until ok is true.
func (w *world) soon(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-limit:
			w.t.Fatalf("not after a minute: %s", what)
		}
	}
}

// usage compares what the server says that its disks hold with what the
// checker and the mounts show.
func (w *world) usage(report api.CheckReport) {
	w.t.Helper()
	a, err := w.api.Activity(w.ctx)
	must(w.t, err)
	if a.Background.SegmentBytes != report.SegmentBytes || int64(a.Background.Segments) != report.Segments {
		w.t.Errorf("the server tells of %d bytes in %d segments, the checker of %d in %d",
			a.Background.SegmentBytes, a.Background.Segments, report.SegmentBytes, report.Segments)
	}
	mounts, err := w.api.Mounts(w.ctx)
	must(w.t, err)
	for _, m := range mounts {
		u, err := w.api.Usage(w.ctx, m.Ref)
		must(w.t, err)
		inodes, blocks := scan(w.t, m.Dir)
		// A file's blocks are rounded up to 512 bytes.
		if u.Inodes != inodes || u.LogicalBytes > blocks || blocks >= u.LogicalBytes+512*inodes {
			w.t.Errorf("%s: du says %+v; the mount has %d inodes and %d bytes of blocks", m.Ref, u, inodes, blocks)
		}
	}
}

// scan counts what a mount shows.
func scan(t *testing.T, dir string) (inodes, bytes int64) {
	t.Helper()
	seen := map[uint64]bool{}
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if !seen[st.Ino] {
			seen[st.Ino] = true
			if info.Mode().IsRegular() {
				bytes += st.Blocks * 512
			}
		}
		return nil
	}))
	return int64(len(seen)), bytes
}

// remove removes all disks, after which no data may be left.
func (w *world) remove() {
	w.t.Helper()
	mounts, err := w.api.Mounts(w.ctx)
	must(w.t, err)
	for _, m := range mounts {
		must(w.t, w.api.Unmount(w.ctx, m.Dir, true))
	}
	disks, err := w.api.Disks(w.ctx, false)
	must(w.t, err)
	for _, d := range disks {
		_, err := w.api.RemoveDisk(w.ctx, d.Name, true)
		must(w.t, err)
	}
	w.soon("all data is gone with the disks", func() bool {
		a, err := w.api.Activity(w.ctx)
		must(w.t, err)
		return a.Background.Segments == 0 && a.Background.SegmentBytes == 0 && a.Background.Tasks == 0
	})
}

// throughFork shows a fork of a disk, made for the occasion.
func (w *world) throughFork(ctx context.Context, disk string, look func(at string) error) error {
	name := disk + "-seen"
	if _, err := w.api.Fork(ctx, disk, api.NewForks{Names: []string{name}}); err != nil {
		return err
	}
	at, err := w.mount(ctx, name)
	if err != nil {
		return err
	}
	if err := look(at); err != nil {
		return err
	}
	if err := w.unmount(ctx, at); err != nil {
		return err
	}
	_, err = w.api.RemoveDisk(ctx, name, true)
	return err
}
