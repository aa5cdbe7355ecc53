package baddays

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The device of these tests. On one so small the row store's memory tables are
// 2 MiB, so that a short workload flushes and compacts.
const (
	deviceBytes  = 64 << 20
	fullRounds   = 3
	fullFiles    = 200
	spaceReturns = 10 * time.Second // how long a server may take to notice that there is room
)

// fullDay is one run of the workload on a device that gets full.
type fullDay struct {
	name string
	// ends makes the device full; it is called before each step.
	ends func(t *testing.T, data string, step int)
	// restart kills the server on the full device instead of waiting for room.
	restart bool
	// robbed says that others take also what the server has given up of its
	// reserve. Then nothing is left, and a deletion is not durable before there is
	// room.
	robbed bool
}

// gradual has only so much room from the start.
func gradual(free int64, restart bool) fullDay {
	return fullDay{name: fmt.Sprintf("room for %d KiB, restart %v", free>>10, restart), restart: restart, ends: func(t *testing.T, data string, step int) {
		if step == 0 {
			leave(t, data, free)
		}
	}}
}

// sudden takes all room but a rest away before a step, as another program would
// that fills the device. One that robs does so again some steps later, when the
// server has given up what it had in reserve.
func sudden(at int, free int64, robs, restart bool) fullDay {
	name := fmt.Sprintf("%d KiB left before call %d, robbed %v, restart %v", free>>10, at, robs, restart)
	return fullDay{name: name, robbed: robs, restart: restart, ends: func(t *testing.T, data string, step int) {
		if step == at || robs && step > at && (step-at)%40 == 0 {
			leave(t, data, free)
		}
	}}
}

// fullDays are the days of one run: where space ends goes through the whole
// workload.
func fullDays(steps int) []fullDay {
	var all []fullDay
	const most = deviceBytes / 2 // about what the workload takes, and what is kept free
	n := *pointsFlag
	if n == 0 {
		n = 3
		if *long {
			n = 128
		}
	}
	for i := range n {
		restart := i%2 == 1
		all = append(all, gradual(int64(i+1)*most/int64(n), restart))
		rest := []int64{0, 64 << 10, 0, 1 << 20}[i%4]
		all = append(all, sudden((2*i+1)*steps/(2*n), rest, i/2%2 == 0, !restart))
	}
	return all
}

// TestFullDevice fills the device at every point of a workload.
func TestFullDevice(t *testing.T) {
	steps := workload(fullRounds, fullFiles)
	for _, d := range fullDays(len(steps)) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			d.live(t, steps)
		})
	}
}

func (d fullDay) live(t *testing.T, steps []step) {
	w := newWorld(t, smallDevice(t, deviceBytes), "--commit-interval", "100ms")
	w.start()
	w.ballast()
	j := newJob(w)
	for i, s := range steps {
		d.ends(t, w.rig.Data(), i)
		j.run(s)
	}
	j.shown("on the full device")
	t.Logf("%d of %d calls were refused", j.refused, len(steps))
	if d.restart {
		j.restartFull()
	} else {
		if j.refused > 0 && !d.robbed {
			j.deleteFull()
		}
		resize(t, w.rig.Data(), deviceBytes)
		took, err := eventually(spaceReturns, func() error { return j.writable() })
		if err != nil {
			t.Fatalf("there is room again for %v, but: %v", took, err)
		}
	}
	j.shown("with room again")
	j.again(fsync("."))
	w.kill()
	w.start()
	if lost := j.recover(); lost > 0 {
		t.Errorf("%d calls are lost that were acknowledged as durable", lost)
	}
	j.forksShown()
	if err := w.rig.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	w.clean()
}

// shown checks that everything can be read, and is as it should be.
func (j *job) shown(when string) {
	j.w.t.Helper()
	var s sight
	var damaged map[string]bool
	err := j.w.within("reading", func() (err error) {
		s, damaged, err = look(j.mnt)
		return err
	})
	if err != nil || len(damaged) > 0 {
		j.w.t.Fatalf("reading %s: %v; EIO for %v", when, err, damaged)
	}
	if diff := differ(s, j.work.now, nil); diff != "" {
		j.w.t.Fatalf("%s:\n%s", when, diff)
	}
}

// again makes a call that must succeed now.
func (j *job) again(s step) {
	j.w.t.Helper()
	if err := j.w.within(s.name, func() error { return s.do(j) }); err != nil {
		j.w.t.Fatalf("%s, with room: %v", s.name, err)
	}
}

// ballastBytes is the size of a file on a disk of its own.
const ballastBytes = 4 << 20

// ballast makes a disk that can be thrown overboard.
func (w *world) ballast() {
	w.t.Helper()
	w.tine("disk", "create", "ballast")
	must(w.t, writeSynced(filepath.Join(w.mount("ballast"), "file"), bytesOf("ballast", ballastBytes)))
	must(w.t, w.rig.Unmount(w.t.Context(), "ballast"))
}

// deleteFull deletes files, checkpoints and disks on a full device, which must be
// durable, and wants the space of the disk that had segments of its own back at
// once. What shares a segment with something that is left comes back with time.
func (j *job) deleteFull() {
	t, data := j.w.t, j.w.rig.Data()
	t.Helper()
	for _, p := range []string{"d0/big", "d1/big", "d2/big"} {
		if j.work.tree[p] == nil {
			continue
		}
		if err := j.w.within("unlink", func() error { return unlink(p).do(j) }); err != nil {
			t.Fatalf("unlink %s on a full device: %v", p, err)
		}
	}
	if took, err := eventually(spaceReturns, func() error { return fsync(".").do(j) }); err != nil {
		t.Fatalf("what is deleted on a full device is not durable after %v: %v", took, err)
	}
	for name := range j.forks {
		if _, err := j.w.api.Disk(t.Context(), name); err != nil && j.unsure[name] {
			continue
		}
		if out, code := j.w.run("disk", "rm", "--purge", name); code != 0 {
			t.Fatalf("tine disk rm --purge on a full device ends with %d: %s", code, out)
		}
		delete(j.forks, name)
	}
	for name := range j.checkpoints {
		if out, code := j.w.run("checkpoint", "rm", "work", name); code != 0 {
			t.Fatalf("tine checkpoint rm on a full device ends with %d: %s", code, out)
		}
		delete(j.checkpoints, name)
	}
	before, _ := usage(t, data)
	if out, code := j.w.run("disk", "rm", "--purge", "ballast"); code != 0 {
		t.Fatalf("tine disk rm --purge on a full device ends with %d: %s", code, out)
	}
	took, err := eventually(spaceReturns, func() error {
		if used, _ := usage(t, data); used > before-ballastBytes/2 {
			return fmt.Errorf("%d KiB of %d KiB are used", used>>10, before>>10)
		}
		return nil
	})
	if err != nil {
		t.Errorf("removing a disk of %d KiB gives no space back in %v: %v", ballastBytes>>10, took, err)
	}
}

// writable writes a little and makes it durable.
func (j *job) writable() error {
	const p = "after"
	if j.work.tree[p] == nil {
		if err := create(p).do(j); err != nil {
			return err
		}
	}
	if err := write(p, 0, 100<<10).do(j); err != nil {
		return err
	}
	return fsync(p).do(j)
}

// restartFull kills the server on the full device and starts it there. It may
// refuse, if it says that there is no room; with room it starts.
func (j *job) restartFull() {
	w := j.w
	w.kill()
	_, err := w.rig.Start(w.t.Context())
	if err != nil {
		if !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "free space") {
			w.t.Fatalf("the server does not start on a full device, and does not say why and what to do: %v", err)
		}
		resize(w.t, w.rig.Data(), deviceBytes)
		w.start()
	} else {
		w.t.Logf("it starts on the full device; %d calls were not yet durable", j.recover())
		resize(w.t, w.rig.Data(), deviceBytes)
	}
	w.t.Logf("%d calls were not yet durable", j.recover())
	if took, err := eventually(spaceReturns, j.writable); err != nil {
		w.t.Fatalf("there is room again for %v, but: %v", took, err)
	}
}

// recover takes what the disk shows after a crash for its state, if it is one
// that it may show. The newest state's content is not known to the model any
// more where calls were lost, so a lost call ends the use of it.
func (j *job) recover() (lost int) {
	j.w.t.Helper()
	s, damaged, err := look(j.mnt)
	if err != nil || len(damaged) > 0 {
		j.w.t.Fatalf("reading after a crash: %v; EIO for %v", err, damaged)
	}
	lost, err = j.work.recovered(s)
	if err != nil {
		j.w.t.Fatalf("after a crash %v", err)
	}
	if lost > 0 {
		j.reread()
	}
	return lost
}

// reread makes the model what the mount shows, which has been compared.
func (j *job) reread() {
	t, err := readTree(j.mnt)
	if err != nil {
		j.w.t.Fatal(err)
	}
	j.work = newHistory(t)
}

// forksShown checks all forks.
func (j *job) forksShown() {
	j.w.t.Helper()
	for name, want := range j.forks {
		if _, err := j.w.api.Disk(j.w.t.Context(), name); err != nil && j.unsure[name] {
			continue
		}
		s, damaged, err := look(j.w.mount(name))
		if err != nil || len(damaged) > 0 {
			j.w.t.Fatalf("reading fork %s: %v; EIO for %v", name, err, damaged)
		}
		if diff := differ(s, want, nil); diff != "" {
			j.w.t.Errorf("fork %s:\n%s", name, diff)
		}
		if err := j.w.rig.Unmount(j.w.t.Context(), name); err != nil {
			j.w.t.Error(err)
		}
	}
}

// TestFullDeviceTells: a full device is not the end of df, ls and the API.
func TestFullDeviceTells(t *testing.T) {
	w := newWorld(t, smallDevice(t, deviceBytes))
	w.start()
	j := newJob(w)
	j.again(create("f"))
	j.again(fsync("f"))
	leave(t, w.rig.Data(), 0)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = os.WriteFile(j.at(fmt.Sprintf("f%d", i)), bytesOf("x", 100<<10), 0o644)
	}
	if !noSpace(err) {
		t.Fatalf("writing to a full device: %v", err)
	}
	// What would be new is refused before anything is done, so that it can be asked
	// for again.
	grow := [][]string{{"fork", "work", "more"}, {"checkpoint", "create", "work", "more"}, {"disk", "create", "another"}}
	for _, args := range grow {
		if out, code := w.run(args...); code != 9 || !strings.Contains(out, "nothing was done") || !strings.Contains(out, "free space") {
			t.Errorf("tine %s ends with %d and says: %s", strings.Join(args, " "), code, out)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(j.mnt, &st); err != nil || st.Bavail > 0 {
		t.Errorf("df shows %d free blocks, %v", st.Bavail, err)
	}
	for _, args := range [][]string{{"disk", "ls"}, {"mounts"}, {"log", "work"}, {"du", "work"}, {"fsck"}, {"events"}} {
		if out, code := w.run(args...); code != 0 {
			t.Errorf("tine %s ends with %d: %s", strings.Join(args, " "), code, out)
		}
	}
	if !strings.Contains(w.tine("events"), "full") {
		t.Error("that the device is full is no event")
	}
	resize(t, w.rig.Data(), deviceBytes)
	for _, args := range grow {
		_, err := eventually(spaceReturns, func() error {
			if out, code := w.run(args...); code != 0 {
				return fmt.Errorf("tine %s ends with %d and says: %s", strings.Join(args, " "), code, out)
			}
			return nil
		})
		if err != nil {
			t.Error("with room again:", err)
		}
	}
}

// TestFullDeviceGivesBack: what is deleted on a device that tine's own writes have
// filled comes back, also if it is little and lies in a segment with what is left,
// which was open; the log is not full of it, and the freed room can be used.
func TestFullDeviceGivesBack(t *testing.T) {
	const gone = 5 << 19 // 2.5 MiB
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("filled by others %v", foreign), func(t *testing.T) {
			w := newWorld(t, smallDevice(t, deviceBytes), "--commit-interval", "100ms")
			w.start()
			j := newJob(w)
			must(t, writeSynced(j.at("before"), bytesOf("before", 1<<20)))
			must(t, writeSynced(j.at("gone"), bytesOf("gone", gone)))
			var err error
			for i := 0; err == nil && i < 1000 && (!foreign || i < 20); i++ {
				err = writeSynced(j.at(fmt.Sprintf("f%d", i)), bytesOf(fmt.Sprint(i), 100<<10))
			}
			if foreign {
				leave(t, w.rig.Data(), 4<<20) // room for the copy of what is left is in there, and in the reserve
			} else if !noSpace(err) {
				t.Fatalf("the device is never full: %v", err)
			}
			before, _ := usage(t, w.rig.Data())
			must(t, os.Remove(j.at("gone")))
			took, err := eventually(2*spaceReturns, func() error {
				if used, _ := usage(t, w.rig.Data()); used > before-gone*3/4 {
					return fmt.Errorf("%d KiB of %d KiB are used", used>>10, before>>10)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("removing a file of %d KiB gives no space back in %v: %v", gone>>10, took, err)
			}
			if got, err := os.ReadFile(j.at("before")); err != nil || string(got) != string(bytesOf("before", 1<<20)) {
				t.Errorf("what shared its segment: %d bytes, %v", len(got), err)
			}
			if n := strings.Count(w.log(), "background work"); n > 2 {
				t.Errorf("the log tells of background work %d times:\n%s", n, w.log())
			}
			if !foreign {
				if _, err := eventually(spaceReturns, func() error { return writeSynced(j.at("again"), bytesOf("again", 1<<20)) }); err != nil {
					t.Errorf("in the room that came back: %v", err)
				}
			}
			must(t, w.rig.Stop(t.Context()))
			w.clean()
		})
	}
}
