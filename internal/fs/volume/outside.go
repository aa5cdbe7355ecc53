package volume

import (
	"context"
	"strings"
	"sync"

	"tine.dev/tine/internal/fs/cache"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/run"
	"tine.dev/tine/internal/tine"
)

// outside opens the tables of all stores for the row store, which is opened
// before them. A table's name starts with the id of its store and a slash. It is
// safe for concurrent use.
type outside struct {
	mu     sync.Mutex // a leaf
	stores map[tine.StoreID]*run.Tables
}

// place is what stands before the names of a store's tables.
func place(id tine.StoreID) string { return id.String() + "/" }

func (o *outside) add(id tine.StoreID, t *run.Tables) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stores == nil {
		o.stores = map[tine.StoreID]*run.Tables{}
	}
	o.stores[id] = t
}

// OpenTable implements kv.Tables.
func (o *outside) OpenTable(ctx context.Context, name string) (kv.TableReader, error) {
	text, rest, _ := strings.Cut(name, "/")
	var id tine.StoreID
	if err := id.Parse(text); err != nil {
		return nil, err
	}
	o.mu.Lock()
	t := o.stores[id]
	o.mu.Unlock()
	if t == nil {
		return nil, tine.Errorf(tine.KindUnavailable, "rows lie in store %s, which this server does not know", id).
			WithHint("add it with: tine store add NAME URL")
	}
	return t.OpenTable(ctx, rest)
}

// frames is the cache of the stores as package run wants it.
type frames struct{ c *cache.Cache }

// Get implements run.Frames.
func (f frames) Get(ctx context.Context, object string, frame int64, fetch func(context.Context) ([]byte, error)) ([]byte, error) {
	return f.c.Get(ctx, cache.Key{Object: object, Frame: frame}, fetch)
}
