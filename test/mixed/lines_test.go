package mixed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"tine.dev/tine/api"
	"tine.dev/tine/test/treesum"
)

// linesJob makes and removes checkpoints and forks of one disk, rolls it back
// and promotes forks. It keeps a hash of the whole tree of every state that has
// a name; whenever such a state is mounted, now or after crashes, the hash must
// be the same.
type linesJob struct {
	w      *world
	rnd    *rand.Rand
	at     string
	head   []string         // hashes that the disk may show after a crash; nil: it was written to
	cps    map[string]*held // checkpoints, by name
	forks  map[string]*held // forks that nobody has written to
	serial int

	mounted int // states that were mounted and compared
}

// held is a state that has a name.
type held struct {
	sum     string
	sure    bool // a crash leaves it there
	leaving bool // its removal has begun
}

const (
	linesDisk      = "lines"
	maxCheckpoints = 8
	maxForks       = 4
)

func (j *linesJob) prepare(ctx context.Context) (err error) {
	j.cps, j.forks = map[string]*held{}, map[string]*held{}
	if j.at, err = j.w.disk(ctx, linesDisk); err != nil {
		return err
	}
	return j.write(filepath.Join(j.at, "tree"))
}

// write changes some files below a directory.
func (j *linesJob) write(dir string) error {
	for range 1 + j.rnd.IntN(12) {
		path := filepath.Join(dir, fmt.Sprintf("d%d/f%d", j.rnd.IntN(5), j.rnd.IntN(20)))
		if j.rnd.IntN(5) == 0 {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		data := make([]byte, j.rnd.IntN([]int{100, 10_000, 200_000}[j.rnd.IntN(3)]))
		for i := range data {
			data[i] = byte(j.rnd.Uint32())
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sum is the hash of what a mount shows.
func (j *linesJob) sum(ctx context.Context, at string) (string, error) {
	r, err := openRoot(at)
	if err != nil {
		return "", err
	}
	defer r.close()
	tree, err := treesum.Read(ctx, r.path("tree"))
	return tree.Sum(), err
}

// shows checks what a mount shows.
func (j *linesJob) shows(ctx context.Context, what, at, want string) error {
	got, err := j.sum(ctx, at)
	if err == nil && got != want {
		err = fmt.Errorf("%s has the hash %s, and had %s", what, got, want)
	}
	return err
}

// mountedShows mounts a state, checks it and takes the mount away.
func (j *linesJob) mountedShows(ctx context.Context, ref, want string) error {
	at, err := j.w.mount(ctx, ref)
	if err != nil {
		return err
	}
	j.mounted++
	return errors.Join(j.shows(ctx, ref, at, want), j.w.unmount(ctx, at))
}

func (j *linesJob) name(kind string) string {
	j.serial++
	return fmt.Sprintf("%s-%d", kind, j.serial)
}

// wait throws how long a fork or checkpoint waits.
func (j *linesJob) wait() (string, bool) {
	if j.rnd.IntN(2) == 0 {
		return api.WaitDurable, true
	}
	return api.WaitRunnable, false
}

// allSure notes that something was durable that comes after all there is:
// records of a tree become durable in order.
func (j *linesJob) allSure() {
	for _, h := range slices.Concat(slices.Collect(maps.Values(j.cps)), slices.Collect(maps.Values(j.forks))) {
		h.sure = true
	}
}

// any is one of those that are not about to go; "" if there is none.
func (j *linesJob) any(of map[string]*held) string {
	names := slices.Sorted(maps.Keys(of))
	names = slices.DeleteFunc(names, func(n string) bool { return of[n].leaving })
	if len(names) == 0 {
		return ""
	}
	return names[j.rnd.IntN(len(names))]
}

func (j *linesJob) step(ctx context.Context) error {
	switch k := j.rnd.IntN(100); {
	case k < 30:
		j.head = nil
		return j.write(filepath.Join(j.at, "tree"))
	case k < 50:
		if len(j.cps) >= maxCheckpoints {
			return j.dropCheckpoint(ctx)
		}
		return j.checkpoint(ctx)
	case k < 60:
		return j.look(ctx)
	case k < 72:
		return j.rollback(ctx)
	case k < 85:
		if len(j.forks) >= maxForks {
			return j.dropFork(ctx)
		}
		_, err := j.fork(ctx)
		return err
	case k < 95:
		return j.promote(ctx)
	default:
		return j.sync(ctx)
	}
}

func (j *linesJob) checkpoint(ctx context.Context) error {
	sum, err := j.sum(ctx, j.at)
	if err != nil {
		return err
	}
	name := j.name("cp")
	wait, durable := j.wait()
	j.cps[name] = &held{sum: sum}
	if _, err := j.w.api.Checkpoint(ctx, linesDisk, api.NewCheckpoint{Name: name, Wait: wait}); err != nil {
		return err
	}
	if durable {
		j.allSure()
		j.head = []string{sum}
	}
	return nil
}

// look mounts a checkpoint or a fork.
func (j *linesJob) look(ctx context.Context) error {
	if name := j.any(j.cps); name != "" && j.rnd.IntN(3) > 0 {
		return j.mountedShows(ctx, linesDisk+"@"+name, j.cps[name].sum)
	}
	if name := j.any(j.forks); name != "" {
		return j.mountedShows(ctx, name, j.forks[name].sum)
	}
	return nil
}

func (j *linesJob) dropCheckpoint(ctx context.Context) error {
	name := j.any(j.cps)
	if name == "" {
		return nil
	}
	if err := j.mountedShows(ctx, linesDisk+"@"+name, j.cps[name].sum); err != nil {
		return err
	}
	j.cps[name].leaving = true
	if err := j.w.api.RemoveCheckpoint(ctx, linesDisk, name); err != nil {
		return err
	}
	delete(j.cps, name)
	j.allSure()
	return nil
}

func (j *linesJob) rollback(ctx context.Context) error {
	name := j.any(j.cps)
	if name == "" {
		return nil
	}
	before, err := j.sum(ctx, j.at)
	if err != nil {
		return err
	}
	target := j.cps[name].sum
	if err := j.exchange(ctx, target, func() error {
		_, err := j.w.api.Rollback(ctx, linesDisk, name)
		return err
	}); err != nil || j.rnd.IntN(3) > 0 {
		return err
	}
	return j.exchange(ctx, before, func() error {
		_, err := j.w.api.Undo(ctx, linesDisk)
		return err
	})
}

// exchange gives the disk another state, durably.
func (j *linesJob) exchange(ctx context.Context, sum string, call func() error) error {
	if j.head != nil {
		j.head = append(j.head, sum)
	}
	if err := call(); err != nil {
		return err
	}
	j.head = []string{sum}
	j.allSure()
	return j.shows(ctx, "the disk after a rollback, an undo or a promote", j.at, sum)
}

// fork forks the disk or one of its checkpoints.
func (j *linesJob) fork(ctx context.Context) (string, error) {
	sum, err := j.sum(ctx, j.at)
	if err != nil {
		return "", err
	}
	name := j.name("fork")
	wait, durable := j.wait()
	ask := api.NewForks{Names: []string{name}, Wait: wait}
	fromHead := true
	if cp := j.any(j.cps); cp != "" && j.rnd.IntN(3) == 0 {
		ask.Checkpoint, sum, fromHead = cp, j.cps[cp].sum, false
	}
	j.forks[name] = &held{sum: sum}
	if _, err := j.w.api.Fork(ctx, linesDisk, ask); err != nil {
		return "", err
	}
	if durable {
		j.allSure()
		if fromHead {
			j.head = []string{sum}
		}
	}
	return name, nil
}

func (j *linesJob) dropFork(ctx context.Context) error {
	name := j.any(j.forks)
	if name == "" {
		return nil
	}
	if err := j.mountedShows(ctx, name, j.forks[name].sum); err != nil {
		return err
	}
	j.forks[name].leaving = true
	if _, err := j.w.api.RemoveDisk(ctx, name, true); err != nil {
		return err
	}
	delete(j.forks, name)
	j.allSure()
	return nil
}

// promote works in a fork of its own and makes the disk become it. A crash on
// the way leaves a fork that recover removes: what it shows is not known.
func (j *linesJob) promote(ctx context.Context) error {
	name, err := j.fork(ctx)
	if err != nil {
		return err
	}
	was := j.forks[name]
	at, err := j.w.mount(ctx, name)
	if err != nil {
		return err
	}
	if err := j.shows(ctx, name, at, was.sum); err != nil {
		return err
	}
	was.leaving = true
	if err := j.write(filepath.Join(at, "tree")); err != nil {
		return err
	}
	sum, err := j.sum(ctx, at)
	if err != nil {
		return err
	}
	if err := j.w.unmount(ctx, at); err != nil {
		return err
	}
	if err := j.exchange(ctx, sum, func() error {
		_, err := j.w.api.Promote(ctx, name, linesDisk, true)
		return err
	}); err != nil {
		return err
	}
	delete(j.forks, name)
	return nil
}

func (j *linesJob) sync(ctx context.Context) error {
	sum, err := j.sum(ctx, j.at)
	if err != nil {
		return err
	}
	if err := j.w.api.SyncDisk(ctx, linesDisk); err != nil {
		return err
	}
	j.head = []string{sum}
	return nil
}
