package record

import (
	"fmt"

	"tine.dev/tine/internal/tine"
)

// Tree is the record that makes a tree exist.
type Tree struct {
	Tenant  tine.TenantID
	Store   tine.StoreID // zero: the server's own data directory
	Created int64
}

const treeFormat = 1

// Append encodes the record.
func (t Tree) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(treeFormat)
	e.id(t.Tenant)
	e.id(t.Store)
	e.int(t.Created)
	return e.b
}

// DecodeTree reads the record.
func DecodeTree(b []byte) (Tree, error) {
	d := decoder{b: b}
	if err := d.format("tree", treeFormat); err != nil {
		return Tree{}, err
	}
	t := Tree{Tenant: d.id(), Store: d.id(), Created: d.int()}
	return t, d.finish("tree")
}

// Timeline is the record of one line of writes. Its strata are in the order
// of their births, oldest first; the last one takes new rows. Its pins are
// not in it: they are the checkpoints and the children that name it.
type Timeline struct {
	Strata []tine.StratumID
	Parent tine.TimelineID // zero for the root of a tree; may have become an alias
	Branch tine.Epoch      // epoch of the parent at which this one starts
	Epoch  tine.Epoch      // epoch of new rows
	First  tine.Epoch      // lowest epoch that its rows can have
}

const timelineFormat = 1

// Append encodes the record.
func (t *Timeline) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(timelineFormat)
	e.uint(uint64(len(t.Strata)))
	for _, s := range t.Strata {
		e.id(s)
	}
	e.id(t.Parent)
	e.uint(uint64(t.Branch))
	e.uint(uint64(t.Epoch))
	e.uint(uint64(t.First))
	return e.b
}

// DecodeTimeline reads the record.
func DecodeTimeline(b []byte) (Timeline, error) {
	d := decoder{b: b}
	if err := d.format("timeline", timelineFormat); err != nil {
		return Timeline{}, err
	}
	t := Timeline{Strata: make([]tine.StratumID, d.count(tine.IDSize))}
	for i := range t.Strata {
		t.Strata[i] = d.id()
	}
	t.Parent, t.Branch, t.Epoch, t.First = d.id(), tine.Epoch(d.uint()), tine.Epoch(d.uint()), tine.Epoch(d.uint())
	return t, d.finish("timeline")
}

// Alias is the record that a timeline was absorbed: whatever names its id
// means Into.
type Alias struct{ Into tine.TimelineID }

const aliasFormat = 1

// Append encodes the record.
func (a Alias) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(aliasFormat)
	e.id(a.Into)
	return e.b
}

// DecodeAlias reads the record.
func DecodeAlias(b []byte) (Alias, error) {
	d := decoder{b: b}
	if err := d.format("alias", aliasFormat); err != nil {
		return Alias{}, err
	}
	a := Alias{Into: d.id()}
	return a, d.finish("alias")
}

// Checkpoint is the record of an immutable (timeline, epoch) with a name. It
// holds a pin at that epoch.
type Checkpoint struct {
	Disk     tine.DiskID
	Timeline tine.TimelineID
	Epoch    tine.Epoch
	Name     string
	Author   string // declared by whoever made it
	Caller   string // authenticated by the server
	Message  string
	Created  int64
	Auto     bool // taken by rollback, promote or undo; the newest of a disk is what undo returns to
}

const checkpointFormat = 1

// Append encodes the record.
func (c *Checkpoint) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(checkpointFormat)
	e.id(c.Disk)
	e.id(c.Timeline)
	e.uint(uint64(c.Epoch))
	e.str(c.Name)
	e.str(c.Author)
	e.str(c.Caller)
	e.str(c.Message)
	e.int(c.Created)
	e.bool(c.Auto)
	return e.b
}

// DecodeCheckpoint reads the record.
func DecodeCheckpoint(b []byte) (Checkpoint, error) {
	d := decoder{b: b}
	if err := d.format("checkpoint", checkpointFormat); err != nil {
		return Checkpoint{}, err
	}
	c := Checkpoint{
		Disk: d.id(), Timeline: d.id(), Epoch: tine.Epoch(d.uint()), Name: d.str(), Author: d.str(),
		Caller: d.str(), Message: d.str(), Created: d.int(), Auto: d.bool(),
	}
	return c, d.finish("checkpoint")
}

// Disk is the record of a named disk: a name for the head of a timeline.
type Disk struct {
	Tree     tine.TreeID
	Timeline tine.TimelineID // may have become an alias
	Name     string
	Created  int64
	Deleted  int64       // when it was removed; 0 while it lives
	Origin   string      // what it was made from, for people: "", "base@cp", ...
	Forked   tine.DiskID // the disk it was forked from
	Moves    uint64      // how often the head has been set anew by rollback, promote or undo
	Quota    Quota
	Durable  Durability
}

// Durability says where data is when a call that makes it durable returns.
type Durability uint8

// The durabilities.
const (
	DurableLocal  Durability = 0 // on the device of the server that has the disk
	DurableBucket Durability = 1 // in the store of the disk as well
)

// String returns the word for it that people write.
func (d Durability) String() string {
	if d == DurableBucket {
		return "bucket"
	}
	return "local"
}

// Quota bounds what a disk's head may hold; 0 is no bound.
type Quota struct {
	Bytes  int64 // of data in files
	Inodes int64 // the root directory included
}

// Check refuses a quota that is none.
func (q Quota) Check() error {
	if q.Bytes < 0 || q.Inodes < 0 {
		return tine.Errorf(tine.KindInvalid, "a quota cannot be negative").WithHint("none is no quota")
	}
	return nil
}

// String writes the quota for the history.
func (q Quota) String() string {
	bytes, inodes := "no limit of bytes", "no limit of inodes"
	if q.Bytes > 0 {
		bytes = fmt.Sprintf("%d bytes", q.Bytes)
	}
	if q.Inodes > 0 {
		inodes = fmt.Sprintf("%d inodes", q.Inodes)
	}
	return bytes + ", " + inodes
}

// The formats of a disk's record. A quota came with the second, durability in a
// store with the third; a disk without is still written in an older one, so that
// an older program can read it.
const (
	diskFormat      = 3
	diskFormatQuota = 2
	diskFormatPlain = 1
)

// Append encodes the record.
func (k *Disk) Append(dst []byte) []byte {
	e := encoder{dst}
	format := uint8(diskFormat)
	switch {
	case k.Durable != DurableLocal:
	case k.Quota != (Quota{}):
		format = diskFormatQuota
	default:
		format = diskFormatPlain
	}
	e.u8(format)
	e.id(k.Tree)
	e.id(k.Timeline)
	e.str(k.Name)
	e.int(k.Created)
	e.int(k.Deleted)
	e.str(k.Origin)
	e.id(k.Forked)
	e.uint(k.Moves)
	if format != diskFormatPlain {
		e.uint(uint64(k.Quota.Bytes))
		e.uint(uint64(k.Quota.Inodes))
	}
	if format == diskFormat {
		e.u8(uint8(k.Durable))
	}
	return e.b
}

// DecodeDisk reads the record.
func DecodeDisk(b []byte) (Disk, error) {
	d := decoder{b: b}
	if err := d.format("disk", diskFormat); err != nil {
		return Disk{}, err
	}
	k := Disk{
		Tree: d.id(), Timeline: d.id(), Name: d.str(), Created: d.int(), Deleted: d.int(), Origin: d.str(),
		Forked: d.id(), Moves: d.uint(),
	}
	if b[0] != diskFormatPlain {
		k.Quota = Quota{Bytes: int64(d.uint()), Inodes: int64(d.uint())}
		if k.Quota.Bytes < 0 || k.Quota.Inodes < 0 || k.Quota == (Quota{}) && b[0] == diskFormatQuota {
			d.fail()
		}
	}
	if b[0] == diskFormat {
		if k.Durable = Durability(d.u8()); k.Durable != DurableBucket {
			d.fail()
		}
	}
	return k, d.finish("disk")
}

// LogEntry is one line of a disk's history.
type LogEntry struct {
	Time   int64
	Op     string // create, fork, checkpoint, rollback, promote, undo, rename, remove, undelete, ...
	Detail string
	Author string
	Caller string
}

const logFormat = 1

// Append encodes the record.
func (l *LogEntry) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(logFormat)
	e.int(l.Time)
	e.str(l.Op)
	e.str(l.Detail)
	e.str(l.Author)
	e.str(l.Caller)
	return e.b
}

// DecodeLogEntry reads the record.
func DecodeLogEntry(b []byte) (LogEntry, error) {
	d := decoder{b: b}
	if err := d.format("log", logFormat); err != nil {
		return LogEntry{}, err
	}
	l := LogEntry{Time: d.int(), Op: d.str(), Detail: d.str(), Author: d.str(), Caller: d.str()}
	return l, d.finish("log")
}

// Task is the record of background work that must not be forgotten.
type Task struct {
	Kind     TaskKind
	Timeline tine.TimelineID
	Epoch    tine.Epoch
}

// TaskKind tells what a task does.
type TaskKind uint8

// The tasks.
const (
	TaskDrop  TaskKind = 1 // the pin at Epoch of Timeline lost its last holder; tine.Head for the head itself
	TaskTombs TaskKind = 2 // Timeline absorbed its parent, pinned at Epoch: tombstones born later may have nothing below
)

const taskFormat = 1

// Append encodes the record.
func (t Task) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(taskFormat)
	e.u8(uint8(t.Kind))
	e.id(t.Timeline)
	e.uint(uint64(t.Epoch))
	return e.b
}

// DecodeTask reads the record.
func DecodeTask(b []byte) (Task, error) {
	d := decoder{b: b}
	if err := d.format("task", taskFormat); err != nil {
		return Task{}, err
	}
	t := Task{Kind: TaskKind(d.u8()), Timeline: d.id(), Epoch: tine.Epoch(d.uint())}
	return t, d.finish("task")
}
