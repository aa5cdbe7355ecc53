package mixed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/fs/fusefs"
	"tine.dev/tine/internal/sim/posix"
)

// modelJob makes random system calls and tells each to a model of a file
// system as well. Both must say the same, and what the disk shows must be what
// the model does; after a crash, what the model showed at some moment no
// earlier than the last that was made durable. Then the model goes on from
// there.
type modelJob struct {
	w    *world
	rnd  *rand.Rand
	name string
	root root
	fs   *posix.FS

	past   []moment // what a crash may leave, the durable state first
	flight []change // what the call that a crash cut off may have done, in order
	log    []string // of calls since the last durable state
	steps  int
}

// moment is a state of the disk, and the call after which it was there.
type moment struct {
	tree posix.Tree
	what string
}

// change is one step from a state to the next. ino is the number that a file
// which it makes has got; made says where that file is to be found.
type change struct {
	what  string
	made  *place
	apply func(fs *posix.FS, ino inode) error
}

// compareEvery is after how many calls the whole disk is compared.
const compareEvery = 400

func (j *modelJob) prepare(ctx context.Context) error {
	at, err := j.w.disk(ctx, j.name)
	if err != nil {
		return err
	}
	if j.root, err = openRoot(at); err != nil {
		return err
	}
	if err := j.w.api.SyncDisk(ctx, j.name); err != nil {
		return err
	}
	tree, err := j.root.read()
	if err != nil {
		return err
	}
	j.goOn(tree)
	return nil
}

// goOn continues from a state that is durable.
func (j *modelJob) goOn(tree posix.Tree) {
	j.fs = posix.FromTree(tree)
	j.past, j.flight, j.log = []moment{{tree, "the last durable state"}}, nil, nil
}

// durable notes that what the disk shows now survives a crash.
func (j *modelJob) durable() { j.goOn(j.fs.Tree) }

// do makes a call on the disk and tells it to the model. call returns the
// number of the file that it has made, if it makes one.
func (j *modelJob) do(call func() (inode, error), changes ...change) error {
	j.flight = changes
	what := changes[len(changes)-1].what
	ino, got := call()
	if got != nil && deadServer(got) != "" && !errors.Is(got, unix.ENOENT) {
		return fmt.Errorf("%s: %w", what, got)
	}
	for _, c := range changes {
		before := j.fs.Tree.Sum()
		want := c.apply(j.fs, ino)
		if err := same(got, want); err != nil {
			return fmt.Errorf("%s: %s %w; before it:\n%s", c.what, j.name, err, strings.Join(j.log, "\n"))
		}
		if j.fs.Tree.Sum() != before {
			j.past = append(j.past, moment{j.fs.Tree, c.what})
		}
	}
	j.log = append(j.log, fmt.Sprintf("%s: %v", what, got))
	j.flight = nil
	return nil
}

// same compares what the disk and the model answer.
func same(got, want error) error {
	if got == nil && want == nil {
		return nil
	}
	var errno unix.Errno
	if got == nil || want == nil || !errors.As(got, &errno) || fusefs.Errno(want) != errno {
		return fmt.Errorf("the disk says %v, the model %v", got, want)
	}
	return nil
}

func (j *modelJob) step(ctx context.Context) error {
	j.steps++
	if j.steps%compareEvery == 0 {
		return j.compare()
	}
	return j.act(ctx)
}

// compare reads the whole disk.
func (j *modelJob) compare() error {
	tree, err := j.root.read()
	if err != nil {
		return err
	}
	if diff := posix.Difference(j.fs.Tree, tree); diff != "" {
		return fmt.Errorf("%s is not as the model says:\n%s\nafter\n%s", j.name, diff, strings.Join(j.log, "\n"))
	}
	return nil
}

// recover finds out at which moment the crash was.
func (j *modelJob) recover(context.Context) error {
	j.root.close()
	var err error
	if j.root, err = openRoot(j.w.rig.At(j.name)); err != nil {
		return err
	}
	tree, err := j.root.read()
	if err != nil {
		return err
	}
	j.land(tree)
	for _, m := range j.past {
		if m.tree.Sum() == tree.Sum() {
			j.goOn(tree)
			return nil
		}
	}
	first, last := j.past[0], j.past[len(j.past)-1]
	return fmt.Errorf("after a crash %s shows none of the %d states since the last durable one; against that:\n%s\nagainst the newest, after %s:\n%s\ncalls since:\n%s",
		j.name, len(j.past), posix.Difference(first.tree, tree), last.what, posix.Difference(last.tree, tree), strings.Join(j.log, "\n"))
}

// land adds the states that the call which the crash cut off may have made;
// the number of a new file is the one that is found.
func (j *modelJob) land(found posix.Tree) {
	fs := posix.FromTree(j.past[len(j.past)-1].tree)
	for _, c := range j.flight {
		var ino inode
		if c.made != nil {
			ino, _ = c.made.in(found)
		}
		if c.made != nil && ino == 0 || c.apply(fs, ino) != nil {
			break // it was not done
		}
		j.past = append(j.past, moment{fs.Tree, c.what + ", which the crash cut off"})
	}
	j.flight = nil
}

func (j *modelJob) finish(ctx context.Context) error {
	j.root.close()
	var err error
	if j.root, err = openRoot(j.w.rig.At(j.name)); err != nil {
		return err
	}
	defer j.root.close()
	if err := j.compare(); err != nil {
		return err
	}
	// Through a fork, so that nothing is what this mount's kernel remembers.
	return j.w.throughFork(ctx, j.name, func(at string) error {
		r, err := openRoot(at)
		if err != nil {
			return err
		}
		defer r.close()
		tree, err := r.read()
		if err == nil {
			if diff := posix.Difference(j.fs.Tree, tree); diff != "" {
				err = fmt.Errorf("a fork of %s is not as the model says:\n%s", j.name, diff)
			}
		}
		return err
	})
}
