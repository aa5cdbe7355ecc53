package api

import (
	"context"
	"net/http"
	"time"
)

// Activity is what the server has done so far, in counts that only grow; two
// answers make a rate.
type Activity struct {
	Time       time.Time       `json:"time"`
	Run        string          `json:"run" doc:"Names this run of the server; counts of two runs have nothing to do with each other"`
	Disks      []DiskActivity  `json:"disks" nullable:"false" doc:"Those that are in use"`
	Total      OpCounts        `json:"total" doc:"Over all disks since the server started"`
	Commits    CommitCounts    `json:"commits"`
	Background BackgroundState `json:"background"`
	Mounts     int             `json:"mounts"`
	Bounds     []int64         `json:"bounds_nanoseconds" nullable:"false" doc:"Where the buckets of the latencies end; the last bucket has no end"`
}

// DiskActivity are the counts of one disk in use.
type DiskActivity struct {
	Disk     string   `json:"disk"`
	ID       string   `json:"id"`
	Sessions int      `json:"sessions"`
	Mounts   []string `json:"mounts" nullable:"false"`
	Dirty    int64    `json:"dirty_bytes" doc:"Written and not yet durable"`
	Backlog  *uint64  `json:"store_backlog_commits,omitempty" doc:"Commits that the disk's store does not have yet; absent for a disk without a store"`
	Counts   OpCounts `json:"counts" doc:"Since the disk was last taken into use"`
}

// OpCounts counts file operations.
type OpCounts struct {
	Ops          map[string]uint64 `json:"ops" doc:"By kind"`
	Latencies    []uint64          `json:"latencies" nullable:"false" doc:"How many took how long, in the buckets of bounds_nanoseconds; those that make something durable are not in it"`
	Fsyncs       []uint64          `json:"fsyncs" nullable:"false" doc:"The same of those that make something durable"`
	ReadBytes    uint64            `json:"read_bytes"`
	WrittenBytes uint64            `json:"written_bytes"`
}

// CommitCounts counts the batches that reached the row store.
type CommitCounts struct {
	Count     uint64   `json:"count"`
	Bytes     uint64   `json:"bytes"`
	Failed    uint64   `json:"failed"`
	Latencies []uint64 `json:"latencies" nullable:"false" doc:"Of those that wait for a flush of the device"`
}

// BackgroundState is what the engine holds and what waits for it.
type BackgroundState struct {
	DirtyBytes   int64 `json:"dirty_bytes" doc:"Written and not yet durable"`
	Layers       int   `json:"layers" doc:"Sealed commits that are not yet durable"`
	Tasks        int   `json:"tasks" doc:"Things to free"`
	Lines        int   `json:"lines"`
	Strata       int   `json:"strata"`
	Segments     int   `json:"segments"`
	SegmentBytes int64 `json:"segment_bytes"`
	RowBytes     int64 `json:"row_bytes"`
}

// Activity returns what the server has done so far.
func (c *Client) Activity(ctx context.Context) (Activity, error) {
	return call[Activity](ctx, c, http.MethodGet, nil, nil, "activity")
}
