package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// hold keeps a handle and counts it in the model.
func (t *turn) hold(h *handle) {
	t.d.fs.Open(h.ino)
	t.d.handles = append(t.d.handles, h)
}

// drop closes the i-th handle.
func (t *turn) drop(i int) error {
	h := t.d.handles[i]
	t.d.handles = append(t.d.handles[:i:i], t.d.handles[i+1:]...)
	t.d.closed(h.ino)
	if err := h.close(); err != nil {
		return fmt.Errorf("closing inode %d: %w", h.ino, err)
	}
	return nil
}

// withFile runs fn on an open regular file: one that is held, or one that is
// opened for this and then closed or held on to.
func (t *turn) withFile(fn func(f *volume.File, ino tine.Ino) error) error {
	if t.chance(50) {
		var held []*handle
		for _, h := range t.d.handles {
			if h.file != nil {
				held = append(held, h)
			}
		}
		if len(held) > 0 {
			h := pick(t.r, held)
			return fn(h.file, h.ino)
		}
	}
	ino := t.pickNode(isRegular)
	f, err := t.s.Open(t.node(ino))
	if n := t.d.fs.Get(ino); !isRegular(n) {
		t.note("open of %d, which is not a file", ino)
		if err == nil {
			return f.Close() // the kernel would not have asked
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening inode %d: %w", ino, err)
	}
	t.hold(&handle{s: t.s, ino: ino, file: f})
	if err := fn(f, ino); err != nil {
		return err
	}
	if t.chance(75) {
		return t.drop(len(t.d.handles) - 1)
	}
	return nil
}

func (t *turn) write() error { return t.withFile(t.writeTo) }

func (t *turn) writeTo(f *volume.File, ino tine.Ino) error {
	n := t.d.fs.Get(ino)
	off, data := t.offset(n.Content.Size), t.bytes(t.length())
	if t.chance(1) {
		off = tine.MaxFileBytes - int64(len(data)/2)
	}
	t.note("write to %d, %d bytes at %d", ino, len(data), off)
	t.saw(t.d)
	t.torn(ino, off, data)
	got, err := f.WriteAt(volume.Cred{}, data, off)
	if bad := same(err, t.d.fs.Write(ino, off, data)); bad != nil || err != nil {
		return bad
	}
	if got != len(data) {
		return fmt.Errorf("%d of %d bytes written", got, len(data))
	}
	return t.verify(ino)
}

func (t *turn) appendData() error {
	return t.withFile(func(f *volume.File, ino tine.Ino) error {
		data := t.bytes(t.length())
		t.note("append to %d, %d bytes", ino, len(data))
		t.torn(ino, t.d.fs.Get(ino).Content.Size, data)
		at, n, err := f.Append(volume.Cred{}, data)
		want, refused := t.d.fs.Append(ino, data)
		if bad := same(err, refused); bad != nil || err != nil {
			return bad
		}
		if at != want || n != len(data) {
			return fmt.Errorf("%d of %d bytes appended at %d, want %d", n, len(data), at, want)
		}
		return t.verify(ino)
	})
}

func (t *turn) read() error {
	return t.withFile(func(f *volume.File, ino tine.Ino) error {
		n := t.d.fs.Get(ino)
		off, buf := t.offset(n.Content.Size), make([]byte, t.length())
		t.note("read of %d, %d bytes at %d", ino, len(buf), off)
		got, err := f.ReadAt(buf, off)
		if err != nil {
			return fmt.Errorf("reading %d bytes at %d of inode %d: %w", len(buf), off, ino, err)
		}
		want, _ := t.d.fs.Read(ino, off, int64(len(buf)))
		if !bytes.Equal(buf[:got], want) {
			return fmt.Errorf("reading %d bytes at %d of inode %d gives %d bytes, want %d; they differ from offset %d on",
				len(buf), off, ino, got, len(want), off+int64(firstDifference(buf[:got], want)))
		}
		return nil
	})
}

func (t *turn) size(now int64) int64 {
	switch t.r.IntN(12) {
	case 0:
		return now
	case 1:
		return tine.MaxFileBytes + t.r.Int64N(2)
	case 2, 3:
		return 0
	}
	return t.offset(now)
}

func (t *turn) truncate() error {
	return t.withFile(func(f *volume.File, ino tine.Ino) error {
		size := t.size(t.d.fs.Get(ino).Content.Size)
		t.note("truncate %d to %d", ino, size)
		err := f.Truncate(volume.Cred{}, size)
		if bad := same(err, t.d.fs.Truncate(ino, size)); bad != nil {
			return bad
		}
		return t.verify(ino)
	})
}

func (t *turn) allocate() error {
	return t.withFile(func(f *volume.File, ino tine.Ino) error {
		mode := pick(t.r, []uint32{0, posix.KeepSize, posix.PunchHole | posix.KeepSize, posix.PunchHole | posix.KeepSize,
			posix.PunchHole | posix.KeepSize, posix.ZeroRange, posix.ZeroRange | posix.KeepSize, posix.PunchHole})
		off, length := t.offset(t.d.fs.Get(ino).Content.Size), int64(t.length())
		t.note("fallocate %d mode %#x, %d bytes at %d", ino, mode, length, off)
		err := f.Allocate(mode, off, length)
		if bad := same(err, t.d.fs.Allocate(ino, mode, off, length)); bad != nil {
			return bad
		}
		return t.verify(ino)
	})
}

// copyRange is copy_file_range between two files, or within one.
func (t *turn) copyRange() error {
	return t.withFile(func(in *volume.File, inIno tine.Ino) error {
		return t.withFile(func(out *volume.File, outIno tine.Ino) error {
			if t.d.handleOf(in).s != t.d.handleOf(out).s {
				return nil
			}
			size := t.d.fs.Get(inIno).Content.Size
			offIn, offOut := t.offset(size), t.offset(t.d.fs.Get(outIno).Content.Size)
			length := int64(t.length())
			if t.chance(30) {
				length = min(size, 4<<20)
			}
			if t.chance(25) {
				offIn, offOut = 0, 0
			}
			t.note("copy %d at %d to %d at %d, %d bytes", inIno, offIn, outIno, offOut, length)
			t.copies++
			n, err := in.CopyTo(out, offIn, offOut, length)
			want, refused := t.d.fs.Copy(inIno, offIn, outIno, offOut, length)
			if bad := same(err, refused); bad != nil || err != nil {
				return bad
			}
			if n != want {
				return fmt.Errorf("%d bytes copied, want %d", n, want)
			}
			return t.verify(inIno, outIno)
		})
	})
}

func (t *turn) seek() error {
	return t.withFile(func(f *volume.File, ino tine.Ino) error {
		c := &t.d.fs.Get(ino).Content
		off := t.offset(c.Size)
		t.note("seek in %d from %d", ino, off)
		for _, whence := range []uint32{seekData, seekHole} {
			got, err := f.SeekTo(off, whence)
			if err := sameSeek(c, off, whence, got, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// sameSeek compares what a seek has found.
func sameSeek(c *posix.Content, off int64, whence uint32, got int64, err error) error {
	none := errors.Is(err, tine.ErrNoSeek)
	right := err == nil || none
	switch {
	case off >= c.Size:
		right = none
	case whence == seekData:
		right = right && c.IsData(off, got, !none)
	default:
		right = right && !none && c.IsHole(off, got)
	}
	if !right {
		return fmt.Errorf("seek from %d, whence %d, gives %d, %s", off, whence, got, sayError(err))
	}
	return nil
}

func (t *turn) fsync() error {
	ctx := context.Background()
	var err error
	switch t.r.IntN(3) {
	case 0:
		ino := t.pickNode(isAny)
		t.note("fsync of inode %d", ino)
		err = t.s.FsyncNode(t.node(ino))
	case 1:
		t.note("sync of the disk")
		err = t.host.SyncDisk(ctx, caller, t.d.name)
	default:
		return t.withFile(func(f *volume.File, ino tine.Ino) error {
			t.note("fsync of file %d", ino)
			if err := f.Fsync(ctx, t.chance(50)); err != nil {
				return fmt.Errorf("fsync: %w", err)
			}
			t.durable(t.d)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("fsync: %w", err)
	}
	t.durable(t.d)
	return nil
}

// release closes a handle that is held.
func (t *turn) release() error {
	if len(t.d.handles) == 0 {
		return nil
	}
	i := t.r.IntN(len(t.d.handles))
	ino := t.d.handles[i].ino
	t.note("close of %d", ino)
	if err := t.drop(i); err != nil {
		return err
	}
	return t.verify(ino)
}
