package rowform

import (
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// Row is a row for people to read.
type Row struct {
	Table     string     `json:"table"`
	Owner     string     `json:"owner"`
	Key       string     `json:"key"` // what the row is of, after owner and table
	Epoch     tine.Epoch `json:"epoch"`
	Tombstone bool       `json:"tombstone,omitempty"`
	Value     any        `json:"value,omitempty"` // decoded
	Raw       string     `json:"raw,omitempty"`   // the value in hexadecimal, if it does not decode
	Error     string     `json:"error,omitempty"` // why
	FullKey   string     `json:"full_key"`        // in hexadecimal
}

// Describe explains one row.
func Describe(key, value []byte) Row {
	r := Row{FullKey: hex.EncodeToString(key)}
	owner, l, epoch, err := record.SplitKey(key)
	if err != nil {
		r.Table, r.Error, r.Raw = "unknown", err.Error(), hex.EncodeToString(value)
		return r
	}
	r.Table, r.Epoch = TableName(l.Table()), epoch
	r.Owner = ownerText(l.Table(), owner)
	if good, _ := Shape(l); !good {
		r.Key, r.Error, r.Raw = hex.EncodeToString([]byte(l[1:])), "the key is malformed", hex.EncodeToString(value)
		return r
	}
	r.Key = keyText(l)
	if FileTable(l.Table()) && IsTombstone(value) {
		r.Tombstone = true
		return r
	}
	if err := Decodes(l.Table(), value); err != nil {
		r.Error, r.Raw = err.Error(), hex.EncodeToString(value)
		return r
	}
	r.Value = valueOf(l.Table(), value)
	return r
}

func ownerText(t record.Table, owner [tine.IDSize]byte) string {
	switch {
	case FileTable(t):
		return tine.StratumID(owner).String()
	case TenantTable(t):
		return tine.TenantID(owner).String()
	}
	return tine.TreeID(owner).String()
}

func keyText(l record.Logical) string {
	id, n := l.ID()
	switch l.Table() {
	case record.TableTree:
		return tine.TreeID(id).String()
	case record.TableDisk, record.TablePolicy:
		return tine.DiskID(id).String()
	case record.TableTimeline, record.TableAlias:
		return tine.TimelineID(id).String()
	case record.TableCheckpoint:
		return tine.CheckpointID(id).String()
	case record.TableSegment, record.TableLive, record.TableGrave:
		return tine.SegmentID(id).String()
	case record.TableTail, record.TablePiece:
		return fmt.Sprintf("%s %d", tine.SegmentID(id), n)
	case record.TableLog:
		return fmt.Sprintf("%s %d", tine.DiskID(id), n)
	case record.TableTask, record.TableOutbox:
		return fmt.Sprint(l.Seq())
	case record.TableInode, record.TableOrphan:
		return fmt.Sprint(uint64(l.Ino()))
	case record.TableDentry, record.TableXattr:
		return fmt.Sprintf("%d %q", l.Ino(), l.Name())
	case record.TableCookie, record.TableChunk:
		return fmt.Sprintf("%d %d", l.Ino(), l.Number())
	case record.TableLink:
		return fmt.Sprintf("%d %d %q", l.Ino(), l.LinkParent(), l.Name())
	}
	return ""
}

// valueOf decodes a value that is known to decode.
func valueOf(t record.Table, v []byte) any {
	switch t {
	case record.TableTree:
		x, _ := record.DecodeTree(v)
		return x
	case record.TableTimeline:
		x, _ := record.DecodeTimeline(v)
		return x
	case record.TableCheckpoint:
		x, _ := record.DecodeCheckpoint(v)
		return x
	case record.TableSegment:
		x, _ := record.DecodeSegment(v)
		return x
	case record.TableTask:
		x, _ := record.DecodeTask(v)
		return x
	case record.TableLog:
		x, _ := record.DecodeLogEntry(v)
		return x
	case record.TableLive:
		x, _ := record.DecodeLive(v)
		return x
	case record.TablePiece:
		x, _ := record.DecodePiece(v)
		return x
	case record.TableAlias:
		x, _ := record.DecodeAlias(v)
		return x
	case record.TableDisk:
		x, _ := record.DecodeDisk(v)
		return x
	case record.TablePolicy:
		x, _ := record.DecodePolicy(v)
		return x
	case record.TableInode:
		x, _ := record.DecodeInode(v)
		return x
	case record.TableDentry:
		x, _ := record.DecodeDentry(v)
		return x
	case record.TableCookie:
		x, _ := record.DecodeCookie(v)
		return x
	case record.TableChunk:
		x, _ := record.DecodeChunk(v)
		return x
	case record.TableCounters:
		x, _ := record.DecodeCounters(v)
		return x
	case record.TableXattr:
		return map[string]string{"Value": text(v[1:])}
	case record.TableGrave:
		x, _ := record.DecodeGrave(v)
		return x
	case record.TableShipped:
		x, _ := record.DecodeShipped(v)
		return x
	case record.TableTail, record.TableOutbox:
		return map[string]int{"Bytes": len(v)}
	}
	return nil
}

// text is bytes as text, if they are, and else in hexadecimal.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return "0x" + hex.EncodeToString(b)
}

// Tables returns the names of all tables.
func Tables() []string {
	var names []string
	for t := range 256 {
		if n := TableName(record.Table(t)); n != "unknown" {
			names = append(names, n)
		}
	}
	return names
}
