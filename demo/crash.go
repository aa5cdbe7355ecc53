package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"tine.dev/tine/test/rig"
	"tine.dev/tine/test/treesum"
)

// What the sixth run must have promised before the server is killed.
const (
	minSyncedFiles = 200
	minCommits     = 3
)

// promises is what was acknowledged as durable before the crash.
type promises struct {
	mu      sync.Mutex
	files   map[string]string // path on the disk to the SHA-256 of its content
	commits []string          // git commits, oldest first
	enough  chan struct{}     // closed once there is enough to check
}

// add records a promise. Only what was recorded is checked, so a crash between
// the promise and its record checks less, never more.
func (p *promises) add(path, sum, commit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if path != "" {
		p.files[path] = sum
	}
	if commit != "" {
		p.commits = append(p.commits, commit)
	}
	if len(p.files) >= minSyncedFiles && len(p.commits) >= minCommits {
		select {
		case <-p.enough:
		default:
			close(p.enough)
		}
	}
}

// killDuringWork kills the server while files are written and synced, commits
// are made and tests run, starts it again, and looks for everything promised.
func (s *story) killDuringWork() error {
	p := &promises{files: map[string]string{}, enough: make(chan struct{})}
	var work sync.WaitGroup
	ended := make(chan error, 3)
	for _, f := range []func(*promises) error{s.writeSynced, s.commitOften, s.testOften} {
		work.Go(func() { ended <- f(p) })
	}
	var early error
	select {
	case <-p.enough:
	case early = <-ended: // nothing ends on its own
	case <-s.ctx.Done():
		early = s.ctx.Err()
	}
	if err := errors.Join(early, s.rig.Kill()); err != nil {
		return err
	}
	work.Wait()
	s.say("killed the server (SIGKILL) after %d synced files and %d commits, with tests running", len(p.files), len(p.commits))
	took, err := s.rig.Start(s.ctx)
	if err != nil {
		return err
	}
	s.say("started it again: recovered, and the disk mounted where it was, after %d ms", took.Milliseconds())
	return s.keptPromises(p)
}

// writeSynced writes files of many sizes, in many ways, and syncs each, until
// the disk goes away.
func (s *story) writeSynced(p *promises) error {
	dir := filepath.Join(s.work, "notes")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; ; i++ {
		data := make([]byte, rng.IntN(1<<uint(4+i%14))) // up to 128 KiB
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		name := fmt.Sprintf("%05d", i)
		if err := writeSyncedFile(dir, name, data); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		sum := sha256.Sum256(data)
		p.add(filepath.Join("notes", name), hex.EncodeToString(sum[:]), "")
	}
}

// writeSyncedFile makes a file durable in the way editors and databases do:
// write it under another name, sync it, rename it, sync the directory.
func writeSyncedFile(dir, name string, data []byte) error {
	temp := filepath.Join(dir, "."+name)
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, name))
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// commitOften makes git commits until the disk goes away. Git is told to sync
// all that a commit is made of, but renames the branch into place last, and
// leaves the directory that it does this in to the next one who syncs.
func (s *story) commitOften(p *promises) error {
	for i := 0; ; i++ {
		note := filepath.Join(s.work, "src", "text", "template", "NOTES")
		if err := os.WriteFile(note, fmt.Appendf(nil, "note %d\n", i), 0o644); err != nil {
			return err
		}
		if _, err := s.git(s.work, "-c", "core.fsync=all", "add", note); err != nil {
			return err
		}
		if _, err := s.git(s.work, "-c", "core.fsync=all", "commit", "-q", "-m", fmt.Sprintf("Note %d", i), "--", note); err != nil {
			return err
		}
		commit, err := s.git(s.work, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		if err := syncDir(filepath.Join(s.work, ".git", "refs", "heads")); err != nil {
			return err
		}
		p.add("", "", commit)
	}
}

// testOften runs tests, which build and write to the cache on the disk, until
// the disk goes away.
func (s *story) testOften(*promises) error {
	for {
		args := append([]string{"test", "-count=1", "-short"}, packages()...)
		if _, err := rig.Output(s.inside(s.work, "go", args...)); err != nil {
			return err
		}
	}
}

// keptPromises checks that all that was promised is there.
func (s *story) keptPromises(p *promises) error {
	for path, want := range p.files {
		got, err := treesum.HashFile(filepath.Join(s.work, path))
		if err != nil {
			return fmt.Errorf("a synced file: %w", err)
		}
		if got != want {
			return fmt.Errorf("%s was synced with the hash %s and has now %s", path, want, got)
		}
	}
	s.say("all %d synced files are there, with the hash they had", len(p.files))
	// What a killed git leaves behind, on any disk.
	for _, lock := range []string{"index.lock", "HEAD.lock", "refs/heads/main.lock"} {
		if err := os.Remove(filepath.Join(s.work, ".git", lock)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if out, err := s.git(s.work, "fsck", "--full", "--strict"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for _, c := range append([]string{s.fix}, p.commits...) {
		if _, err := s.git(s.work, "merge-base", "--is-ancestor", c, "HEAD"); err != nil {
			return fmt.Errorf("the acknowledged commit %s is lost: %w", c, err)
		}
	}
	s.say("git fsck finds nothing wrong, and all %d commits are in the history", len(p.commits))
	return nil
}

// rollBackAndUndo goes back to the checkpoint and comes back.
func (s *story) rollBackAndUndo() error {
	var err error
	if s.current, err = treesum.Read(s.ctx, s.work); err != nil {
		return err
	}
	if err := s.tine("rollback", "work", "start"); err != nil {
		return err
	}
	if err := s.shows("the disk after the rollback", s.start); err != nil {
		return err
	}
	head, err := s.git(s.work, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	status, err := s.git(s.work, "status", "--porcelain")
	if err != nil {
		return err
	}
	if head != s.head || status != "" {
		return fmt.Errorf("after the rollback git is at %s, not at %s, with changes: %q", head, s.head, status)
	}
	s.say("the old tree: %d files, as at the checkpoint to the byte; git is at the old commit, nothing changed", s.start.Files)
	if _, err := os.Stat(filepath.Join(s.work, "notes")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the notes should be gone: %v", err)
	}
	if err := s.tine("undo", "work"); err != nil {
		return err
	}
	return s.shows("the disk after the undo", s.current)
}

// shows checks that the mounted disk holds exactly the tree want.
func (s *story) shows(what string, want treesum.Tree) error {
	got, err := treesum.Read(s.ctx, s.work)
	if err != nil {
		return err
	}
	if err := treesum.Same(what, got, want); err != nil {
		return err
	}
	s.say("%s: %d files, sum %.16s", what, got.Files, got.Sum())
	return nil
}
