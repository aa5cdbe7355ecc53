package behaviours

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func isErrno(err error, want syscall.Errno) bool { return errors.Is(err, want) }

func manySmallFiles(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	native := t.TempDir()
	const files = 1000
	fill := func(dir string) time.Duration {
		began := time.Now()
		for i := range files {
			sub := filepath.Join(dir, fmt.Sprint(i%20))
			must(t, os.MkdirAll(sub, 0o755))
			write(t, filepath.Join(sub, fmt.Sprint(i)), noise(3000, byte(i)))
		}
		return time.Since(began)
	}
	var here, there []time.Duration
	for round := range 3 {
		there = append(there, fill(filepath.Join(native, fmt.Sprint(round))))
		here = append(here, fill(filepath.Join(a, fmt.Sprint(round))))
	}
	t.Logf("%d files: %v on the mount, %v on the native file system", files, median(here), median(there))
	// A flush of the device for each file would alone take ten times this.
	if limit := 12*median(there) + 500*time.Millisecond; median(here) > limit {
		t.Errorf("%d files took %v; at most %v", files, median(here), limit)
	}
}

// lockCycle creates x.lock and renames it away, again and again.
func lockCycle(dir string, rounds int) error {
	lock := filepath.Join(dir, "x.lock")
	for range rounds {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Close(), os.Rename(lock, filepath.Join(dir, "x"))); err != nil {
			return err
		}
	}
	return nil
}

func lockFileAgain(t *testing.T, w *world) {
	a, b := w.dirs(t)
	must(t, lockCycle(a, 200))
	for range 5 {
		act(t, false, nil, "lock-cycle", a).wait()
		must(t, lockCycle(a, 1))
		act(t, false, nil, "lock-cycle", b).wait() // through the other mount
	}
}

func goneStaysGone(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	content := noise(3<<20, 1)
	for i := range 5 {
		write(t, filepath.Join(a, fmt.Sprint("removed-", i)), content)
		must(t, os.Remove(filepath.Join(a, fmt.Sprint("removed-", i))))
		write(t, filepath.Join(a, fmt.Sprint("old-", i)), content)
		must(t, os.Rename(filepath.Join(a, fmt.Sprint("old-", i)), filepath.Join(a, fmt.Sprint("new-", i))))
	}
	must(t, syncDir(a))
	w.crash(t)
	for i := range 5 {
		absent(t, filepath.Join(a, fmt.Sprint("removed-", i)))
		absent(t, filepath.Join(a, fmt.Sprint("old-", i)))
		wantContent(t, filepath.Join(a, fmt.Sprint("new-", i)), content)
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func interruptedCalls(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	p := act(t, false, nil, "interrupted", a)
	soon(t, "that it can take signals", func() bool {
		_, err := os.Lstat(filepath.Join(a, "ready"))
		return err == nil
	})
	ended := make(chan struct{})
	signals := 0
	go func() {
		defer close(ended)
		for p.cmd.Process.Signal(syscall.SIGUSR1) == nil {
			signals++
		}
	}()
	out := p.wait()
	<-ended
	t.Logf("%d signals; %s", signals, strings.TrimSpace(out))
}

// interrupted makes and removes objects while signals come, and checks that
// what failed has not happened.
func interrupted(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o644); err != nil {
		return err
	}
	for i := range 2000 {
		path := filepath.Join(dir, fmt.Sprint("o-", i))
		err := unix.Mkdir(path, 0o755)
		if _, serr := os.Lstat(path); (err == nil) != (serr == nil) {
			return fmt.Errorf("mkdir said %v, lstat %v", err, serr)
		}
		if err != nil {
			continue
		}
		err = unix.Rename(path, path+"-moved")
		_, serr := os.Lstat(path)
		if (err == nil) != os.IsNotExist(serr) {
			return fmt.Errorf("rename said %v, lstat of the old name %v", err, serr)
		}
		if err == nil {
			path += "-moved"
		}
		err = unix.Rmdir(path)
		if _, serr = os.Lstat(path); (err == nil) != os.IsNotExist(serr) {
			return fmt.Errorf("rmdir said %v, lstat %v", err, serr)
		}
	}
	return nil
}

const appendLines = 300

// appendTo appends lines that tell who wrote them.
func appendTo(path, who string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range appendLines {
		line := fmt.Sprintf("%s %d %s\n", who, i, strings.Repeat(who, 40+i%50))
		if n, err := f.WriteString(line); err != nil || n != len(line) {
			return fmt.Errorf("wrote %d of %d: %w", n, len(line), err)
		}
	}
	return nil
}

func eightAppenders(t *testing.T, w *world) {
	a, b := w.dirs(t)
	for _, c := range []struct {
		name  string
		where []string
	}{{"one", []string{a}}, {"two", []string{a, b}}} {
		var ps []*actor
		for i := range 8 {
			ps = append(ps, act(t, false, nil, "append", filepath.Join(c.where[i%len(c.where)], c.name), fmt.Sprint("writer", i)))
		}
		for _, p := range ps {
			p.wait()
		}
		f, err := os.Open(filepath.Join(b, c.name))
		must(t, err)
		seen, next := 0, map[string]int{}
		for sc := bufio.NewScanner(f); sc.Scan(); seen++ {
			var who, filler string
			var i int
			if n, err := fmt.Sscanf(sc.Text(), "%s %d %s", &who, &i, &filler); n != 3 || filler != strings.Repeat(who, 40+i%50) {
				t.Fatalf("a torn line: %q, %v", sc.Text(), err)
			}
			if next[who] != i {
				t.Fatalf("line %d of %s comes where %d should", i, who, next[who])
			}
			next[who]++
		}
		must(t, f.Close())
		if seen != 8*appendLines {
			t.Errorf("on %s mount: %d lines; want %d", c.name, seen, 8*appendLines)
		}
	}
}

func symbolicLinks(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	target := bytes.Repeat([]byte{0xff, '/', ' ', '\n', 1}, 819)
	link := filepath.Join(a, "link")
	must(t, os.Symlink(string(target), link))
	got, err := os.Readlink(link)
	if err != nil || got != string(target) || len(got) != 4095 {
		t.Errorf("a target of %d bytes came back as %d, %v", len(target), len(got), err)
	}
	must(t, os.Symlink("x", filepath.Join(a, "new")))
	must(t, os.Rename(filepath.Join(a, "new"), link))
	if got, err := os.Readlink(link); err != nil || got != "x" {
		t.Errorf("after the rename it leads to %q, %v", got, err)
	}
	act(t, true, nil, "symlink", filepath.Join(a, "theirs")).wait()
	if st := stat(t, filepath.Join(a, "theirs")); st.Uid != nobody || st.Gid != nobodys {
		t.Errorf("an ordinary user's link belongs to %d:%d", st.Uid, st.Gid)
	}
}

func executeBit(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	old := unix.Umask(0o027)
	f, err := os.OpenFile(filepath.Join(a, "tool"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o777)
	unix.Umask(old)
	must(t, err)
	_, err = f.WriteString("#!/bin/sh\necho works\n")
	must(t, errors.Join(err, f.Close()))
	must(t, os.Link(filepath.Join(a, "tool"), filepath.Join(a, "linked")))
	out, err := exec.Command("cp", filepath.Join(a, "tool"), filepath.Join(a, "copied")).CombinedOutput()
	if err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	fork := filepath.Join(w.fork(t), filepath.Base(a))
	for path, want := range map[string]uint32{
		filepath.Join(a, "tool"): 0o750, filepath.Join(a, "linked"): 0o750, filepath.Join(a, "copied"): 0o750 &^ uint32(old),
		filepath.Join(fork, "tool"): 0o750, filepath.Join(fork, "linked"): 0o750,
	} {
		if st := stat(t, path); st.Mode&0o7777 != want {
			t.Errorf("%s has mode %o; want %o", path, st.Mode&0o7777, want)
		}
		if out, err := exec.Command(path).Output(); err != nil || string(out) != "works\n" {
			t.Errorf("%s runs as %q, %v", path, out, err)
		}
	}
}

func hardLinks(t *testing.T, w *world) {
	a, b := w.dirs(t)
	act(t, true, nil, "hard-link", filepath.Join(a, "one"), filepath.Join(a, "two")).wait()
	if st := stat(t, filepath.Join(b, "one")); st.Nlink != 2 || st.Uid != nobody {
		t.Errorf("%d links, owner %d", st.Nlink, st.Uid)
	}
	wantErrno(t, "link to another mount", os.Link(filepath.Join(a, "one"), filepath.Join(t.TempDir(), "x")), syscall.EXDEV)
	wantErrno(t, "link between two mounts of the disk", os.Link(filepath.Join(a, "one"), filepath.Join(b, "x")), syscall.EXDEV)
	f, err := os.OpenFile(filepath.Join(a, "one"), os.O_WRONLY, 0)
	must(t, err)
	must(t, os.Remove(filepath.Join(a, "two")))
	_, err = f.WriteString("through one")
	must(t, errors.Join(err, f.Close()))
	must(t, os.Link(filepath.Join(a, "one"), filepath.Join(a, "three")))
	must(t, os.Remove(filepath.Join(a, "one")))
	wantContent(t, filepath.Join(a, "three"), []byte("through one"))
}

func backgroundHidesNothing(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	for round := range 12 {
		cp := fmt.Sprint("b10-", round)
		w.tine(t, "checkpoint", "create", "work", cp)
		for i := range 60 {
			path, content := filepath.Join(a, fmt.Sprint(i)), noise(200_000, byte(round*60+i))
			write(t, path, content)
			wantContent(t, path, content)
		}
		if round > 0 { // what it kept is freed while the next round writes
			w.tine(t, "checkpoint", "rm", "work", fmt.Sprint("b10-", round-1))
		}
		for i := range 60 {
			wantContent(t, filepath.Join(a, fmt.Sprint(i)), noise(200_000, byte(round*60+i)))
		}
	}
	w.tine(t, "checkpoint", "rm", "work", "b10-11")
}

func descriptorsAgree(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	path := filepath.Join(a, "file")
	f, err := os.Create(path)
	must(t, err)
	g, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteString("first")
	must(t, err)
	got := make([]byte, 5)
	if n, err := g.ReadAt(got, 0); err != nil || string(got[:n]) != "first" {
		t.Errorf("the other descriptor reads %q, %v", got[:n], err)
	}
	if st := stat(t, path); st.Size != 5 {
		t.Errorf("stat by path says %d bytes before any flush", st.Size)
	}
	_, err = g.WriteAt([]byte("F"), 0)
	must(t, errors.Join(err, g.Close(), f.Close()))
	wantContent(t, path, []byte("First"))
	if st := stat(t, path); st.Size != 5 {
		t.Errorf("stat says %d bytes after close", st.Size)
	}
}

func forkStandsStill(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	index := filepath.Join(a, "index")
	stop := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- func() error {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				default:
				}
				lock := index + ".lock"
				if err := os.WriteFile(lock, noise(20_000, byte(i)), 0o644); err != nil {
					return err
				}
				if err := os.Rename(lock, index); err != nil {
					return err
				}
			}
		}()
	}()
	for range 3 {
		t.Run("fork", func(t *testing.T) {
			at := filepath.Join(w.fork(t), filepath.Base(a))
			first := sum(t, at)
			before := stat(t, index).Ino
			for stat(t, index).Ino == before {
			} // the parent goes on
			if again := sum(t, at); again != first {
				t.Error("the fork has changed")
			}
		})
	}
	close(stop)
	must(t, <-failed)
}

func timesSurvive(t *testing.T, w *world) {
	a, b := w.dirs(t)
	path := filepath.Join(a, "file")
	write(t, path, []byte("x"))
	before := stat(t, path)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString("y")
	must(t, err)
	if after := stat(t, path); after.Mtim.Nano() <= before.Mtim.Nano() || after.Ctim.Nano() <= before.Ctim.Nano() {
		t.Error("write moved neither mtime nor ctime")
	}
	set := []unix.Timespec{{Sec: 1_000_000_000, Nsec: 123_456_789}, {Sec: 1_100_000_000, Nsec: 987_654_321}}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, set, 0))
	must(t, f.Close())
	ctime := stat(t, path).Ctim.Nano()
	must(t, os.Chmod(path, 0o600))
	if stat(t, path).Ctim.Nano() <= ctime {
		t.Error("chmod did not move ctime")
	}
	ctime = stat(t, path).Ctim.Nano()
	check := func(when, path string) {
		t.Helper()
		if st := stat(t, path); st.Mtim.Sec != set[1].Sec || st.Mtim.Nsec != set[1].Nsec || st.Ctim.Nano() != ctime {
			t.Errorf("%s: mtime %v, ctime %v; want %v and %v", when, st.Mtim, st.Ctim, set[1], ctime)
		}
	}
	check("after close", path)
	check("on the other mount", filepath.Join(b, "file"))
	check("in a fork", filepath.Join(w.fork(t), filepath.Base(a), "file"))
	w.tine(t, "umount", w.b)
	w.tine(t, "mount", "work", w.b)
	check("mounted anew", filepath.Join(b, "file"))
	w.tine(t, "sync", "work")
	w.crash(t)
	check("after a crash", path)
}

func chownAndTruncate(t *testing.T, w *world) {
	a, _ := w.dirs(t)
	path := filepath.Join(a, "file")
	write(t, path, nil)
	must(t, os.Chown(path, nobody, nobodys))
	must(t, os.Chown(path, -1, othersOnes))
	must(t, os.Chown(path, nobody, -1))
	if st := stat(t, path); st.Uid != nobody || st.Gid != othersOnes {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	before := stat(t, path).Mtim.Nano()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	must(t, f.Close())
	if stat(t, path).Mtim.Nano() <= before {
		t.Error("O_TRUNC of an empty file did not move mtime")
	}
}

// readAll reads what is open from the start.
func readAll(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
}
