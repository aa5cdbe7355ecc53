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
	"tine.dev/tine/internal/tine"
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
		return c.whatIsLeft(ctx, err, name, false, p)
	}
	return c.print(done, func() {
		c.say("created the disk %s from %s: %s", done.Disk.Name, abs, summary(done.Totals))
	})
}

// whatIsLeft says of an import that the user has interrupted what it has left
// behind. The request is gone with its answer, so the server is asked: it may have
// been done already, and what is done is not undone.
func (c *cli) whatIsLeft(ctx context.Context, err error, disk string, existed bool, p *progress) error {
	if ctx.Err() == nil {
		return err
	}
	interrupted := tine.Errorf(tine.KindInterrupted, "interrupted")
	switch {
	case existed && p.checkpoint != "":
		return interrupted.WithHint("what was unpacked stays; `tine rollback %s %s` takes it back", disk, p.checkpoint)
	case existed:
		return interrupted.WithHint("what was unpacked stays in the disk %s", disk)
	}
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for tries := 0; ; tries++ {
		_, derr := c.client().Disk(ask, disk)
		switch {
		case derr == nil:
			return interrupted.WithHint("that was too late: the disk %s is complete; `tine disk rm %s` removes it", disk, disk)
		case !kindIs(derr, tine.KindNotFound):
			return interrupted.WithHint("`tine disk show %s` says whether it was too late: then the disk is complete, else there is none", disk)
		case tries == 2:
			return interrupted.WithHint("no disk %s is left", disk)
		}
		time.Sleep(150 * time.Millisecond) // the server may be about to give the disk its name
	}
}

// progress shows an import's progress on a terminal, on one line that is
// written over, and its notes as lines of their own.
type progress struct {
	cli   *cli
	start time.Time
	shown bool
	// checkpoint is what the disk was before, once the server has told.
	checkpoint string

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
	if l.Checkpoint != "" {
		p.checkpoint = l.Checkpoint
	}
	if l.Note != nil {
		p.clear()
		fmt.Fprintf(p.cli.env.stderr, "tine: %s: %s\n", printable(l.Note.Path), printable(l.Note.Note))
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
