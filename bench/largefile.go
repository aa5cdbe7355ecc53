package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// largeFileCases are about the bytes of one large file.
func largeFileCases() []benchCase {
	return []benchCase{
		{name: "seq-write-128k", what: "write a file in pieces of 128 KiB, then fsync", unit: mibPerSec, run: seqWrite(128 << 10)},
		{name: "seq-write-1m", what: "write a file in pieces of 1 MiB, then fsync", unit: mibPerSec, run: seqWrite(1 << 20)},
		{name: "seq-read-128k", what: "read a file in pieces of 128 KiB, cold pages", unit: mibPerSec, prepare: largeFile, run: seqRead(128 << 10)},
		{name: "seq-read-1m", what: "read a file in pieces of 1 MiB, cold pages", unit: mibPerSec, prepare: largeFile, run: seqRead(1 << 20)},
		{name: "rand-read-4k", what: "read 4 KiB at random places, cold pages", unit: perSecond, prepare: largeFile, run: randRead},
		{name: "rand-write-4k", what: "write 4 KiB at random places, then one fsync", unit: perSecond, prepare: largeFile, run: randWrite},
	}
}

// syncCases are about durability.
func syncCases() []benchCase {
	return []benchCase{
		{name: "fsync-4k", what: "write 4 KiB at a random place, fsync", unit: perSecond, prepare: syncedFiles(1), run: fsyncs(1)},
		{name: "fsync-4k-par", what: "the same by 8 at once, each in its file", unit: perSecond, prepare: syncedFiles(8), run: fsyncs(8)},
		{name: "create-fsync", what: "create, write 4 KiB, fsync, close", unit: perSecond, run: createFsync},
		{name: "sqlite-delete", what: "SQLite commits, one row each, rollback journal", unit: perSecond, missing: needs("sqlite3"), run: sqlite("DELETE")},
		{name: "sqlite-wal", what: "SQLite commits, one row each, WAL, synchronous=FULL", unit: perSecond, missing: needs("sqlite3"), run: sqlite("WAL")},
	}
}

// noise is content that does not compress. The seed is fixed: every run and
// every place writes the same.
func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{'t', 'i', 'n', 'e'}).Read(p) // never fails
	return p
}

const largeName = "large"

// seqFile writes the large file, and makes it durable.
func (t *turn) seqFile(piece int) error {
	content := noise(piece)
	f, err := os.Create(t.path(largeName))
	if err != nil {
		return err
	}
	defer f.Close()
	for off := int64(0); off < t.size.fileSize; off += int64(piece) {
		if _, err := f.Write(content); err != nil {
			return err
		}
	}
	return f.Sync()
}

func largeFile(_ context.Context, t *turn) error { return t.seqFile(1 << 20) }

func seqWrite(piece int) func(context.Context, *turn) (float64, error) {
	return func(_ context.Context, t *turn) (float64, error) {
		return throughput(t.size.fileSize, func() error { return t.seqFile(piece) })
	}
}

func seqRead(piece int) func(context.Context, *turn) (float64, error) {
	return func(_ context.Context, t *turn) (float64, error) {
		fd, err := t.openLarge(unix.O_RDONLY)
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		p := make([]byte, piece)
		return throughput(t.size.fileSize, func() error {
			for total := int64(0); total < t.size.fileSize; {
				n, err := unix.Read(fd, p)
				if err != nil || n == 0 {
					return fmt.Errorf("read ended at %d: %v", total, err)
				}
				total += int64(n)
			}
			return nil
		})
	}
}

// openLarge opens the large file with its pages cold.
func (t *turn) openLarge(flags int) (fd int, err error) {
	if err := t.dropPages(t.path(largeName)); err != nil {
		return -1, err
	}
	return unix.Open(t.path(largeName), flags|unix.O_CLOEXEC, 0)
}

func randRead(_ context.Context, t *turn) (float64, error) {
	fd, err := t.openLarge(unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	r := rand.New(rand.NewPCG(1, uint64(t.round)))
	p := make([]byte, 4096)
	return rate(t.size.reads, func() error {
		for range t.size.reads {
			n, err := unix.Pread(fd, p, r.Int64N(t.size.fileSize/4096)*4096)
			if err != nil || n != len(p) {
				return fmt.Errorf("read %d bytes: %v", n, err)
			}
		}
		return nil
	})
}

func randWrite(_ context.Context, t *turn) (float64, error) {
	fd, err := t.openLarge(unix.O_WRONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	r := rand.New(rand.NewPCG(2, uint64(t.round)))
	p := noise(4096)
	return rate(t.size.reads, func() error {
		for range t.size.reads {
			if err := writeAll(fd, p, r.Int64N(t.size.fileSize/4096)*4096); err != nil {
				return err
			}
		}
		return unix.Fsync(fd)
	})
}

// syncedBytes is the size of the files that are written to with fsync.
const syncedBytes = 4 << 20

func syncedFiles(n int) func(context.Context, *turn) error {
	return func(_ context.Context, t *turn) error {
		for i := range n {
			if err := makeFile(fileName(t.dir, i), noise(syncedBytes)); err != nil {
				return err
			}
		}
		return nil
	}
}

func fsyncs(writers int) func(context.Context, *turn) (float64, error) {
	return func(_ context.Context, t *turn) (float64, error) {
		p := noise(4096)
		one := func(w int) error {
			fd, err := unix.Open(fileName(t.dir, w), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			r := rand.New(rand.NewPCG(uint64(w), uint64(t.round)))
			for range t.size.fsyncs {
				if err := writeAll(fd, p, r.Int64N(syncedBytes/4096)*4096); err != nil {
					return err
				}
				if err := unix.Fsync(fd); err != nil {
					return err
				}
			}
			return nil
		}
		return rate(t.size.fsyncs*writers, func() error {
			var g errgroup.Group
			for w := range writers {
				g.Go(func() error { return one(w) })
			}
			return g.Wait()
		})
	}
}

func createFsync(_ context.Context, t *turn) (float64, error) {
	p := noise(4096)
	return rate(t.size.fsyncs, func() error {
		for i := range t.size.fsyncs {
			f, err := os.Create(fileName(t.dir, i))
			if err != nil {
				return err
			}
			_, err = f.Write(p)
			if err == nil {
				err = f.Sync()
			}
			if cerr := f.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// sqlite commits rows with the sqlite3 program; starting it is in the time.
func sqlite(journal string) func(context.Context, *turn) (float64, error) {
	return func(ctx context.Context, t *turn) (float64, error) {
		var script strings.Builder
		fmt.Fprintf(&script, "PRAGMA journal_mode=%s; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);\n", journal)
		for i := range t.size.commits {
			fmt.Fprintf(&script, "INSERT INTO t(v) VALUES('row %d of a table');\n", i)
		}
		script.WriteString("SELECT count(*) FROM t;\n")
		return rate(t.size.commits, func() error {
			out, err := output(ctx, "", "sqlite3", "-bail", t.path("db"), script.String())
			if err == nil && !strings.HasSuffix(out, fmt.Sprint(t.size.commits)) {
				err = fmt.Errorf("sqlite3 says %q, %d rows were committed", out, t.size.commits)
			}
			return err
		})
	}
}
