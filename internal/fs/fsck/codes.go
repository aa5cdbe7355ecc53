package fsck

import "tine.dev/tine/internal/fs/fsck/codes"

// Severity says how much a finding matters.
type Severity = codes.Severity

// The severities; see package codes.
const (
	Error = codes.Error
	Leak  = codes.Leak
	Note  = codes.Note
)

// Entry is one code: a kind of finding.
type Entry = codes.Entry

// Codes returns all kinds of findings.
func Codes() []Entry { return codes.All() }

// EntryOf returns what a code means.
func EntryOf(code string) Entry { return codes.Of(code) }
