package depot_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/blobtest"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/fs/depot"
	"tine.dev/tine/internal/fs/journal"
	"tine.dev/tine/internal/tine"
)

// TestServersLetEachOtherLive: a tree is not taken from a server that was heard
// of, and is from one that has stopped, or is silent for longer than the lease
// by the store's clock.
func TestServersLetEachOtherLive(t *testing.T) {
	for name, tc := range map[string]struct {
		silent time.Duration
		stops  bool
		free   bool
	}{
		"just heard of":     {silent: 0},
		"heard of":          {silent: depot.LeaseTime - time.Second},
		"silent":            {silent: depot.LeaseTime + time.Second, free: true},
		"stopped":           {stops: true, free: true},
		"clock goes back":   {silent: -time.Hour},
		"silent for a year": {silent: 365 * 24 * time.Hour, free: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := blobtest.NewClock(time.Unix(1e9, 0))
			store := blob.NewStore(mem.New(mem.Options{Now: clock.Now}), blob.Options{})
			server := func(n byte) *depot.Depot {
				d := depot.New(depot.Options{Blob: store, Server: tine.ServerID{n}, Host: "host" + string('0'+n), Codec: journal.NewCodec(),
					Logger: slog.New(slog.DiscardHandler), Delay: -1, Lost: func(tine.TreeID, error) {}})
				if err := d.Open(ctx); err != nil {
					t.Fatal(err)
				}
				return d
			}
			w := newWorld(t, 1, store, store, false)
			w.sync()
			w.tree.Close()
			first := server(1)
			tree, err := first.Claim(ctx, newRows(t, store), treeID, w)
			if err != nil {
				t.Fatal(err) // its maker never said that it lives
			}
			tree.Close()
			if tc.stops {
				first.Close()
			} else {
				defer first.Close()
			}
			clock.Pass(tc.silent)
			second := server(2)
			defer second.Close()
			got, err := second.Claim(ctx, newRows(t, store), treeID, w)
			switch {
			case tc.free && err != nil:
				t.Errorf("it cannot be had: %v", err)
			case tc.free:
				got.Close()
			case tine.KindOf(err) != tine.KindBusy || !strings.Contains(err.Error(), "host1"):
				t.Errorf("it is taken from a server that lives: %v", err)
			}
		})
	}
}
