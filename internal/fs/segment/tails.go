package segment

// TailRun is a run of an open segment's bytes that lies in a tail row.
type TailRun struct{ Off, Len int64 }

// Tails are the tail rows of one segment, as they are stored.
type Tails []TailRun

// Below returns the offsets of those that end at or below off.
func (ts Tails) Below(off int64) []int64 {
	var offs []int64
	for _, t := range ts {
		if t.Off+t.Len <= off {
			offs = append(offs, t.Off)
		}
	}
	return offs
}

// After returns what is stored once a commit has brought what Harden returned: those
// that it made needless are gone, and its own are there. The receiver is used up.
func (ts Tails) After(h Hardened) Tails {
	kept := ts[:0]
	for _, t := range ts {
		if t.Off+t.Len > h.DropTailsBelow {
			kept = append(kept, t)
		}
	}
	for _, t := range h.Tails {
		kept = append(kept, TailRun{t.Off, int64(len(t.Bytes))})
	}
	return kept
}
