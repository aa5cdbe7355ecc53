package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// treeCases are about a real source tree: that of the Go distribution.
func treeCases() []benchCase {
	return []benchCase{
		{name: "untar", what: "tar -x of Go's source", unit: seconds, missing: needs("tar"), prepare: packTree, run: untar},
		{name: "grep", what: "grep -r through it, cold names", unit: seconds, missing: firstOf(needsRoot, needs("tar"), needs("grep")), prepare: unpackedTree, run: grep},
		{name: "rm", what: "rm -rf of it", unit: seconds, missing: needs("tar"), prepare: unpackedTree, run: removeTree},
		{name: "git-clone", what: "git clone of a local repository of it", unit: seconds, missing: needs("git"), prepare: repository, run: gitClone},
		{name: "git-status", what: "git status in the clone, cold names", unit: seconds, missing: firstOf(needsRoot, needs("git")), prepare: clonedRepository, run: gitStatus},
	}
}

func firstOf(missing ...func(*bench) string) func(*bench) string {
	return func(b *bench) string {
		for _, m := range missing {
			if why := m(b); why != "" {
				return why
			}
		}
		return ""
	}
}

// packTree packs the tree, once in a run.
func packTree(ctx context.Context, t *turn) error {
	archive := t.bench.at("tree.tar")
	if _, err := os.Stat(archive); err == nil {
		return nil
	}
	_, err := output(ctx, "", "tar", "-cf", archive, "-C", filepath.Dir(filepath.Join(t.goroot, t.size.tree)), filepath.Base(t.size.tree))
	return err
}

func (t *turn) unpack(ctx context.Context) error {
	_, err := output(ctx, "", "tar", "-xf", t.bench.at("tree.tar"), "-C", t.dir)
	return err
}

func unpackedTree(ctx context.Context, t *turn) error {
	if err := packTree(ctx, t); err != nil {
		return err
	}
	return t.unpack(ctx)
}

func untar(ctx context.Context, t *turn) (float64, error) {
	return duration(func() error { return t.unpack(ctx) })
}

func removeTree(ctx context.Context, t *turn) (float64, error) {
	return duration(func() error {
		_, err := output(ctx, "", "rm", "-rf", t.path(filepath.Base(t.size.tree)))
		return err
	})
}

func grep(ctx context.Context, t *turn) (float64, error) {
	if err := dropNames(); err != nil {
		return 0, err
	}
	return duration(func() error {
		_, err := output(ctx, t.dir, "grep", "-rlF", "package main", ".")
		return err
	})
}

// git runs git with nobody's configuration.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	base := []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "git", "-c", "user.name=bench", "-c", "user.email=bench@localhost",
		"-c", "init.defaultBranch=main", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}
	return output(ctx, dir, "env", append(base, args...)...)
}

// repository makes the repository that is cloned, once in a run.
func repository(ctx context.Context, t *turn) error {
	repo := t.bench.at("repository")
	if _, err := os.Stat(repo); err == nil {
		return nil
	}
	fresh := repo + "-new"
	if err := os.CopyFS(fresh, os.DirFS(filepath.Join(t.goroot, t.size.tree))); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A", "-f"}, {"commit", "-q", "-m", "all"}, {"repack", "-q", "-a", "-d"}} {
		if _, err := git(ctx, fresh, args...); err != nil {
			return err
		}
	}
	return os.Rename(fresh, repo)
}

// clone copies the repository as over a network, not by linking its files.
func (t *turn) clone(ctx context.Context) error {
	_, err := git(ctx, "", "clone", "-q", "--no-local", t.bench.at("repository"), t.path("clone"))
	return err
}

func gitClone(ctx context.Context, t *turn) (float64, error) {
	return duration(func() error { return t.clone(ctx) })
}

func clonedRepository(ctx context.Context, t *turn) error {
	if err := repository(ctx, t); err != nil {
		return err
	}
	return t.clone(ctx)
}

func gitStatus(ctx context.Context, t *turn) (float64, error) {
	if err := dropNames(); err != nil {
		return 0, err
	}
	return duration(func() error {
		out, err := git(ctx, t.path("clone"), "status", "--porcelain")
		if err == nil && out != "" {
			err = fmt.Errorf("a fresh clone has changes: %.200s", out)
		}
		return err
	})
}
