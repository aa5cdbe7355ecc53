package stratum

import "tine.dev/tine/internal/tine"

// Found is what a look-up gives: a value, a tombstone or nothing, and the
// birth of the version.
type Found struct {
	Val   []byte
	Birth tine.Epoch
	Kind  Kind
}

// Exists reports that there is a value.
func (f Found) Exists() bool { return f.Kind == Value }

// Kind tells what a look-up has found.
type Kind uint8

// The kinds.
const (
	Nothing   Kind = iota // neither a value nor a tombstone, anywhere
	Tombstone             // deleted
	Value
)

// Found is the version as a look-up finds it.
func (v Version) Found() Found {
	if v.Tomb {
		return Found{Birth: v.Birth, Kind: Tombstone}
	}
	return Found{Val: v.Val, Birth: v.Birth, Kind: Value}
}
