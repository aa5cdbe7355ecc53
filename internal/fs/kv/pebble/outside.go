package pebble

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/objstorage/remote"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/rarely"
	"tine.dev/tine/internal/tine"
)

// outside is the object store that Pebble sees: of tables that exist and never
// change. Pebble reads them where it needs to and never makes or removes one.
//
// An error here is the error of one read, of a client or of a compaction; it
// poisons nothing. But Pebble tries what failed in the background again at once,
// and for ever: a compaction into the lowest levels after half a minute, one out of
// level 0 or the collection of a table's statistics without any pause. So background
// reads of a table that has just failed are held back before they are made, longer each
// time; a client's, which is told by its context, is not. All that is said in the log of
// failures is a line a minute.
type outside struct {
	tables  kv.Tables // nil if there are none
	log     *slog.Logger
	life    context.Context // ends with the store
	stop    context.CancelFunc
	reading context.Context // what clients read with
	trouble rarely.Teller   // says that tables cannot be read
	// bounds are those of all ranges that lie outside, ascending; see endOf.
	bounds atomic.Pointer[[][]byte]

	mu      sync.Mutex               // a leaf; guards all below
	failing map[string]time.Duration // tables whose last background read failed, and how long the next is held back
	watches map[*watch]struct{}      // of calls under way
}

// watch ends the context of a call that waits for background work on tables, when
// that has failed a few times. Pebble would not always tell: while a compaction fails
// and is tried again it is always under way, and one that was asked for waits behind it.
type watch struct {
	names map[string]bool
	left  int // failures to be lived with
	end   context.CancelCauseFunc
}

// watchedFailures is how many failures end a call.
const watchedFailures = 3

// How long background reads that fail are held back.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second // a client may wait for the same table to be opened
)

// clientKey marks the context of clients' reads.
type clientKey struct{}

func newOutside(t kv.Tables, log *slog.Logger) *outside {
	o := &outside{tables: t, log: log, failing: map[string]time.Duration{}, watches: map[*watch]struct{}{}}
	o.life, o.stop = context.WithCancel(context.Background())
	o.reading = context.WithValue(o.life, clientKey{}, true)
	return o
}

// endOf returns where a table of the store's own that begins at from must end at the
// latest: it may not reach over a bound of what lies outside. The owners of one tree
// lie between those of others. A table of the store's own that covered some of them would
// be compacted together with them, always; and when they cannot be read it would never be,
// level 0 would fill up, and after that nobody could commit any more.
func (o *outside) endOf(from []byte) []byte {
	all := o.bounds.Load()
	if all == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(*all, from, bytes.Compare)
	if found {
		i++
	}
	if i == len(*all) {
		return nil
	}
	return (*all)[i]
}

// note sets the bounds.
func (o *outside) note(spans []kv.Span) {
	var all [][]byte
	for _, sp := range spans {
		all = append(all, sp.Lower, sp.Upper)
	}
	slices.SortFunc(all, bytes.Compare)
	all = slices.CompactFunc(all, bytes.Equal)
	o.bounds.Store(&all)
}

// outsideError is an error of a table outside.
type outsideError struct{ err *tine.Error }

func (e *outsideError) Error() string { return e.err.Error() }
func (e *outsideError) Unwrap() error { return e.err }

// told reports whether an error of background work is one of a table outside,
// which the callers of reads are told of and which ends by itself.
func (o *outside) told(err error) bool {
	var e *outsideError
	if !errors.As(err, &e) {
		return false
	}
	o.trouble.Met(o.log, time.Now(), "background work on rows in an object store failed and is tried again", "error", e.err, "hint", e.err.Hint)
	return true
}

// do makes a read of a table.
func (o *outside) do(ctx context.Context, name string, read func(context.Context) error) error {
	client := ctx.Value(clientKey{}) != nil
	if !client { // clients' contexts end with the store by themselves
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(o.life, cancel)()
		o.hold(ctx, name)
	}
	err := read(ctx)
	var typed *tine.Error
	switch {
	case err == nil:
		if !client {
			o.recovered(name)
		}
		return nil
	case o.life.Err() != nil:
		typed = tine.Errorf(tine.KindUnavailable, "the key-value store is closed")
	case !errors.As(err, &typed):
		typed = tine.Errorf(tine.KindUnavailable, "%w", err)
	}
	failure := &outsideError{tine.Errorf(typed.Kind, "table %s: %w", name, typed).WithHint("%s", typed.Hint)}
	if !client {
		o.failed(name, failure)
	}
	return failure
}

// watch returns a context for a call that waits for background work on tables.
func (o *outside) watch(ctx context.Context, names map[string]bool) (context.Context, func()) {
	w := &watch{names: names, left: watchedFailures}
	ctx, w.end = context.WithCancelCause(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watches[w] = struct{}{}
	return ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.watches, w)
		w.end(nil)
	}
}

// recovered notes a success of background work.
func (o *outside) recovered(name string) {
	o.mu.Lock()
	_, failed := o.failing[name]
	delete(o.failing, name)
	over := failed && len(o.failing) == 0
	o.mu.Unlock()
	if over {
		o.trouble.Over(o.log, "rows in the object store can be read again")
	}
}

// failed notes a failure of background work.
func (o *outside) failed(name string, failure error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing[name] = min(max(firstPause, 2*o.failing[name]), longestPause)
	for w := range o.watches {
		if w.names[name] {
			if w.left--; w.left == 0 {
				w.end(failure)
			}
		}
	}
}

// hold holds background work on a table back that has just failed.
func (o *outside) hold(ctx context.Context, name string) {
	o.mu.Lock()
	pause := o.failing[name]
	o.mu.Unlock()
	if pause == 0 {
		return
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// CreateStorage is called once for each place of tables; there is one.
func (o *outside) CreateStorage(remote.Locator) (remote.Storage, error) { return o, nil }

func (o *outside) Close() error { return nil }

func (o *outside) ReadObject(ctx context.Context, name string) (r remote.ObjectReader, size int64, err error) {
	err = o.do(ctx, name, func(ctx context.Context) error {
		if o.tables == nil {
			return tine.Errorf(tine.KindUnavailable, "it lies in an object store, and none is configured").
				WithHint("configure the object store that the disk lives in")
		}
		t, err := o.tables.OpenTable(ctx, name)
		if err == nil {
			r, size = &outsideTable{o, name, t}, t.Size()
		}
		return err
	})
	return r, size, err
}

// IsNotExistError is never true: a table that is gone is an error with a kind and a
// hint already, and Pebble would only add that something is corrupt.
func (o *outside) IsNotExistError(error) bool { return false }

func (o *outside) CreateObject(name string) (io.WriteCloser, error) {
	return nil, o.refuse("create", name)
}
func (o *outside) List(prefix, _ string) ([]string, error) { return nil, o.refuse("list", prefix) }
func (o *outside) Delete(name string) error                { return o.refuse("delete", name) }
func (o *outside) Size(name string) (int64, error)         { return 0, o.refuse("size", name) }

func (o *outside) refuse(what, name string) error {
	return tine.Errorf(tine.KindInternal, "%s %q: tables outside of a store are only read", what, name)
}

// outsideTable is an open table.
type outsideTable struct {
	o    *outside
	name string
	t    kv.TableReader
}

func (t *outsideTable) ReadAt(ctx context.Context, p []byte, off int64) error {
	return t.o.do(ctx, t.name, func(ctx context.Context) error { return t.t.ReadAt(ctx, p, off) })
}

func (t *outsideTable) Close() error { return t.t.Close() }
