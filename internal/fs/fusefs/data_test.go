package fusefs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func testContents(t *testing.T, dir string) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const size = 300_000
	want := make([]byte, 0, size)
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	for range 200 {
		off := rnd.IntN(size - 1)
		switch rnd.IntN(6) {
		case 0:
			check(t, unix.Ftruncate(fd, int64(off)))
			if off <= len(want) {
				clear(want[off:])
				want = want[:off]
			} else {
				want = want[:off]
			}
		case 1, 2, 3:
			p := make([]byte, 1+rnd.IntN(min(20_000, size-off)))
			for i := range p {
				p[i] = byte(rnd.Uint32())
			}
			n, err := unix.Pwrite(fd, p, int64(off))
			if err != nil || n != len(p) {
				t.Fatalf("write of %d bytes at %d: %d, %v", len(p), off, n, err)
			}
			want = want[:max(len(want), off+len(p))]
			copy(want[off:], p)
		default:
			got := make([]byte, 1+rnd.IntN(50_000))
			n, err := unix.Pread(fd, got, int64(off))
			check(t, err)
			expected := want[min(off, len(want)):min(off+len(got), len(want))]
			if !bytes.Equal(got[:n], expected) {
				t.Fatalf("read at %d: %d bytes, want %d, or other content", off, n, len(expected))
			}
		}
	}
	if got := read(t, dir+"/f"); got != string(want) {
		t.Fatal("the whole file differs")
	}
	trunc := open(t, dir+"/f", unix.O_RDWR|unix.O_TRUNC)
	check(t, unix.Close(trunc))
	if st := stat(t, dir+"/f"); st.Size != 0 {
		t.Errorf("size after O_TRUNC is %d", st.Size)
	}
	_, err := unix.Pwrite(fd, []byte("x"), -1)
	wantErrno(t, "negative offset", err, unix.EINVAL)
	rd := open(t, dir+"/f", unix.O_RDONLY)
	defer unix.Close(rd)
	_, err = unix.Write(rd, []byte("x"))
	wantErrno(t, "write on a read-only handle", err, unix.EBADF)
}

func testAppend(t *testing.T, dir string) {
	a := open(t, dir+"/f", unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	defer unix.Close(a)
	b := open(t, dir+"/f", unix.O_WRONLY|unix.O_APPEND)
	defer unix.Close(b)
	var want string
	for i := range 50 {
		line := fmt.Sprintf("line %d\n", i)
		_, err := unix.Write([]int{a, b}[i%2], []byte(line))
		check(t, err)
		want += line
	}
	if got := read(t, dir+"/f"); got != want {
		t.Errorf("appended by two handles: %q", got)
	}
	if got := shell(t, dir, "echo one >log; echo two >>log; cat log"); got != "one\ntwo" {
		t.Errorf("shell append: %q", got)
	}
}

func testHoles(t *testing.T, dir string) {
	const mib = 1 << 20
	fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(fd)
	_, err := unix.Pwrite(fd, []byte("end"), 8*mib)
	check(t, err)
	st := stat(t, dir+"/f")
	if st.Size != 8*mib+3 || st.Blocks*512 > 2*mib {
		t.Errorf("sparse file: size %d, %d blocks", st.Size, st.Blocks)
	}
	buf := make([]byte, 4096)
	n, err := unix.Pread(fd, buf, 3*mib)
	if err != nil || n != len(buf) || !bytes.Equal(buf, make([]byte, 4096)) {
		t.Errorf("a hole reads %d bytes, %v, not zeros", n, err)
	}
	// It is allowed to call all of a file data.
	if off, err := unix.Seek(fd, 0, unix.SEEK_HOLE); err != nil || off > 8*mib && off != st.Size {
		t.Errorf("SEEK_HOLE: %d, %v", off, err)
	}
	if off, err := unix.Seek(fd, 0, unix.SEEK_DATA); err != nil || off > 8*mib {
		t.Errorf("SEEK_DATA: %d, %v", off, err)
	}
	_, err = unix.Seek(fd, 9*mib, unix.SEEK_DATA)
	wantErrno(t, "SEEK_DATA beyond the end", err, unix.ENXIO)
	check(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8*mib, 2))
	if n, err = unix.Pread(fd, buf, 8*mib); err != nil || string(buf[:n]) != "\x00\x00d" {
		t.Errorf("after punching: %q, %v", buf[:n], err)
	}
	check(t, unix.Fallocate(fd, 0, 0, 9*mib))
	if st := stat(t, dir+"/f"); st.Size != 9*mib {
		t.Errorf("size after fallocate is %d", st.Size)
	}
	check(t, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 10*mib))
	if st := stat(t, dir+"/f"); st.Size != 9*mib {
		t.Errorf("size after fallocate with keep size is %d", st.Size)
	}
}

func testCopyRange(t *testing.T, dir string) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	check(t, os.WriteFile(dir+"/src", content, 0o644))
	src := open(t, dir+"/src", unix.O_RDONLY)
	defer unix.Close(src)
	dst := open(t, dir+"/dst", unix.O_RDWR|unix.O_CREAT)
	defer unix.Close(dst)
	var in, out int64 = 100, 7
	for left := 200_000; left > 0; {
		n, err := unix.CopyFileRange(src, &in, dst, &out, left, 0)
		check(t, err)
		if n == 0 {
			t.Fatal("copy_file_range copies nothing")
		}
		left -= n
	}
	want := append(make([]byte, 7), content[100:200_100]...)
	if got := read(t, dir+"/dst"); got != string(want) {
		t.Errorf("copied %d bytes, want %d, or other content", len(got), len(want))
	}
}

// testLarge writes and reads in requests of the largest size.
func testLarge(t *testing.T, dir string) {
	p := make([]byte, 5<<20+123)
	for i := range p {
		p[i] = byte(i * 7 >> 3)
	}
	check(t, os.WriteFile(dir+"/f", p, 0o644))
	got, err := os.ReadFile(dir + "/f")
	if err != nil || !bytes.Equal(got, p) {
		t.Errorf("reads back %d bytes, %v, or other content", len(got), err)
	}
	if st := stat(t, dir+"/f"); st.Size != int64(len(p)) || st.Blocks*512 < int64(len(p)) {
		t.Errorf("size %d, %d blocks", st.Size, st.Blocks)
	}
}

func testSync(t *testing.T, dir string) {
	for _, flags := range []int{unix.O_SYNC, unix.O_DSYNC, 0} {
		fd := open(t, dir+"/f", unix.O_RDWR|unix.O_CREAT|flags)
		_, err := unix.Write(fd, []byte("durable"))
		check(t, err)
		check(t, unix.Fsync(fd))
		check(t, unix.Fdatasync(fd))
		check(t, unix.Syncfs(fd))
		check(t, unix.Close(fd))
	}
	d := open(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	defer unix.Close(d)
	check(t, unix.Fsync(d))
}

func testMmap(t *testing.T, dir string) {
	write(t, dir+"/f", string(bytes.Repeat([]byte("a"), 10_000)))
	runHelper(t, "mmap", dir+"/f")
	got := read(t, dir+"/f")
	if len(got) != 10_000 || got[0] != 'M' || got[5000] != 'W' || got[9999] != 'M' {
		t.Errorf("after stores to a mapping and a write: %d bytes, %q %q %q", len(got), got[0], got[5000], got[9999])
	}
}

// helperMmap checks that a shared mapping, read and write see each other.
func helperMmap(args []string) error {
	fd, err := unix.Open(args[0], unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	m, err := unix.Mmap(fd, 0, 10_000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	m[0], m[9999] = 'M', 'M'
	if _, err := unix.Pwrite(fd, []byte("W"), 5000); err != nil {
		return err
	}
	if m[5000] != 'W' {
		return fmt.Errorf("the mapping does not show a write: %q", m[5000])
	}
	if err := unix.Msync(m, unix.MS_SYNC); err != nil {
		return fmt.Errorf("msync: %w", err)
	}
	p := make([]byte, 1)
	if _, err := unix.Pread(fd, p, 9999); err != nil || p[0] != 'M' {
		return fmt.Errorf("read does not show a store: %q, %w", p, err)
	}
	if err := unix.Munmap(m); err != nil {
		return err
	}
	return unix.Close(fd)
}

// testTools runs what people run.
func testTools(t *testing.T, dir string) {
	shell(t, dir, `mkdir -p a/b/c; i=0; while [ $i -lt 100 ]; do echo $i >a/b/c/$i; i=$((i+1)); done`)
	shell(t, dir, `tar cf all.tar a; mkdir x; tar xf all.tar -C x; diff -r a x/a`)
	if n, _ := strconv.Atoi(shell(t, dir, `find a -type f | wc -l`)); n != 100 {
		t.Errorf("find sees %d files", n)
	}
	shell(t, dir, `cp -a a copy; diff -r a copy; mv copy moved; rm -rf moved x; ! test -e moved`)
	shell(t, dir, `printf '#!/bin/sh\necho ran\n' >prog; chmod +x prog; test "$(./prog)" = ran`)
	shell(t, dir, `if command -v git >/dev/null; then
		git init -q repo; cd repo; git config user.email a@b; git config user.name n
		cp -a ../a .; git add .; git commit -qm one; git status --porcelain | wc -l | grep -qx 0
		git gc -q; git fsck --strict; cd ..; fi`)
	shell(t, dir, `if command -v python3 >/dev/null; then python3 - <<'END'
import sqlite3
db = sqlite3.connect("t.db")
db.execute("pragma journal_mode=wal")
db.execute("create table t(a)")
for i in range(20):
    db.execute("insert into t values(?)", (i,))
    db.commit()
assert db.execute("select count(*) from t").fetchone()[0] == 20
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
END
fi`)
}
