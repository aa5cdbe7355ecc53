package blob

import (
	"bytes"
	"context"
	"fmt"

	"tine.dev/tine/internal/tine"
)

// Probe finds out whether a store keeps the parts of the contract that stores
// are known to lack: some take conditions and do not look at them. It writes,
// reads and deletes one object under the key, which must be the caller's own.
// An error of kind tine.KindUnsupported means that the store must not be used;
// any other, that it could not be asked.
func Probe(ctx context.Context, s *Store, key Key) error {
	if err := s.Delete(ctx, key); err != nil {
		return err
	}
	err := probeWrites(ctx, s, key)
	if gone := s.Delete(ctx, key); err == nil {
		err = gone
	}
	return err
}

// probeWrites makes each conditional write once where it must succeed and once
// where it must not.
func probeWrites(ctx context.Context, s *Store, key Key) error {
	var versions []Version
	put := func(cond Condition) error {
		body := bytes.NewReader(fmt.Appendf(nil, "probe %d", len(versions)))
		info, err := s.Put(ctx, key, body, cond)
		versions = append(versions, info.Version)
		return err
	}
	if err := put(Condition{Absent: true}); err != nil {
		return err
	}
	if err := refused(s, "create only what is not there", tine.KindExists, put(Condition{Absent: true})); err != nil {
		return err
	}
	if err := put(Condition{Version: versions[0]}); err != nil {
		return err
	}
	if err := refused(s, "replace only the version that is asked for", tine.KindConflict, put(Condition{Version: versions[0]})); err != nil {
		return err
	}
	data, info, err := s.Get(ctx, key, Range{Offset: 6, Length: 1}, versions[2])
	switch {
	case err != nil:
		return err
	case string(data) != "2" || info.Version != versions[2]:
		return unsupported(s, "read a range")
	}
	return nil
}

// refused wants err to be a refusal of the kind.
func refused(s *Store, what string, kind tine.ErrorKind, err error) error {
	switch {
	case err == nil:
		return unsupported(s, what)
	case tine.KindOf(err) == kind:
		return nil
	}
	return err
}

func unsupported(s *Store, what string) error {
	return tine.Errorf(tine.KindUnsupported, "store %s does not %s", s.Name(), what).
		WithHint("use a store with conditional writes: without them two servers can own one tree")
}
