package salvage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/kv/pebble/dbfiles"
	"tine.dev/tine/internal/tine"
)

// surveyed is what is known of a store before its tables are read.
type surveyed struct {
	fs     vfs.FS
	dir    string
	schema dbfiles.Schema
	files  pebble.Files

	manifest dbfiles.Manifest
	whole    bool     // all of the manifest could be read
	tables   []uint64 // that are to be read
	logs     []*log

	damage  []kv.Damage
	onlyLog bool // nothing is damaged but the end of the newest log
}

// log is one log with rows that may not be in tables.
type log struct {
	number  uint64
	batches []batch
	// moved is set if its rows may be in tables already, see the package comment.
	moved bool
}

type batch struct {
	seq  uint64
	rows []dbfiles.Row // sequence numbers ascending
}

// survey reads the manifests and logs, and lists the tables.
func survey(fsys vfs.FS, dir string) (*surveyed, error) {
	s := &surveyed{fs: fsys, dir: dir, schema: pebble.Schema()}
	var err error
	if s.files, err = pebble.List(fsys, dir); err != nil {
		return nil, err
	}
	if len(s.files.Tables)+len(s.files.Logs)+len(s.files.Manifests) == 0 {
		return nil, tine.Errorf(tine.KindNotFound, "%s has nothing in it that could be saved", dir).WithHint("restore the data directory from a backup")
	}
	if s.files.Format > uint64(pebble.Format) {
		return nil, tine.Errorf(tine.KindVersion, "%s has Pebble's format %d; this program knows up to %d", dir, s.files.Format, pebble.Format).
			WithHint("repair it with the newer tine that wrote it")
	}
	if err := s.readManifests(); err != nil {
		return nil, err
	}
	s.chooseTables()
	before := len(s.damage)
	if err := s.readLogs(); err != nil {
		return nil, err
	}
	s.onlyLog = before == 0 && len(s.damage) > 0
	return s, nil
}

func (s *surveyed) tell(d kv.Damage) error {
	s.damage = append(s.damage, d)
	return nil
}

func (s *surveyed) say(file, format string, args ...any) {
	s.damage = append(s.damage, kv.Damage{File: file, What: fmt.Sprintf(format, args...)})
}

// readManifests takes in all manifests, the newest one last.
func (s *surveyed) readManifests() error {
	current := s.files.Current
	if current == 0 {
		s.say("", "no marker says which manifest of the row store holds")
		if n := len(s.files.Manifests); n > 0 {
			current = s.files.Manifests[n-1]
		}
	}
	_, durable := pebble.Durables(s.fs, s.dir)
	for _, n := range s.files.Manifests {
		b, err := s.read(pebble.ManifestName(n))
		if err != nil {
			return err
		}
		if n > current {
			continue // made, and not yet in use
		}
		s.manifest.ReadManifest(b, n == current)
		if n != current {
			continue
		}
		s.whole = s.manifest.Unread == 0 && len(b) > 0
		if at := dbfiles.FirstBad(b, 0, durable.Bytes); n == durable.Number && at >= 0 {
			s.whole = false
		}
	}
	if s.manifest.Virtual {
		return tine.Errorf(tine.KindUnsupported, "the row store reads tables that lie in an object store, or parts of files beside such; this version cannot write it anew").
			WithHint("take its disks up from their stores, with an empty data directory; disks that are on this machine alone are to be restored from a backup")
	}
	if !s.whole {
		s.say(pebble.ManifestName(current), "the manifest %s is missing or damaged: all tables that are there are taken for valid; rows that were deleted may come back, and be in an older state",
			pebble.ManifestName(current))
	}
	return nil
}

// read returns a file of the store; none if it is not there.
func (s *surveyed) read(base string) ([]byte, error) {
	f, err := s.fs.Open(s.fs.PathJoin(s.dir, base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, ioError("open "+base, err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, ioError("read "+base, err)
	}
	return b, nil
}

// chooseTables says which tables are read, and which are missing.
func (s *surveyed) chooseTables() {
	for _, n := range s.files.Tables {
		if _, live := s.manifest.Tables[n]; s.whole && live || !s.whole && !s.manifest.Gone[n] {
			s.tables = append(s.tables, n)
		}
	}
	var missing []uint64
	for n := range s.manifest.Tables {
		if !slices.Contains(s.tables, n) {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	for _, n := range missing {
		b := s.manifest.Tables[n]
		what := "the table %s is missing"
		if !s.whole {
			what += ", or was removed by a change of the manifest that cannot be read"
		}
		s.damage = append(s.damage, kv.Damage{File: pebble.TableName(n), What: fmt.Sprintf(what, pebble.TableName(n)),
			Lost: true, Lower: b.Smallest, Upper: b.Largest})
	}
}

// readLogs reads the logs that may have rows which are not in tables, up to the first
// damage.
func (s *surveyed) readLogs() error {
	durable, _ := pebble.Durables(s.fs, s.dir)
	newest := uint64(0)
	if n := len(s.files.Logs); n > 0 {
		newest = s.files.Logs[n-1]
	}
	var highest uint64
	if n := len(s.files.Tables); n > 0 {
		highest = s.files.Tables[n-1]
	}
	broken, later := "", 0
	chain := dbfiles.NewChain(&s.manifest)
	for i, n := range s.files.Logs {
		if n < s.manifest.FirstLog {
			continue
		}
		b, err := s.read(pebble.LogName(n))
		if err != nil {
			return err
		}
		records, end := dbfiles.Records(b, n)
		if broken != "" {
			later += len(records)
			continue
		}
		if wrong := chain.Add(pebble.LogName(n), records, end); wrong != "" && s.whole {
			broken, later = pebble.LogName(n), len(records)
			s.say(broken, "%s", wrong)
			continue
		}
		l := &log{number: n, moved: !s.whole && n != newest && highest > s.files.Logs[i+1]}
		for _, r := range records {
			rows, err := decodeBatch(r)
			if err != nil {
				end.Later, end.Closed = end.Later+len(records)-len(l.batches), false
				break
			}
			l.batches = append(l.batches, batch{uint64(batchrepr.ReadSeqNum(r)), rows})
		}
		s.logs = append(s.logs, l)
		short := n == durable.Number && dbfiles.FirstBad(b, n, durable.Bytes) >= 0
		if short || end.Later > 0 {
			broken, later = pebble.LogName(n), end.Later
			s.say(broken, "the log %s is damaged at byte %d of %d%s", broken, end.At, len(b), durableText(short, durable.Bytes))
		}
	}
	if durable.Bytes > 0 && durable.Number > newest {
		broken = pebble.LogName(durable.Number)
		s.say(broken, "the log %s is missing; %d bytes of it were durable", broken, durable.Bytes)
	}
	if broken != "" {
		d := &s.damage[len(s.damage)-1]
		d.What += "; what was written after that is lost, also if it was acknowledged as durable"
		if later > 0 {
			d.What += fmt.Sprintf(", %d commits of it for certain", later)
		}
	}
	return nil
}

func durableText(short bool, bytes int64) string {
	if !short {
		return ""
	}
	return fmt.Sprintf("; %d bytes of it were durable", bytes)
}

// decodeBatch returns the rows of a batch, range deletions among them.
func decodeBatch(r []byte) (rows []dbfiles.Row, err error) {
	defer func() {
		if p := recover(); p != nil { // the reader counts on what a checksum has confirmed
			err = tine.Errorf(tine.KindCorrupt, "a batch has no sense: %v", p)
		}
	}()
	h, ok := batchrepr.ReadHeader(r)
	if !ok {
		return nil, tine.Errorf(tine.KindCorrupt, "a batch without a header")
	}
	seq := uint64(h.SeqNum)
	for in := batchrepr.Read(r); ; {
		kind, key, value, ok, err := in.Next()
		if err != nil {
			return nil, tine.Errorf(tine.KindCorrupt, "%w", err)
		}
		if !ok {
			return rows, nil
		}
		if kind == pdb.InternalKeyKindLogData {
			continue // has no number
		}
		rows = append(rows, dbfiles.Row{Key: key, Seq: seq, Kind: kind, Value: value})
		seq++
	}
}

// verify reads all tables.
func (s *surveyed) verify() error {
	for _, n := range s.tables {
		err := dbfiles.VerifyTable(s.fs, s.fs.PathJoin(s.dir, pebble.TableName(n)), s.schema, func(d kv.Damage) error {
			s.onlyLog = false
			return s.tell(d)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
