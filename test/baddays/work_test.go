package baddays

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tine.dev/tine/api"
)

// job is a fixed workload on a disk, one call after the other, with what each
// disk should show.
type job struct {
	w           *world
	mnt         string
	work        *history
	checkpoints map[string]tree
	forks       map[string]sight
	unsure      map[string]bool // forks that a crash may have lost
	refused     int             // calls that had no room
}

// newJob makes the disk and mounts it; its server runs.
func newJob(w *world) *job {
	w.tine("disk", "create", "work")
	return &job{w: w, mnt: w.mount("work"), work: newHistory(tree{}), checkpoints: map[string]tree{}, forks: map[string]sight{}, unsure: map[string]bool{}}
}

// step is one call of the workload. When it succeeds it has noted what changed.
type step struct {
	name string
	do   func(*job) error
}

// noSpace reports whether an error says that there is no room, whoever says it.
func noSpace(err error) bool {
	var e *api.Error
	return errors.Is(err, unix.ENOSPC) || errors.As(err, &e) && e.Kind == "no_space"
}

// absent reports that a call came to nothing because one before it, which should
// have made what it needs, had no room.
func absent(err error) bool {
	var e *api.Error
	return errors.Is(err, errAbsent) || errors.As(err, &e) && e.Kind == "not_found"
}

var errAbsent = errors.New("what the call needs is not there")

// run makes one call. It may fail for want of room, and for no other reason.
func (j *job) run(s step) {
	j.w.t.Helper()
	began := time.Now()
	err := j.w.within(s.name, func() error { return s.do(j) })
	switch {
	case err == nil:
	case absent(err) && j.refused > 0:
	case noSpace(err):
		j.refused++
	default:
		j.w.t.Fatalf("%s, with %d calls refused before: %v", s.name, j.refused, err)
	}
	if took := time.Since(began); took > 15*time.Second {
		j.w.t.Errorf("%s took %v: %v", s.name, took, err)
	}
}

func (j *job) at(p string) string { return filepath.Join(j.mnt, p) }

// there returns an error if the model does not have what a call needs.
func (j *job) there(paths ...string) error {
	for _, p := range paths {
		if p != "." && j.work.tree[p] == nil {
			return fmt.Errorf("%s: %w", p, errAbsent)
		}
	}
	return nil
}

func mkdir(p string) step {
	return step{"mkdir " + p, func(j *job) error {
		if err := unix.Mkdir(j.at(p), 0o755); err != nil {
			return err
		}
		j.work.tree[p] = &file{dir: true}
		j.work.step(p)
		return nil
	}}
}

func create(p string) step {
	return step{"create " + p, func(j *job) error {
		if err := j.there(filepath.Dir(p)); err != nil {
			return err
		}
		f, err := os.OpenFile(j.at(p), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		j.work.tree[p] = &file{links: 1}
		j.work.step(p)
		return f.Close()
	}}
}

// write writes in one request: at most 128 KiB, at a page of the file; off -1 is
// its end.
func write(p string, off, n int) step {
	return step{fmt.Sprintf("write %d bytes to %s at %d", n, p, off), func(j *job) error {
		if err := j.there(p); err != nil {
			return err
		}
		data := bytesOf(fmt.Sprint(p, off, n), n)
		flags, at := os.O_WRONLY, off
		if off < 0 {
			flags, at = flags|os.O_APPEND, len(j.work.tree[p].data)
		}
		f, err := os.OpenFile(j.at(p), flags, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if off < 0 {
			n, err = f.Write(data)
		} else {
			n, err = f.WriteAt(data, int64(off))
		}
		if n > 0 {
			j.work.tree[p].put(data[:n], at)
			j.work.step(p)
		}
		return err
	}}
}

// change is a call on files that are there; after changes the model, and notes
// the paths.
func change(name string, paths []string, call func(j *job) error, after func(t tree)) step {
	return step{name, func(j *job) error {
		if err := j.there(paths[0]); err != nil {
			return err
		}
		if err := call(j); err != nil {
			return err
		}
		after(j.work.tree)
		j.work.step(paths...)
		return nil
	}}
}

func rename(from, to string) step {
	return change("rename "+from+" to "+to, []string{from, to}, func(j *job) error { return unix.Rename(j.at(from), j.at(to)) }, func(t tree) {
		t[to] = t[from]
		delete(t, from)
	})
}

func link(from, to string) step {
	return change("link "+from+" to "+to, []string{from, to}, func(j *job) error { return unix.Link(j.at(from), j.at(to)) }, func(t tree) {
		t[to] = t[from]
		t[to].links++
	})
}

func symlink(dir, p string) step {
	target := strings.Repeat("t", 500)
	return change("symlink "+p, []string{dir, p}, func(j *job) error { return unix.Symlink(target, j.at(p)) },
		func(t tree) { t[p] = &file{target: target} })
}

func setxattr(p string) step {
	value := string(bytesOf(p, 3000))
	return change("setxattr "+p, []string{p}, func(j *job) error { return unix.Setxattr(j.at(p), "user.x", []byte(value), 0) },
		func(t tree) { t[p].xattrs = map[string]string{"user.x": value} })
}

func truncate(p string, n int) step {
	return change(fmt.Sprintf("truncate %s to %d", p, n), []string{p}, func(j *job) error { return unix.Truncate(j.at(p), int64(n)) },
		func(t tree) {
			if n < len(t[p].data) {
				t[p].data = t[p].data[:n:n]
			}
			t[p].put(nil, n)
		})
}

func fallocate(p string, mode uint32, off, n int) step {
	return change(fmt.Sprintf("fallocate %s", p), []string{p}, func(j *job) error {
		f, err := os.OpenFile(j.at(p), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fallocate(int(f.Fd()), mode, int64(off), int64(n))
	}, func(t tree) {
		if mode&unix.FALLOC_FL_PUNCH_HOLE != 0 {
			if end := min(off+n, len(t[p].data)); off < end {
				t[p].put(make([]byte, end-off), off)
			}
		}
	})
}

func unlink(p string) step {
	return step{"unlink " + p, func(j *job) error {
		if err := j.there(p); err != nil {
			return err
		}
		if err := unix.Unlink(j.at(p)); err != nil {
			return err
		}
		f := j.work.tree[p]
		f.links--
		delete(j.work.tree, p)
		others := []string{p}
		for o, g := range j.work.tree {
			if g == f {
				others = append(others, o)
			}
		}
		j.work.step(others...)
		return nil
	}}
}

// fsync makes the disk durable by fsync of a file or directory.
func fsync(p string) step {
	return step{"fsync " + p, func(j *job) error {
		f, err := os.Open(j.at(p))
		if errors.Is(err, unix.ENOENT) && j.there(p) != nil {
			return errAbsent
		}
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			return err
		}
		j.work.acknowledge()
		return nil
	}}
}

// call is a call of the API that is durable when it succeeds. If it ends because
// the device got full on the way it may say that it is done all the same, and only
// not durable yet; then the effect is there, and maybe lost in a crash.
func call(name string, do func(j *job) error, after func(j *job)) step {
	return step{name, func(j *job) error {
		err := do(j)
		if err == nil || noSpace(err) && strings.Contains(err.Error(), "is done but not yet durable") {
			after(j)
		}
		if err == nil {
			j.work.acknowledge()
		}
		return err
	}}
}

func checkpoint(name string) step {
	return call("checkpoint "+name, func(j *job) error {
		_, err := j.w.api.Checkpoint(j.w.t.Context(), "work", api.NewCheckpoint{Name: name})
		return err
	}, func(j *job) { j.checkpoints[name] = j.work.tree.clone() })
}

func fork(name string) step {
	return step{"fork " + name, func(j *job) error {
		err := call("fork "+name, func(j *job) error {
			_, err := j.w.api.Fork(j.w.t.Context(), "work", api.NewForks{Names: []string{name}})
			return err
		}, func(j *job) { j.forks[name] = j.work.tree.sight() }).do(j)
		if err != nil {
			j.unsure[name] = true
		}
		return err
	}}
}

func rollback(to string) step {
	return call("rollback to "+to, func(j *job) error {
		_, err := j.w.api.Rollback(j.w.t.Context(), "work", to)
		return err
	}, func(j *job) { j.work.become(j.checkpoints[to].clone()) })
}

func promote(name string) step {
	return call("promote "+name, func(j *job) error {
		_, err := j.w.api.Promote(j.w.t.Context(), name, "work", false)
		return err
	}, func(j *job) { delete(j.forks, name) })
}

// What a removal makes durable is the removal; of other changes it says nothing.
func removeCheckpoint(name string) step {
	return remove("remove checkpoint "+name, func(j *job) error {
		return j.w.api.RemoveCheckpoint(j.w.t.Context(), "work", name)
	}, func(j *job) { delete(j.checkpoints, name) })
}

func removeDisk(name string) step {
	return remove("remove disk "+name, func(j *job) error {
		_, err := j.w.api.RemoveDisk(j.w.t.Context(), name, true)
		return err
	}, func(j *job) { delete(j.forks, name) })
}

func remove(name string, do func(j *job) error, after func(j *job)) step {
	return step{name, func(j *job) error {
		err := do(j)
		if err == nil || noSpace(err) {
			after(j)
		}
		return err
	}}
}

// workload is some thousand calls that make about 9 MiB of file data and 6 MiB of
// rows, several memory tables of a small device, and remove half of both, so that
// there is something to flush, compact, free and repack.
func workload(rounds, files int) []step {
	var all []step
	add := func(s ...step) { all = append(all, s...) }
	for r := range rounds {
		dir := fmt.Sprintf("d%d", r)
		p := func(name string) string { return dir + "/" + name }
		add(mkdir(dir), create(p("big")), create(p("log")))
		for i := range files {
			name := p(fmt.Sprintf("small%d", i))
			add(create(name), write(name, 0, 4000))
			if i%25 == 0 {
				add(write(p("log"), -1, 5000))
			}
			if i%10 == 0 && i/10 < 20 {
				add(write(p("big"), i/10*(128<<10), 128<<10))
			}
			if i%100 == 50 {
				add(fsync(name))
			}
		}
		add(fsync(p("big")), checkpoint("c"+dir),
			rename(p("small1"), p("renamed")), rename(p("small2"), p("small3")), link(p("small4"), p("linked")), symlink(dir, p("symlink")),
			setxattr(p("small5")), truncate(p("log"), 9000), truncate(p("small6"), 100_000), fallocate(p("big"), unix.FALLOC_FL_KEEP_SIZE, 0, 8<<20),
			fallocate(p("big"), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 128<<10, 256<<10), fsync(dir), fork("f"+dir))
		for i := range 4 {
			add(write(p("big"), i*(256<<10), 128<<10), write(p("log"), -1, 3000))
		}
		add(fork("p"+dir), promote("p"+dir), write(p("log"), -1, 7000))
		if r%2 == 1 {
			add(rollback("c" + dir))
		}
		for i := 10; i < files; i += 2 {
			add(unlink(p(fmt.Sprintf("small%d", i))))
		}
		add(fsync(dir), removeCheckpoint("c"+dir))
		if r > 0 {
			add(removeDisk(fmt.Sprintf("fd%d", r-1)), unlink(fmt.Sprintf("d%d/big", r-1)))
		}
	}
	return all
}
