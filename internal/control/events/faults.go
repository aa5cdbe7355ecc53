package events

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// holdBack is how long faults of one kind, of one disk, are held back after
// one was told.
const holdBack = 10 * time.Second

// Faults turns failed file operations, and what the engine logs as errors, into
// events. It is a volume.Observer and the source of a slog.Handler.
type Faults struct {
	log  *Log
	name func(tine.DiskID) string
	work chan fault

	mu   sync.Mutex // guards seen; a leaf
	seen map[string]*held
}

// fault is a failed operation on its way to the log.
type fault struct {
	disk tine.DiskID
	op   volume.Op
	err  error
}

// held is a kind of fault that was told lately.
type held struct {
	told    time.Time
	skipped int
}

// NewFaults returns faults that go to the log. Name tells a disk's name; it is
// called by Run only.
func NewFaults(log *Log, name func(tine.DiskID) string) *Faults {
	return &Faults{log: log, name: name, work: make(chan fault, 256), seen: map[string]*held{}}
}

// kindOf gives an error the kind of event that it is.
func kindOf(err error) string {
	switch tine.KindOf(err) {
	case tine.KindNoSpace:
		return "full"
	case tine.KindCorrupt:
		return "corrupt"
	case tine.KindIO, tine.KindUnavailable:
		return "failed"
	}
	return "error"
}

// Failed notes a failed operation. It never waits: what it cannot hand on is
// one of many.
func (f *Faults) Failed(disk tine.DiskID, op volume.Op, err error) {
	if f.held(kindOf(err) + " " + disk.String()) {
		return
	}
	select {
	case f.work <- fault{disk, op, err}:
	default:
	}
}

// Slow is no fault.
func (f *Faults) Slow(tine.DiskID, volume.Op, time.Time, time.Duration, error) {}

// Run hands faults on until ctx is done. It is apart from Failed because that
// must not ask the host for a name.
func (f *Faults) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-f.work:
			kind := kindOf(x.err)
			f.log.Add(api.Event{Kind: kind, Disk: f.name(x.disk), DiskID: x.disk.String(), Detail: x.op.String(), Error: wire(x.err),
				Repeat: f.tell(kind + " " + x.disk.String())})
		}
	}
}

func wire(err error) *api.Error {
	return &api.Error{Kind: tine.KindOf(err).String(), Message: err.Error(), Hint: tine.HintOf(err)}
}

// held reports whether a fault is one too many for now, and counts it then.
func (f *Faults) held(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.seen[key]
	if h == nil || f.log.clock().Sub(h.told).Abs() >= holdBack {
		return false
	}
	h.skipped++
	return true
}

// maxSeen bounds the kinds of faults that are remembered.
const maxSeen = 1024

// tell notes that a fault is told now, and returns how many were held back
// before it.
func (f *Faults) tell(key string) (skipped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.log.clock()
	h := f.seen[key]
	if h == nil {
		if len(f.seen) >= maxSeen {
			clear(f.seen)
		}
		h = &held{}
		f.seen[key] = h
	}
	h.told, skipped, h.skipped = now, h.skipped, 0
	return skipped
}

// Handler returns a handler that passes all records on and makes an event of
// each error, but for those of single file operations, of which Failed knows
// more.
func (f *Faults) Handler(next slog.Handler) slog.Handler { return &handler{next: next, faults: f} }

type handler struct {
	next   slog.Handler
	faults *Faults
	attrs  []slog.Attr
}

// Enabled reports whether anybody wants the record: an error is always wanted.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || h.next.Enabled(ctx, l)
}

// Handle passes the record on.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.faults.logged(r, h.attrs)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs returns a handler whose records have these attributes too.
func (h *handler) WithAttrs(as []slog.Attr) slog.Handler {
	return &handler{next: h.next.WithAttrs(as), faults: h.faults, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], as...)}
}

// WithGroup returns a handler whose records are in a group; events know none.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), faults: h.faults, attrs: h.attrs}
}

// logged makes an event of a record.
func (f *Faults) logged(r slog.Record, with []slog.Attr) {
	e := api.Event{Kind: "error", Detail: r.Message, Time: r.Time}
	single := false
	var more []string
	look := func(a slog.Attr) bool {
		err, isErr := a.Value.Any().(error)
		switch {
		case a.Key == "op":
			single = true
		case isErr:
			e.Error = wire(err)
			e.Kind = kindOf(err)
		case a.Key == "hint", a.Key == "stack":
		case a.Key == "disk":
			e.Disk = a.Value.String()
		default:
			more = append(more, a.Key+"="+a.Value.String())
		}
		return true
	}
	for _, a := range with {
		look(a)
	}
	r.Attrs(look)
	key := "log " + r.Message + " " + e.Disk
	if single || f.held(key) {
		return
	}
	if len(more) > 0 {
		e.Detail += " (" + strings.Join(more, ", ") + ")"
	}
	e.Repeat = f.tell(key)
	f.log.Add(e)
}
