package mixed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tine.dev/tine/test/treesum"
)

// gitJob works in one repository and knows all commits that main has ever
// pointed at. Git writes objects before it moves a branch and, but for packs,
// syncs nothing; so after a crash a repository is whole if, and only if, the
// disk shows one moment of its past.
type gitJob struct {
	w       *world
	rnd     *rand.Rand
	at      string
	mains   []string // what main was, oldest first
	durable int      // index of the one that a crash cannot take back
	serial  int
}

const (
	gitFiles = 60
	// maxCommits is when a repository is large enough to begin anew.
	maxCommits = 1500
)

func (j *gitJob) prepare(ctx context.Context) (err error) {
	if j.at, err = j.w.disk(ctx, "git"); err != nil {
		return err
	}
	return j.anew(ctx)
}

// anew begins a new repository in place of one that may be there. Until it is
// durable there is none.
func (j *gitJob) anew(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			j.mains = nil
		}
	}()
	j.mains = nil
	if err := os.RemoveAll(j.repo()); err != nil {
		return err
	}
	if _, err := j.w.tool(ctx, j.at, nil, "git", "init", "-q", "-b", "main", "repo"); err != nil {
		return err
	}
	if err := j.commit(ctx, "main"); err != nil {
		return err
	}
	return j.sync(ctx)
}

func (j *gitJob) repo() string { return filepath.Join(j.at, "repo") }

func (j *gitJob) git(ctx context.Context, args ...string) (string, error) {
	return j.w.tool(ctx, j.repo(), nil, "git", args...)
}

// all runs commands of git until one fails.
func (j *gitJob) all(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if _, err := j.git(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// commit changes some files and commits them to the branch that is checked
// out. Branches have files of their own, so they can be merged.
func (j *gitJob) commit(ctx context.Context, branch string) error {
	j.serial++
	for range 1 + j.rnd.IntN(5) {
		path := filepath.Join(j.repo(), branch, fmt.Sprintf("dir-%d", j.rnd.IntN(5)), fmt.Sprintf("file-%d", j.rnd.IntN(gitFiles/5)))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		text := strings.Repeat(fmt.Sprintf("%d %x\n", j.serial, j.rnd.Uint64()), 1+j.rnd.IntN(300))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := j.all(ctx, []string{"add", "-A"}, []string{"commit", "-q", "-m", fmt.Sprint(j.serial)}); err != nil {
		return err
	}
	if branch != "main" {
		return nil
	}
	return j.moved(ctx)
}

// moved notes where main points now.
func (j *gitJob) moved(ctx context.Context) error {
	tip, err := j.git(ctx, "rev-parse", "main")
	if err == nil && !slices.Contains(j.mains, tip) {
		j.mains = append(j.mains, tip)
	}
	return err
}

func (j *gitJob) sync(ctx context.Context) error {
	if err := j.w.api.SyncDisk(ctx, "git"); err != nil {
		return err
	}
	j.durable = len(j.mains) - 1
	return nil
}

func (j *gitJob) step(ctx context.Context) error {
	switch k := j.rnd.IntN(100); {
	case len(j.mains) == 0 || len(j.mains) > maxCommits:
		return j.anew(ctx)
	case k < 60:
		return j.commit(ctx, "main")
	case k < 75:
		return j.merge(ctx)
	case k < 85:
		return j.sync(ctx)
	case k < 90:
		return j.all(ctx, []string{"gc", "-q", "--prune=now"})
	case k < 95:
		return j.intact(ctx)
	default:
		return j.clone(ctx)
	}
}

// merge makes a branch off an older commit and merges it.
func (j *gitJob) merge(ctx context.Context) error {
	from := j.mains[max(0, len(j.mains)-1-j.rnd.IntN(5))]
	if err := j.all(ctx, []string{"checkout", "-q", "-b", "side", from}); err != nil {
		return err
	}
	for range 1 + j.rnd.IntN(3) {
		if err := j.commit(ctx, "side"); err != nil {
			return err
		}
	}
	if err := j.all(ctx, []string{"checkout", "-q", "main"}, []string{"merge", "-q", "--no-ff", "-X", "theirs", "-m", "merge", "side"},
		[]string{"branch", "-q", "-D", "side"}); err != nil {
		return err
	}
	return j.moved(ctx)
}

// intact has git look at all it has.
func (j *gitJob) intact(ctx context.Context) error {
	out, err := j.git(ctx, "fsck", "--full", "--strict", "--no-dangling")
	if err == nil && out != "" {
		err = errors.New("git fsck says: " + out)
	}
	return err
}

// clone compares the work tree with that of a clone.
func (j *gitJob) clone(ctx context.Context) error {
	clone := filepath.Join(j.at, "clone")
	if err := os.RemoveAll(clone); err != nil {
		return err
	}
	if _, err := j.w.tool(ctx, j.at, nil, "git", "clone", "-q", "repo", "clone"); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(clone, ".git")); err != nil {
		return err
	}
	got, err := treesum.Read(ctx, clone)
	if err != nil {
		return err
	}
	hidden := filepath.Join(j.at, "hidden") // so that only the work tree is compared
	if err := os.Rename(filepath.Join(j.repo(), ".git"), hidden); err != nil {
		return err
	}
	want, err := treesum.Read(ctx, j.repo())
	if err := errors.Join(err, os.Rename(hidden, filepath.Join(j.repo(), ".git"))); err != nil {
		return err
	}
	return errors.Join(treesum.Same("a clone", got, want), os.RemoveAll(clone))
}

// recover checks that main is where it was at some moment, that the repository
// is whole, and tidies up what commands that were cut off have left.
func (j *gitJob) recover(ctx context.Context) error {
	if len(j.mains) == 0 {
		return j.anew(ctx)
	}
	hidden := filepath.Join(j.at, "hidden")
	if err := os.Rename(hidden, filepath.Join(j.repo(), ".git")); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := j.unlock(); err != nil {
		return err
	}
	tip, err := j.git(ctx, "rev-parse", "main")
	if err != nil {
		return err
	}
	at := slices.Index(j.mains, tip)
	if at < 0 {
		// What was under way may have been done.
		parent, err := j.git(ctx, "rev-parse", "main^1")
		if err != nil {
			return err
		}
		if parent != j.mains[len(j.mains)-1] {
			return fmt.Errorf("after a crash main is %s, which it never was, on %s", tip, parent)
		}
		j.mains = append(j.mains, tip)
	} else if at < j.durable {
		return fmt.Errorf("after a crash main is commit %d of %d; %d was durable", at, len(j.mains), j.durable)
	} else {
		j.mains = j.mains[:at+1]
	}
	if err := j.intact(ctx); err != nil {
		return err
	}
	if err := j.all(ctx, []string{"checkout", "-q", "-f", "main"}, []string{"reset", "-q", "--hard"}, []string{"clean", "-q", "-f", "-d"}); err != nil {
		return err
	}
	if side, err := j.git(ctx, "branch", "--list", "side"); err != nil {
		return err
	} else if side != "" {
		if err := j.all(ctx, []string{"branch", "-q", "-D", "side"}); err != nil {
			return err
		}
	}
	return j.sync(ctx)
}

// unlock removes the locks of commands that were cut off.
func (j *gitJob) unlock() error {
	return filepath.WalkDir(filepath.Join(j.repo(), ".git"), func(path string, d os.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(path, ".lock") || d.Name() == "gc.pid") {
			err = os.Remove(path)
		}
		return err
	})
}

func (j *gitJob) finish(ctx context.Context) error {
	tip, err := j.git(ctx, "rev-parse", "main")
	if err == nil && tip != j.mains[len(j.mains)-1] {
		err = fmt.Errorf("main is %s, not %s", tip, j.mains[len(j.mains)-1])
	}
	if err != nil {
		return err
	}
	return errors.Join(j.intact(ctx), j.clone(ctx))
}
