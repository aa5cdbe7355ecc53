package mixed

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sample is what the server takes up at one moment.
type sample struct {
	memory      float64 // resident, bytes
	descriptors float64 // but for those of segments
	segments    float64 // descriptors of segment files: a cache, which fills
	goroutines  float64
	live        float64 // bytes of data that something names, and of rows
	space       float64 // bytes on the device of the whole data directory
}

// watch takes a sample of the running server.
func (w *world) watch(ctx context.Context) (sample, error) {
	var s sample
	server, err := w.api.Server(ctx)
	if err != nil {
		return s, err
	}
	figures, err := w.metrics(ctx)
	if err != nil {
		return s, err
	}
	proc := fmt.Sprintf("/proc/%d", server.PID)
	if s.descriptors, s.segments, err = descriptors(proc + "/fd"); err != nil {
		return s, err
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return s, err
			}
			s.memory = kib * 1024
		}
	}
	s.goroutines = figures["go_goroutines"]
	s.live = figures["tine_live_bytes"] + figures["tine_rows_disk_bytes"]
	s.space = spaceOf(w.rig.Data())
	if s.memory == 0 || s.goroutines == 0 || s.space == 0 {
		err = fmt.Errorf("a sample says %+v", s)
	}
	return s, err
}

// descriptors counts those of a process, those of segment files apart. What is
// closed meanwhile does not count.
func descriptors(dir string) (others, segments float64, err error) {
	fds, err := os.ReadDir(dir)
	for _, fd := range fds {
		switch name, err := os.Readlink(filepath.Join(dir, fd.Name())); {
		case err != nil:
		case strings.Contains(name, "/segments/"):
			segments++
		default:
			others++
		}
	}
	return others, segments, err
}

// metrics returns the figures without labels that the server shows.
func (w *world) metrics(ctx context.Context) (map[string]float64, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.rig.Dir(), "tine.sock"))
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://tine/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	figures := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			figures[name] = v
		}
	}
	return figures, lines.Err()
}

// spaceOf is what a directory takes on the device. Files that go meanwhile do
// not count.
func spaceOf(dir string) (bytes float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += float64(st.Blocks) * 512
			}
		}
		return nil
	})
	return bytes
}

// growth is by how much a figure may differ between the second fifth of a run
// and its last: a factor, and something that does not matter.
type growth struct {
	what   string
	of     func(sample) float64
	factor float64
	plus   float64
}

// growths are the bounds. A short run still warms up when its second fifth
// ends: what does not matter is then more.
func growths(short bool) []growth {
	memory, count, space := float64(32<<20), 16.0, float64(64<<20)
	if short {
		memory, count, space = 160<<20, 100, 256<<20
	}
	return []growth{
		{"resident memory", func(s sample) float64 { return s.memory }, 1.25, memory},
		{"descriptors", func(s sample) float64 { return s.descriptors }, 1.25, count},
		{"goroutines", func(s sample) float64 { return s.goroutines }, 1.25, count},
		{"space beyond what is live", func(s sample) float64 { return s.space - s.live }, 1.25, space},
	}
}

// median of a figure over some samples.
func median(samples []sample, of func(sample) float64) float64 {
	var figures []float64
	for _, s := range samples {
		figures = append(figures, of(s))
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// mostSegments is how many segment files the server keeps open at most: 512 that
// it has read, and those that are written or read now.
const mostSegments = 512 + 64

// grown returns one line for each figure: what it was and became, and whether
// that is more than it may.
func grown(samples []sample, bounds []growth) (lines []string, bad int) {
	fifth := len(samples) / 5
	if fifth == 0 {
		return []string{fmt.Sprintf("%d samples are too few", len(samples))}, 1
	}
	for _, g := range bounds {
		before := median(samples[fifth:2*fifth], g.of)
		after := median(samples[len(samples)-fifth:], g.of)
		line := fmt.Sprintf("%s: median of the second fifth %.0f, of the last %.0f", g.what, before, after)
		if limit := before*g.factor + g.plus; after > limit {
			bad++
			line += fmt.Sprintf("; at most %.0f", limit)
		}
		lines = append(lines, line)
	}
	most := slices.MaxFunc(samples, func(a, b sample) int { return cmp.Compare(a.segments, b.segments) }).segments
	line := fmt.Sprintf("open segment files: %.0f at most", most)
	if most > mostSegments {
		bad++
		line += fmt.Sprintf("; at most %d", mostSegments)
	}
	return append(lines, line), bad
}

// flat fails the test if the server takes up more and more.
func (w *world) flat(samples []sample) {
	w.t.Helper()
	lines, bad := grown(samples, growths(w.length < 10*time.Minute))
	for _, line := range lines {
		w.t.Log(line)
	}
	if bad > 0 {
		w.t.Errorf("%d of these figures have grown too much, over %d samples: %+v", bad, len(samples), samples)
	}
}

// TestGrowthIsSeen gives a leak of each kind, and none.
func TestGrowthIsSeen(t *testing.T) {
	steady := sample{memory: 200 << 20, descriptors: 90, goroutines: 70, live: 1 << 30, space: 1<<30 + 100<<20}
	for what, leak := range map[string]sample{
		"":                          {},
		"resident memory":           {memory: 2 << 20},
		"descriptors":               {descriptors: 1},
		"open segment files":        {segments: 6},
		"goroutines":                {goroutines: 1},
		"space beyond what is live": {space: 3 << 20},
	} {
		var samples []sample
		for i := range 100 {
			s, n := steady, float64(i)
			s.memory += n * leak.memory
			s.descriptors += n * leak.descriptors
			s.goroutines += n * leak.goroutines
			s.segments += 100 + n*leak.segments
			s.space += n * leak.space
			s.live += n * (10 << 20) // growing data is no leak
			s.space += n * (10 << 20)
			samples = append(samples, s)
		}
		lines, bad := grown(samples, growths(false))
		if want := min(1, len(what)); bad != want {
			t.Errorf("%q: %d figures are said to grow: %q", what, bad, lines)
		}
	}
	if _, bad := grown(make([]sample, 4), growths(false)); bad == 0 {
		t.Error("four samples are enough")
	}
}
