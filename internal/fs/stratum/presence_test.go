package stratum

import (
	"hash/maphash"
	"testing"

	"tine.dev/tine/internal/fs/record"
	"tine.dev/tine/internal/tine"
)

// TestPresenceIsNeverTooNarrow: a filter may say yes to anything, but never no
// to what was added; and it must say no often enough to be worth having.
func TestPresenceIsNeverTooNarrow(t *testing.T) {
	s := New(tine.StratumID{1})
	s.filter.Store(newPresence(maphash.MakeSeed(), 2000))
	for i := range 1000 {
		s.Note(record.ChunkKey(tine.Ino(i), uint64(i)))
	}
	wrong := 0
	for i := range 1000 {
		if s.lacks(record.ChunkKey(tine.Ino(i), uint64(i))) || s.lacks(record.InoPrefix(record.TableChunk, tine.Ino(i))) {
			t.Fatalf("inode %d was added and is denied", i)
		}
		if !s.lacks(record.ChunkKey(tine.Ino(i+5000), 0)) {
			wrong++
		}
	}
	if wrong > 50 {
		t.Errorf("%d of 1000 absent keys are not denied", wrong)
	}
}

// TestOutgrownPresenceGoes: a filter that holds many times what it was made
// for answers yes to nearly all, so it is given up.
func TestOutgrownPresenceGoes(t *testing.T) {
	s := New(tine.StratumID{1})
	s.filter.Store(newPresence(maphash.MakeSeed(), 10))
	for i := range 1000 {
		s.Note(record.InodeKey(tine.Ino(i)))
	}
	if s.Filtered() {
		t.Error("the filter is still there")
	}
}

// TestEmptyStratumDeniesAll: one that nothing was written to says so, and what
// is written to it is never denied.
func TestEmptyStratumDeniesAll(t *testing.T) {
	s := Empty(tine.StratumID{1}, maphash.MakeSeed())
	for i := range 3000 {
		k := record.InodeKey(tine.Ino(i))
		if i == 0 && !s.lacks(k) {
			t.Error("it does not deny what it cannot have")
		}
		s.Note(k)
		if s.lacks(k) {
			t.Fatalf("inode %d was noted and is denied", i)
		}
	}
	if s.Filtered() {
		t.Error("3,000 rows are more than its first filter can tell apart; it is still there")
	}
}

// TestTheSameKeysDoNotFillAFilter: rewriting a few rows for ever leaves the
// filter as good as it was.
func TestTheSameKeysDoNotFillAFilter(t *testing.T) {
	s := Empty(tine.StratumID{1}, maphash.MakeSeed())
	for i := range 100_000 {
		s.Note(record.InodeKey(tine.Ino(i % 50)))
	}
	if !s.Filtered() || !s.lacks(record.DentryKey(7, "absent")) && !s.lacks(record.DentryKey(8, "absent")) {
		t.Error("fifty rows, written again and again, have spoilt the filter")
	}
}
