package archive

import (
	"fmt"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"tine.dev/tine/internal/tine"
)

// Writer writes an archive. It is not safe for concurrent use. What it writes
// depends on the entries only: the same tree gives the same bytes.
type Writer struct {
	w       io.Writer
	err     error // of the underlying writer; it sticks
	owed    int64 // bytes of the entry's data that are to come
	padding int   // zeros after them
	name    string
	records []byte
}

// NewWriter returns a writer to w. It is not buffered: headers are written a
// block or more at a time, data as it comes.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Entry begins an entry. Its data, that of its runs one after the other,
// follows with Write and must be complete before the next entry.
func (w *Writer) Entry(e *Entry) error {
	if err := w.finish(); err != nil {
		return err
	}
	if len(e.Runs) > MaxRuns {
		return tine.Errorf(tine.KindTooLarge, "%q has %d pieces; at most %d can be archived", e.Name, len(e.Runs), MaxRuns)
	}
	w.name = e.Name
	w.records = w.records[:0]
	var h block
	data := e.stored()
	var sparse []byte
	if e.Type == Regular && e.Runs != nil && e.Size > 0 {
		sparse = sparseMap(e)
		data += int64(len(sparse))
	}
	w.describe(&h, e, sparse != nil, data)
	if len(w.records) > 0 {
		if err := w.writePax(e.Name); err != nil {
			return err
		}
	}
	h.setSum()
	if err := w.write(h[:]); err != nil {
		return err
	}
	w.owed, w.padding = data, int(-data&(blockBytes-1))
	if sparse != nil {
		_, err := w.Write(sparse)
		return err
	}
	return nil
}

// describe fills the header, and the records for all that it cannot say.
func (w *Writer) describe(h *block, e *Entry, sparse bool, data int64) {
	name := e.Name
	if e.Type == Directory {
		name = strings.TrimRight(name, "/") + "/"
	}
	if !utf8.ValidString(name) || !utf8.ValidString(e.Link) {
		w.record(paxCharset, "BINARY")
	}
	if sparse {
		w.record(paxSparseMajor, "1")
		w.record(paxSparseMinor, "0")
		w.record(paxSparseName, name)
		w.record(paxSparseRealSize, strconv.FormatInt(e.Size, 10))
		h.setText(fieldName, placeholder("GNUSparseFile.0", name))
	} else {
		w.text(h, fieldName, paxPath, name)
	}
	w.text(h, fieldLink, paxLinkpath, e.Link)
	h.setNumber(fieldMode, int64(e.Mode&0o7777))
	w.number(h, fieldUID, paxUID, int64(e.UID))
	w.number(h, fieldGID, paxGID, int64(e.GID))
	w.number(h, fieldSize, paxSize, data)
	if e.Mtime%1e9 != 0 || !h.setNumber(fieldMtime, e.Mtime/1e9) {
		w.record(paxMtime, formatTime(e.Mtime))
		h.setNumber(fieldMtime, max(0, e.Mtime/1e9))
	}
	if e.Atime != nil {
		w.record(paxAtime, formatTime(*e.Atime))
	}
	h[fieldType] = byte(e.Type)
	copy(h.get(fieldMagic), "ustar\x0000")
	h.setNumber(fieldDevMajor, int64(e.Major))
	h.setNumber(fieldDevMinor, int64(e.Minor))
	for _, x := range e.Xattrs {
		if key := aclKey(x.Name); key != "" {
			if text, ok := aclText(x.Value); ok {
				w.record(key, text)
				continue
			}
		}
		w.record(paxXattr+encodeXattrName(x.Name), string(x.Value))
	}
}

func (w *Writer) record(key, value string) { w.records = appendPax(w.records, key, value) }

// text puts a name into the header; if it does not fit or is not plain, into a
// record, with as much of it as fits in the header.
func (w *Writer) text(h *block, f field, key, s string) {
	h.setText(f, s)
	plain := len(s) <= f.len
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] < 0x80
	}
	if !plain {
		w.record(key, s)
	}
}

func (w *Writer) number(h *block, f field, key string, n int64) {
	if !h.setNumber(f, n) {
		w.record(key, strconv.FormatInt(n, 10))
		h.setNumber(f, 0)
	}
}

// placeholder is a name for a header whose entry is named by a record.
func placeholder(dir, name string) string {
	s := dir + "/" + path.Base(strings.TrimRight(name, "/"))
	return s[:min(len(s), fieldName.len)]
}

// writePax writes the records as an entry of their own.
func (w *Writer) writePax(name string) error {
	if len(w.records) > maxPaxBytes {
		return tine.Errorf(tine.KindTooLarge, "%q has %d bytes of extended attributes; at most %d can be archived", name, len(w.records), maxPaxBytes)
	}
	var h block
	h.setText(fieldName, placeholder("PaxHeaders", name))
	h.setNumber(fieldMode, 0o644)
	h.setNumber(fieldUID, 0)
	h.setNumber(fieldGID, 0)
	h.setNumber(fieldSize, int64(len(w.records)))
	h.setNumber(fieldMtime, 0)
	h[fieldType] = 'x'
	copy(h.get(fieldMagic), "ustar\x0000")
	h.setSum()
	if err := w.write(h[:]); err != nil {
		return err
	}
	var zero block
	pad := -len(w.records) & (blockBytes - 1)
	return w.write(append(w.records, zero[:pad]...))
}

// Write writes data of the entry. More than it has is an error.
func (w *Writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.owed {
		return 0, tine.Errorf(tine.KindInternal, "%q has more data than its entry says", w.name)
	}
	w.owed -= int64(len(p))
	if err := w.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *Writer) write(p []byte) error {
	if w.err == nil {
		_, w.err = w.w.Write(p)
	}
	return w.err
}

// finish ends the entry.
func (w *Writer) finish() error {
	if w.owed > 0 {
		return tine.Errorf(tine.KindInternal, "%d bytes of %q are missing from the archive", w.owed, w.name)
	}
	var zero block
	pad := w.padding
	w.padding = 0
	return w.write(zero[:pad])
}

// Close ends the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	if err := w.finish(); err != nil {
		return err
	}
	var end [2 * blockBytes]byte
	return w.write(end[:])
}

// sparseMap writes the map of format 1.0: the number of runs, then where each
// starts and how long it is, one decimal number a line, filled up to whole
// blocks. Where the file ends with a hole, an empty run stands for its end.
func sparseMap(e *Entry) []byte {
	runs := e.Runs
	if n := len(runs); n == 0 || runs[n-1].End() < e.Size {
		runs = append(runs[:n:n], Run{e.Size, 0})
	}
	b := fmt.Appendf(nil, "%d\n", len(runs))
	for _, r := range runs {
		b = strconv.AppendInt(b, r.Off, 10)
		b = append(b, '\n')
		b = strconv.AppendInt(b, r.Len, 10)
		b = append(b, '\n')
	}
	return append(b, make([]byte, -len(b)&(blockBytes-1))...)
}

// maxOwner is the largest user or group id; -1 means none to the kernel.
const maxOwner = math.MaxUint32
