package importer

import (
	"path/filepath"
	"slices"

	"tine.dev/tine/internal/control/statefile"
	"tine.dev/tine/internal/tine"
)

// pendingFormat is raised when a field's meaning changes.
const pendingFormat = 1

type pendingFile struct {
	Format int      `json:"format"`
	Disks  []string `json:"disks"`
}

func pendingPath(data string) string { return filepath.Join(data, "imports.json") }

func readPending(data string) ([]string, error) {
	f := pendingFile{Format: pendingFormat}
	if err := statefile.Read(pendingPath(data), &f); err != nil {
		return nil, err
	}
	if f.Format != pendingFormat {
		return nil, tine.Errorf(tine.KindVersion, "%s has format %d; this program knows %d", pendingPath(data), f.Format, pendingFormat).
			WithHint("use the version of tine that wrote it")
	}
	return f.Disks, nil
}

// remember notes an unfinished import durably.
func (im *Importer) remember(disk string) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	names := append(slices.Clone(im.pending), disk)
	if err := statefile.Write(pendingPath(im.data), pendingFile{pendingFormat, names}); err != nil {
		return err
	}
	im.pending = names
	return nil
}

// forget takes the note back.
func (im *Importer) forget(disk string) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	names := slices.DeleteFunc(slices.Clone(im.pending), func(n string) bool { return n == disk })
	if err := statefile.Write(pendingPath(im.data), pendingFile{pendingFormat, names}); err != nil {
		return err
	}
	im.pending = names
	return nil
}
