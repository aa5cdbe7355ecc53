package fusefs

import (
	"slices"
	"sync"

	"tine.dev/tine/internal/fs/volume"
)

// openFile is what a file handle of the kernel stands for. All its fields but
// owners are fixed at open.
type openFile struct {
	f      *volume.File
	node   uint64
	direct bool // the kernel keeps no pages for this handle
	writes bool // it was opened for writing

	mu     sync.Mutex
	owners []uint64 // who has taken byte ranges through it and not closed it since
}

// locks notes that an owner takes byte ranges through the handle. An owner is a
// process, which gives them back with its next close(2), of which the kernel
// tells (FLUSH), or the open file itself (open file description locks), of
// whose last close the kernel tells (RELEASE), but not whose locks go.
func (h *openFile) locks(owner uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.owners, owner) {
		h.owners = append(h.owners, owner)
	}
}

// unlocks notes that an owner has given back all byte ranges of the file.
func (h *openFile) unlocks(owner uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owners = slices.DeleteFunc(h.owners, func(o uint64) bool { return o == owner })
}

// openDir is what a directory handle of the kernel stands for.
type openDir struct {
	d    *volume.Dir
	node uint64
	gen  uint32 // the generation that the entries belong to
}

// handles maps the numbers that the kernel holds to what they stand for. A
// number is used again after its release, so the table stays as small as the
// most handles that were ever open at once. Safe for concurrent use.
type handles[T any] struct {
	mu    sync.RWMutex
	slots []*T
	free  []uint64
}

func (h *handles[T]) add(v *T) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.free); n > 0 {
		fh := h.free[n-1]
		h.free = h.free[:n-1]
		h.slots[fh] = v
		return fh
	}
	h.slots = append(h.slots, v)
	return uint64(len(h.slots) - 1)
}

// get returns nil for a number that stands for nothing.
func (h *handles[T]) get(fh uint64) *T {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if fh >= uint64(len(h.slots)) {
		return nil
	}
	return h.slots[fh]
}

func (h *handles[T]) remove(fh uint64) *T {
	h.mu.Lock()
	defer h.mu.Unlock()
	if fh >= uint64(len(h.slots)) || h.slots[fh] == nil {
		return nil
	}
	v := h.slots[fh]
	h.slots[fh] = nil
	h.free = append(h.free, fh)
	return v
}

// some reports whether anything that is open is such.
func (h *handles[T]) some(such func(*T) bool) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.ContainsFunc(h.slots, func(v *T) bool { return v != nil && such(v) })
}

// all returns what is open now.
func (h *handles[T]) all() []*T {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var vs []*T
	for _, v := range h.slots {
		if v != nil {
			vs = append(vs, v)
		}
	}
	return vs
}
