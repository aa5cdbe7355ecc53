package importer

import (
	"sync"
	"time"

	"tine.dev/tine/api"
)

// maxNotes bounds how many notes one import reports one by one; the counts go
// on.
const maxNotes = 1000

// reporter hands on progress and notes, one at a time.
type reporter struct {
	counts *counts

	mu     sync.Mutex
	report func(api.ImportLine)
	notes  int
}

func (r *reporter) note(path, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes++
	switch {
	case r.notes < maxNotes:
		r.report(api.ImportLine{Note: &api.ImportNote{Path: path, Note: text}})
	case r.notes == maxNotes:
		r.report(api.ImportLine{Note: &api.ImportNote{Path: path, Note: text + " (further notes are only counted)"}})
	}
}

// tick reports progress until stop is closed.
func (r *reporter) tick(stop <-chan struct{}) {
	t := time.NewTicker(reportEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			p := r.counts.progress()
			r.mu.Lock()
			r.report(api.ImportLine{Progress: &p})
			r.mu.Unlock()
		}
	}
}

func (c *counts) progress() api.ImportProgress {
	return api.ImportProgress{
		Files: c.files.Load(), Directories: c.directories.Load(), Symlinks: c.symlinks.Load(), HardLinks: c.hardLinks.Load(),
		Specials: c.specials.Load(), Skipped: c.skipped.Load(), Changed: c.changed.Load(), Bytes: c.bytes.Load(),
	}
}
