package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv/pebble/dbfiles"
	"tine.dev/tine/internal/tine"
)

// Pebble ends the replay of its newest log at the first piece that is not valid,
// for that is what a crash leaves of a write under way, and so it does with its
// manifest. A piece that has rotted looks the same, and all that was acknowledged
// behind it would be lost without a word; behind a manifest so cut, tables too,
// which it takes for left over. What tells the two apart is how far the file was
// durable. Pebble writes that down in the log too, but counts only the bytes of blocks
// that were not full when they were written, far too few.
//
// So the fence keeps it, in a file of its own: after every flush of a log or manifest
// its number and its length then. The file itself is never flushed. After the death
// of the process it is exact; after that of the machine it may be an older one, which
// is less than is true and never more.
const markName = "SYNCED"

// markBytes is a mark: the file's number, its length, and a checksum over both.
const markBytes = 20

// slot is the place of a mark in the file.
type slot int

const (
	noSlot       slot = -1
	logSlot      slot = 0
	manifestSlot slot = 1
)

// mark keeps how far the newest log and manifest are durable.
type mark struct {
	mu   sync.Mutex // a leaf
	file vfs.File   // nil if there can be none
}

// openMark opens the file for writing. Going without it is no error.
func openMark(fs vfs.FS, dir string) *mark {
	f, err := fs.OpenReadWrite(fs.PathJoin(dir, markName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return &mark{}
	}
	return &mark{file: f}
}

// note says that a file is durable up to a length.
func (m *mark) note(s slot, number uint64, length int64) {
	var b [markBytes]byte
	binary.LittleEndian.PutUint64(b[0:], number)
	binary.LittleEndian.PutUint64(b[8:], uint64(length))
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli()))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		if _, err := m.file.WriteAt(b[:], int64(s)*markBytes); err != nil {
			_ = m.file.Close()
			m.file = nil
		}
	}
}

func (m *mark) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		_ = m.file.Close()
		m.file = nil
	}
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Durable is how far a file of the store was durable, at least.
type Durable struct {
	Number uint64 // of the file
	Bytes  int64
}

// Durables returns what is known of the newest log and the newest manifest of the
// store in dir; zero where nothing is.
func Durables(fs vfs.FS, dir string) (log, manifest Durable) {
	b, err := readAll(fs, fs.PathJoin(dir, markName))
	if err != nil {
		return log, manifest
	}
	read := func(s slot) (d Durable) {
		if at := int(s) * markBytes; len(b) >= at+markBytes {
			if p := b[at : at+markBytes]; crc32.Checksum(p[:16], castagnoli()) == binary.LittleEndian.Uint32(p[16:]) {
				d = Durable{binary.LittleEndian.Uint64(p), int64(binary.LittleEndian.Uint64(p[8:]))}
			}
		}
		return d
	}
	return read(logSlot), read(manifestSlot)
}

func readAll(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// Names of Pebble's files.
const (
	manifestStart = "MANIFEST-"
	logEnd        = ".log"
	tableEnding   = ".sst"
	currentStart  = "marker.manifest."
	formatStart   = "marker.format-version."
)

// number returns the number in a name between start and end.
func number(base, start, end string) (n uint64, ok bool) {
	base, ok = strings.CutPrefix(base, start)
	if !ok {
		return 0, false
	}
	if base, ok = strings.CutSuffix(base, end); !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(base, 10, 64)
	return n, err == nil
}

// markedFile returns in which slot the durable length of a file is kept, and its number.
func markedFile(base string) (slot, uint64) {
	if n, ok := number(base, "", logEnd); ok {
		return logSlot, n
	}
	if n, ok := number(base, manifestStart, ""); ok {
		return manifestSlot, n
	}
	return noSlot, 0
}

// Files are the files of a store by their numbers, ascending.
type Files struct {
	Logs, Tables, Manifests []uint64
	// Current is the number of the manifest that is in use, 0 if nothing says which.
	Current uint64
	// Format is Pebble's format of the store, 0 if nothing says which.
	Format uint64
}

// List returns the files of the store in dir. An absent directory has none.
func List(fsys vfs.FS, dir string) (f Files, err error) {
	names, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, tine.Errorf(tine.KindIO, "list %s: %w", dir, err)
	}
	for _, name := range names {
		if n, ok := number(name, "", logEnd); ok {
			f.Logs = append(f.Logs, n)
		} else if n, ok := number(name, "", tableEnding); ok {
			f.Tables = append(f.Tables, n)
		} else if n, ok := number(name, manifestStart, ""); ok {
			f.Manifests = append(f.Manifests, n)
		} else if rest, ok := strings.CutPrefix(name, currentStart); ok {
			// marker.manifest.COUNT.MANIFEST-NUMBER; that with the largest count holds.
			if _, target, ok := strings.Cut(rest, "."); ok {
				if n, ok := number(target, manifestStart, ""); ok {
					f.Current = max(f.Current, n)
				}
			}
		} else if rest, ok := strings.CutPrefix(name, formatStart); ok {
			if _, format, ok := strings.Cut(rest, "."); ok {
				if n, ok := number(format, "", ""); ok {
					f.Format = max(f.Format, n)
				}
			}
		}
	}
	slices.Sort(f.Logs)
	slices.Sort(f.Tables)
	slices.Sort(f.Manifests)
	return f, nil
}

// LogName, TableName and ManifestName return the names of files by their number.
func LogName(n uint64) string      { return fmt.Sprintf("%06d%s", n, logEnd) }
func TableName(n uint64) string    { return fmt.Sprintf("%06d%s", n, tableEnding) }
func ManifestName(n uint64) string { return fmt.Sprintf("%s%06d", manifestStart, n) }

// RepairHint says what to do about damaged files of a store.
const RepairHint = "check the device, and restore the data directory from a backup; or have `tine fsck --repair` save what can still be read"

// check looks at what Pebble would not notice: it takes a store without a marker for
// a new one, and removes its tables; it takes a manifest or log that has rotted for one
// that a crash has cut off. With cut, a damaged log is cut off where the damage
// begins, so that the store opens at the state before it.
// Errors: KindCorrupt; KindVersion; KindIO.
func check(fsys vfs.FS, dir string, cut bool) error {
	files, err := List(fsys, dir)
	if err != nil {
		return err
	}
	if len(files.Tables)+len(files.Logs)+len(files.Manifests) == 0 {
		if names, err := fsys.List(dir + SalvagedEnd); err == nil && len(names) > 0 {
			return tine.Errorf(tine.KindCorrupt, "a repair of %s was cut off", dir).WithHint("run `tine fsck --repair` again")
		}
	}
	if files.Format > uint64(Format) {
		return tine.Errorf(tine.KindVersion, "%s has Pebble's format %d; this program knows up to %d", dir, files.Format, Format).
			WithHint("use the newer tine that wrote it")
	}
	if files.Current == 0 && len(files.Tables)+len(files.Logs) > 0 {
		return tine.Errorf(tine.KindCorrupt, "%s has tables and logs, and no marker says which manifest they belong to", dir).WithHint(RepairHint)
	}
	log, manifest := Durables(fsys, dir)
	state, err := checkManifest(fsys, dir, files.Current, manifest)
	if err != nil {
		return err
	}
	if err := checkChain(fsys, dir, files, state); err != nil {
		return err
	}
	if log.Bytes == 0 {
		return nil
	}
	if !slices.Contains(files.Logs, log.Number) {
		// It goes when the manifest says that all its rows are in tables. An opening
		// does that before it makes a newer log, and can be cut off between the two.
		if state != nil && log.Number < state.FirstLog {
			return nil
		}
		return tine.Errorf(tine.KindCorrupt, "the log %s is missing; %d bytes of it were durable", fsys.PathJoin(dir, LogName(log.Number)), log.Bytes).
			WithHint(RepairHint)
	}
	return checkLog(fsys, dir, log, cut)
}

// SalvagedEnd is what the name of a directory ends with in which a repair has
// written a store anew, until it takes the place of the damaged one.
const SalvagedEnd = ".salvaged"

// checkManifest looks whether the manifest is whole as far as it was durable, and returns
// what it says.
func checkManifest(fsys vfs.FS, dir string, current uint64, known Durable) (*dbfiles.Manifest, error) {
	if current == 0 {
		return nil, nil
	}
	name := fsys.PathJoin(dir, ManifestName(current))
	b, err := readAll(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, tine.Errorf(tine.KindCorrupt, "the manifest %s is missing", name).WithHint(RepairHint)
	}
	if err != nil {
		return nil, translate("read "+name, err)
	}
	at := int64(-1)
	if known.Number == current {
		at = dbfiles.FirstBad(b, 0, known.Bytes)
	}
	if _, end := dbfiles.Records(b, 0); at < 0 && end.Later > 0 {
		at = end.At
	}
	if at >= 0 {
		return nil, tine.Errorf(tine.KindCorrupt, "the manifest %s is damaged at byte %d", name, at).WithHint(RepairHint)
	}
	m := &dbfiles.Manifest{}
	m.ReadManifest(b, true)
	return m, nil
}

// checkChain looks whether no log is missing of those with rows that are not in tables. The
// first of them is missed only if the manifest was last written before its rows were: what that
// says of sequence numbers is the newest that was given, not the newest in a table.
func checkChain(fsys vfs.FS, dir string, files Files, m *dbfiles.Manifest) error {
	if m == nil {
		return nil
	}
	chain := dbfiles.NewChain(m)
	for _, n := range files.Logs {
		if n < m.FirstLog {
			continue
		}
		b, err := readAll(fsys, fsys.PathJoin(dir, LogName(n)))
		if err != nil {
			return translate("read "+LogName(n), err)
		}
		records, end := dbfiles.Records(b, n)
		if wrong := chain.Add(LogName(n), records, end); wrong != "" {
			return tine.Errorf(tine.KindCorrupt, "%s: %s", dir, wrong).WithHint(RepairHint)
		}
	}
	return nil
}

// checkLog looks whether the log is whole as far as it was durable.
func checkLog(fsys vfs.FS, dir string, log Durable, cut bool) error {
	name := fsys.PathJoin(dir, LogName(log.Number))
	b, err := readAll(fsys, name)
	if err != nil {
		return translate("read "+name, err)
	}
	at := dbfiles.FirstBad(b, log.Number, log.Bytes)
	switch {
	case at < 0:
		return nil
	case !cut:
		return tine.Errorf(tine.KindCorrupt, "the log %s is damaged at byte %d; %d bytes of it were durable", name, at, log.Bytes).
			WithHint("check the device, and restore the data directory from a backup; or have `tine fsck --repair` cut the log off there, which loses what was written last")
	}
	f, err := fsys.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(b[:min(at, int64(len(b)))])
		err = errors.Join(err, f.Sync(), f.Close(), fsys.Remove(fsys.PathJoin(dir, markName)))
	}
	return translate("cut off "+name, err)
}
