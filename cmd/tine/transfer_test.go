package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tine.dev/tine/test/treesum"
)

// sourceTree makes a tree of plain files and returns it.
func (w *world) sourceTree(name string) string {
	w.t.Helper()
	dir := filepath.Join(w.dir, name)
	for i := range 40 {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", i%7), "x")
		if err := os.MkdirAll(sub, 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%d", i)), bytes.Repeat([]byte{byte(i)}, i*i*199), 0o640); err != nil {
			w.t.Fatal(err)
		}
	}
	ok := func(err error) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	ok(os.Symlink("d1/x/f1", filepath.Join(dir, "link")))
	ok(os.Symlink("d1", filepath.Join(dir, "dirlink")))
	ok(os.Link(filepath.Join(dir, "d1/x/f1"), filepath.Join(dir, "hard")))
	f, err := os.Create(filepath.Join(dir, "sparse"))
	ok(err)
	_, err = f.WriteAt([]byte("end"), 32<<20)
	ok(err)
	ok(f.Truncate(33 << 20))
	ok(f.Close())
	return dir
}

// same compares two trees.
func (w *world) same(what, got, want string) {
	w.t.Helper()
	a, err := treesum.Read(w.t.Context(), got)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := treesum.Read(w.t.Context(), want)
	if err != nil {
		w.t.Fatal(err)
	}
	if b.Files < 40 {
		w.t.Fatalf("%s has only %d files", want, b.Files)
	}
	if err := treesum.Same(what, a, b); err != nil {
		w.t.Error(err)
	}
	var st, sst unix.Stat_t
	if err := unix.Stat(filepath.Join(got, "hard"), &st); err != nil || st.Nlink != 2 {
		w.t.Errorf("%s: the hard link has %d names, %v", what, st.Nlink, err)
	}
	if err := unix.Stat(filepath.Join(got, "sparse"), &sst); err != nil || sst.Blocks > 2048 {
		w.t.Errorf("%s: the sparse file takes %d blocks, %v", what, sst.Blocks, err)
	}
}

func TestExportAndImport(t *testing.T) {
	w := newWorld(t)
	src := w.sourceTree("src")
	w.steps([]step{
		{"import work --from-dir DIR/src", 0, `created the disk work`, ""},
		{"checkpoint create work cp", 0, `.`, ""},
		{"export work", exitUsage, "", `--to-tar`},
		{"export none --to-tar DIR/x.tar", exitNotFound, "", `none`},
		{"export work@none --to-tar DIR/x.tar", exitNotFound, "", `none`},
		{"export work --path /none --to-tar DIR/x.tar", exitNotFound, "", `"/none" in the disk`},
		{"export work --to-tar DIR/nowhere/x.tar", exitNotFound, "", `nowhere`},
		{"export work --to-tar DIR/x.tar", 0, `^exported work to \S+/x.tar: 41 files, 15 directories, 2 symbolic links, 1 hard link, `, ""},
		{"export work@cp --path d1 --to-tar DIR/d1.tar", 0, `^exported work@cp`, ""},
		{"export work --path d1/x/f1 --to-tar DIR/f1.tar", 0, `1 file`, ""},
		{"checkpoint ls work", 0, `^NAME[^\n]*\ncp [^\n]*\n$`, ""},
	})
	if left, err := filepath.Glob(filepath.Join(w.dir, ".x.tar*")); err != nil || len(left) > 0 {
		t.Errorf("unfinished archives are left: %q, %v", left, err)
	}
	w.steps([]step{
		{"import copy --from-tar DIR/x.tar", 0, `^imported \S+/x.tar into copy: 41 files`, ""},
		{"import copy --from-tar DIR/none.tar", exitNotFound, "", `none.tar`},
		{"import copy", exitUsage, "", `--from-dir DIR or --from-tar FILE`},
		{"import copy --from-dir DIR/src", exitExists, "", `copy`},
		{"import copy --from-dir DIR/src --path x", exitUsage, "", `tine cp`},
		{"import copy --from-tar DIR/d1.tar --path /new/place", 0, `the state before is copy@before-import-1\n$`, ""},
		{"diff copy@before-import-1 copy", 0, `A new/place/x/f1\n`, ""},
		{"import copy --from-tar DIR/f1.tar --path link", exitUsage, "", `not a directory`},
		{"cp copy:/new/place DIR/place", 0, `copied`, ""},
	})
	if code, stdout, _ := w.run("cp copy:/. DIR/out"); code != 0 {
		t.Errorf("%d %s", code, stdout)
	}
	if err := os.RemoveAll(filepath.Join(w.dir, "out", "new")); err != nil {
		t.Fatal(err)
	}
	w.same("what was exported and imported", filepath.Join(w.dir, "out"), src)
	// As an archive in the middle of a pipe.
	code, archive, stderr := w.run("export work --to-tar -")
	if code != 0 || stderr != "" {
		t.Fatalf("%d %s", code, stderr)
	}
	w.stdin = strings.NewReader(archive)
	w.steps([]step{{"--json import piped --from-tar -", 0, `"files": 41,`, ""}, {"diff work piped", 0, "", ""}})
}

func TestBrokenArchives(t *testing.T) {
	w := newWorld(t)
	w.sourceTree("src")
	w.steps([]step{{"import work --from-dir DIR/src", 0, `.`, ""}})
	_, archive, _ := w.run("export work --to-tar -")
	feed := func(s string, steps ...step) {
		t.Helper()
		w.stdin = strings.NewReader(s)
		w.steps(steps)
	}
	bad := []byte(archive)
	bad[100<<10&^511+3] ^= 0x55
	for name, x := range map[string]struct{ archive, stderr string }{
		"cut in a file":       {archive[:len(archive)/2+700], `damaged at byte \d+, after`},
		"cut between files":   {archive[:512], `damaged at byte 512`},
		"without its end":     {strings.TrimRight(archive, "\x00"), `damaged|end`},
		"empty":               {"", `is empty`},
		"not an archive":      {strings.Repeat("text ", 1000), `not a tar archive`},
		"compressed":          {"\x1f\x8b" + strings.Repeat("x", 1000), `gzip -dc`},
		"a short text":        {"hello", `not a tar archive`},
		"names that lead out": {tarOf(t, w, "../x"), `lead out`},
	} {
		code := exitIO
		switch name {
		case "empty", "not an archive", "compressed", "a short text", "names that lead out":
			code = exitUsage
		}
		t.Run(name, func(t *testing.T) {
			feed(x.archive, step{"import new --from-tar -", code, "", x.stderr})
			feed("", step{"disk show new", exitNotFound, "", `.`})
			feed(x.archive, step{"import work --from-tar - --path /in", code, "", x.stderr + `(?s).*tine rollback work before-import-`})
		})
	}
	w.steps([]step{{"disk ls", 0, `^NAME[^\n]*\nwork [^\n]*\n$`, ""}})
}

// tarOf makes an archive of one file with that name.
func tarOf(t *testing.T, w *world, name string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "one"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tar", "-C", w.dir, "-cPf", "-", "--transform=s|^one$|"+name+"|", "one").Output()
	if err != nil {
		t.Skipf("there is no GNU tar here: %v", err)
	}
	return string(out)
}

func TestCopy(t *testing.T) {
	w := newWorld(t)
	src := w.sourceTree("src")
	if err := os.Mkdir(filepath.Join(w.dir, "into"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{
		{"disk create work", 0, `.`, ""},
		{"cp DIR/src work:/", 0, `^copied \S+/src to work:/: 41 files, 15 directories, 2 symbolic links, 1 hard link, `, ""},
		{"cp DIR/src work:/again", 0, `.`, ""},
		{"diff work work", 0, "", ""},
		{"cp DIR/src/. work:/merged", 0, `.`, ""},
		{"cp DIR/src/. work:/merged", 0, `.`, ""},
		{"cp work:/src DIR/into", 0, `^copied work:/src to \S+/into: 41 files`, ""},
		{"cp work:/again DIR/renamed", 0, `.`, ""},
		{"cp work:merged/. DIR/renamed", 0, `.`, ""},
		{"checkpoint create work cp", 0, `.`, ""},
		{"cp work@cp:/src/d1/x/f1 DIR/f1", 0, `1 file`, ""},
		{"cp work@cp:/src/link DIR/into/", 0, `1 symbolic link`, ""},
		{"cp work@cp:/src/dirlink/ DIR/into/followed", 0, `1 directory|2 directories`, ""},
		{"cp work:/src/hard DIR/f1", 0, `1 file`, ""},
	})
	w.same("a tree copied in and out", filepath.Join(w.dir, "into", "src"), src)
	w.same("a tree under another name", filepath.Join(w.dir, "renamed"), src)
	for path, want := range map[string]string{"f1": "d1/x/f1", "into/followed/x/f8": "d1/x/f8"} {
		got, err := os.ReadFile(filepath.Join(w.dir, path))
		expected, err2 := os.ReadFile(filepath.Join(src, want))
		if err != nil || err2 != nil || !bytes.Equal(got, expected) {
			t.Errorf("%s: %d bytes, %v, %v; want %d", path, len(got), err, err2, len(expected))
		}
	}
	if target, err := os.Readlink(filepath.Join(w.dir, "into", "link")); err != nil || target != "d1/x/f1" {
		t.Errorf("a link was copied as %q, %v", target, err)
	}
	w.steps([]step{
		{"cp work:/none DIR/x", exitNotFound, "", `"/none" in the disk`},
		{"cp none:/x DIR/x", exitNotFound, "", `none`},
		{"cp work@none:/x DIR/x", exitNotFound, "", `none`},
		{"cp DIR/none work:/", exitNotFound, "", `copied|none`},
		{"cp DIR/src none:/", exitNotFound, "", `none`},
		{"cp DIR/src work:/no/where", exitNotFound, "", `no`},
		{"cp DIR/src work:/src/sparse", exitUsage, "", `not a directory`},
		{"cp DIR/f1 work:/src/d1/x", 0, `.`, ""},
		{"cp DIR/f1 work:/src", 0, `.`, ""},
		{"cp work:/src DIR/f1", exitUsage, "", `no directory`},
		{"cp work:/src DIR/no/where", exitNotFound, "", `mkdir -p`},
		{"cp DIR/src work@cp:/", exitReadOnly, "", `tine fork work@cp`},
		{"cp work:/a work:/b", exitUsage, "", `pipe`},
		{"cp DIR/a DIR/b", exitUsage, "", `DISK:PATH`},
		{"cp work:/src -", exitUsage, "", `tine export`},
		{"checkpoint ls work", 0, `^NAME[^\n]*\ncp [^\n]*\n$`, ""},
	})
}

func TestCopyStreams(t *testing.T) {
	w := newWorld(t)
	text := strings.Repeat("0123456789", 500_000)
	w.stdin = strings.NewReader(text)
	w.steps([]step{
		{"disk create work", 0, `.`, ""},
		{"cp - work:/f", 0, `^copied 4.77 MiB to work:/f\n$`, ""},
	})
	if code, got, stderr := w.run("cp work:/f -"); code != 0 || got != text {
		t.Errorf("%d, %d bytes, %s", code, len(got), stderr)
	}
	w.stdin = strings.NewReader("new")
	w.steps([]step{
		{"cp work:/f DIR/f", 0, `.`, ""},
		{"cp - work:/f", 0, `.`, ""},
		{"cp work:/f -", 0, `^new$`, ""},
		{"cp - work:/", exitUsage, "", `directory`},
		{"cp - work:/none/f", exitNotFound, "", `none`},
		{"cp - none:/f", exitNotFound, "", `none`},
		{"cp - work@cp:/f", exitReadOnly, "", `.`},
	})
	w.stdin = &failing{}
	w.steps([]step{{"cp - work:/f", exitIO, "", `read standard input`}, {"cp work:/f -", 0, `^new$`, ""}, {"import x --from-tar -", exitIO, "", `read -`}})
	// A pipe and a device take what is written to them; they are not replaced.
	fifo := filepath.Join(w.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	w.steps([]step{{"cp work:/f DIR/fifo", exitExists, "", `copy to -`}})
	if fi, err := os.Lstat(fifo); err != nil || fi.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is %v, %v", fi, err)
	}
}

// failing is a source that breaks.
type failing struct{ n int }

func (f *failing) Read(p []byte) (int, error) {
	if f.n++; f.n > 3 {
		return 0, syscall.EIO
	}
	return len(p), nil
}

func TestQuotaCommands(t *testing.T) {
	w := newWorld(t)
	w.stdin = strings.NewReader(strings.Repeat("x", 20<<10))
	w.steps([]step{
		{"disk create small --quota-bytes 10K --quota-inodes 3", 0, `small`, ""},
		{"disk create x --quota-bytes -1", exitUsage, "", `--quota-bytes`},
		{"disk create x --quota-bytes 0", exitUsage, "", `none`},
		{"disk create x --from small --quota-bytes 1G", exitUsage, "", `from`},
		{"disk show small", 0, `quota of data: +10.0 KiB\nquota of inodes: +3\n`, ""},
		{"--json disk ls", 0, `"quota": \{\s+"bytes": 10240,\s+"inodes": 3\s+\}`, ""},
		{"cp - small:/f", exitNoSpace, "", `quota of 10240 bytes.*tine quota`},
		{"quota small", 0, `bytes +0 B +10.0 KiB\ninodes +1 +3\n`, ""},
		{"quota small --bytes none", 0, `bytes +0 B +none\ninodes +1 +3\n`, ""},
		{"--json quota small --bytes 1M --inodes none", 0, `"bytes": 1048576\s+\},\s+"used_bytes": 0`, ""},
		{"quota small --bytes lots", exitUsage, "", `10G`},
		{"quota none", exitNotFound, "", `none`},
		{"quota none --bytes 5", exitNotFound, "", `none`},
		{"fork small child", 0, `.`, ""},
		{"quota child", 0, `1.00 MiB`, ""},
		{"log small", 0, `quota .*1048576 bytes, no limit of inodes`, ""},
	})
}

// TestQuotaOnAMount: df shows the quota, and programs get ENOSPC.
func TestQuotaOnAMount(t *testing.T) {
	w, mnt := newKernelWorld(t)
	p := w.spawn()
	w.steps([]step{
		{"disk create work --quota-bytes 1M --quota-inodes 5", 0, `.`, ""},
		{"mount work " + mnt, 0, `.`, ""},
	})
	df := func(blocks, free, files, ffree uint64) {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(mnt, &st); err != nil {
			t.Fatal(err)
		}
		if st.Bsize != 4096 || st.Blocks != blocks || st.Bfree != free || st.Bavail != free || st.Files != files || st.Ffree != ffree {
			t.Errorf("df shows %+v, want %d blocks, %d free, %d files, %d free", st, blocks, free, files, ffree)
		}
	}
	df(256, 256, 5, 4)
	in := func(name string) string { return filepath.Join(mnt, name) }
	writeSynced(t, in("f"), strings.Repeat("x", 600<<10))
	df(256, 106, 5, 3)
	if err := os.WriteFile(in("g"), make([]byte, 600<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("600 KiB into 424: %v", err)
	}
	if err := os.Truncate(in("g"), 0); err != nil {
		t.Error(err)
	}
	for _, n := range []string{"1", "2"} {
		if err := os.Mkdir(in(n), 0o755); err != nil {
			t.Error(err)
		}
	}
	if err := os.Mkdir(in("3"), 0o755); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a sixth inode: %v", err)
	}
	df(256, 106, 5, 0)
	w.steps([]step{{"quota work --bytes 64K --inodes 2", 0, `.`, ""}})
	df(16, 0, 2, 0)
	if err := os.WriteFile(in("f"), []byte("shorter"), 0o600); err != nil {
		t.Errorf("a file made shorter above the quota: %v", err)
	}
	if err := os.Remove(in("1")); err != nil {
		t.Error(err)
	}
	w.steps([]step{{"umount " + mnt, 0, `.`, ""}})
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
