package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"iter"
	"time"

	"tine.dev/tine/internal/tine"
)

// Options set up a Store. The zero value is right for a store over a network.
type Options struct {
	Retry Policy
	// PartBytes is the size of the parts of an upload; a body of at most so
	// many bytes is sent in one request. 0: 16 MiB. A driver may need more.
	PartBytes int64
	// Parallel is how many parts of one upload are under way at once, each
	// with a buffer of PartBytes. 0: 4.
	Parallel int
	// MaxGetBytes is what one Get may return, so that a foreign object cannot
	// take all memory. 0: 256 MiB.
	MaxGetBytes int64
	// NewMark makes marks; nil: random ones. A simulator gives its own.
	NewMark func() Mark
}

// Store is what the layers above use: a Driver with retries, checks and
// uploads in parts. Safe for concurrent use.
//
// Errors are those of Driver. Requests are retried inside, so tine.KindUnavailable
// and tine.KindCorrupt mean that attempts or budget ran out.
type Store struct {
	driver Driver
	opt    Options
	retry  *retrier
	traits Traits
}

// Body is what Put reads: more than once, and in several places at a time.
// *bytes.Reader, *io.SectionReader and the like are bodies.
type Body interface {
	io.ReaderAt
	Size() int64
}

// Checksum returns the CRC32C of p.
func Checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli()) }

// castagnoli is the table of CRC32C, which package crc32 makes once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// NewDigest returns a running CRC32C.
func NewDigest() hash.Hash32 { return crc32.New(castagnoli()) }

// NewStore returns a store over d, which it closes with itself.
func NewStore(d Driver, opt Options) *Store {
	traits := d.Traits()
	if opt.PartBytes <= 0 {
		opt.PartBytes = 16 << 20
	}
	opt.PartBytes = max(opt.PartBytes, traits.MinPartBytes)
	if opt.Parallel <= 0 {
		opt.Parallel = 4
	}
	if opt.MaxGetBytes <= 0 {
		opt.MaxGetBytes = 256 << 20
	}
	if opt.NewMark == nil {
		opt.NewMark = func() (m Mark) {
			rand.Read(m[:])
			return m
		}
	}
	return &Store{driver: d, opt: opt, retry: newRetrier(opt.Retry), traits: traits}
}

// Name says for people which store it is.
func (s *Store) Name() string { return s.traits.Name }

// Region is where the store is, "" if its driver does not know.
func (s *Store) Region() string { return s.traits.Region }

// Close closes the driver. No call may be under way.
func (s *Store) Close() error { return s.driver.Close() }

// Get returns the bytes of a range of an object, and what the store says about
// the object. With a version, only if the object is in that state
// (tine.KindConflict if not). The answer is never shorter than asked
// (tine.KindRange); a whole object that does not match its checksum is
// tine.KindCorrupt. With Range.Length 0 an attempt has the time for a part of
// an upload: who reads what is larger says how long it is.
func (s *Store) Get(ctx context.Context, key Key, r Range, version Version) ([]byte, Info, error) {
	if err := key.Check(); err != nil {
		return nil, Info{}, err
	}
	if r.Offset < 0 || r.Length < 0 {
		return nil, Info{}, tine.Errorf(tine.KindInvalid, "get %q: range %d+%d is negative", key, r.Offset, r.Length)
	}
	var data []byte
	var info Info
	expected := r.Length
	if expected == 0 {
		expected = s.opt.PartBytes
	}
	err := s.retry.do(ctx, expected, func(ctx context.Context) (err error) {
		data, info, err = s.driver.Get(ctx, key, GetOptions{Range: r, Version: version, Limit: s.opt.MaxGetBytes})
		if err != nil {
			return err
		}
		return s.received(key, r, data, info)
	})
	if err != nil {
		return nil, Info{}, err
	}
	return data, info, nil
}

// received checks what a Get brought.
func (s *Store) received(key Key, r Range, data []byte, info Info) error {
	want, err := r.Resolve(info.Size)
	switch {
	case err != nil:
		return err
	case int64(len(data)) != want:
		return tine.Errorf(tine.KindCorrupt, "get %q from store %s: %d bytes came of %d", key, s.Name(), len(data), want)
	case info.Checked && want == info.Size && Checksum(data) != info.CRC32C:
		return tine.Errorf(tine.KindCorrupt, "get %q from store %s: %d bytes do not match their checksum", key, s.Name(), want)
	}
	return nil
}

// Stat tells of an object without its bytes.
func (s *Store) Stat(ctx context.Context, key Key) (Info, error) {
	if err := key.Check(); err != nil {
		return Info{}, err
	}
	var info Info
	err := s.retry.do(ctx, 0, func(ctx context.Context) (err error) {
		info, err = s.driver.Stat(ctx, key)
		return err
	})
	return info, err
}

// Put writes body under key if the condition holds, atomically and durably.
// The body must not change until it returns. tine.KindExists and
// tine.KindConflict mean that the condition did not hold when the store looked.
//
// An acknowledgement that is lost is made good: the store asks whether the
// object under the key is the one of this call. Where it cannot know, the
// error says so: MayHaveHappened.
func (s *Store) Put(ctx context.Context, key Key, body Body, cond Condition) (Info, error) {
	if err := key.Check(); err != nil {
		return Info{}, err
	}
	if cond.Absent && cond.Version != "" {
		return Info{}, tine.Errorf(tine.KindInvalid, "put %q: absent and in a version: no object is both", key)
	}
	w := write{s: s, key: key, head: Head{If: cond, Size: body.Size(), Mark: s.opt.NewMark()}}
	part := s.opt.PartBytes
	if w.head.Size <= part && w.head.Size <= s.traits.MaxSingleBytes {
		return w.single(ctx, body)
	}
	if least := (w.head.Size + int64(s.traits.MaxParts) - 1) / int64(s.traits.MaxParts); least > part {
		part = least
	}
	return w.parts(ctx, body, part)
}

// List returns a page of keys. A failure is always an error, never a short
// page: who frees what is not listed may trust a listing that ended well.
func (s *Store) List(ctx context.Context, opt ListOptions) (Page, error) {
	if opt.Delimiter != "" && opt.Delimiter != "/" {
		return Page{}, tine.Errorf(tine.KindUnsupported, "list %q: delimiter %q; only / is known", opt.Prefix, opt.Delimiter)
	}
	var page Page
	err := s.retry.do(ctx, 0, func(ctx context.Context) (err error) {
		page, err = s.driver.List(ctx, opt)
		return err
	})
	if err != nil {
		return Page{}, err
	}
	return page, nil
}

// All lists all pages, entry by entry; it ends at the first error, with it.
// With a delimiter it leaves the prefixes out.
func (s *Store) All(ctx context.Context, opt ListOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for {
			page, err := s.List(ctx, opt)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page.Objects {
				if !yield(e, nil) {
					return
				}
			}
			if opt.Token = page.Next; opt.Token == "" {
				return
			}
		}
	}
}

// Delete removes objects; a key without object counts as removed. If only
// some fail the error holds a *PartialError with each of them. Any that failed
// may be removed all the same.
func (s *Store) Delete(ctx context.Context, keys ...Key) error {
	for _, k := range keys {
		if err := k.Check(); err != nil {
			return err
		}
	}
	var failed []KeyError
	for len(keys) > 0 {
		batch := keys[:min(len(keys), s.traits.DeleteBatch)]
		keys = keys[len(batch):]
		failed = append(failed, s.deleteBatch(ctx, batch)...)
	}
	if len(failed) > 0 {
		return &PartialError{Failed: failed}
	}
	return nil
}

// deleteBatch removes one batch, trying again with the keys that may yet go.
func (s *Store) deleteBatch(ctx context.Context, batch []Key) (failed []KeyError) {
	var again []KeyError
	err := s.retry.do(ctx, 0, func(ctx context.Context) error {
		refused, err := s.driver.Delete(ctx, batch)
		if err != nil {
			return err
		}
		again, batch = nil, nil
		for _, f := range refused {
			if !worthwhile(f.Err) {
				failed = append(failed, f)
				continue
			}
			again, batch = append(again, f), append(batch, f.Key)
		}
		if len(again) > 0 {
			return again[0].Err
		}
		return nil
	})
	switch {
	case err == nil:
		return failed
	case len(again) > 0:
		return append(failed, again...)
	}
	for _, k := range batch {
		failed = append(failed, KeyError{Key: k, Err: err})
	}
	return failed
}

// Copy makes dst the same bytes as src within the store, replacing what is
// there, and checks that size and checksum are the same. src must not change
// meanwhile.
func (s *Store) Copy(ctx context.Context, src, dst Key) (Info, error) {
	if err := errors.Join(src.Check(), dst.Check()); err != nil {
		return Info{}, err
	}
	if src == dst {
		return Info{}, tine.Errorf(tine.KindInvalid, "copy %q onto itself", src)
	}
	from, err := s.Stat(ctx, src)
	if err != nil {
		return Info{}, err
	}
	err = s.retry.do(ctx, from.Size, func(ctx context.Context) error { return s.driver.Copy(ctx, src, dst) })
	if err != nil {
		return Info{}, err
	}
	to, err := s.Stat(ctx, dst)
	if err != nil {
		return Info{}, err
	}
	if to.Size != from.Size || to.Checked != from.Checked || to.CRC32C != from.CRC32C {
		return Info{}, tine.Errorf(tine.KindCorrupt, "copy %q to %q in store %s: size or checksum differ", src, dst, s.Name())
	}
	return to, nil
}

// Sweep removes what uploads that were begun before a time, by the store's
// clock, have left behind, and returns how many there were. Give it a time so
// long past that no such upload can be under way.
func (s *Store) Sweep(ctx context.Context, before time.Time) (int, error) {
	var n int
	err := s.retry.do(ctx, 0, func(ctx context.Context) error {
		swept, err := s.driver.Sweep(ctx, before)
		n += swept
		return err
	})
	return n, err
}
