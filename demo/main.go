// Command demo shows the whole of tine in one story, on a real source tree
// with real tools: a disk with the Go distribution on it, its git history and
// its build cache; five forks on which five attempts at a bug are vetted,
// built and tested at once; the best one promoted; a server killed in the
// middle of work; a rollback and its undo.
//
// It asserts what it tells. The first thing that is not as told ends it with
// exit code 1, and whatever happens, it takes its server, mounts and files
// away with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"tine.dev/tine/test/rig"
)

func main() {
	binary := flag.String("tine", "", "the tine to show; built from this module if empty")
	tree := flag.String("tree", "", "the Go distribution to work on; that of the go command if empty")
	limit := flag.Duration("limit", 15*time.Minute, "give up after this time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	if err := run(ctx, *binary, *tree); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo: FAILED:", err)
		stop()
		os.Exit(1)
	}
}

// run tells the story in a temporary directory and cleans up after it.
func run(ctx context.Context, binary, tree string) (err error) {
	if err := rig.Usable(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tine-demo-")
	if err != nil {
		return err
	}
	build := binary == ""
	if build {
		binary = filepath.Join(dir, "tine")
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	r, err := rig.New(binary, dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe end of the server's log:\n%s", err, r.LogEnd())
		}
		err = errors.Join(err, r.Close())
	}()
	s := &story{ctx: ctx, rig: r, build: build, tree: tree, disk: filepath.Join(r.Dir(), "disk")}
	if err := os.Mkdir(s.disk, 0o755); err != nil {
		return err
	}
	return s.tell([]step{
		{"start a server", s.startServer},
		{"import a source tree", s.importTree},
		{"put it under git", s.commitTree},
		{"warm the build cache, on the disk", s.warmCache},
		{"checkpoint, and fork five ways", s.forkFiveWays},
		{"five attempts at one bug, at once", s.attemptAll},
		{"keep the one that passes, discard the rest", s.keepBest},
		{"kill the server in the middle of a sixth run", s.killDuringWork},
		{"roll back, and undo", s.rollBackAndUndo},
		{"stop the server", s.stopServer},
	})
}

// tell runs the steps one after the other and prints how long each took.
func (s *story) tell(steps []step) error {
	began := time.Now()
	for i, st := range steps {
		fmt.Printf("%2d. %s\n", i+1, st.name)
		at := time.Now()
		if err := st.run(); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		fmt.Printf("    [%.1f s]\n", time.Since(at).Seconds())
	}
	fmt.Printf("\ndemo: all of it held, in %.0f s\n", time.Since(began).Seconds())
	return nil
}
