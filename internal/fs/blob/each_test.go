package blob_test

import (
	"context"
	"sync/atomic"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

func TestEachKey(t *testing.T) {
	keys := []blob.Key{"a", "b", "c", "d", "e"}
	refusing := func(bad ...blob.Key) func(context.Context, blob.Key) error {
		return func(_ context.Context, k blob.Key) error {
			for _, b := range bad {
				if k == b {
					return tine.Errorf(tine.KindAccess, "no")
				}
			}
			return nil
		}
	}
	for bad, want := range map[string]int{"": 0, "c": 1, "bd": 2} {
		var list []blob.Key
		for _, b := range bad {
			list = append(list, blob.Key(b))
		}
		failed, err := blob.EachKey(t.Context(), keys, 2, refusing(list...))
		if err != nil || len(failed) != want {
			t.Errorf("%q refused: %v, %v", bad, failed, err)
		}
		for i, f := range failed {
			if f.Key != list[i] || tine.KindOf(f.Err) != tine.KindAccess {
				t.Errorf("%q refused: %+v", bad, f)
			}
		}
	}
	if failed, err := blob.EachKey(t.Context(), keys, 2, refusing(keys...)); failed != nil || tine.KindOf(err) != tine.KindAccess {
		t.Errorf("all refused: %v, %v", failed, err)
	}
	if failed, err := blob.EachKey(t.Context(), nil, 2, refusing()); failed != nil || err != nil {
		t.Errorf("no keys: %v, %v", failed, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var calls atomic.Int64
	_, err := blob.EachKey(ctx, keys, 2, func(context.Context, blob.Key) error { calls.Add(1); return nil })
	if tine.KindOf(err) != tine.KindInterrupted || calls.Load() != 0 {
		t.Errorf("cancelled before: %d calls, %v", calls.Load(), err)
	}
}
