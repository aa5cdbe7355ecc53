package baddays

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
)

// kinds are the kinds of file in a data directory, by what their path ends with
// or begins with. A file of none of them fails the test: it is new here.
var kinds = []struct {
	name  string
	is    func(p string) bool
	inert bool // no content of it matters
}{
	{"segment", func(p string) bool { return strings.HasPrefix(p, "segments/") }, false},
	{"table", func(p string) bool { return strings.HasSuffix(p, ".sst") }, false},
	{"log", func(p string) bool { return strings.HasSuffix(p, ".log") }, false},
	{"manifest", func(p string) bool { return strings.HasPrefix(p, "rows/MANIFEST-") }, false},
	{"options", func(p string) bool { return strings.HasPrefix(p, "rows/OPTIONS-") }, false},
	{"state", func(p string) bool { return filepath.Dir(p) == "." && !strings.HasSuffix(p, ".lock") }, false},
	{"lock", func(p string) bool { return strings.HasSuffix(p, ".lock") || p == "rows/LOCK" }, true},
	{"reserve", func(p string) bool { return p == "rows/RESERVE" }, true},
	{"mark", func(p string) bool { return p == "rows/SYNCED" }, false},
	{"marker", func(p string) bool { return strings.HasPrefix(p, "rows/marker.") }, false},
}

// damagedWorld is a server with a data directory of which one byte at a time is changed.
type damagedWorld struct {
	*world
	good  string           // a copy of the directory
	shows map[string]sight // what each disk and checkpoint shows
}

// newDamagedWorld makes disks with everything that there is. Clean says that the
// server was stopped, else it was killed.
func newDamagedWorld(t *testing.T, clean bool) *damagedWorld {
	w := &damagedWorld{world: newWorld(t, nil, "--commit-interval", "10m"), shows: map[string]sight{}}
	w.start()
	j := newJob(w.world)
	for _, s := range workload(1, 60) {
		j.run(s)
	}
	j.again(fsync("."))
	j.again(checkpoint("kept"))
	j.again(write("d0/big", 0, 128<<10))
	j.again(create("d0/last"))
	j.again(write("d0/last", 0, 100))
	j.again(fsync("."))
	w.tine("disk", "create", "other")
	must(t, writeSynced(filepath.Join(w.mount("other"), "file"), bytesOf("other", 300_000)))
	must(t, w.rig.Unmount(t.Context(), "other"))
	w.shows = w.see()
	if clean {
		must(t, w.rig.Stop(t.Context()))
	} else {
		w.kill()
	}
	w.good = filepath.Join(w.rig.Dir(), "good")
	must(t, os.CopyFS(w.good, os.DirFS(w.rig.Data())))
	return w
}

var damagedRefs = []string{"work", "work@kept", "fd0", "other"}

// see reads all disks. One that cannot be mounted, with a message, or read is left
// out, or its paths are. It fails if what is there is not reported as damage.
func (w *damagedWorld) see() map[string]sight {
	w.t.Helper()
	all := map[string]sight{}
	for _, ref := range damagedRefs {
		at := w.rig.At(ref)
		var st unix.Statfs_t // which the kernel does not keep, as it does attributes
		if err := unix.Statfs(at, &st); errors.Is(err, unix.ENOTCONN) {
			must(w.t, unix.Unmount(at, unix.MNT_DETACH)) // of a server that did not start again
		}
		must(w.t, os.MkdirAll(at, 0o755))
		if !mounted(w.t, at) {
			if _, err := w.rig.Mount(w.t.Context(), ref); err != nil {
				if strings.Contains(err.Error(), "internal") {
					w.t.Errorf("mount %s: %v", ref, err)
				}
				continue
			}
		}
		s, damaged, err := look(at)
		if err != nil {
			w.t.Errorf("reading %s: %v", ref, err)
		}
		for p := range damaged {
			s[p] = "EIO"
		}
		all[ref] = s
		if ref == "work" {
			continue
		}
		// The test beside this one starts programs. Until such a process has become another
		// it holds all files that this process had open when it was made, also of this mount.
		// And a namespace that was copied elsewhere on the machine keeps a mount alive.
		_, err = eventually(5*time.Second, func() error { return w.rig.Unmount(w.t.Context(), ref) })
		if err != nil {
			w.t.Logf("unmount %s: %v", ref, err)
		}
	}
	return all
}

func mounted(t *testing.T, dir string) bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return strings.Contains(string(b), " "+dir+" ")
}

// wrong says what is shown that is neither right nor an error, and whether
// anything is shown as damaged.
func (w *damagedWorld) wrong(got map[string]sight) (wrong string, damaged bool) {
	for _, ref := range damagedRefs {
		if got[ref] == nil {
			damaged = true
			continue
		}
		excused := map[string]bool{}
		for p, l := range got[ref] {
			if l == "EIO" {
				excused[p], damaged = true, true
			}
		}
		maps.DeleteFunc(got[ref], func(_, l string) bool { return l == "EIO" })
		if d := differ(got[ref], w.shows[ref], excused); d != "" {
			wrong += ref + ":\n" + d
		}
	}
	return wrong, damaged
}

// restore puts the good copy back.
func (w *damagedWorld) restore() {
	w.t.Helper()
	must(w.t, os.RemoveAll(w.rig.Data()))
	must(w.t, os.CopyFS(w.rig.Data(), os.DirFS(w.good)))
}

// files returns the files of the good copy by kind.
func (w *damagedWorld) files() map[string][]string {
	all := map[string][]string{}
	must(w.t, filepath.WalkDir(w.good, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p, err := filepath.Rel(w.good, path)
		if err != nil {
			return err
		}
		for _, k := range kinds {
			if k.is(p) {
				all[k.name] = append(all[k.name], p)
				return nil
			}
		}
		w.t.Errorf("%s is of no kind that this test knows", p)
		return nil
	}))
	return all
}

// TestDamage changes bytes in every kind of file, and cuts off and removes files of the
// row store.
func TestDamage(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("stopped=%v", clean), func(t *testing.T) {
			t.Parallel()
			rnd := random(t)
			w := newDamagedWorld(t, clean)
			files := w.files()
			n := *flipsFlag
			if n == 0 {
				n = 1
				if *long {
					n = 40
				}
			}
			tally := map[string]map[string]int{}
			for _, k := range kinds {
				tally[k.name] = map[string]int{}
				fs := files[k.name]
				slices.SortFunc(fs, strings.Compare)
				for range n {
					if len(fs) == 0 || k.inert && !*long {
						continue
					}
					p := fs[rnd.IntN(len(fs))]
					tally[k.name][w.damage(p, rnd)]++
				}
			}
			for _, k := range kinds {
				t.Logf("%-9s %v", k.name, tally[k.name])
			}
		})
	}
}

// hurt damages a file and says how; "" if there is nothing to damage.
func (w *damagedWorld) hurt(p string, rnd *rand.Rand) string {
	t := w.t
	t.Helper()
	at := filepath.Join(w.rig.Data(), p)
	b, err := os.ReadFile(at)
	must(t, err)
	how := rnd.IntN(4)
	if !strings.HasPrefix(p, "rows/") {
		how = 3
	}
	switch {
	case how == 0:
		must(t, os.Remove(at))
		return p + ", removed"
	case len(b) == 0:
		return ""
	case how == 1:
		n := rnd.IntN(len(b))
		must(t, os.Truncate(at, int64(n)))
		return fmt.Sprintf("%s, cut off at %d of %d", p, n, len(b))
	}
	i, bit := rnd.IntN(len(b)), byte(1)<<rnd.IntN(8)
	b[i] ^= bit
	must(t, os.WriteFile(at, b, 0o600))
	return fmt.Sprintf("%s, byte %d of %d, bit %#x", p, i, len(b), bit)
}

// damage damages a file, and returns what came of it.
func (w *damagedWorld) damage(p string, rnd *rand.Rand) string {
	t := w.t
	t.Helper()
	w.restore()
	what := w.hurt(p, rnd)
	if what == "" {
		return "empty"
	}

	said := len(w.log())
	_, err := w.rig.Start(t.Context())
	outcome, harmless := "refused", filepath.Dir(p) == "."
	if err != nil {
		w.refused(what, w.log()[said:])
	} else {
		got := w.see()
		wrong, damaged := w.wrong(got)
		outcome = "EIO"
		if !damaged {
			outcome = "harmless"
		}
		if wrong != "" {
			outcome = "older"
			t.Errorf("%s: served as good:\n%s", what, wrong)
		}
		if damaged && !strings.Contains(w.log()[said:], "level=ERROR") {
			t.Errorf("%s: what is damaged is not in the log", what)
		}
		// A list of mounts is no matter of the checker; the server says what is
		// wrong with it.
		harmless = harmless || outcome == "harmless"
		w.kill()
	}
	if l := w.log()[said:]; strings.Contains(l, "panic:") || strings.Contains(l, "\ngoroutine ") {
		t.Errorf("%s: the server panics:\n%.2000s", what, l)
	}
	return outcome + ", " + w.repaired(what, harmless, strings.HasPrefix(p, "rows/"))
}

// refused checks what a server says that does not start.
func (w *damagedWorld) refused(what, said string) {
	w.t.Helper()
	_, message, ok := strings.Cut(said, "tine: ")
	if _, hint, hinted := strings.Cut(message, "\n      "); !ok || !hinted || len(hint) < 10 {
		w.t.Errorf("%s: the server does not start, and does not say why and what to do:\n%s", what, said)
	}
}

// repaired checks and repairs the directory, and wants it to be clean then, or to
// be told that it is not, and whatever is shown to be right. Of the row store it wants
// that all is mended.
func (w *damagedWorld) repaired(what string, harmless, rows bool) string {
	t := w.t
	t.Helper()
	out, code := w.run("fsck", "--read-data", "--data", w.rig.Data())
	if strings.Contains(out, "panic:") {
		t.Errorf("%s: tine fsck panics:\n%.2000s", what, out)
	}
	if code == 0 && !harmless {
		t.Errorf("%s: tine fsck finds nothing:\n%s", what, out)
	}
	if code == 0 {
		return "not found"
	}
	out, code = w.run("fsck", "--repair", "--read-data", "--data", w.rig.Data())
	if strings.Contains(out, "panic:") {
		t.Errorf("%s: tine fsck --repair panics:\n%.2000s", what, out)
	}
	// Without the records of a tree no disk of it can be served, and it is said which.
	recordsLost := strings.Contains(out, "R010") && strings.Contains(out, "T003")
	if rows && code != 0 && !recordsLost {
		t.Errorf("%s: tine fsck --repair ends with %d:\n%s", what, code, out)
	}
	if code != 0 && code != 14 {
		if !strings.Contains(out, "\n      ") {
			t.Errorf("%s: tine fsck --repair ends with %d and does not say what to do:\n%s", what, code, out)
		}
		return "not repairable"
	}
	if after, code := w.run("fsck", "--read-data", "--data", w.rig.Data()); rows && code != 0 && !recordsLost {
		t.Errorf("%s: after the repair tine fsck ends with %d:\n%s", what, code, after)
	}
	said := len(w.log())
	if _, err := w.rig.Start(t.Context()); err != nil {
		w.refused(what+", repaired", w.log()[said:])
		if rows {
			t.Errorf("%s: after the repair the server does not start: %s", what, w.log()[said:])
		}
		return "not startable"
	}
	got := w.see()
	if wrong := w.unnamed(got, out); wrong != "" {
		t.Errorf("%s: after the repair\n%sand the repair said only:\n%s", what, wrong, out)
	}
	_, err := w.api.Checkpoint(t.Context(), "work", api.NewCheckpoint{Name: "new"})
	if err != nil && code == 0 && got["work"] != nil {
		t.Errorf("%s: after the repair a checkpoint: %v", what, err)
	}
	w.kill()
	if code == 14 {
		return "repaired in part"
	}
	return "repaired"
}

// unnamed says what is shown after a repair that is neither as it was nor named by the
// repair, nor what lies below a directory that is. A repair that has cut off the end of a
// log says so instead: then all may be in an older state.
func (w *damagedWorld) unnamed(got map[string]sight, said string) string {
	if strings.Contains(said, "what was written after that is lost") {
		return ""
	}
	named := func(p string) bool { return strings.Contains(said, ":/"+p+" ") || strings.Contains(said, ":/"+p+"\n") }
	var b strings.Builder
	for _, ref := range damagedRefs {
		if got[ref] == nil && !strings.Contains(said, "records of disks may be among them") {
			fmt.Fprintf(&b, "  %s cannot be read\n", ref)
		}
		if got[ref] == nil {
			continue
		}
		for p, was := range w.shows[ref] {
			is := got[ref][p]
			if is == was || is == "EIO" || named(p) {
				continue
			}
			above := is == ""
			for d := filepath.Dir(p); above && !named(d) && !named(""); d = filepath.Dir(d) {
				above = d != "."
			}
			if !above {
				fmt.Fprintf(&b, "  %s:%s is %q, it was %q\n", ref, p, is, was)
			}
		}
		for p, is := range got[ref] {
			if w.shows[ref][p] == "" && !strings.HasPrefix(p, "lost+found") && !named(p) && !named(filepath.Dir(p)) {
				fmt.Fprintf(&b, "  %s:%s should not be there: %q\n", ref, p, is)
			}
		}
	}
	return b.String()
}
