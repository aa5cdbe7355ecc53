package api

import "time"

// Disk is a named, elastic POSIX file system.
type Disk struct {
	ID       string     `json:"id" doc:"The disk's identifier; it survives renames" example:"dsk_01k0000000000000000000000c"`
	Name     string     `json:"name" example:"work"`
	Tree     string     `json:"tree" doc:"The tree of forks that the disk belongs to"`
	Timeline string     `json:"timeline" doc:"The line of writes that the disk's head stands on"`
	Created  time.Time  `json:"created"`
	Deleted  *time.Time `json:"deleted,omitempty" doc:"When the disk went to the trash"`
	Origin   string     `json:"origin,omitempty" doc:"What the disk was forked from: DISK or DISK@CHECKPOINT"`
	Sessions []string   `json:"sessions" nullable:"false" doc:"Who is attached now"`
	Mounts   []string   `json:"mounts" nullable:"false" doc:"The directories at which the disk, or a checkpoint of it, is mounted"`
	Epoch    uint64     `json:"epoch" doc:"Grows with every checkpoint and fork"`
	Depth    int        `json:"depth" doc:"How many lines a read may have to ask: 1 for a disk that was not forked"`
	Store    *DiskStore `json:"store,omitempty" doc:"The store that the disk lives in; absent for one of the server's machine alone"`
	Error    *Error     `json:"error,omitempty" doc:"Why the disk cannot be used now; epoch, depth and timeline are then not known"`
	Quota    *Quota     `json:"quota,omitempty" doc:"What bounds the disk; absent if nothing does"`
	Policy   *Policy    `json:"policy,omitempty" doc:"What the server does with the disk by itself; absent if nothing. Its checkpoints are only in the answer of getPolicy"`
}

// Checkpoint is an immutable, named state of a disk.
type Checkpoint struct {
	ID      string    `json:"id" example:"cpt_01k0000000000000000000000c"`
	Disk    string    `json:"disk"`
	Name    string    `json:"name"`
	Epoch   uint64    `json:"epoch"`
	Author  string    `json:"author" doc:"Who made it, as the maker declared"`
	Caller  string    `json:"caller" doc:"Who made it, as the server authenticated" example:"uid:0"`
	Message string    `json:"message,omitempty"`
	Created time.Time `json:"created"`
	Auto    bool      `json:"auto" doc:"Taken by tine before a rollback or promote, as its undo"`
}

// Rollback is what a rollback, promote or undo left behind.
type Rollback struct {
	Disk Disk   `json:"disk"`
	Undo string `json:"undo" doc:"The checkpoint of the state before; roll back to it to undo"`
}

// Usage is the space that a disk takes.
type Usage struct {
	Disk         string `json:"disk"`
	LogicalBytes int64  `json:"logical_bytes" doc:"The bytes of data that its files hold; what two files share by reflink counts twice"`
	UniqueBytes  int64  `json:"unique_bytes" doc:"The bytes of data that removing the disk with its checkpoints would free, each counted once"`
	SharedBytes  int64  `json:"shared_bytes" doc:"Of the logical bytes, those that removing it would not free: others hold them as well"`
	Inodes       int64  `json:"inodes" doc:"Files, directories and other inodes"`
}

// LogEntry is one line of a disk's history.
type LogEntry struct {
	Time   time.Time `json:"time"`
	Op     string    `json:"op" example:"fork"`
	Detail string    `json:"detail,omitempty"`
	Author string    `json:"author,omitempty"`
	Caller string    `json:"caller,omitempty"`
}

// Change is one path in which two disks or checkpoints differ.
type Change struct {
	Path      string `json:"path" doc:"From the root, without a leading slash; empty for the root itself. Quoted as Go would if it is not valid UTF-8"`
	PathBytes []byte `json:"path_bytes,omitempty" doc:"The exact bytes of a path that is not valid UTF-8"`
	Kind      string `json:"kind" enum:"added,removed,changed"`
	Type      string `json:"type" enum:"file,directory,symlink,fifo,socket,block,char,unknown" doc:"Of what is there now, or was if it is removed"`
	Content   bool   `json:"content" doc:"The data differs"`
	Metadata  bool   `json:"metadata" doc:"Mode, owner, times or extended attributes differ"`
}

// DiffLine is one line of a diff's answer: a change, the end, or the error
// that cut it short.
type DiffLine struct {
	Change *Change   `json:"change,omitempty"`
	Done   *DiffDone `json:"done,omitempty" doc:"The last line of a complete answer"`
	Error  *Error    `json:"error,omitempty" doc:"The last line of an answer that failed on the way"`
}

// DiffDone ends a complete diff.
type DiffDone struct {
	Changes int64 `json:"changes"`
}

// ForestNode is a disk or checkpoint and what it hangs on.
type ForestNode struct {
	Name    string    `json:"name" doc:"DISK, or DISK@CHECKPOINT"`
	Kind    string    `json:"kind" enum:"disk,checkpoint"`
	Parent  string    `json:"parent,omitempty" doc:"The name of the node it hangs on; one that was removed may still be named"`
	Created time.Time `json:"created"`
	Auto    bool      `json:"auto" doc:"A checkpoint that tine took before a rollback or promote"`
}

// MountOptions say how the kernel shows a disk.
type MountOptions struct {
	Cache      string   `json:"cache,omitempty" enum:"normal,none" doc:"none: the kernel keeps no names, attributes or pages, so it never shows what another mount has just changed; slower. Default: normal"`
	Writeback  bool     `json:"writeback,omitempty" doc:"The kernel gathers small writes before it passes them on. The mount must have the disk for itself, and a crash can lose writes in another order than that in which they were made"`
	AllowOther bool     `json:"allow_other,omitempty" doc:"Let other users than the server's in, as the modes of the files decide. A server of root always does; for another user /etc/fuse.conf must say user_allow_other"`
	AllowSUID  bool     `json:"allow_suid,omitempty" doc:"Let set-user-ID programs on the disk have that right. Only root may ask for it, of a server that runs as root"`
	AllowDev   bool     `json:"allow_dev,omitempty" doc:"Let device nodes on the disk be opened. Only root may ask for it, of a server that runs as root"`
	NoExec     bool     `json:"no_exec,omitempty" doc:"Let no program on the disk be run"`
	Disable    []string `json:"disable,omitempty" nullable:"false" doc:"Kernel features to do without, as an old kernel would; all is all of them"`
}

// Mount is a directory at which the server shows a disk.
type Mount struct {
	Ref      string `json:"ref" doc:"DISK or DISK@CHECKPOINT" example:"work"`
	Dir      string `json:"dir" example:"/mnt/work"`
	ReadOnly bool   `json:"read_only"`
	MountOptions
	State string `json:"state" enum:"mounted,unmounting,down,failed" doc:"unmounting: taken away as was asked for, and still held by programs; it does not come back. down: unmounted from outside; failed: could not be restored at the server's start. These two are tried again at its next start"`
	Error string `json:"error,omitempty" doc:"Why the mount failed"`
	Own   string `json:"own,omitempty" doc:"Of a staged mount, in the answer that made it: where the server has mounted"`
}

// Server describes the running server.
type Server struct {
	Version Version   `json:"version"`
	PID     int       `json:"pid"`
	UID     int       `json:"uid"`
	Data    string    `json:"data" doc:"The data directory"`
	Socket  string    `json:"socket"`
	Started time.Time `json:"started"`
}

// Version tells which build of tine this is.
type Version struct {
	Version  string `json:"version" example:"v0.1.0"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty" doc:"When the commit was made"`
	Modified bool   `json:"modified" doc:"Built from a changed checkout"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// ImportProgress counts what an import has done so far.
type ImportProgress struct {
	Files       int64 `json:"files"`
	Directories int64 `json:"directories"`
	Symlinks    int64 `json:"symlinks"`
	HardLinks   int64 `json:"hard_links"`
	Specials    int64 `json:"specials" doc:"Fifos and devices"`
	Skipped     int64 `json:"skipped"`
	Changed     int64 `json:"changed" doc:"Files that changed while they were read"`
	Bytes       int64 `json:"bytes" doc:"Bytes of data copied; holes are not counted"`
}

// ImportNote tells of something that an import could not take as it was.
type ImportNote struct {
	Path string `json:"path"`
	Note string `json:"note"`
}

// ImportDone ends a complete import.
type ImportDone struct {
	Disk       Disk           `json:"disk"`
	Totals     ImportProgress `json:"totals"`
	Checkpoint string         `json:"checkpoint,omitempty" doc:"What the disk was before the import, if it was not empty"`
}

// ImportLine is one line of an import's answer: progress, a note, the end, or
// the error that ended it. A failed import leaves no disk behind.
type ImportLine struct {
	Checkpoint string          `json:"checkpoint,omitempty" doc:"In the first line: what a disk that is not empty was before"`
	Progress   *ImportProgress `json:"progress,omitempty"`
	Note       *ImportNote     `json:"note,omitempty"`
	Done       *ImportDone     `json:"done,omitempty"`
	Error      *Error          `json:"error,omitempty"`
}
