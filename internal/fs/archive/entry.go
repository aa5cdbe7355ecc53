package archive

import (
	"strings"

	"tine.dev/tine/internal/tine"
)

// Type says what an entry is, as the type flag of its header.
type Type byte

// The types that are written, and to which those read are mapped.
const (
	Regular   Type = '0'
	HardLink  Type = '1' // another name of what Link names
	Symlink   Type = '2'
	Char      Type = '3'
	Block     Type = '4'
	Directory Type = '5'
	Fifo      Type = '6'
	Unknown   Type = '?' // read only: a kind of another program's
)

// Entry is one member of an archive.
type Entry struct {
	Name  string // as it stands in the archive; see Path
	Type  Type
	Mode  uint32 // permission bits
	UID   uint32
	GID   uint32
	Mtime int64  // nanoseconds since 1970
	Atime *int64 // likewise; nil if it is not known
	Link  string // of a symbolic link its target, of a hard link a name in the archive
	Major uint32 // of devices
	Minor uint32

	Xattrs []Xattr // ACLs are among them, as the kernel has them

	Size int64 // of a regular file, holes included
	Runs []Run // where a regular file has data; nil if it has no hole

	Offset int64    // read only: where in the archive the entry begins
	Notes  []string // read only: what could not be understood and was left out
}

// Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}

// Run is a range of a file that has data.
type Run struct{ Off, Len int64 }

// End is the first byte after the run.
func (r Run) End() int64 { return r.Off + r.Len }

// Data returns where a regular file has data: its runs, or one for all of it.
func (e *Entry) Data() []Run {
	switch {
	case e.Type != Regular || e.Size == 0:
		return nil
	case e.Runs != nil:
		return e.Runs
	}
	return []Run{{0, e.Size}}
}

// stored is how many bytes of data the entry has in the archive.
func (e *Entry) stored() (n int64) {
	for _, r := range e.Data() {
		n += r.Len
	}
	return n
}

// Path takes a name of an archive apart. Leading slashes mean nothing, nor do
// "." and doubled slashes. A name with ".." is refused: it can only be meant
// to lead out.
func Path(name string) ([]string, error) {
	var parts []string
	for p := range strings.SplitSeq(name, "/") {
		switch {
		case p == "" || p == ".":
		case p == "..":
			return nil, tine.Errorf(tine.KindInvalid, "the archive has the name %q, and \"..\" would lead out of where it is unpacked", name).
				WithHint("make the archive anew with names below one directory")
		default:
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// MaxRuns bounds the runs of one file, in memory and in an archive.
const MaxRuns = 1 << 20

// Collector gathers where a file has data. Past MaxRuns the smallest holes are
// taken for data, so that its memory is bounded whatever the file.
type Collector struct {
	runs []Run
	hole int64 // holes below this size are taken for data
}

// Add adds a run, behind those added before.
func (c *Collector) Add(r Run) {
	if r.Len <= 0 {
		return
	}
	if n := len(c.runs); n > 0 && r.Off-c.runs[n-1].End() <= c.hole {
		c.runs[n-1].Len = r.End() - c.runs[n-1].Off
		return
	}
	if c.runs = append(c.runs, r); len(c.runs) < MaxRuns {
		return
	}
	for len(c.runs) >= MaxRuns/2 {
		c.hole = max(4096, 2*c.hole)
		old := c.runs
		c.runs = c.runs[:1]
		for _, r := range old[1:] {
			if last := &c.runs[len(c.runs)-1]; r.Off-last.End() <= c.hole {
				last.Len = r.End() - last.Off
			} else {
				c.runs = append(c.runs, r)
			}
		}
	}
}

// Runs returns what an Entry of that size has as its runs: nil if there is no
// hole.
func (c *Collector) Runs(size int64) []Run {
	if size == 0 || len(c.runs) == 1 && c.runs[0] == (Run{0, size}) {
		return nil
	}
	if c.runs == nil {
		return []Run{}
	}
	return c.runs
}
