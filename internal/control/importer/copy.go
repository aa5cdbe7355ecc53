package importer

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"tine.dev/tine/internal/control/oserr"
)

// copyBytes is how much is read and written at a time.
const copyBytes = 1 << 20

func (j *job) close() {
	_ = j.from.Close()
	if j.to != nil {
		_ = j.to.Close()
	}
}

// copiers take jobs until there are none.
func (w *walker) copier(ctx context.Context, jobs <-chan job) error {
	buf := make([]byte, copyBytes)
	for j := range jobs {
		err := w.fill(ctx, &j, buf)
		j.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// fill copies a file's data and attributes. The extended attributes come
// after the data, and capabilities last of all, because a write or a change of
// owner takes them away.
func (w *walker) fill(ctx context.Context, j *job, buf []byte) error {
	if err := w.data(ctx, j, buf); err != nil {
		return err
	}
	fd := int(j.from.Fd())
	if err := w.xattrs(fd, j.to.Node(), j.path); err != nil {
		return err
	}
	if err := w.attributes(j.to.Node(), &j.stat, j.path); err != nil {
		return err
	}
	if w.hasXattr(fd, capabilityXattr) {
		if err := w.xattr(fd, j.to.Node(), capabilityXattr, j.path); err != nil {
			return err
		}
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return oserr.Wrap(err, "look at %s", j.path)
	}
	if now.Mtim != j.stat.Mtim || now.Ctim != j.stat.Ctim || now.Size != j.stat.Size {
		w.counts.changed.Add(1)
		w.note(j.path, "changed while it was read; the copy may mix its old and new content")
	}
	return nil
}

// data copies the ranges that hold data, as the file's own file system tells
// them, up to the size that the file had when it was opened.
func (w *walker) data(ctx context.Context, j *job, buf []byte) error {
	fd, size := int(j.from.Fd()), j.stat.Size
	for off := int64(0); off < size; {
		start, end, err := nextData(fd, off, size)
		if err != nil {
			return oserr.Wrap(err, "read %s", j.path)
		}
		for off = start; off < end; {
			if ctx.Err() != nil {
				return cancelled()
			}
			n, err := j.from.ReadAt(buf[:min(int64(len(buf)), end-off)], off)
			if n > 0 {
				if _, werr := j.to.WriteAt(root, buf[:n], off); werr != nil {
					return made(werr, j.path)
				}
				w.counts.bytes.Add(int64(n))
				off += int64(n)
			}
			if errors.Is(err, io.EOF) {
				// It has shrunk; fill notices by its times.
				return made(j.to.Truncate(root, size), j.path)
			}
			if err != nil {
				return oserr.Wrap(err, "read %s", j.path)
			}
		}
	}
	return made(j.to.Truncate(root, size), j.path)
}

// nextData returns the next range of data at or after off; size, size if there
// is none. A file system that knows no holes is all data.
func nextData(fd int, off, size int64) (start, end int64, err error) {
	start, err = unix.Seek(fd, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return off, size, nil
	case err != nil:
		return 0, 0, err
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	if err != nil || end <= start {
		end = size
	}
	return min(start, size), min(end, size), nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
