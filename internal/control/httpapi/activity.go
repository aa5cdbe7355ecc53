package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/fs/volume"
)

func (c *calls) registerActivity(h huma.API) {
	handle(h, c, call{id: "getActivity", method: http.MethodGet, path: "/activity", tag: tagServer, summary: "What the server has done so far, in counts",
		description: "For `tine top` and the like: two answers make a rate. Prometheus reads /metrics."}, c.activity)
}

func (c *calls) activity(ctx context.Context, in *By) (*body[api.Activity], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	live, sum := c.Host.Activity()
	commits, stats := c.Host.Commits(), c.Host.Stats()
	out := api.Activity{
		Time: time.Now(), Run: c.Events.Run(), Disks: make([]api.DiskActivity, 0, len(live)), Total: opCounts(&sum),
		Commits: api.CommitCounts{Count: commits.Synced.Count() + commits.Unsynced.Count(), Bytes: commits.Bytes, Failed: commits.Failed,
			Latencies: slices.Clone(commits.Synced.Buckets[:])},
		Background: api.BackgroundState{DirtyBytes: stats.DirtyBytes, Layers: stats.Layers, Tasks: stats.PendingTasks, Lines: stats.Lines,
			Strata: stats.Strata, Segments: stats.Segments, SegmentBytes: stats.SegmentBytes, RowBytes: stats.RowBytes},
		Bounds: bounds(),
	}
	for _, m := range c.Keeper.List() {
		if m.State == keeper.StateMounted {
			out.Mounts++
		}
	}
	for i := range live {
		d, err := c.Host.DiskByID(ctx, who, live[i].ID)
		if err != nil {
			continue // removed meanwhile
		}
		a := api.DiskActivity{Disk: d.Name, ID: d.ID.String(), Sessions: live[i].Sessions, Mounts: c.Keeper.On(d.Name),
			Dirty: d.Dirty, Counts: opCounts(&live[i].OpFigures)}
		if d.Store != nil {
			a.Backlog = &d.Store.Backlog
		}
		out.Disks = append(out.Disks, a)
	}
	slices.SortFunc(out.Disks, func(a, b api.DiskActivity) int { return cmp.Compare(a.Disk, b.Disk) })
	return answer(out, nil)
}

func bounds() []int64 {
	var bs []int64
	for b := range volume.NumBuckets - 1 {
		bs = append(bs, int64(volume.BucketEnd(b)))
	}
	return bs
}

// opCounts leaves out the kinds that did not occur.
func opCounts(f *volume.OpFigures) api.OpCounts {
	out := api.OpCounts{Ops: map[string]uint64{}, ReadBytes: f.ReadBytes, WrittenBytes: f.WrittenBytes}
	var other volume.Histogram
	for op := range f.Ops {
		h := &f.Ops[op]
		if n := h.Count(); n > 0 {
			out.Ops[volume.Op(op).String()] = n
		}
		if volume.Op(op) != volume.OpFsync {
			other.Add(h)
		}
	}
	out.Latencies = other.Buckets[:]
	out.Fsyncs = slices.Clone(f.Ops[volume.OpFsync].Buckets[:])
	return out
}
