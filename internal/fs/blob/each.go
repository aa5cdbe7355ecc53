package blob

import (
	"context"
	"sync"

	"tine.dev/tine/internal/tine"
)

// EachKey is Driver.Delete for stores that remove one object a request: it
// calls remove for each key, parallel at a time, and returns what failed, in
// the order of the keys. If all failed, or ctx ended, that is one error: the
// store refuses the caller, not a key.
func EachKey(ctx context.Context, keys []Key, parallel int, remove func(ctx context.Context, key Key) error) ([]KeyError, error) {
	if err := Interrupted(ctx, "delete", ""); err != nil {
		return nil, err
	}
	work := make(chan int, len(keys))
	for i := range keys {
		work <- i
	}
	close(work)
	errs := make([]error, len(keys))
	var wg sync.WaitGroup
	for range min(parallel, len(keys)) {
		wg.Go(func() {
			for i := range work {
				errs[i] = remove(ctx, keys[i])
			}
		})
	}
	wg.Wait()
	var failed []KeyError
	for i, err := range errs {
		switch {
		case tine.KindOf(err) == tine.KindInterrupted:
			return nil, err
		case err != nil:
			failed = append(failed, KeyError{Key: keys[i], Err: err})
		}
	}
	if len(keys) > 0 && len(failed) == len(keys) {
		return nil, failed[0].Err
	}
	return failed, nil
}
