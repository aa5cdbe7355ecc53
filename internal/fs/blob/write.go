package blob

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"tine.dev/tine/internal/tine"
)

// write is one call of Store.Put: its attempts share head, and with it the
// mark by which their object is known.
type write struct {
	s     *Store
	key   Key
	head  Head
	doubt bool // an attempt that failed may have happened
}

// single sends the body in one request.
func (w *write) single(ctx context.Context, body Body) (Info, error) {
	data := make([]byte, w.head.Size)
	if err := readAt(body, data, 0); err != nil {
		return Info{}, err
	}
	w.head.CRC32C = Checksum(data)
	return w.settle(ctx, w.head.Size, func(ctx context.Context) (Info, error) {
		return w.s.driver.Put(ctx, w.key, data, w.head)
	})
}

// settle makes attempts at the step that makes the object seen.
func (w *write) settle(ctx context.Context, bytes int64, step func(context.Context) (Info, error)) (Info, error) {
	var info Info
	err := w.s.retry.do(ctx, bytes, func(ctx context.Context) (err error) {
		info, err = step(ctx)
		if err == nil {
			return w.stored(info)
		}
		switch kind := tine.KindOf(err); {
		case unclear(kind):
			w.doubt = true
		case w.doubt && (kind == tine.KindExists || kind == tine.KindConflict || kind == tine.KindStale):
			// The condition may have been broken by an earlier attempt of
			// this very call.
			return w.mine(ctx, err, &info)
		}
		return err
	})
	if err == nil {
		return info, nil
	}
	if w.doubt {
		err = &DoubtError{Err: err}
	}
	return Info{}, err
}

// unclear reports whether a write that fails with the kind may have happened.
func unclear(kind tine.ErrorKind) bool {
	switch kind {
	case tine.KindUnavailable, tine.KindInterrupted, tine.KindIO, tine.KindCorrupt:
		return true
	}
	return false
}

// mine returns nil if the object under the key is that of this call, and fills
// in its info; else the refusal, or why the store could not be asked.
func (w *write) mine(ctx context.Context, refusal error, info *Info) error {
	found, err := w.s.driver.Stat(ctx, w.key)
	switch {
	case err == nil && found.Mark == w.head.Mark:
		*info = found
		return w.stored(found)
	case err == nil, tine.KindOf(err) == tine.KindNotFound:
		return refusal
	}
	return err
}

// stored checks what the store says it has.
func (w *write) stored(info Info) error {
	if info.Size != w.head.Size || info.Checked && info.CRC32C != w.head.CRC32C {
		w.doubt = true
		return tine.Errorf(tine.KindIO, "put %q in store %s: the store holds %d bytes with another checksum than the %d sent",
			w.key, w.s.Name(), info.Size, w.head.Size)
	}
	return nil
}

// part is a piece of the body of an upload.
type part struct {
	number int
	offset int64
	size   int64
	crc    uint32
}

// parts sends the body in parts of size bytes. The body is read twice: the
// checksum of the whole must be known before the first part is sent, because
// stores take what they keep beside an object when an upload begins. Each
// part is checked against the first reading, so the whole is too.
func (w *write) parts(ctx context.Context, body Body, size int64) (Info, error) {
	list, err := w.measure(ctx, body, size)
	if err != nil {
		return Info{}, err
	}
	var up Upload
	err = w.s.retry.do(ctx, 0, func(ctx context.Context) (err error) {
		up, err = w.s.driver.Upload(ctx, w.key, w.head)
		return err
	})
	if err != nil {
		return Info{}, err
	}
	if err = w.send(ctx, up, body, list, size); err != nil {
		w.abort(ctx, up)
		return Info{}, err
	}
	info, err := w.settle(ctx, w.head.Size, up.Complete) // some stores copy all parts together now
	if err == nil && w.doubt || err != nil && !unclear(tine.KindOf(err)) {
		// In the first case it is not the answer to Complete that told of the
		// object, and a driver that keeps parts apart has them still. In the
		// second, even if an earlier attempt comes late: what refused the last
		// one refuses it too.
		w.abort(ctx, up)
	}
	return info, err
}

// measure reads the body once for its checksums.
func (w *write) measure(ctx context.Context, body Body, size int64) ([]part, error) {
	var list []part
	buf := make([]byte, min(size, w.head.Size))
	whole := NewDigest()
	for off := int64(0); off < w.head.Size; off += size {
		if err := Interrupted(ctx, "put", w.key); err != nil {
			return nil, err
		}
		p := buf[:min(size, w.head.Size-off)]
		if err := readAt(body, p, off); err != nil {
			return nil, err
		}
		whole.Write(p)
		list = append(list, part{number: len(list) + 1, offset: off, size: int64(len(p)), crc: Checksum(p)})
	}
	w.head.CRC32C = whole.Sum32()
	return list, nil
}

// send uploads all parts, some at a time, and stops at the first failure.
func (w *write) send(ctx context.Context, up Upload, body Body, list []part, size int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan part, len(list))
	for _, p := range list {
		work <- p
	}
	close(work)
	errs := make([]error, min(w.s.opt.Parallel, len(list)))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			buf := make([]byte, size)
			for p := range work {
				if errs[i] = w.sendPart(ctx, up, body, p, buf[:p.size]); errs[i] != nil {
					cancel(errs[i])
					return
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		var typed *tine.Error
		if errors.As(err, &typed) {
			return typed
		}
		return Interrupted(ctx, "put", w.key)
	}
	return nil
}

func (w *write) sendPart(ctx context.Context, up Upload, body Body, p part, buf []byte) error {
	if err := Interrupted(ctx, "put", w.key); err != nil {
		return err
	}
	if err := readAt(body, buf, p.offset); err != nil {
		return err
	}
	if Checksum(buf) != p.crc {
		return tine.Errorf(tine.KindInvalid, "put %q: the body changed while it was sent", w.key)
	}
	return w.s.retry.do(ctx, p.size, func(ctx context.Context) error {
		return up.Part(ctx, p.number, p.offset, buf, p.crc)
	})
}

// abort drops the parts, even if ctx has ended: they cost money. What it
// leaves behind, Sweep finds.
func (w *write) abort(ctx context.Context, up Upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = up.Abort(ctx)
}

// readAt fills p from the body.
func readAt(body Body, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	n, err := body.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return tine.Errorf(tine.KindIO, "reading what is to be stored at byte %d: %w", off+int64(n), err)
}
