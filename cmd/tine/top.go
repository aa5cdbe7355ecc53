package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

func (c *cli) topCommand() *cobra.Command {
	var once bool
	var every string
	cmd := &cobra.Command{
		Use: "top", Short: "Show what the disks in use are doing",
		Long: "Show the disks in use, second by second: file operations, bytes read and written, how long half of\n" +
			"the operations took at most (p50) and all but one in a hundred (p99), the same of fsync, and what is\n" +
			"written and not yet durable; of disks in a store, how many commits the store does not have yet (to store).\n" +
			"With --json one object a second.",
		Example: "  tine top\n  tine top --once\n  tine top --once --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := parseSpan(every)
			if err != nil || d == 0 {
				return &usageError{cmd.CommandPath(), "--every: " + every + " is not a time such as 1s"}
			}
			return c.top(cmd.Context(), once, d)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "show one second and end")
	cmd.Flags().StringVar(&every, "every", "1s", "the time from one look to the next")
	return cmd
}

// load is what happened between two looks.
type load struct {
	Time       time.Time           `json:"time"`
	Seconds    float64             `json:"seconds"`
	Disks      []diskLoad          `json:"disks"`
	Total      diskLoad            `json:"total"`
	Commits    float64             `json:"commits_per_second"`
	CommitP99  float64             `json:"commit_p99_ms"`
	Background api.BackgroundState `json:"background"`
	Mounts     int                 `json:"mounts"`
}

// diskLoad is the same of one disk. Times are milliseconds.
type diskLoad struct {
	Disk     string             `json:"disk,omitempty"`
	Mounts   []string           `json:"mounts,omitempty"`
	Sessions int                `json:"sessions,omitempty"`
	Ops      float64            `json:"ops_per_second"`
	Kinds    map[string]float64 `json:"kinds_per_second"`
	Read     float64            `json:"read_bytes_per_second"`
	Written  float64            `json:"written_bytes_per_second"`
	P50      float64            `json:"p50_ms"`
	P99      float64            `json:"p99_ms"`
	Fsync50  float64            `json:"fsync_p50_ms"`
	Fsync99  float64            `json:"fsync_p99_ms"`
	Dirty    int64              `json:"dirty_bytes"`
	Backlog  *uint64            `json:"store_backlog_commits,omitempty"`
}

func (c *cli) top(ctx context.Context, once bool, every time.Duration) error {
	client := c.client()
	last, err := client.Activity(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if once {
				return tine.Errorf(tine.KindInterrupted, "interrupted")
			}
			return nil // the way to end it
		case <-tick.C:
		}
		now, err := client.Activity(ctx)
		if err != nil {
			if ctx.Err() != nil && !once {
				return nil
			}
			return err
		}
		l := between(last, now)
		last = now
		if err := c.showLoad(l, once); err != nil || once {
			return err
		}
	}
}

// showLoad prints one look. A terminal that can is cleared before, others get
// one after the other.
func (c *cli) showLoad(l load, once bool) error {
	var b strings.Builder
	if c.json {
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if once {
			enc.SetIndent("", "  ")
		}
		if err := enc.Encode(l); err != nil {
			return tine.Errorf(tine.KindInternal, "encode the result: %w", err)
		}
	} else {
		lines := 0
		if !once && c.env.screen != nil {
			lines = c.env.screen()
		}
		text := topText(l)
		if lines > 0 {
			b.WriteString("\x1b[H\x1b[2J") // home, clear
			text = cut(text, lines-1)
		}
		b.WriteString(text)
		if lines == 0 && !once {
			b.WriteString("\n")
		}
	}
	_, err := fmt.Fprint(c.env.stdout, b.String())
	return writing(err)
}

// cut keeps the first lines of a text.
func cut(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[:min(len(all), max(lines, 1))], "")
}

func topText(l load) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s in use, %s; %.0f op/s, read %s/s, written %s/s\n", l.Time.Local().Format(time.TimeOnly), plural(int64(len(l.Disks)), "disk"),
		plural(int64(l.Mounts), "mount"), l.Total.Ops, size(int64(l.Total.Read)), size(int64(l.Total.Written)))
	fmt.Fprintf(&b, "commits %.0f/s, p99 %s ms; not yet durable %s in %s; to do: %s\n\n", l.Commits, ms(l.CommitP99),
		size(l.Background.DirtyBytes), plural(int64(l.Background.Layers), "sealed commit"), plural(int64(l.Background.Tasks), "task"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "OP/S\tREAD/S\tWRITTEN/S\tP50 MS\tP99 MS\tFSYNC P50\tP99\tDIRTY\tTO STORE\t  DISK")
	for _, d := range l.Disks {
		where := strings.Join(d.Mounts, ", ")
		if where == "" {
			where = plural(int64(d.Sessions), "session")
		}
		behind := "-"
		if d.Backlog != nil {
			behind = strconv.FormatUint(*d.Backlog, 10)
		}
		fmt.Fprintf(w, "%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s (%s)\n", d.Ops, size(int64(d.Read)), size(int64(d.Written)), ms(d.P50), ms(d.P99),
			ms(d.Fsync50), ms(d.Fsync99), size(d.Dirty), behind, d.Disk, printable(where))
	}
	_ = w.Flush()
	return b.String()
}

func ms(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g", v)
}

// between makes rates of two looks.
func between(a, b api.Activity) load {
	seconds := max(b.Time.Sub(a.Time).Seconds(), 1e-3)
	old := map[string]api.OpCounts{}
	if a.Run == b.Run {
		for _, d := range a.Disks {
			old[d.ID] = d.Counts
		}
	} else {
		a.Total, a.Commits = api.OpCounts{}, api.CommitCounts{} // another run of the server
	}
	l := load{Time: b.Time, Seconds: seconds, Disks: []diskLoad{}, Background: b.Background, Mounts: b.Mounts}
	for _, d := range b.Disks {
		x := rates(old[d.ID], d.Counts, b.Bounds, seconds)
		x.Disk, x.Mounts, x.Sessions, x.Dirty, x.Backlog = d.Disk, d.Mounts, d.Sessions, d.Dirty, d.Backlog
		l.Disks = append(l.Disks, x)
	}
	slices.SortStableFunc(l.Disks, func(x, y diskLoad) int { return cmp.Or(cmp.Compare(y.Ops, x.Ops), cmp.Compare(x.Disk, y.Disk)) })
	l.Total = rates(a.Total, b.Total, b.Bounds, seconds)
	l.Total.Dirty = b.Background.DirtyBytes
	l.Commits = float64(b.Commits.Count-min(a.Commits.Count, b.Commits.Count)) / seconds
	l.CommitP99 = quantile(minus(b.Commits.Latencies, a.Commits.Latencies), b.Bounds, 0.99)
	return l
}

// rates makes rates of two counts of one disk. Counts that have gone back
// belong to a disk that was let go of and taken again: it starts anew.
func rates(a, b api.OpCounts, bounds []int64, seconds float64) diskLoad {
	for kind, n := range a.Ops {
		if b.Ops[kind] < n {
			a = api.OpCounts{}
			break
		}
	}
	x := diskLoad{Kinds: map[string]float64{}, Read: float64(b.ReadBytes-min(a.ReadBytes, b.ReadBytes)) / seconds,
		Written: float64(b.WrittenBytes-min(a.WrittenBytes, b.WrittenBytes)) / seconds}
	for kind, n := range b.Ops {
		if rate := float64(n-a.Ops[kind]) / seconds; rate > 0 {
			x.Kinds[kind] = rate
			x.Ops += rate
		}
	}
	all, fsyncs := minus(b.Latencies, a.Latencies), minus(b.Fsyncs, a.Fsyncs)
	x.P50, x.P99 = quantile(all, bounds, 0.5), quantile(all, bounds, 0.99)
	x.Fsync50, x.Fsync99 = quantile(fsyncs, bounds, 0.5), quantile(fsyncs, bounds, 0.99)
	return x
}

func minus(a, b []uint64) []uint64 {
	out := slices.Clone(a)
	for i := range min(len(a), len(b)) {
		out[i] -= min(out[i], b[i])
	}
	return out
}

// quantile reads a quantile, in milliseconds, from counts in buckets, as if
// each were spread evenly in its bucket; 0 if there are none.
func quantile(counts []uint64, bounds []int64, q float64) float64 {
	var sum uint64
	for _, n := range counts {
		sum += n
	}
	if sum == 0 || len(bounds) == 0 {
		return 0
	}
	rank, seen := q*float64(sum), 0.0
	for i, n := range counts {
		if n > 0 && seen+float64(n) >= rank {
			var from int64
			if i > 0 {
				from = bounds[min(i, len(bounds))-1]
			}
			to := bounds[min(i, len(bounds)-1)]
			return (float64(from) + float64(max(to-from, 0))*(rank-seen)/float64(n)) / 1e6
		}
		seen += float64(n)
	}
	return float64(bounds[len(bounds)-1]) / 1e6
}
