package tine

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Kind names what an identifier identifies. It exists so that a SegmentID can
// never be passed where a StratumID is meant: the compiler holds them apart,
// and the text form carries the kind for people and for logs.
type Kind interface{ prefix() string }

type (
	tenantKind     struct{}
	storeKind      struct{}
	treeKind       struct{}
	timelineKind   struct{}
	stratumKind    struct{}
	segmentKind    struct{}
	diskKind       struct{}
	checkpointKind struct{}
	sessionKind    struct{}
	serverKind     struct{}
	runKind        struct{}
)

func (tenantKind) prefix() string     { return "ten" }
func (storeKind) prefix() string      { return "sto" }
func (treeKind) prefix() string       { return "tre" }
func (timelineKind) prefix() string   { return "tml" }
func (stratumKind) prefix() string    { return "str" }
func (segmentKind) prefix() string    { return "seg" }
func (diskKind) prefix() string       { return "dsk" }
func (checkpointKind) prefix() string { return "cpt" }
func (sessionKind) prefix() string    { return "ses" }
func (serverKind) prefix() string     { return "srv" }
func (runKind) prefix() string        { return "run" }

// IDSize is the length in bytes of every identifier.
const IDSize = 16

// ID is a globally unique identifier: 48 bits of milliseconds since 1970, then
// 80 random bits. Its first bytes grow with time, so ids made together sort
// together and lie together in the rows.
//
// The text form is the kind's prefix, an underscore and 26 characters of
// lower-case Crockford base 32; it is the only text form, and Parse accepts
// nothing else.
type ID[K Kind] [IDSize]byte

// The identifiers of the system, one type each.
type (
	TenantID     = ID[tenantKind]
	StoreID      = ID[storeKind]
	TreeID       = ID[treeKind]
	TimelineID   = ID[timelineKind]
	StratumID    = ID[stratumKind]
	SegmentID    = ID[segmentKind]
	DiskID       = ID[diskKind]
	CheckpointID = ID[checkpointKind]
	SessionID    = ID[sessionKind]
	ServerID     = ID[serverKind]
	RunID        = ID[runKind]
)

var crockford = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewID returns a fresh identifier stamped with the given time:
// tine.NewID[tine.SegmentID](now). It panics only if the system's random
// source fails, which Go documents as fatal.
func NewID[T ~[IDSize]byte](now time.Time) T {
	var id [IDSize]byte
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(now.UnixMilli()))
	copy(id[:6], stamp[2:])
	if _, err := rand.Read(id[6:]); err != nil {
		panic(err)
	}
	return T(id)
}

// IsZero reports whether the identifier was never set.
func (id ID[K]) IsZero() bool { return id == ID[K]{} }

// String returns the text form.
func (id ID[K]) String() string {
	var k K
	return k.prefix() + "_" + crockford.EncodeToString(id[:])
}

// Parse reads the text form of an identifier. Any other text is an error of
// kind KindInvalid, and leaves id as it was.
func (id *ID[K]) Parse(s string) error {
	var k K
	rest, ok := strings.CutPrefix(s, k.prefix()+"_")
	if ok && len(rest) == 26 {
		raw, err := crockford.DecodeString(rest)
		if err == nil && crockford.EncodeToString(raw) == rest {
			copy(id[:], raw)
			return nil
		}
	}
	return Errorf(KindInvalid, "%q is not an id of the form %s_...", s, k.prefix())
}

// MarshalText gives the text form, so that ids appear in JSON as text.
func (id ID[K]) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is Parse.
func (id *ID[K]) UnmarshalText(b []byte) error { return id.Parse(string(b)) }

// DefaultTenant is the one tenant of an embedded server. Its id is fixed so
// that a data directory can be moved between machines.
var DefaultTenant = TenantID{'d', 'e', 'f', 'a', 'u', 'l', 't'}

// Ino is an inode number: dense, unique within a timeline, never reused in it.
// Only the low 48 bits are used, so that a mount can carry its generation in
// the upper 16 bits of a kernel node id.
type Ino uint64

// RootIno is the inode number of the root directory of every disk.
const RootIno Ino = 1

// MaxIno is the largest inode number.
const MaxIno Ino = 1<<48 - 1

// Epoch counts the frozen states of a lineage. It grows along a lineage: a
// child starts at its branch epoch + 1, and every checkpoint or fork of a
// written timeline bumps it.
type Epoch uint64

// Head is the epoch at which the head of a timeline pins what it shows: later
// than every birth.
const Head Epoch = 1<<63 - 1

// String prints the epoch; the head prints as "head".
func (e Epoch) String() string {
	if e == Head {
		return "head"
	}
	return fmt.Sprintf("e%d", uint64(e))
}
