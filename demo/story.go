package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tine.dev/tine/test/rig"
	"tine.dev/tine/test/treesum"
)

// minFiles is what the imported tree must have for the story to mean anything.
const minFiles = 10000

// step is a part of the story. Its run returns an error if something is not as
// told.
type step struct {
	name string
	run  func() error
}

// story is what the steps hand on to each other.
type story struct {
	ctx   context.Context
	rig   *rig.Rig
	build bool   // the binary is to be built first
	tree  string // the Go distribution that is imported
	disk  string // where each run sees its disk, in a mount namespace of its own

	work    string       // where the disk "work" is mounted
	start   treesum.Tree // the disk as it was at the checkpoint
	head    string       // the git commit at the checkpoint
	fix     string       // the git commit of the attempt that was kept
	current treesum.Tree // the disk before the rollback
}

func (s *story) say(format string, args ...any) {
	fmt.Printf("    "+format+"\n", args...)
}

// tine runs a tine command, and says which and how long it took.
func (s *story) tine(args ...string) error {
	began := time.Now()
	_, err := s.rig.Tine(s.ctx, args...)
	if err == nil {
		s.say("$ tine %s   (%d ms)", strings.Join(args, " "), time.Since(began).Milliseconds())
	}
	return err
}

// git runs git on the tree that is mounted at dir and returns its output.
func (s *story) git(dir string, args ...string) (string, error) {
	cmd := rig.Command(s.ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = gitEnv()
	out, err := rig.Output(cmd)
	return strings.TrimSpace(out), err
}

// gitEnv is an environment in which git does the same on every machine: no
// configuration but ours, and no housekeeping in the background.
func gitEnv() []string {
	return append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=demo", "GIT_AUTHOR_EMAIL=demo@example.com", "GIT_COMMITTER_NAME=demo", "GIT_COMMITTER_EMAIL=demo@example.com",
		"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=gc.auto", "GIT_CONFIG_VALUE_0=0", "GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*",
		"GIT_CONFIG_KEY_2=init.defaultBranch", "GIT_CONFIG_VALUE_2=main")
}

func (s *story) startServer() error {
	if s.build {
		if err := rig.Build(s.ctx, s.rig.Binary()); err != nil {
			return err
		}
		s.say("built tine")
	}
	took, err := s.rig.Start(s.ctx)
	if err != nil {
		return err
	}
	s.say("ready after %d ms", took.Milliseconds())
	return nil
}

func (s *story) importTree() error {
	if s.tree == "" {
		root, err := rig.Output(rig.Command(s.ctx, "go", "env", "GOROOT"))
		if err != nil {
			return err
		}
		s.tree = strings.TrimSpace(root)
	}
	if err := s.tine("disk", "create", "work", "--from-dir", s.tree); err != nil {
		return err
	}
	var err error
	if s.work, err = s.rig.Mount(s.ctx, "work"); err != nil {
		return err
	}
	source, err := treesum.Read(s.ctx, s.tree)
	if err != nil {
		return err
	}
	disk, err := treesum.Read(s.ctx, s.work)
	if err != nil {
		return err
	}
	if err := treesum.Same("the imported tree", disk, source); err != nil {
		return err
	}
	if disk.Files < minFiles {
		return fmt.Errorf("%s has %d files; the story needs at least %d", s.tree, disk.Files, minFiles)
	}
	s.say("%d files, %d MiB: every name, mode and byte as in %s", disk.Files, disk.Bytes>>20, s.tree)
	return nil
}

func (s *story) commitTree() error {
	if err := s.edit(s.work, "start"); err != nil {
		return err
	}
	ignore := "/.cache/\n/bin/\n/pkg/\n"
	if err := os.WriteFile(filepath.Join(s.work, ".gitignore"), []byte(ignore), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "The distribution, and Wrap with a bug"}} {
		if _, err := s.git(s.work, args...); err != nil {
			return err
		}
	}
	files, err := s.git(s.work, "ls-files")
	if err != nil {
		return err
	}
	n := strings.Count(files, "\n") + 1
	if n < minFiles {
		return fmt.Errorf("git has only %d files", n)
	}
	s.say("git init, add, commit: %d files", n)
	return nil
}

func (s *story) warmCache() error {
	v := s.check(s.work)
	if v.err != nil {
		return v.err
	}
	if v.failed != "test" || !strings.Contains(v.output, "--- FAIL: TestWrap") || v.passed() != len(packages())-1 {
		return fmt.Errorf("the tests should show the bug in Wrap and nothing else, but: %s", v)
	}
	s.say("go build, go vet, go test of %d packages: %s", len(packages()), v)
	s.say("so there is a bug to fix")
	return nil
}

func (s *story) forkFiveWays() error {
	// Git notes in its index what it finds unchanged, so that it need not look again.
	if _, err := s.git(s.work, "status", "--porcelain"); err != nil {
		return err
	}
	var err error
	if s.head, err = s.git(s.work, "rev-parse", "HEAD"); err != nil {
		return err
	}
	if err := s.tine("checkpoint", "create", "work", "start"); err != nil {
		return err
	}
	args := []string{"fork", "work@start"}
	for _, a := range attempts() {
		args = append(args, a.disk)
	}
	if err := s.tine(args...); err != nil {
		return err
	}
	s.start, err = treesum.Read(s.ctx, s.work)
	return err
}

func (s *story) stopServer() error {
	if err := s.rig.Unmount(s.ctx, "work"); err != nil {
		return err
	}
	return s.rig.Stop(s.ctx)
}
