package record

import (
	"testing"
	"time"

	"tine.dev/tine/internal/tine"
)

func TestDisk(t *testing.T) {
	now := time.Now()
	k := Disk{Tree: tine.NewID[tine.TreeID](now), Timeline: tine.NewID[tine.TimelineID](now), Name: "a", Created: now.UnixNano(), Origin: "x", Moves: 3}
	got, err := DecodeDisk(k.Append(nil))
	t.Log(err, got)
	if got != k || err != nil {
		t.Fatal(got, k, err)
	}
}
