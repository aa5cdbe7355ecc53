package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// report is what a run has found, as -json keeps it.
type report struct {
	Date     time.Time `json:"date"`
	Revision string    `json:"revision,omitempty"`
	Machine  machine   `json:"machine"`
	Quick    bool      `json:"quick"`
	Rounds   int       `json:"rounds"`
	PeakMiB  int64     `json:"server_peak_mib"` // resident memory
	Results  []*result `json:"results"`
}

type machine struct {
	CPUs       int    `json:"cpus"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"native_file_system"`
	Go         string `json:"go"`
}

// result is one case's.
type result struct {
	Name    string               `json:"name"`
	What    string               `json:"what"`
	Unit    string               `json:"unit"`
	Skipped string               `json:"skipped,omitempty"` // why
	Samples map[string][]float64 `json:"samples,omitempty"` // by place, one a round
}

func (b *bench) newReport() *report {
	r := &report{Date: time.Now().UTC().Truncate(time.Second), Quick: b.quick, Rounds: b.size.rounds,
		Machine: machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), FileSystem: fileSystem(b.work)}}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Machine.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if rev, err := output(context.Background(), b.module, "git", "describe", "--always", "--dirty"); err == nil {
		r.Revision = rev
	}
	return r
}

// fileSystem names the file system of a directory, by its number if it is not
// a usual one.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", 0x2fc12fc1: "zfs"}
	if n, ok := names[st.Type]; ok {
		return n
	}
	return fmt.Sprintf("file system %#x", st.Type)
}

func readReport(file string) (*report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func (r *report) write(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// median returns the middle of the samples, NaN if there are none.
func median(samples []float64) float64 {
	n := len(samples)
	if n == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	return (s[(n-1)/2] + s[n/2]) / 2
}

// spread is how far the samples lie apart, relative to their median.
func spread(samples []float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	return (slices.Max(samples) - slices.Min(samples)) / median(samples)
}

// speed returns how many times as fast tine was as another place: the median
// over the rounds. NaN if they were not both measured.
func (r *result) speed(than string) float64 {
	mine, other := r.Samples[onTine], r.Samples[than]
	var ratios []float64
	for i := range min(len(mine), len(other)) {
		if moreIsBetter(r.Unit) {
			ratios = append(ratios, mine[i]/other[i])
		} else {
			ratios = append(ratios, other[i]/mine[i])
		}
	}
	return median(ratios)
}

// number shows a result with three digits that mean something.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func percent(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", v*100)
}

func (r *report) print(w io.Writer, spec bool) error {
	if spec {
		return r.printSpec(w)
	}
	return r.printTable(w)
}

func (r *report) head() string {
	kind := fmt.Sprintf("%d rounds", r.Rounds)
	if r.Quick {
		kind = "quick, " + kind
	}
	return fmt.Sprintf("%s, revision %s; %d CPUs, Linux %s, %s, %s; %s", r.Date.Format(time.DateOnly), r.Revision,
		r.Machine.CPUs, r.Machine.Kernel, r.Machine.FileSystem, r.Machine.Go, kind)
}

func (r *report) printTable(out io.Writer) error {
	fmt.Fprintln(out, r.head())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CASE\tUNIT\tNATIVE\tTINE\tMEMFS\tOF NATIVE\tOF MEMFS\tSPREAD\tWHAT")
	for _, x := range r.Results {
		if x.Skipped != "" {
			fmt.Fprintf(w, "%s\t%s\tskipped: %s\n", x.Name, x.Unit, x.Skipped)
			continue
		}
		s := x.Samples
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Name, x.Unit, number(median(s[native])), number(median(s[onTine])),
			number(median(s[memfs])), number(x.speed(native)), number(x.speed(memfs)), percent(spread(s[onTine])), x.What)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "OF NATIVE and OF MEMFS: how many times as fast tine is. SPREAD: between tine's rounds.\n"+
		"The server's peak memory: %d MiB. Cold names: dropped from the kernel, not from the server's row cache.\n", r.PeakMiB)
	return err
}

// printSpec prints the table for the specification: what was measured, and
// the command that does it again.
func (r *report) printSpec(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured by `go run ./bench`: %s. Medians; the ratios (how many times as fast) are medians of the rounds' ratios.\n\n", r.head())
	b.WriteString("| case | what | unit | native | tine | memfs | of native | of memfs |\n|---|---|---|--:|--:|--:|--:|--:|\n")
	for _, x := range r.Results {
		if x.Skipped != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | | skipped: %s | | | |\n", x.Name, x.What, x.Unit, x.Skipped)
			continue
		}
		s := x.Samples
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", x.Name, x.What, x.Unit, number(median(s[native])),
			number(median(s[onTine])), number(median(s[memfs])), number(x.speed(native)), number(x.speed(memfs)))
	}
	fmt.Fprintf(&b, "\nPeak memory of the server over the run: %d MiB.\n", r.PeakMiB)
	_, err := io.WriteString(w, b.String())
	return err
}
