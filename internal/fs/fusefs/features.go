package fusefs

import (
	"log/slog"
	"math/bits"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine.dev/tine/internal/tine"
)

// Features is a set of things that a kernel may or may not offer to a file
// system in user space. Each can be turned off for one mount
// (Options.Disable), which is how the suites run as on an old kernel.
type Features uint32

// The features. Without one, the mount does the same with more requests,
// unless the comment says otherwise.
const (
	// AtomicTruncate: open(O_TRUNC) is one request.
	AtomicTruncate Features = 1 << iota
	// KillPrivileges: writes, truncations and changes of owner clear
	// set-user-ID and set-group-ID here and not by a request of their own.
	KillPrivileges
	// ReaddirPlus: listings bring the attributes along, when the kernel
	// thinks that they will be wanted.
	ReaddirPlus
	// ParallelDirops: lookups and listings in one directory run side by side.
	ParallelDirops
	// AsyncRead: several reads of one file run side by side.
	AsyncRead
	// BigRequests: reads and writes of up to 1 MiB; else 128 KiB.
	BigRequests
	// SymlinkCache: the kernel keeps the targets of symbolic links.
	SymlinkCache
	// DirectoryCache: the kernel keeps listings while the disk has one session.
	DirectoryCache
	// ExplicitInvalidation: the kernel drops pages when told, not whenever
	// it sees a new modification time (its own writes make those too).
	ExplicitInvalidation
	// Locks: flock and fcntl locks reach the owner of the disk. Without,
	// they hold among the programs of one mount only.
	Locks
	// DirectMmap: a file opened without page cache (an append on a shared
	// disk, cache=none) can be mapped shared; else mmap fails with ENODEV.
	DirectMmap
	// CreationTime: statx(2) shows when a file was made.
	CreationTime
	// ACLs: the kernel keeps to access control lists. Without, those that are
	// on the disk stay, follow chmod and are inherited, but programs neither
	// see them nor are bound by them; what the mode says holds alone.
	ACLs
	// EpochNotify: one notification makes the kernel doubt every name it
	// holds. Without, the names in the root directory are remembered here.
	EpochNotify

	numFeatures = iota
	// AllFeatures is every feature there is.
	AllFeatures Features = 1<<numFeatures - 1
)

var featureNames = [numFeatures]string{
	"atomic-truncate", "kill-privileges", "readdirplus", "parallel-dirops", "async-read", "big-requests",
	"symlink-cache", "directory-cache", "explicit-invalidation", "locks", "direct-mmap", "creation-time", "acl", "epoch-notify",
}

// featureCaps are the protocol's flags for those features that have one. A
// kernel has the feature if it offers all of them.
//
// ASYNC_DIO is left alone on purpose. With it the kernel does not drop its pages
// of a range after an asynchronous direct write, so what somebody read meanwhile
// stays there, and reads return the old content from then on.
var featureCaps = [numFeatures]uint64{
	fuse.CAP_ATOMIC_O_TRUNC, fuse.CAP_HANDLE_KILLPRIV_V2, fuse.CAP_READDIRPLUS | fuse.CAP_READDIRPLUS_AUTO,
	fuse.CAP_PARALLEL_DIROPS, fuse.CAP_ASYNC_READ, fuse.CAP_BIG_WRITES | fuse.CAP_MAX_PAGES,
	fuse.CAP_CACHE_SYMLINKS, 0, fuse.CAP_EXPLICIT_INVAL_DATA, fuse.CAP_POSIX_LOCKS | fuse.CAP_FLOCK_LOCKS,
	fuse.CAP_DIRECT_IO_ALLOW_MMAP, 0, fuse.CAP_POSIX_ACL | fuse.CAP_DONT_MASK, 0,
}

// Has reports whether all of g are in f.
func (f Features) Has(g Features) bool { return f&g == g }

// Names lists the features of the set by their stable names.
func (f Features) Names() []string {
	var names []string
	for rest := f & AllFeatures; rest != 0; rest &= rest - 1 {
		names = append(names, featureNames[bits.TrailingZeros32(uint32(rest))])
	}
	return names
}

// String is Names, separated by commas.
func (f Features) String() string { return strings.Join(f.Names(), ",") }

// ParseFeatures is the reverse of String; "all" stands for all of them. An
// unknown name is an error of kind tine.KindInvalid.
func ParseFeatures(s string) (Features, error) {
	var f Features
	for name := range strings.SplitSeq(s, ",") {
		g, err := parseFeature(strings.TrimSpace(name))
		if err != nil {
			return 0, err
		}
		f |= g
	}
	return f, nil
}

func parseFeature(name string) (Features, error) {
	switch name {
	case "":
		return 0, nil
	case "all":
		return AllFeatures, nil
	}
	for i, n := range featureNames {
		if n == name {
			return 1 << i, nil
		}
	}
	return 0, tine.Errorf(tine.KindInvalid, "there is no kernel feature %q", name).
		WithHint("use some of: %s", strings.Join(featureNames[:], ", "))
}

// capabilities returns the protocol flags of the features in f.
func (f Features) capabilities() uint64 {
	var caps uint64
	for i, c := range featureCaps {
		if f.Has(1 << i) {
			caps |= c
		}
	}
	return caps
}

// offeredBy returns those of f that a kernel with these flags has. It cannot
// tell EpochNotify and CreationTime, which have no flag.
func (f Features) offeredBy(flags uint64) Features {
	for i, c := range featureCaps {
		if flags&c != c {
			f &^= 1 << i
		}
	}
	return f
}

// maxRequestBytes is the largest read or write request.
func (f Features) maxRequestBytes() int {
	if f.Has(BigRequests) {
		return 1 << 20
	}
	return 128 << 10
}

// serverOptions says to the protocol library what this mount wants.
func serverOptions(o Options, log *slog.Logger) *fuse.MountOptions {
	want := AllFeatures &^ o.Disable
	// SETXATTR_EXT says whether an ACL comes from outside the file's group;
	// EXPORT_SUPPORT, that what a file handle names can be asked for.
	extra := want.capabilities() | fuse.CAP_SETXATTR_EXT | fuse.CAP_EXPORT_SUPPORT
	if o.Writeback {
		extra |= fuse.CAP_WRITEBACK_CACHE
	}
	// Passthrough would cost stacking depth and is of no use to us.
	disabled := (AllFeatures&^want).capabilities()&^want.capabilities() | fuse.CAP_PASSTHROUGH
	return &fuse.MountOptions{
		Name:                     "tine",
		FsName:                   o.Source,
		MaxBackground:            64,
		MaxWrite:                 want.maxRequestBytes(),
		EnableLocks:              want.Has(Locks),
		EnableSymlinkCaching:     want.Has(SymlinkCache),
		ExplicitDataCacheControl: want.Has(ExplicitInvalidation),
		DisableReadDirPlus:       !want.Has(ReaddirPlus),
		// Data comes from memory, not from a descriptor, so splicing
		// would only add a pipe to every read.
		DisableSplice:        true,
		IDMappedMount:        o.IDMapped,
		ExtraCapabilities:    extra,
		DisabledCapabilities: disabled,
		Logger:               slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		Debug:                o.Trace,
		PanicHandler:         panicHandler(log),
	}
}
