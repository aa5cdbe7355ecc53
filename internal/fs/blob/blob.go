// Package blob is the seam under everything that lives in an object store: a
// map from keys to immutable bytes, with conditional writes.
//
// Two halves. A Driver speaks to one kind of store and makes one attempt a
// call; it knows nothing of retries. A Store is what the layers above use: it
// stands on a Driver and adds, once for all drivers, what every caller needs
// and would otherwise get wrong: keys that are legal in every store, retries
// with jitter under one budget, a time limit for each attempt, uploads in
// parts, checksums over the whole way, and the answer to "was that write mine?"
// when an acknowledgement was lost.
//
// What stores do not agree on is not in the contract: conditional deletes,
// listing in another delimiter than "/", appending, and a key that is also the
// folder of another key.
//
// A version is opaque. A store may give equal bytes an equal version (S3 does),
// so what is swapped by version must carry something that never repeats, such
// as a growing number; then a request that arrives late cannot win twice.
//
// Checksums: every object is stored with the CRC32C of all its bytes. The
// store checks it, or that of each part, as it receives; a Get of a whole
// object checks it again. A Get of a range can be checked for its length and
// version only: formats that are read in ranges carry checksums of their own.
//
// Drivers: mem (the reference), dir (a directory), s3, gcs, azure, and faulty,
// which wraps another and fails on a seed's say; package open makes one of an
// URL. One contract suite, blobtest, runs against all, on real servers.
//
// Importing this package or one below it registers nothing and reaches nothing:
// what a driver needs, its Open makes.
package blob

import (
	"context"
	"time"

	"tine.dev/tine/internal/tine"
)

// Version names one state of one object. Opaque; never empty for an object
// that exists. See the package comment for what equal versions mean.
type Version string

// Condition is what must hold for a write to happen. The zero value always
// holds. At most one field is set.
type Condition struct {
	Absent  bool    // there is no object under the key
	Version Version // the object under the key is in this state
}

// Head is what a writer says about the bytes that it writes.
type Head struct {
	If     Condition
	Size   int64  // bytes of the whole object
	CRC32C uint32 // of the whole object
	// Mark names the call that writes: the same for every attempt of one
	// call, never the same for two calls. It is stored with the object, so
	// that a writer whose acknowledgement was lost can know its own object.
	Mark Mark
}

// Mark is a random number of 16 bytes.
type Mark [16]byte

// Info is what a store says about an object.
type Info struct {
	Key      Key
	Size     int64 // bytes
	Version  Version
	Modified time.Time // by the store's clock, not for ordering; a store may leave it out of the answer to a write
	CRC32C   uint32    // as in Head; valid if Checked
	Checked  bool      // the object was stored with a checksum: false only for objects that others wrote
	Mark     Mark      // as in Head; zero for objects that others wrote
}

// Range is a part of an object. The zero value is all of it; Length 0 means
// up to the end.
type Range struct{ Offset, Length int64 }

// Whole reports whether the range is the zero value.
func (r Range) Whole() bool { return r == Range{} }

// Resolve returns how many bytes the range is of an object of size bytes. A
// range that is not wholly inside the object is an error of kind
// tine.KindRange: a short read is never taken for a short object.
func (r Range) Resolve(size int64) (int64, error) {
	switch {
	case r.Whole():
		return size, nil
	case r.Offset < 0 || r.Length < 0:
		return 0, tine.Errorf(tine.KindInvalid, "range %d+%d is negative", r.Offset, r.Length)
	case r.Offset >= size || r.Length > size-r.Offset:
		return 0, tine.Errorf(tine.KindRange, "range %d+%d is not inside an object of %d bytes", r.Offset, r.Length, size)
	case r.Length == 0:
		return size - r.Offset, nil
	}
	return r.Length, nil
}

// GetOptions say what to read.
type GetOptions struct {
	Range   Range
	Version Version // if not empty: of this state or not at all
	Limit   int64   // bytes that an answer may have at most; 0: no limit
}

// Buffer returns a buffer of the length of the answer about an object of size
// bytes: tine.KindRange if the range is not inside it, tine.KindTooBig past the
// limit.
func (o GetOptions) Buffer(key Key, size int64) ([]byte, error) {
	n, err := o.Range.Resolve(size)
	if err != nil {
		return nil, err
	}
	if o.Limit > 0 && n > o.Limit {
		return nil, tine.Errorf(tine.KindTooBig, "get %q: %d bytes; at most %d", key, n, o.Limit)
	}
	return make([]byte, n), nil
}

// ListOptions say what to list.
type ListOptions struct {
	Prefix     string // of keys, byte for byte; need not end at a "/"
	Delimiter  string // "" lists all keys; "/" folds those with a further "/" after Prefix into prefixes
	StartAfter string // only keys and prefixes that are greater, byte for byte
	Token      string // Page.Next of the page before, with all other options the same
	Limit      int    // entries a page at most; 0: as many as the store likes
}

// Entry is one object in a listing.
type Entry struct {
	Key      Key // in a store that others write to, possibly not a legal key
	Size     int64
	Modified time.Time
}

// Page is one answer of a listing: objects and prefixes, each in byte order.
// A page may be empty and yet not the last.
type Page struct {
	Objects  []Entry
	Prefixes []string
	Next     string // token for the next page; "" after the last
}

// KeyError says why one key of many failed.
type KeyError struct {
	Key Key
	Err error // a *tine.Error
}

// Traits are what a driver says about its store. They do not change.
type Traits struct {
	Name           string // for people: scheme and place, never a credential
	Region         string // where the store is, "" if the driver does not know
	MinPartBytes   int64  // of a part of an upload, but for the last
	MaxSingleBytes int64  // that one Put may carry
	MaxParts       int    // of an upload
	DeleteBatch    int    // keys that one Delete may carry
	// SweepsItself: the store drops by itself, within days, what uploads left
	// behind, and gives nobody else a way to: Abort and Sweep leave it there.
	SweepsItself bool
}

// Driver speaks to one store. It is safe for concurrent use.
//
// Each call is one attempt. Every error is a *tine.Error whose text holds no
// credential, of a kind that means the same for all drivers:
//
//	KindNotFound     there is no such object (and the bucket is there)
//	KindExists       If.Absent did not hold
//	KindConflict     If.Version or GetOptions.Version did not hold; for a write, also if there is no object
//	KindRange        the range is not inside the object
//	KindCorrupt      bytes do not match their checksum, on the way or at rest
//	KindAccess       credentials are missing, wrong, expired or not sufficient
//	KindNoSpace      bucket or device is full; KindReadOnly: it takes no writes
//	KindStale        the upload is no longer known: completed, aborted or swept
//	KindInterrupted  ctx ended first; context.Cause(ctx) is in the chain
//	KindUnavailable  no answer, or a refusal for now: 503, 429, broken connection
//	KindUnsupported  the store cannot do it
//	KindInvalid, KindNameTooLong, KindTooBig  the caller's mistake
//	KindIO           a device under the store failed
//
// A write that fails with KindUnavailable, KindInterrupted, KindIO or
// KindCorrupt may have happened, or may happen later. After any other error it
// has not happened and will not.
type Driver interface {
	// Get reads an object or a range of it. The bytes are the caller's.
	Get(ctx context.Context, key Key, opt GetOptions) ([]byte, Info, error)
	// Put writes data under key if head.If holds, atomically: no reader sees
	// a part. When it returns, the object is durable and every later call by
	// anyone sees it. data must not change until then.
	Put(ctx context.Context, key Key, data []byte, head Head) (Info, error)
	// Upload starts a write in parts. Nothing is seen under key before
	// Complete.
	Upload(ctx context.Context, key Key, head Head) (Upload, error)
	// Stat tells of an object without its bytes.
	Stat(ctx context.Context, key Key) (Info, error)
	// List returns a page of keys. A failure is always an error, never a
	// short page.
	List(ctx context.Context, opt ListOptions) (Page, error)
	// Delete removes at most DeleteBatch objects, each on its own. A key
	// without object counts as removed. It returns the keys that failed; an
	// error means that any of them may or may not be removed.
	Delete(ctx context.Context, keys []Key) ([]KeyError, error)
	// Copy makes dst the same bytes, checksum and mark as src within the
	// store, replacing what is there.
	Copy(ctx context.Context, src, dst Key) error
	// Sweep removes what uploads that were begun before a time have left
	// behind, and returns how many there were.
	Sweep(ctx context.Context, before time.Time) (int, error)
	// Traits describes the store.
	Traits() Traits
	// Close gives back connections and files. No call may be under way.
	Close() error
}

// Upload is a write in parts. Part is safe for concurrent use; Complete and
// Abort come after all parts.
type Upload interface {
	// Part sends part number (from 1) whose first byte lies at offset. A part
	// sent again replaces the one before. All parts but the last are of one
	// size.
	Part(ctx context.Context, number int, offset int64, data []byte, crc32c uint32) error
	// Complete makes the object of the parts, under the rules of Driver.Put.
	// It may be called again after an error that leaves it in doubt.
	Complete(ctx context.Context) (Info, error)
	// Abort drops all parts; what cannot be dropped, Sweep finds. The object
	// that Complete made stays.
	Abort(ctx context.Context) error
}
