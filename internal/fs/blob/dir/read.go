package dir

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// Get implements blob.Driver.
func (s *Store) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) ([]byte, blob.Info, error) {
	if err := blob.Interrupted(ctx, "get", key); err != nil {
		return nil, blob.Info{}, err
	}
	f, info, err := s.open("get", key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	defer f.Close()
	if opt.Version != "" && opt.Version != info.Version {
		return nil, blob.Info{}, tine.Errorf(tine.KindConflict, "get %q: version %s is asked for, %s is there", key, opt.Version, info.Version)
	}
	n, err := opt.Range.Resolve(info.Size)
	if err != nil {
		return nil, blob.Info{}, err
	}
	if opt.Limit > 0 && n > opt.Limit {
		return nil, blob.Info{}, tine.Errorf(tine.KindTooBig, "get %q: %d bytes; at most %d", key, n, opt.Limit)
	}
	data := make([]byte, n)
	if _, err := f.ReadAt(data, opt.Range.Offset); err != nil {
		return nil, blob.Info{}, failure("get", key, err)
	}
	return data, info, nil
}

// Stat implements blob.Driver.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	if err := blob.Interrupted(ctx, "stat", key); err != nil {
		return blob.Info{}, err
	}
	f, info, err := s.open("stat", key)
	if err != nil {
		return blob.Info{}, err
	}
	return info, f.Close()
}

// lister collects one page.
type lister struct {
	s     *Store
	ctx   context.Context
	opt   blob.ListOptions
	after string
	limit int
	page  blob.Page
	last  string
	count int
	full  bool
}

// List implements blob.Driver. The token of the next page is the last entry.
func (s *Store) List(ctx context.Context, opt blob.ListOptions) (blob.Page, error) {
	if err := s.present("list", blob.Key(opt.Prefix)); err != nil {
		return blob.Page{}, err
	}
	l := &lister{s: s, ctx: ctx, opt: opt, after: max(opt.StartAfter, opt.Token), limit: s.opt.PageLimit}
	if opt.Limit > 0 {
		l.limit = min(l.limit, opt.Limit)
	}
	// Everything with the prefix lies in the folder of its last "/".
	top := opt.Prefix[:strings.LastIndexByte(opt.Prefix, '/')+1]
	if top != "" && blob.Key(strings.TrimSuffix(top, "/")).Check() != nil {
		return blob.Page{}, nil // no key starts so
	}
	if err := l.folder(top); err != nil {
		return blob.Page{}, err
	}
	return l.page, nil
}

// name is an entry of a folder: a key, or a folder's key with a "/".
type name struct {
	key   string
	entry fs.DirEntry
}

// names reads a folder in the order of keys. That is not the order of names:
// a folder sorts with its "/".
func (l *lister) names(folder string) ([]name, error) {
	f, err := l.s.root.Open(cmp.Or(strings.TrimSuffix(toPath(folder), "/"), "."))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, failure("list", blob.Key(folder), err)
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, nil // an object, not a folder
	}
	if err != nil {
		return nil, failure("list", blob.Key(folder), err)
	}
	list := make([]name, 0, len(entries))
	for _, e := range entries {
		part, ok := fromName(e.Name())
		switch {
		case !ok:
		case e.IsDir():
			list = append(list, name{key: folder + part + "/", entry: e})
		case e.Type().IsRegular():
			list = append(list, name{key: folder + part, entry: e})
		}
	}
	slices.SortFunc(list, func(a, b name) int { return strings.Compare(a.key, b.key) })
	return list, nil
}

// folder lists what is in a folder and below it.
func (l *lister) folder(folder string) error {
	if err := blob.Interrupted(l.ctx, "list", blob.Key(l.opt.Prefix)); err != nil {
		return err
	}
	list, err := l.names(folder)
	if err != nil {
		return err
	}
	for _, n := range list {
		if l.full {
			return nil
		}
		isDir := strings.HasSuffix(n.key, "/")
		switch {
		case isDir && (strings.HasPrefix(n.key, l.opt.Prefix) || strings.HasPrefix(l.opt.Prefix, n.key)):
			// All below sorts before where the page starts, unless that lies
			// below as well.
			if n.key > l.after || strings.HasPrefix(l.after, n.key) {
				err = l.below(n)
			}
		case !isDir && strings.HasPrefix(n.key, l.opt.Prefix):
			err = l.object(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// below lists a folder, or folds it into a prefix if there is any object in it.
func (l *lister) below(n name) error {
	if _, folded := blob.Fold(n.key, l.opt); !folded || !strings.HasPrefix(n.key, l.opt.Prefix) {
		return l.folder(n.key)
	}
	if n.key <= l.after {
		return nil
	}
	probe := &lister{s: l.s, ctx: l.ctx, opt: blob.ListOptions{Prefix: n.key}, limit: 1}
	if err := probe.folder(n.key); err != nil {
		return err
	}
	if probe.count > 0 && l.room(n.key) {
		l.page.Prefixes = append(l.page.Prefixes, n.key)
	}
	return nil
}

// object lists one object. One that is gone since the folder was read is left
// out: it was deleted meanwhile.
func (l *lister) object(n name) error {
	if n.key <= l.after {
		return nil
	}
	st, err := n.entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failure("list", blob.Key(n.key), err)
	}
	if l.room(n.key) {
		l.page.Objects = append(l.page.Objects, blob.Entry{Key: blob.Key(n.key), Size: max(0, st.Size()-trailerBytes), Modified: st.ModTime()})
	}
	return nil
}

// room reports whether the page takes one more entry, and counts it.
func (l *lister) room(key string) bool {
	if l.count == l.limit {
		l.page.Next, l.full = l.last, true
		return false
	}
	l.count, l.last = l.count+1, key
	return true
}
