package api

// The bodies of requests and of answers that are lists.

// How long a checkpoint or fork waits: until it can be used, or until it also
// survives a crash.
const (
	WaitRunnable = "runnable"
	WaitDurable  = "durable"
)

// What a kernel keeps of a mount.
const (
	CacheNormal = "normal"
	CacheNone   = "none"
)

// Name is the body of calls that take a new name.
type Name struct {
	Name string `json:"name" doc:"1 to 128 letters, digits, '.', '_' and '-', starting with a letter, a digit or '_'"`
}

// NewCheckpoint asks for a checkpoint.
type NewCheckpoint struct {
	Name    string `json:"name"`
	Message string `json:"message,omitempty" doc:"At most 4096 bytes"`
	Wait    string `json:"wait,omitempty" enum:"runnable,durable" default:"durable"`
}

// NewForks asks for forks of a disk or of a checkpoint of it: all or none.
type NewForks struct {
	Checkpoint string   `json:"checkpoint,omitempty" doc:"Fork this checkpoint instead of the head"`
	Names      []string `json:"names" nullable:"false" minItems:"1" maxItems:"1000"`
	Wait       string   `json:"wait,omitempty" enum:"runnable,durable" default:"durable"`
	TTLSeconds int64    `json:"ttl_seconds,omitempty" minimum:"0" doc:"Remove the forks to the trash after so long; 0: never. One in use stays until it is not"`
}

// RollbackTo names the checkpoint to go back to.
type RollbackTo struct {
	Checkpoint string `json:"checkpoint"`
}

// PromoteOnto names the disk that is to become the fork.
type PromoteOnto struct {
	Onto  string `json:"onto"`
	Force bool   `json:"force,omitempty" doc:"Promote even if the target has changed since the fork"`
}

// NewMount asks for a mount.
type NewMount struct {
	Ref      string `json:"ref" doc:"DISK or DISK@CHECKPOINT"`
	Dir      string `json:"dir" doc:"An existing directory, as an absolute path"`
	ReadOnly bool   `json:"read_only,omitempty"`
	MountOptions
	External bool `json:"external,omitempty" doc:"mount(8) asks: the mount comes back after a restart of the server, but not of the machine, and umount(8) takes it away for good"`
	Staged   bool `json:"staged,omitempty" doc:"With external, where an automounter waits at the directory: the server mounts at a directory of its own, which the answer names, and the caller shows that at dir by a bind mount within a minute"`
}

// MountChange says what is to become of a mount while it is there; what is absent
// stays as it is.
type MountChange struct {
	ReadOnly  *bool `json:"read_only,omitempty" doc:"A checkpoint stays read-only. Refused while files are open for writing"`
	AllowSUID *bool `json:"allow_suid,omitempty"`
	AllowDev  *bool `json:"allow_dev,omitempty"`
	NoExec    *bool `json:"no_exec,omitempty"`
}

// ImportFrom names the directory to copy into a new disk.
type ImportFrom struct {
	Dir string `json:"dir" doc:"A directory on the server's machine, as an absolute path"`
}

// DiskList is the answer to a listing of disks.
type DiskList struct {
	Disks []Disk `json:"disks" nullable:"false"`
}

// CheckpointList is the answer to a listing of checkpoints.
type CheckpointList struct {
	Checkpoints []Checkpoint `json:"checkpoints" nullable:"false"`
}

// LogList is a disk's history, oldest first.
type LogList struct {
	Entries []LogEntry `json:"entries" nullable:"false"`
}

// ForestList is every disk and checkpoint.
type ForestList struct {
	Nodes []ForestNode `json:"nodes" nullable:"false"`
}

// MountList is the answer to a listing of mounts.
type MountList struct {
	Mounts []Mount `json:"mounts" nullable:"false"`
}
