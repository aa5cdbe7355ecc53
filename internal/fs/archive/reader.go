package archive

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tine.dev/tine/internal/tine"
)

// Reader reads an archive. It is not safe for concurrent use.
type Reader struct {
	r       io.Reader
	off     int64 // bytes read
	owed    int64 // of the entry's data that were not read yet
	padding int64
	last    string // the name of the entry before
	global  map[string]string
	users   Users
}

// Users finds the ids of names, which archives of GNU tar have in ACLs where a
// name was known. It may be nil.
type Users interface {
	User(name string) (uint32, bool)
	Group(name string) (uint32, bool)
}

// NewReader returns a reader of r, from which it reads blocks.
func NewReader(r io.Reader, users Users) *Reader {
	return &Reader{r: r, global: map[string]string{}, users: users}
}

// Offset returns how many bytes of the archive have been read.
func (r *Reader) Offset() int64 { return r.off }

// damaged says that and where the archive cannot be understood.
func (r *Reader) damaged(format string, args ...any) error {
	where := fmt.Sprintf("at byte %d", r.off)
	if r.last != "" {
		where += fmt.Sprintf(", after %q", r.last)
	}
	return tine.Errorf(tine.KindCorrupt, "the archive is damaged %s: %s", where, fmt.Sprintf(format, args...)).
		WithHint("`tar tvf` shows whether another program can read it; make or fetch it anew")
}

// full reads all of p. An error of the source keeps its kind.
func (r *Reader) full(p []byte) error {
	n, err := io.ReadFull(r.r, p)
	r.off += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return r.damaged("it ends in the middle")
	}
	return err
}

// Next returns the next entry, whose data Read gives, or io.EOF at the end of
// the archive. What the source has after the end is read and ignored, as
// programs that write to a pipe expect.
func (r *Reader) Next() (*Entry, error) {
	if err := r.skip(r.owed + r.padding); err != nil {
		return nil, err
	}
	r.owed, r.padding = 0, 0
	start := r.off
	var own []paxRecord
	var longName, longLink string
	for {
		var h block
		if err := r.header(&h); err != nil {
			return nil, err
		}
		size, ok := h.number(fieldSize)
		if !ok || size < 0 {
			return nil, r.damaged("the size of an entry is not a number")
		}
		var err error
		switch h[fieldType] {
		case 'x', 'X':
			own, err = r.records(size)
		case 'g':
			err = r.globals(size)
		case 'L':
			longName, err = r.longText(size)
		case 'K':
			longLink, err = r.longText(size)
		case 'V': // the name of the volume
			err = r.skip(padded(size))
		case 'M':
			return nil, tine.Errorf(tine.KindUnsupported, "the archive starts in the middle of a file: it is a part of a set of several volumes").
				WithHint("join the volumes with `tar -M` first")
		default:
			e := &Entry{Name: h.fullName(), Link: h.text(fieldLink), Offset: start}
			if longName != "" {
				e.Name = longName
			}
			if longLink != "" {
				e.Link = longLink
			}
			if err := r.entry(e, &h, size, own); err != nil {
				return nil, err
			}
			r.last = e.Name
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// header reads a header, or the end.
func (r *Reader) header(h *block) error {
	first := r.off == 0
	n, err := io.ReadFull(r.r, h[:])
	r.off += int64(n)
	switch {
	case err == io.EOF && first:
		return tine.Errorf(tine.KindInvalid, "the archive is empty: it has not one byte")
	case err == io.EOF:
		return r.damaged("it ends without the mark of an end, so it may have been cut off")
	case err == io.ErrUnexpectedEOF && first:
		return notTar(compressed(h))
	case err == io.ErrUnexpectedEOF:
		return r.damaged("it ends in the middle of a header")
	case err != nil:
		return err
	case *h == block{}:
		if _, err := io.Copy(io.Discard, r.r); err != nil {
			return err
		}
		return io.EOF
	case !h.sumHolds() && first:
		return notTar(compressed(h))
	case !h.sumHolds():
		return r.damaged("the sum of a header is wrong")
	}
	return nil
}

func notTar(hint string) error {
	if hint == "" {
		hint = "give it a tar archive, not compressed"
	}
	return tine.Errorf(tine.KindInvalid, "this is not a tar archive").WithHint("%s", hint)
}

// compressed returns what to do with an archive that is compressed.
func compressed(h *block) string {
	for magic, program := range map[string]string{"\x1f\x8b": "gzip", "\x28\xb5\x2f\xfd": "zstd", "BZh": "bzip2", "\xfd7zXZ": "xz"} {
		if bytes.HasPrefix(h[:], []byte(magic)) {
			return "it is compressed: `" + program + " -dc FILE | tine import DISK --from-tar -`"
		}
	}
	return ""
}

// padded is a length of data with the padding behind it.
func padded(n int64) int64 { return (n + blockBytes - 1) &^ (blockBytes - 1) }

func (r *Reader) skip(n int64) error {
	m, err := io.CopyN(io.Discard, r.r, n)
	r.off += m
	if err == io.EOF {
		return r.damaged("it ends in the middle of %q", r.last)
	}
	return err
}

// body reads the data of an entry that describes another.
func (r *Reader) body(size, most int64) ([]byte, error) {
	if size > most {
		return nil, r.damaged("%d bytes describe one entry; at most %d are read", size, most)
	}
	var b bytes.Buffer
	n, err := io.CopyN(&b, r.r, padded(size))
	r.off += n
	if err == io.EOF {
		return nil, r.damaged("it ends in the middle of what describes an entry")
	}
	if err != nil {
		return nil, err
	}
	return b.Bytes()[:size], nil
}

func (r *Reader) records(size int64) ([]paxRecord, error) {
	b, err := r.body(size, maxPaxBytes)
	if err != nil {
		return nil, err
	}
	rs, ok := parsePax(b)
	if !ok {
		return nil, r.damaged("the PAX records of an entry are not well formed")
	}
	return rs, nil
}

// globals reads records that hold for all entries after them.
func (r *Reader) globals(size int64) error {
	if size > maxGlobalBytes {
		return r.damaged("%d bytes describe all entries; at most %d are read", size, maxGlobalBytes)
	}
	rs, err := r.records(size)
	for _, x := range rs {
		r.global[x.key] = x.value
		if x.value == "" {
			delete(r.global, x.key)
		}
	}
	var all int
	for k, v := range r.global {
		all += len(k) + len(v)
	}
	if all > maxGlobalBytes {
		return r.damaged("too much describes all entries")
	}
	return err
}

func (r *Reader) longText(size int64) (string, error) {
	b, err := r.body(size, maxNameBytes)
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s), err
}

// entry fills the entry from its header and records, and gets ready for its
// data.
func (r *Reader) entry(e *Entry, h *block, size int64, own []paxRecord) error {
	if err := r.plain(e, h); err != nil {
		return err
	}
	sparse := sparseRecords{size: -1}
	apply := func(key, value string) error {
		if value == "" && !strings.HasPrefix(key, paxXattr) {
			return nil // as if it were not there
		}
		n, bad := int64(0), false
		switch key {
		case paxPath:
			e.Name = value
		case paxLinkpath:
			e.Link = value
		case paxSize, paxUID, paxGID:
			var err error
			n, err = strconv.ParseInt(value, 10, 64)
			bad = err != nil || n < 0 || key != paxSize && n > maxOwner
			switch key {
			case paxSize:
				size = n
			case paxUID:
				e.UID = uint32(n)
			case paxGID:
				e.GID = uint32(n)
			}
		case paxMtime, paxAtime:
			t, ok := parseTime(value)
			bad = !ok
			if key == paxAtime {
				e.Atime = &t
			} else {
				e.Mtime = t
			}
		default:
			r.extension(e, &sparse, key, value)
		}
		if bad {
			return r.damaged("the PAX record %s of %q is not a number: %.40q", key, e.Name, value)
		}
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(r.global)) {
		if err := apply(key, r.global[key]); err != nil {
			return err
		}
	}
	for _, x := range own {
		if err := apply(x.key, x.value); err != nil {
			return err
		}
	}
	return r.content(e, h, size, &sparse)
}

// extension reads a record that is not of POSIX.
func (r *Reader) extension(e *Entry, sparse *sparseRecords, key, value string) {
	switch {
	case strings.HasPrefix(key, paxSparse):
		sparse.add(key, value)
	case strings.HasPrefix(key, paxXattr):
		e.setXattr(Xattr{decodeXattrName(key[len(paxXattr):]), []byte(value)}, true)
	case key == paxACLAccess || key == paxACLDefault:
		raw, unknown, ok := parseACL(value, r.users)
		if !ok {
			e.Notes = append(e.Notes, "the ACL in the archive is not well formed; left out")
			return
		}
		for _, name := range unknown {
			e.Notes = append(e.Notes, fmt.Sprintf("the ACL names %q, whom this machine does not know; that entry is left out", name))
		}
		// An attribute of that name is more exact: it is the ACL itself.
		e.setXattr(Xattr{aclXattr(key), raw}, false)
	}
}

// setXattr adds an attribute; one of the same name is replaced or kept.
func (e *Entry) setXattr(x Xattr, replace bool) {
	for i := range e.Xattrs {
		if e.Xattrs[i].Name == x.Name {
			if replace {
				e.Xattrs[i] = x
			}
			return
		}
	}
	e.Xattrs = append(e.Xattrs, x)
}

// plain reads what the header itself says.
func (r *Reader) plain(e *Entry, h *block) error {
	for _, x := range []struct {
		f    field
		what string
		most int64
		set  func(int64)
	}{
		{fieldMode, "mode", 1 << 62, func(n int64) { e.Mode = uint32(n & 0o7777) }},
		{fieldUID, "user", maxOwner, func(n int64) { e.UID = uint32(n) }},
		{fieldGID, "group", maxOwner, func(n int64) { e.GID = uint32(n) }},
		{fieldMtime, "time", 1 << 62, func(n int64) { e.Mtime, _ = parseTime(strconv.FormatInt(n, 10)) }},
	} {
		n, ok := h.number(x.f)
		if !ok || n > x.most || n < 0 && x.f != fieldMtime {
			return r.damaged("the %s of %q is not a number", x.what, e.Name)
		}
		x.set(n)
	}
	switch t := Type(h[fieldType]); t {
	case HardLink, Symlink, Char, Block, Directory, Fifo:
		e.Type = t
	case 0, Regular, '7', 'S':
		e.Type = Regular
		if strings.HasSuffix(e.Name, "/") && h[fieldType] == 0 {
			e.Type = Directory // as v7 had them
		}
	case 'D': // a directory with a list of its names, of GNU's incremental archives
		e.Type = Directory
	default:
		e.Type = Unknown
	}
	if (e.Type == Char || e.Type == Block) && h.format() != formatV7 {
		major, ok1 := h.number(fieldDevMajor)
		minor, ok2 := h.number(fieldDevMinor)
		if !ok1 || !ok2 || major < 0 || minor < 0 || major >= 1<<12 || minor >= 1<<20 {
			return r.damaged("the device number of %q is none", e.Name)
		}
		e.Major, e.Minor = uint32(major), uint32(minor)
	}
	return nil
}

// content finds where the entry's data lies in the file that it describes.
func (r *Reader) content(e *Entry, h *block, size int64, sparse *sparseRecords) error {
	switch t := Type(h[fieldType]); {
	case e.Type == Regular, e.Type == Unknown, t == 'D':
	default:
		size = 0 // whatever the header says, nothing follows
	}
	if e.Type != Regular {
		r.owed, r.padding = size, padded(size)-size
		return nil
	}
	e.Size = size
	data, pad := size, padded(size)-size
	var runs []Run
	var err error
	switch {
	case h[fieldType] == 'S' && h.format() == formatGNU:
		runs, e.Size, err = r.runsOfHeader(h)
	case h[fieldType] == 'S':
		return tine.Errorf(tine.KindUnsupported, "%q is archived in a sparse format of another program than GNU tar, which this one does not know", e.Name)
	case !sparse.present:
		r.owed, r.padding = data, pad
		return nil
	case sparse.bad || sparse.size < 0:
		return r.damaged("what is said of the sparse file %q is not well formed", e.Name)
	case sparse.inFront():
		var used int64
		if runs, used, err = r.runsInFront(data); err == nil {
			data -= used
		}
		e.Size = sparse.size
	case sparse.older():
		var ok bool
		if runs, ok = sparse.runs(); !ok {
			return r.damaged("the map of the sparse file %q is not well formed", e.Name)
		}
		e.Size = sparse.size
	default:
		return tine.Errorf(tine.KindUnsupported, "%q is archived in the sparse format %s.%s, which this program does not know", e.Name, sparse.major, sparse.minor)
	}
	if err != nil {
		return err
	}
	if sparse.present && sparse.name != "" {
		e.Name = sparse.name
	}
	var ok bool
	if e.Runs, ok = checkRuns(runs, e.Size, data); !ok {
		return r.damaged("the map of the sparse file %q does not fit its data", e.Name)
	}
	r.owed, r.padding = data, pad
	return nil
}

// Read reads the entry's data: that of its runs, one after the other. It
// returns io.EOF at their end.
func (r *Reader) Read(p []byte) (int, error) {
	if r.owed == 0 {
		return 0, io.EOF
	}
	n, err := r.r.Read(p[:min(int64(len(p)), r.owed)])
	r.off += int64(n)
	r.owed -= int64(n)
	if err == io.EOF && r.owed > 0 {
		return n, r.damaged("it ends in the middle of %q", r.last)
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}
