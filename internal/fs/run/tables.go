package run

import (
	"bytes"
	"context"
	"errors"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/tine"
)

// Frames is a cache of frames of objects. It is safe for concurrent use.
type Frames interface {
	// Get returns a frame, from the cache or by fetch, whose answer it may keep: it
	// has been checked. Nobody changes the bytes. An error of fetch is
	// returned as it is and not kept. fetch may run for several callers at once.
	Get(ctx context.Context, object string, frame int64, fetch func(context.Context) ([]byte, error)) ([]byte, error)
}

// Tables reads tables in a store for a row store: the implementation of kv.Tables.
// It is safe for concurrent use.
//
// A read is one of whole frames. Frames that lie side by side and are not in the cache
// are one request. Reading ahead is the row store's part, which knows what it
// will want: it asks for up to a MiB at once in a scan, and 8 MiB in a compaction.
//
// Each frame is checked: when it comes from the store, and when it comes from the
// cache, whose device may rot. What fails is fetched from the store once more, past the
// cache; only then is it tine.KindCorrupt.
type Tables struct {
	store *blob.Store
	cache Frames // nil: none
}

// NewTables returns a reader of the tables in store. Without cache (nil) each read
// is a request.
func NewTables(store *blob.Store, cache Frames) *Tables { return &Tables{store: store, cache: cache} }

// OpenTable opens a table by the name that Name makes: one request, for the last frame of the
// object, if that is not in the cache.
func (t *Tables) OpenTable(ctx context.Context, name string) (kv.TableReader, error) {
	key, size, err := ParseName(name)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, key, size)
}

func (t *Tables) open(ctx context.Context, key blob.Key, objectBytes int64) (*table, error) {
	r := &table{t: t, key: key, objectBytes: objectBytes}
	last := (objectBytes - 1) / FrameBytes
	learn := func(data []byte) error {
		l, err := openLayout(data, objectBytes)
		if err == nil {
			r.layout = l
		}
		return err
	}
	if _, err := r.frame(ctx, last, last, nil, learn); err != nil {
		return nil, err
	}
	return r, nil
}

// table is one open table.
type table struct {
	t           *Tables
	key         blob.Key
	objectBytes int64
	layout      *layout
}

func (r *table) Size() int64  { return r.layout.table }
func (r *table) Close() error { return nil }

// ReadAt implements kv.TableReader.
func (r *table) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > r.layout.table {
		return tine.Errorf(tine.KindRange, "%d bytes at %d are not inside the table %s of %d", len(p), off, r.key, r.layout.table)
	}
	if len(p) == 0 {
		return nil
	}
	first, last := off/FrameBytes, (off+int64(len(p))-1)/FrameBytes
	side := map[int64][]byte{} // frames that came with another
	for i := first; i <= last; i++ {
		data, err := r.frame(ctx, i, last, side, func(data []byte) error { return r.layout.check(i, data) })
		if err != nil {
			return err
		}
		start := max(off, i*FrameBytes)
		copy(p[start-off:], data[start-i*FrameBytes:])
	}
	return nil
}

// frame returns a frame, by the cache if there is one. If it must be fetched, the frames
// up to last come with it, into side. check is called for what is returned.
func (r *table) frame(ctx context.Context, i, last int64, side map[int64][]byte, check func([]byte) error) ([]byte, error) {
	fresh := false
	fetch := func(ctx context.Context) ([]byte, error) {
		fresh = true
		if data, ok := side[i]; ok {
			delete(side, i)
			if check(data) == nil {
				return data, nil
			}
		}
		return r.fetch(ctx, i, last, side, check)
	}
	if r.t.cache == nil {
		return fetch(ctx)
	}
	data, err := r.t.cache.Get(ctx, string(r.key), i, fetch)
	if err != nil || fresh {
		return data, err
	}
	if check(data) == nil {
		return data, nil
	}
	return r.fetch(ctx, i, i, nil, check)
}

// fetch reads frames from the store, twice if what comes first is damaged.
func (r *table) fetch(ctx context.Context, i, last int64, side map[int64][]byte, check func([]byte) error) ([]byte, error) {
	var damage error
	for range 2 {
		all, err := r.get(ctx, i, last)
		if err != nil {
			return nil, err
		}
		data := all[:min(FrameBytes, len(all))]
		if damage = check(data); damage == nil {
			for k := i + 1; k <= last; k++ {
				rest := all[(k-i)*FrameBytes:]
				side[k] = bytes.Clone(rest[:min(FrameBytes, len(rest))])
			}
			if last > i {
				data = bytes.Clone(data) // a cache that keeps it must not keep all
			}
			return data, nil
		}
		last = i // a second try is for what is needed
	}
	return nil, tine.Errorf(tine.KindCorrupt, "object %s in store %s: %w", r.key, r.t.store.Name(), damage).WithHint(corruptHint)
}

const corruptHint = "a run of rows of the disk is damaged in the object store: look at the store, and restore the object, or the disk from an older state"

// get makes the request.
func (r *table) get(ctx context.Context, first, last int64) ([]byte, error) {
	off := first * FrameBytes
	data, info, err := r.t.store.Get(ctx, r.key, blob.Range{Offset: off, Length: min((last+1)*FrameBytes, r.objectBytes) - off}, "")
	kind := tine.KindOf(err)
	switch {
	case err == nil && info.Size != r.objectBytes, err != nil && kind == tine.KindRange:
		return nil, tine.Errorf(tine.KindCorrupt, "object %s in store %s has not the %d bytes that were written", r.key, r.t.store.Name(), r.objectBytes).
			WithHint(corruptHint)
	case err == nil:
		return data, nil
	case kind == tine.KindNotFound:
		return nil, tine.Errorf(tine.KindCorrupt, "a run of rows is gone: %w", err).WithHint(corruptHint)
	case kind == tine.KindInterrupted, kind == tine.KindCorrupt:
		return nil, err
	}
	var typed *tine.Error
	hint := "look at the object store and at the credentials for it"
	if errors.As(err, &typed) && typed.Hint != "" {
		hint = typed.Hint
	}
	return nil, tine.Errorf(tine.KindUnavailable, "a run of rows cannot be read: %w", err).WithHint("%s", hint)
}

// ahead reads a table in windows of a MiB, for one who reads it from start to end,
// and looks into the index at its end as it goes. Not safe for concurrent use.
type ahead struct {
	*table
	rows, index window
}

// window is a part of a table in memory.
type window struct {
	data []byte
	off  int64
}

// windowBytes is how much ahead reads at once.
const windowBytes = 4 * FrameBytes

func (a *ahead) ReadAt(ctx context.Context, p []byte, off int64) error {
	end := off + int64(len(p))
	w, start := &a.rows, off/FrameBytes*FrameBytes
	if tail := max(0, (a.Size()-windowBytes)/FrameBytes*FrameBytes); off >= tail {
		w, start = &a.index, tail
	}
	if end > a.Size() || off < 0 {
		return a.table.ReadAt(ctx, p, off) // the error is there
	}
	if off < w.off || end > w.off+int64(len(w.data)) {
		data := make([]byte, min(max(windowBytes, end-start), a.Size()-start))
		if err := a.table.ReadAt(ctx, data, start); err != nil {
			return err
		}
		w.data, w.off = data, start
	}
	copy(p, w.data[off-w.off:])
	return nil
}
