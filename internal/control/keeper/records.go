package keeper

import (
	"path/filepath"

	"tine.dev/tine/internal/control/statefile"
	"tine.dev/tine/internal/fs/volume"
)

// Record is what is kept of a mount.
type Record struct {
	Disk       string `json:"disk"`
	Checkpoint string `json:"checkpoint,omitempty"`
	Dir        string `json:"dir"`
	ReadOnly   bool   `json:"read_only,omitempty"`
	Options           // how the kernel shows it
	Author     string `json:"author,omitempty"`
	Principal  string `json:"principal"`
	// Boot is set for a mount that mount(8) asked for: it names the start of the
	// machine in which that was. Whoever asked sees to the mount after another
	// one, and umount(8) takes it away for good.
	Boot string `json:"boot,omitempty"`
	// Staged is set for one that mount(8) shows by a bind mount; see staged.
	Staged bool `json:"staged,omitempty"`
}

// Options say how a kernel shows a disk; fusefs.Options tells of each.
type Options struct {
	CacheNone  bool   `json:"cache_none,omitempty"`
	Writeback  bool   `json:"writeback,omitempty"`
	AllowOther bool   `json:"allow_other,omitempty"`
	AllowSUID  bool   `json:"allow_suid,omitempty"`
	AllowDev   bool   `json:"allow_dev,omitempty"`
	NoExec     bool   `json:"no_exec,omitempty"`
	Disable    string `json:"disable,omitempty"` // kernel features, separated by commas
}

// Ref is the disk or checkpoint that is mounted.
func (r Record) Ref() volume.Ref { return volume.Ref{Disk: r.Disk, Checkpoint: r.Checkpoint} }

// recordsFormat is raised when a field's meaning changes.
const recordsFormat = 1

type recordsFile struct {
	Format int      `json:"format"`
	Mounts []Record `json:"mounts"` // in the order in which they were mounted
}

// fileName is the record's place in the data directory.
const fileName = "mounts.json"

func readRecords(data string) ([]Record, error) {
	f := recordsFile{Format: recordsFormat}
	path := filepath.Join(data, fileName)
	if err := statefile.Read(path, &f); err != nil {
		return nil, err
	}
	if err := statefile.CheckFormat(path, f.Format, recordsFormat); err != nil {
		return nil, err
	}
	return f.Mounts, nil
}

func writeRecords(data string, rs []Record) error {
	return statefile.Write(filepath.Join(data, fileName), recordsFile{recordsFormat, rs})
}

// Forget removes the record of a directory from a data directory whose server
// is not running; the caller holds the data directory's lock. It reports
// whether there was one.
func Forget(data, dir string) (bool, error) {
	rs, err := readRecords(data)
	if err != nil {
		return false, err
	}
	for i, r := range rs {
		if r.Dir == dir {
			return true, writeRecords(data, append(rs[:i:i], rs[i+1:]...))
		}
	}
	return false, nil
}
