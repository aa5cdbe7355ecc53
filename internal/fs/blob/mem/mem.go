// Package mem keeps objects in memory. It is the reference of the contract:
// short enough to be read as its definition, and fast enough for simulations.
package mem

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// Options set up a store.
type Options struct {
	Now       func() time.Time // the store's clock; nil: time.Now
	PageLimit int              // entries a page of a listing at most; 0: 1,000
}

// Store is a blob.Driver. Safe for concurrent use.
type Store struct {
	opt     Options
	mu      sync.RWMutex
	objects btree.Map[string, object] // guarded by mu
	uploads map[*upload]struct{}      // guarded by mu
	writes  uint64                    // counts versions; guarded by mu
}

// object is never changed, only replaced.
type object struct {
	data []byte
	info blob.Info
}

// New returns an empty store.
func New(opt Options) *Store {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.PageLimit <= 0 {
		opt.PageLimit = 1000
	}
	return &Store{opt: opt, uploads: map[*upload]struct{}{}}
}

// Traits implements blob.Driver.
func (s *Store) Traits() blob.Traits {
	return blob.Traits{Name: "mem", MinPartBytes: 1, MaxSingleBytes: 1 << 40, MaxParts: 10000, DeleteBatch: 1000}
}

// Close implements blob.Driver. The objects stay: it is as if another client
// had gone.
func (s *Store) Close() error { return nil }

// find returns the object under key.
func (s *Store) find(op string, key blob.Key) (object, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects.Get(string(key))
	if !ok {
		return object{}, blob.Answer{Op: op, Store: "mem", Key: string(key), Code: "NoSuchKey", Status: 404}.Err()
	}
	return o, nil
}

// Get implements blob.Driver.
func (s *Store) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) ([]byte, blob.Info, error) {
	if err := blob.Interrupted(ctx, "get", key); err != nil {
		return nil, blob.Info{}, err
	}
	o, err := s.find("get", key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	if opt.Version != "" && opt.Version != o.info.Version {
		return nil, blob.Info{}, tine.Errorf(tine.KindConflict, "get %q: version %s is asked for, %s is there", key, opt.Version, o.info.Version)
	}
	n, err := opt.Range.Resolve(o.info.Size)
	if err != nil {
		return nil, blob.Info{}, err
	}
	if opt.Limit > 0 && n > opt.Limit {
		return nil, blob.Info{}, tine.Errorf(tine.KindTooBig, "get %q: %d bytes; at most %d", key, n, opt.Limit)
	}
	return slices.Clone(o.data[opt.Range.Offset:][:n]), o.info, nil
}

// Stat implements blob.Driver.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	if err := blob.Interrupted(ctx, "stat", key); err != nil {
		return blob.Info{}, err
	}
	o, err := s.find("stat", key)
	return o.info, err
}

// Put implements blob.Driver.
func (s *Store) Put(ctx context.Context, key blob.Key, data []byte, head blob.Head) (blob.Info, error) {
	if err := blob.Interrupted(ctx, "put", key); err != nil {
		return blob.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(key, slices.Clone(data), head)
}

// put is Put under the lock.
func (s *Store) put(key blob.Key, data []byte, head blob.Head) (blob.Info, error) {
	if int64(len(data)) != head.Size || blob.Checksum(data) != head.CRC32C {
		return blob.Info{}, tine.Errorf(tine.KindCorrupt, "put %q: the bytes do not match their size or checksum", key)
	}
	old, there := s.objects.Get(string(key))
	switch {
	case head.If.Absent && there:
		return blob.Info{}, tine.Errorf(tine.KindExists, "put %q: it exists", key)
	case head.If.Version != "" && old.info.Version != head.If.Version:
		return blob.Info{}, tine.Errorf(tine.KindConflict, "put %q: version %s is asked for, %q is there", key, head.If.Version, old.info.Version)
	}
	info := blob.Info{Key: key, Size: head.Size, CRC32C: head.CRC32C, Checked: true, Mark: head.Mark}
	return s.store(info, data), nil
}

// store puts an object in place under a new version.
func (s *Store) store(info blob.Info, data []byte) blob.Info {
	s.writes++
	info.Version, info.Modified = blob.Version(strconv.FormatUint(s.writes, 10)), s.opt.Now()
	s.objects.Set(string(info.Key), object{data: data, info: info})
	return info
}

// Delete implements blob.Driver.
func (s *Store) Delete(ctx context.Context, keys []blob.Key) ([]blob.KeyError, error) {
	if err := blob.Interrupted(ctx, "delete", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		s.objects.Delete(string(k))
	}
	return nil, nil
}

// Copy implements blob.Driver.
func (s *Store) Copy(ctx context.Context, src, dst blob.Key) error {
	if err := blob.Interrupted(ctx, "copy", src); err != nil {
		return err
	}
	o, err := s.find("copy", src)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.info.Key = dst
	s.store(o.info, o.data)
	return nil
}

// List implements blob.Driver. The token of the next page is the last entry.
func (s *Store) List(ctx context.Context, opt blob.ListOptions) (blob.Page, error) {
	if err := blob.Interrupted(ctx, "list", blob.Key(opt.Prefix)); err != nil {
		return blob.Page{}, err
	}
	limit := s.opt.PageLimit
	if opt.Limit > 0 {
		limit = min(limit, opt.Limit)
	}
	after := max(opt.StartAfter, opt.Token)
	var page blob.Page
	var last string
	entries := 0
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.objects.Ascend(max(opt.Prefix, after), func(key string, o object) bool {
		if !strings.HasPrefix(key, opt.Prefix) {
			return false
		}
		name, folded := blob.Fold(key, opt)
		if name <= after || folded && name == last {
			return true
		}
		if entries == limit {
			page.Next = last
			return false
		}
		entries, last = entries+1, name
		if folded {
			page.Prefixes = append(page.Prefixes, name)
		} else {
			page.Objects = append(page.Objects, blob.Entry{Key: blob.Key(key), Size: o.info.Size, Modified: o.info.Modified})
		}
		return true
	})
	return page, nil
}

// Sweep implements blob.Driver.
func (s *Store) Sweep(ctx context.Context, before time.Time) (int, error) {
	if err := blob.Interrupted(ctx, "sweep", ""); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for u := range s.uploads {
		if u.begun.Before(before) {
			delete(s.uploads, u)
			n++
		}
	}
	return n, nil
}
