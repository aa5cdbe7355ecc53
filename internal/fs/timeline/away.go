package timeline

import (
	"context"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/fs/segment"
	"tine.dev/tine/internal/tine"
)

// Away keeps trees in stores besides this machine. Safe for concurrent use.
type Away interface {
	// Enter returns where the tree is kept from now on. It is called before the tree is loaded, or, with
	// fresh, made. It may ask the store, so it may take a while.
	// Errors: KindNotFound if the store is not known here; KindStale if the tree
	// is another server's now; those of the store.
	Enter(ctx context.Context, id tine.TreeID, rec record.Tree, fresh bool) (Place, error)
}

// Place is where a tree is kept.
type Place struct {
	Rows     kv.Store       // through which all of the tree's rows are committed
	Segments segment.Remote // has the segments that are not here; nil: nothing has
	Above    uint64         // generations of segments up to it may have been made by other machines
}

// enter finds out through what the tree's rows are committed; t.mu is held, or
// nobody else knows the tree.
func (t *tree) enter(ctx context.Context, fresh bool) (err error) {
	switch {
	case t.rec.Store.IsZero():
	case t.engine.Away == nil:
		return tine.Errorf(tine.KindUnavailable, "the disk lives in store %s, and this server has no stores", t.rec.Store).
			WithHint("start the server with the store: tine serve --store NAME=URL")
	default:
		t.place, err = t.engine.Away.Enter(ctx, t.id, t.rec, fresh)
	}
	return err
}

// Lose ends all work on a tree that another server has taken over: its disks
// fail from now on, as they do when their data cannot be written (P4).
func (e *Engine) Lose(id tine.TreeID, why error) {
	t := e.tree(id)
	if t == nil {
		return
	}
	t.poison.CompareAndSwap(nil, &tine.Error{Kind: tine.KindUnavailable, Msg: "another server has taken the disk over", Err: why,
		Hint: "unmount it here, and mount it there"})
}

// Roll has an open segment sealed soon: the next write begins another. Of one
// that is not open it does nothing.
func (e *Engine) Roll(tree tine.TreeID, id tine.SegmentID) {
	t := e.tree(tree)
	if t == nil {
		return
	}
	info := t.segment(id)
	if info == nil {
		return
	}
	l := info.line.root()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.space.mu.Lock()
	open := l.space.info == info && l.space.writer != nil
	if open {
		l.space.full = append(l.space.full, segmentEnd{info, l.space.writer, l.space.writer.End()})
		l.space.writer, l.space.info = nil, nil
	}
	l.space.mu.Unlock()
	if open {
		l.commits.wanted = true
		l.kick()
	}
}
