package posix

import (
	"path/filepath"
	"testing"

	"tine.dev/tine/test/treesum"
)

// TestTine runs the suite on mounts of one server: on a disk, on a fork of a
// fork of it in directories that were made before the forks, after a restart in
// directories that were made before it, and on a disk that is mounted twice.
func TestTine(t *testing.T) {
	w := newWorld(t)
	w.tine("disk", "create", "work")
	work := w.mount("work")
	suiteDir(t, work, "forked")
	w.tine("fork", "work", "child")
	w.tine("fork", "child", "grandchild")
	fork := filepath.Join(w.mount("grandchild"), "forked")
	restarted := suiteDir(t, work, "restarted")

	t.Run("mount", func(t *testing.T) {
		dir := suiteDir(t, work, "mount")
		examine(t, place{dir, dir, "mount"})
	})
	t.Run("fork", func(t *testing.T) { examine(t, place{fork, fork, "fork"}) })

	before := sum(t, fork)
	if err := w.rig.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.start()
	t.Run("kept", func(t *testing.T) {
		if err := treesum.Same("the fork after the restart", sum(t, fork), before); err != nil {
			t.Error(err)
		}
	})
	t.Run("restart", func(t *testing.T) { examine(t, place{restarted, restarted, "restart"}) })
	t.Run("twice", func(t *testing.T) {
		dir := suiteDir(t, work, "twice")
		examine(t, place{dir, filepath.Join(w.mountAgain("work"), "twice"), "twice"})
	})
}

func sum(t *testing.T, dir string) treesum.Tree {
	t.Helper()
	tree, err := treesum.Read(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestOneProcessor runs the suite on a server that has one processor.
func TestOneProcessor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	w := newWorld(t)
	w.tine("disk", "create", "work")
	dir := suiteDir(t, w.mount("work"), "one")
	examine(t, place{dir, dir, "one"})
}
