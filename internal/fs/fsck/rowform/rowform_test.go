package rowform

import (
	"encoding/json"
	"strings"
	"testing"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestEveryTable: each table of the format has a name, a shape and a decoder,
// and a key of its shape is told from one that is cut.
func TestEveryTable(t *testing.T) {
	id := [tine.IDSize]byte{1}
	keys := map[string]record.Logical{
		"tree": record.IDKey(record.TableTree, id), "timeline": record.IDKey(record.TableTimeline, id),
		"checkpoint": record.IDKey(record.TableCheckpoint, id), "segment": record.IDKey(record.TableSegment, id),
		"tail": record.OffsetKey(record.TableTail, id, 5), "task": record.TaskKey(5), "log": record.LogKey(id, 5),
		"live": record.IDKey(record.TableLive, id), "piece": record.OffsetKey(record.TablePiece, id, 5),
		"alias": record.IDKey(record.TableAlias, id), "disk": record.IDKey(record.TableDisk, id), "policy": record.IDKey(record.TablePolicy, id),
		"inode": record.InodeKey(7), "dentry": record.DentryKey(7, "n"), "cookie": record.CookieKey(7, 3), "chunk": record.ChunkKey(7, 0),
		"xattr": record.XattrKey(7, "user.a"), "link": record.LinkKey(7, 1, "n"), "orphan": record.OrphanKey(7),
		"grave": record.IDKey(record.TableGrave, id), "outbox": record.OutboxKey(9), "shipped": record.TableKey(record.TableShipped),
		"counters": record.TableKey(record.TableCounters),
	}
	if len(Tables()) != len(keys) {
		t.Errorf("the tables are %v", Tables())
	}
	for name, l := range keys {
		if TableName(l.Table()) != name {
			t.Errorf("%s is called %s", name, TableName(l.Table()))
		}
		if good, known := Shape(l); !good || !known {
			t.Errorf("the key of a %s row is not of its shape", name)
		}
		if good, _ := Shape(l + "\x00"); good {
			t.Errorf("a longer key of a %s row is of its shape", name)
		}
		if name != "tail" && Decodes(l.Table(), []byte{0xff}) == nil {
			t.Errorf("a %s row of a format that does not exist decodes", name)
		}
		r := Describe(record.Key(id, l, 2), []byte{0xff})
		if r.Table != name || r.Owner == "" || name != "tail" && (r.Error == "" || r.Raw != "ff") {
			t.Errorf("%+v", r)
		}
	}
}

func TestDescribe(t *testing.T) {
	s := tine.StratumID{1}
	d := record.Dentry{Ino: 9, Type: 8, Cookie: 3}
	r := Describe(record.Key(s, record.DentryKey(1, "a\nb"), 4), d.Append(nil))
	b, err := json.Marshal(r)
	if err != nil || r.Owner != s.String() || r.Epoch != 4 || r.Key != `1 "a\nb"` || r.Value != d || !strings.Contains(string(b), `"Ino":9`) {
		t.Errorf("%v, %s", err, b)
	}
	if r := Describe(record.Key(s, record.InodeKey(9), 4), []byte{0}); !r.Tombstone {
		t.Errorf("%+v", r)
	}
	if r := Describe([]byte("short"), nil); r.Table != "unknown" || r.Error == "" {
		t.Errorf("%+v", r)
	}
	if r := Describe(record.Key(s, record.Logical("\x21abc"), 4), nil); r.Error == "" {
		t.Errorf("%+v", r)
	}
}
