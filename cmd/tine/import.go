package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/oserr"
)

// importDir creates a disk from a directory and shows how it goes.
func (c *cli) importDir(ctx context.Context, name, dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return oserr.Wrap(err, "find the current directory")
	}
	p := &progress{cli: c, start: time.Now()}
	done, err := c.client().ImportDisk(ctx, name, abs, p.line)
	p.clear()
	if err != nil {
		return err
	}
	return c.print(done, func() {
		c.say("created the disk %s from %s: %s", done.Disk.Name, abs, summary(done.Totals))
	})
}

// progress shows an import's progress on a terminal, on one line that is
// written over, and its notes as lines of their own.
type progress struct {
	cli   *cli
	start time.Time
	shown bool

	mu     sync.Mutex
	queued []api.ImportNote // of another goroutine, for printQueued
}

// queue keeps a note that comes while another goroutine shows progress.
func (p *progress) queue(path, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queued = append(p.queued, api.ImportNote{Path: path, Note: text})
}

func (p *progress) printQueued() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.queued {
		p.line(api.ImportLine{Note: &p.queued[i]})
	}
	p.queued = nil
}

// bytes shows how much has come.
func (p *progress) bytes(n int64) {
	rate := float64(n) / max(time.Since(p.start).Seconds(), 0.001)
	fmt.Fprintf(p.cli.env.stderr, "\r\x1b[K%s, %s/s", size(n), size(int64(rate)))
	p.shown = true
}

func (p *progress) line(l api.ImportLine) {
	if l.Note != nil {
		p.clear()
		fmt.Fprintf(p.cli.env.stderr, "tine: %s: %s\n", l.Note.Path, l.Note.Note)
	}
	if l.Progress != nil && p.cli.env.terminal {
		rate := float64(l.Progress.Bytes) / max(time.Since(p.start).Seconds(), 0.001)
		fmt.Fprintf(p.cli.env.stderr, "\r\x1b[K%s, %s/s", summary(*l.Progress), size(int64(rate)))
		p.shown = true
	}
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.cli.env.stderr, "\r\x1b[K")
		p.shown = false
	}
}

// summary counts what an import has done, leaving out what there was none of.
func summary(t api.ImportProgress) string {
	parts := []string{plural(t.Files, "file")}
	for _, x := range []struct {
		n     int64
		thing string
	}{{t.Directories, "directory"}, {t.Symlinks, "symbolic link"}, {t.HardLinks, "hard link"}, {t.Specials, "special file"}} {
		if x.n > 0 {
			parts = append(parts, plural(x.n, x.thing))
		}
	}
	parts = append(parts, size(t.Bytes))
	if t.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d skipped", t.Skipped))
	}
	if t.Changed > 0 {
		parts = append(parts, fmt.Sprintf("%d changed meanwhile", t.Changed))
	}
	return strings.Join(parts, ", ")
}
