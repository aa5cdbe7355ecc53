package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tine.dev/tine/internal/fs/volume"
)

// Source is where the figures of the disks come from; volume.Host is it.
type Source interface {
	Activity() ([]volume.DiskActivity, volume.OpFigures)
	Commits() volume.CommitFigures
	Stats() volume.HostStats
	Rows() volume.RowFigures
	Backlogs() []volume.TreeBacklog
}

// disks collects the figures of the disks at a scrape.
type disks struct {
	source Source
	mounts func() map[string]int // by state
	ops    *prometheus.Desc
	synced *prometheus.Desc
	states *prometheus.Desc
	behind *prometheus.Desc
	values []value
}

// value is a figure without labels.
type value struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*snapshot) float64
}

// snapshot is what one scrape shows.
type snapshot struct {
	live    []volume.DiskActivity
	sum     volume.OpFigures
	commits volume.CommitFigures
	stats   volume.HostStats
	rows    volume.RowFigures
}

func newDisks(source Source, mounts func() map[string]int) *disks {
	d := &disks{source: source, mounts: mounts,
		ops:    prometheus.NewDesc("tine_file_operation_duration_seconds", "File operations by kind.", []string{"op"}, nil),
		synced: prometheus.NewDesc("tine_commit_duration_seconds", "Commits to the row store that wait for a flush of the device.", nil, nil),
		states: prometheus.NewDesc("tine_mounts", "Recorded mounts by state.", []string{"state"}, nil),
		behind: prometheus.NewDesc("tine_store_backlog_commits", "Commits that the store of a tree does not have yet; the disk is the oldest of the tree.", []string{"disk"}, nil),
	}
	counter := func(name, help string, of func(*snapshot) float64) {
		d.values = append(d.values, value{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of})
	}
	gauge := func(name, help string, of func(*snapshot) float64) {
		d.values = append(d.values, value{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of})
	}
	d.describeFiles(counter, gauge)
	d.describeEngine(counter, gauge)
	d.describeRows(counter, gauge)
	return d
}

type define func(name, help string, of func(*snapshot) float64)

func (d *disks) describeFiles(counter, gauge define) {
	counter("tine_read_bytes_total", "Bytes that file operations have read.", func(s *snapshot) float64 { return float64(s.sum.ReadBytes) })
	counter("tine_written_bytes_total", "Bytes that file operations have written.", func(s *snapshot) float64 { return float64(s.sum.WrittenBytes) })
	gauge("tine_sessions", "Attachments of clients to disks.", func(s *snapshot) float64 {
		n := 0
		for i := range s.live {
			n += s.live[i].Sessions
		}
		return float64(n)
	})
	gauge("tine_disks_in_use", "Disks that have a session.", func(s *snapshot) float64 { return float64(len(s.live)) })
	counter("tine_commit_bytes_total", "Bytes of rows committed to the row store.", func(s *snapshot) float64 { return float64(s.commits.Bytes) })
	counter("tine_commits_unsynced_total", "Commits that became durable with a later one.", func(s *snapshot) float64 { return float64(s.commits.Unsynced.Count()) })
	counter("tine_commits_failed_total", "Commits that failed, each try counted.", func(s *snapshot) float64 { return float64(s.commits.Failed) })
}

func (d *disks) describeEngine(_, gauge define) {
	gauge("tine_dirty_bytes", "Bytes written and not yet durable.", func(s *snapshot) float64 { return float64(s.stats.DirtyBytes) })
	gauge("tine_layers_waiting", "Sealed commits that are not yet durable.", func(s *snapshot) float64 { return float64(s.stats.Layers) })
	gauge("tine_janitor_tasks", "Things that wait to be freed.", func(s *snapshot) float64 { return float64(s.stats.PendingTasks) })
	gauge("tine_trees", "Trees of forks.", func(s *snapshot) float64 { return float64(s.stats.Trees) })
	gauge("tine_disks", "Disks, those in the trash included.", func(s *snapshot) float64 { return float64(s.stats.Disks) })
	gauge("tine_lines", "Lines of writes: heads, and what forks and checkpoints still hold.", func(s *snapshot) float64 { return float64(s.stats.Lines) })
	gauge("tine_strata", "Runs of rows; many more than lines means that folding is behind.", func(s *snapshot) float64 { return float64(s.stats.Strata) })
	gauge("tine_checkpoints", "Checkpoints.", func(s *snapshot) float64 { return float64(s.stats.Checkpoints) })
	gauge("tine_segments", "Files of data.", func(s *snapshot) float64 { return float64(s.stats.Segments) })
	gauge("tine_segment_bytes", "Bytes of the files of data.", func(s *snapshot) float64 { return float64(s.stats.SegmentBytes) })
	gauge("tine_live_bytes", "Bytes in them that are still named.", func(s *snapshot) float64 { return float64(s.stats.LiveBytes) })
}

func (d *disks) describeRows(counter, gauge define) {
	gauge("tine_rows_disk_bytes", "Bytes of the row store's files.", func(s *snapshot) float64 { return float64(s.rows.DiskBytes) })
	gauge("tine_rows_memory_bytes", "Bytes of its tables and blocks in memory.", func(s *snapshot) float64 { return float64(s.rows.MemoryBytes) })
	gauge("tine_rows_tables", "Its table files.", func(s *snapshot) float64 { return float64(s.rows.Tables) })
	gauge("tine_rows_log_bytes", "Bytes of its write-ahead log.", func(s *snapshot) float64 { return float64(s.rows.LogBytes) })
	gauge("tine_rows_compactions", "Compactions under way.", func(s *snapshot) float64 { return float64(s.rows.Compactions) })
	gauge("tine_rows_compaction_debt_bytes", "Bytes that compactions have still to rewrite, estimated.", func(s *snapshot) float64 { return float64(s.rows.Debt) })
	counter("tine_rows_compactions_total", "Compactions.", func(s *snapshot) float64 { return float64(s.rows.Compacted) })
	counter("tine_rows_flushes_total", "Flushes of tables in memory.", func(s *snapshot) float64 { return float64(s.rows.Flushes) })
	gauge("tine_rows_cache_bytes", "Bytes of cached blocks.", func(s *snapshot) float64 { return float64(s.rows.CacheBytes) })
	counter("tine_rows_cache_hits_total", "Blocks found in the cache.", func(s *snapshot) float64 { return float64(s.rows.CacheHits) })
	counter("tine_rows_cache_misses_total", "Blocks read from files.", func(s *snapshot) float64 { return float64(s.rows.CacheMisses) })
}

// Describe implements prometheus.Collector.
func (d *disks) Describe(to chan<- *prometheus.Desc) {
	to <- d.ops
	to <- d.synced
	to <- d.states
	to <- d.behind
	for _, v := range d.values {
		to <- v.desc
	}
}

// Collect implements prometheus.Collector.
func (d *disks) Collect(to chan<- prometheus.Metric) {
	s := &snapshot{commits: d.source.Commits(), stats: d.source.Stats(), rows: d.source.Rows()}
	s.live, s.sum = d.source.Activity()
	for op := range s.sum.Ops {
		to <- histogram(d.ops, &s.sum.Ops[op], volume.Op(op).String())
	}
	to <- histogram(d.synced, &s.commits.Synced)
	for state, n := range d.mounts() {
		to <- prometheus.MustNewConstMetric(d.states, prometheus.GaugeValue, float64(n), state)
	}
	for _, b := range d.source.Backlogs() {
		to <- prometheus.MustNewConstMetric(d.behind, prometheus.GaugeValue, float64(b.Commits), b.Disk)
	}
	for _, v := range d.values {
		to <- prometheus.MustNewConstMetric(v.desc, v.kind, v.of(s))
	}
}

// histogram shows every second bucket, the doublings: half as many series say
// as much to a dashboard.
func histogram(desc *prometheus.Desc, h *volume.Histogram, labels ...string) prometheus.Metric {
	buckets := map[float64]uint64{}
	var sum uint64
	for b, n := range h.Buckets {
		sum += n
		if end := volume.BucketEnd(b); end > 0 && b%2 == 0 {
			buckets[end.Seconds()] = sum
		}
	}
	return prometheus.MustNewConstHistogram(desc, sum, time.Duration(h.Nanos).Seconds(), buckets, labels...)
}
