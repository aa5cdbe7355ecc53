package kv

// Damage is one thing that is wrong with the files of a store.
type Damage struct {
	File string // its name in the store's directory
	What string // what is wrong with it
	// Lost is set if rows cannot be read for it. They lay between Lower and Upper, which
	// are keys of rows that can be read, or nil where there is none.
	Lost         bool
	Lower, Upper []byte
}

// Verifier is a Store that can check its own files: all that a reading may need, not
// only what a scan does.
type Verifier interface {
	// Verify reads all files that rows of this moment lie in, and calls fn for what is
	// wrong, until that returns an error, which is returned. The store can be used
	// meanwhile. Errors: KindUnavailable, KindIO.
	Verify(fn func(Damage) error) error
}
