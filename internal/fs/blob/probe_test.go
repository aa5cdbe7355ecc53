package blob_test

import (
	"context"
	"testing"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/faulty"
	"tine.dev/tine/internal/fs/blob/mem"
	"tine.dev/tine/internal/tine"
)

// careless is a store that takes conditions and looks at some of them only.
type careless struct {
	blob.Driver
	absent, version bool // those that it looks at
}

func (c careless) Put(ctx context.Context, key blob.Key, data []byte, head blob.Head) (blob.Info, error) {
	if !c.absent {
		head.If.Absent = false
	}
	if !c.version {
		head.If.Version = ""
	}
	return c.Driver.Put(ctx, key, data, head)
}

func TestProbe(t *testing.T) {
	for _, c := range []careless{{absent: true, version: true}, {absent: true}, {version: true}, {}} {
		m := mem.New(mem.Options{})
		c.Driver = m
		err := blob.Probe(t.Context(), blob.NewStore(c, blob.Options{}), "probe/here")
		if good := c.absent && c.version; good != (err == nil) || !good && tine.KindOf(err) != tine.KindUnsupported {
			t.Errorf("absent %v, version %v: %v", c.absent, c.version, err)
		}
		if page, err := m.List(t.Context(), blob.ListOptions{}); err != nil || len(page.Objects) > 0 {
			t.Errorf("the probe leaves %+v, %v", page, err)
		}
	}
	denied := faulty.Wrap(mem.New(mem.Options{}), faulty.Plan{Faults: []faulty.Fault{{Ops: faulty.Put, What: faulty.Denied, Every: 1}}})
	if err := blob.Probe(t.Context(), blob.NewStore(denied, blob.Options{}), "probe"); tine.KindOf(err) != tine.KindAccess {
		t.Errorf("a store that cannot be asked: %v", err)
	}
}
