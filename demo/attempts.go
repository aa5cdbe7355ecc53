package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tine.dev/tine/test/rig"
	"tine.dev/tine/test/treesum"
)

// edits are the versions of text/template's Wrap, by the name of the attempt.
// They end in .txt, since most of them must not be built.
//
//go:embed edits
var edits embed.FS

// attempt is one way to fix the bug.
type attempt struct {
	disk string
	edit string // name in edits
	idea string
	fate string // the check at which it must fail; "" if it is right
}

func attempts() []attempt {
	return []attempt{
		{"try-1", "early", "count characters, break a line one early", "test"},
		{"try-2", "vet", "count characters, print what happens", "vet"},
		{"try-3", "right", "count characters, and test it", ""},
		{"try-4", "compile", "count characters, forget the import", "build"},
		{"try-5", "hang", "join words until they do not fit", "test"},
	}
}

// packages are those that every attempt must leave whole.
func packages() []string {
	return []string{"strings", "bytes", "sort", "encoding/json", "text/template", "html/template"}
}

// edit writes the files of one edit into the tree at dir.
func (s *story) edit(dir, name string) error {
	to := filepath.Join(dir, "src", "text", "template")
	for _, f := range []struct{ from, to string }{{name + ".go.txt", "wrap.go"}, {name + "_test.go.txt", "wrap_" + name + "_test.go"}} {
		text, err := edits.ReadFile("edits/" + f.from)
		if errors.Is(err, os.ErrNotExist) && strings.Contains(f.from, "_test") {
			continue // not every attempt brings a test
		} else if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, f.to), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what the checks said of one tree.
type verdict struct {
	failed string // "build", "vet", "test", or "" if all passed
	output string // of the check that failed, or of the tests
	took   time.Duration
	err    error // the checks could not be run
}

// reused is the number of packages whose test result came from the cache.
func (v verdict) reused() int { return strings.Count(v.output, "(cached)") }

// passed is the number of packages whose tests passed.
func (v verdict) passed() int {
	n := 0
	for line := range strings.Lines(v.output) {
		if strings.HasPrefix(line, "ok ") {
			n++
		}
	}
	return n
}

func (v verdict) String() string {
	switch {
	case v.err != nil:
		return v.err.Error()
	case v.failed == "":
		return fmt.Sprintf("passes, %d of %d test results reused", v.reused(), len(packages()))
	}
	for line := range strings.Lines(v.output) {
		for _, sign := range []string{"wrap.go:", "--- FAIL", "panic: "} {
			if strings.Contains(line, sign) {
				return "fails in go " + v.failed + ": " + strings.TrimSpace(line)
			}
		}
	}
	return "fails in go " + v.failed + ": " + v.output
}

// check builds, vets and tests the tree that is mounted at dir, with the tools
// and the build cache that are in it, and stops at the first that fails.
//
// It does so in a mount namespace in which that tree is at s.disk. Every fork
// is seen at the same path, since build caches are made of paths.
func (s *story) check(dir string) verdict {
	began := time.Now()
	v := verdict{}
	for _, args := range [][]string{{"build"}, {"vet"}, {"test", "-short", "-timeout=30s"}} {
		cmd := s.inside(dir, "go", append(args, packages()...)...)
		v.output, v.err = rig.Output(cmd)
		v.took = time.Since(began)
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 && s.ctx.Err() == nil {
			v.failed, v.err = args[0], nil
		}
		if v.failed != "" || v.err != nil {
			return v
		}
	}
	return v
}

// attemptAll makes all attempts at once and compares the verdicts with their
// fates.
func (s *story) attemptAll() error {
	var all sync.WaitGroup
	verdicts := make([]verdict, len(attempts()))
	for i, a := range attempts() {
		all.Go(func() { verdicts[i] = s.attempt(a) })
	}
	all.Wait()
	var wrong error
	for i, a := range attempts() {
		v := verdicts[i]
		s.say("%s: %s", a.disk, a.idea)
		s.say("       %s   (%.1f s)", v, v.took.Seconds())
		if v.err != nil || v.failed != a.fate {
			wrong = errors.Join(wrong, fmt.Errorf("%s should fail in %q, but failed in %q:\n%s", a.disk, a.fate, v.failed, v.output))
		}
		if v.failed == "" && v.reused() == 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%s reused no test result of the build cache that it was forked with:\n%s", a.disk, v.output))
		}
	}
	if wrong != nil {
		return wrong
	}
	now, err := treesum.Read(s.ctx, s.work)
	if err != nil {
		return err
	}
	s.say("nothing of it is to be seen on the disk that they were forked from")
	return treesum.Same("the parent of the forks", now, s.start)
}

// attempt mounts a fork, edits it and runs the checks on it.
func (s *story) attempt(a attempt) verdict {
	dir, err := s.rig.Mount(s.ctx, a.disk)
	if err != nil {
		return verdict{err: err}
	}
	if err := s.edit(dir, a.edit); err != nil {
		return verdict{err: err}
	}
	v := s.check(dir)
	if v.err == nil && v.failed == "" {
		_, err1 := s.git(dir, "add", "-A")
		_, err2 := s.git(dir, "commit", "-q", "-m", "Wrap: "+a.idea)
		v.err = errors.Join(err1, err2)
	}
	return v
}

// keepBest promotes the attempt that passed, and discards the others.
func (s *story) keepBest() error {
	for _, a := range attempts() {
		if err := s.rig.Unmount(s.ctx, a.disk); err != nil {
			return err
		}
	}
	for _, a := range attempts() {
		args := []string{"disk", "rm", "--purge", a.disk}
		if a.fate == "" {
			args = []string{"promote", a.disk, "--onto", "work"}
		}
		if err := s.tine(args...); err != nil {
			return err
		}
	}
	disks, err := s.rig.Tine(s.ctx, "disk", "ls", "--json")
	if err != nil {
		return err
	}
	if strings.Contains(disks, "try-") {
		return fmt.Errorf("a fork is still there: %s", disks)
	}
	if s.fix, err = s.git(s.work, "rev-parse", "HEAD"); err != nil {
		return err
	}
	if s.fix == s.head {
		return errors.New("the disk does not show the promoted fork")
	}
	v := s.check(s.work)
	if v.err != nil || v.failed != "" {
		return fmt.Errorf("the promoted disk: %s", v)
	}
	s.say("the disk, mounted all the while, shows the fix: %s", v)
	return nil
}

// inside returns a command that runs where the tree mounted at dir is at
// s.disk, with the Go tools of that tree and its build cache.
func (s *story) inside(dir, name string, args ...string) *exec.Cmd {
	script := `mount --bind "$1" "$2" && cd "$2/src" && shift 2 && exec "$@"`
	sh := []string{"--mount", "--propagation", "private", "sh", "-c", script, "sh", dir, s.disk, name}
	cmd := rig.Command(s.ctx, "unshare", append(sh, args...)...)
	cmd.Env = append(gitEnv(), "PATH="+filepath.Join(s.disk, "bin")+":"+os.Getenv("PATH"), "GOROOT="+s.disk, "GOTOOLCHAIN=local",
		"GOCACHE="+filepath.Join(s.disk, ".cache", "go-build"), "GOPATH="+filepath.Join(s.disk, ".cache", "gopath"),
		"GOENV=off", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "HOME="+s.rig.Dir(), "TMPDIR="+s.rig.Dir())
	return cmd
}
