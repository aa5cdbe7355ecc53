package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// namingTries is how often the folder of an object is made again when deletes
// take it away before the object is in it.
const namingTries = 100

// writable returns an error for a store that was opened for reading.
func (s *Store) writable(ctx context.Context, op string, key blob.Key) error {
	if err := blob.Interrupted(ctx, op, key); err != nil {
		return err
	}
	if s.opt.ReadOnly {
		return tine.Errorf(tine.KindReadOnly, "%s %q in store %s: it is open for reading only", op, key, s.name)
	}
	return nil
}

// Put implements blob.Driver.
func (s *Store) Put(ctx context.Context, key blob.Key, data []byte, head blob.Head) (blob.Info, error) {
	u, err := s.begin(ctx, key, head)
	if err != nil {
		return blob.Info{}, err
	}
	defer u.drop()
	if blob.Checksum(data) != head.CRC32C {
		return blob.Info{}, tine.Errorf(tine.KindCorrupt, "put %q: the bytes do not match their checksum", key)
	}
	if err := u.Part(ctx, 1, 0, data, head.CRC32C); err != nil {
		return blob.Info{}, err
	}
	return u.Complete(ctx)
}

// upload is an object on its way: a temporary file.
type upload struct {
	s    *Store
	key  blob.Key
	head blob.Head
	tmp  string
	file *os.File
	done bool
}

// Upload implements blob.Driver.
func (s *Store) Upload(ctx context.Context, key blob.Key, head blob.Head) (blob.Upload, error) {
	u, err := s.begin(ctx, key, head)
	if err != nil {
		return nil, err
	}
	return u, nil
}

// begin opens a temporary file.
func (s *Store) begin(ctx context.Context, key blob.Key, head blob.Head) (*upload, error) {
	if err := s.writable(ctx, "put", key); err != nil {
		return nil, err
	}
	u := &upload{s: s, key: key, head: head, tmp: path.Join(tmpDir, rand.Text())}
	var err error
	if u.file, err = s.root.OpenFile(u.tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
		if gone := s.present("put", key); gone != nil {
			return nil, gone
		}
		return nil, failure("put", key, err)
	}
	return u, nil
}

// Part implements blob.Upload.
func (u *upload) Part(ctx context.Context, number int, offset int64, data []byte, crc32c uint32) error {
	if err := blob.Interrupted(ctx, "put", u.key); err != nil {
		return err
	}
	if blob.Checksum(data) != crc32c {
		return tine.Errorf(tine.KindCorrupt, "put %q: part %d does not match its checksum", u.key, number)
	}
	if _, err := u.file.WriteAt(data, offset); err != nil {
		return u.failed(err)
	}
	return nil
}

// failed tells a file that was closed by Abort from one that cannot be written.
func (u *upload) failed(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return blob.Answer{Op: "put", Store: u.s.name, Key: string(u.key), Code: "NoSuchUpload"}.Err()
	}
	return failure("put", u.key, err)
}

// Abort implements blob.Upload.
func (u *upload) Abort(context.Context) error {
	u.drop()
	return nil
}

// drop removes the temporary file. If it cannot, Sweep will.
func (u *upload) drop() {
	if u.done {
		return
	}
	u.done = true
	_ = u.file.Close()
	_ = u.s.root.Remove(u.tmp)
}

// Complete implements blob.Upload. Called again after a failure, it starts
// from the synced file again.
func (u *upload) Complete(ctx context.Context) (blob.Info, error) {
	if err := blob.Interrupted(ctx, "put", u.key); err != nil {
		return blob.Info{}, err
	}
	t := trailer{size: u.head.Size, crc32c: u.head.CRC32C, mark: u.head.Mark}
	_, _ = rand.Read(t.version[:])
	if _, err := u.file.WriteAt(t.encode(), u.head.Size); err != nil {
		return blob.Info{}, u.failed(err)
	}
	if err := u.file.Sync(); err != nil {
		return blob.Info{}, u.failed(err)
	}
	info, err := u.s.inspect("put", u.key, u.file)
	if err != nil {
		return blob.Info{}, err
	}
	if err := u.name(ctx); err != nil {
		return blob.Info{}, err
	}
	u.drop()
	return info, nil
}

// name gives the file its name, if the condition holds, durably.
func (u *upload) name(ctx context.Context) error {
	file := toPath(string(u.key))
	if !u.head.If.Absent {
		release, err := u.s.hold(ctx, "put", u.key)
		if err != nil {
			return err
		}
		defer release()
	}
	if u.head.If.Version != "" {
		if err := u.current(); err != nil {
			return err
		}
	}
	linked := u.link(file)
	exists := errors.Is(linked, fs.ErrExist) && u.head.If.Absent
	if linked != nil && !exists {
		return failure("put", u.key, linked)
	}
	// The name of another writer's object is synced too: who is told that it
	// exists may rest on it. A name that cannot be synced is never tried
	// again, or the second attempt would find it and call it durable. A folder
	// that is gone held nothing: the object was deleted since.
	if err := u.s.syncDir(path.Dir(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tine.Errorf(tine.KindIO, "put %q in store %s: the name could not be synced: %w", u.key, u.s.name, err)
	}
	if exists {
		return tine.Errorf(tine.KindExists, "put %q in store %s: it exists", u.key, u.s.name)
	}
	return nil
}

// current returns nil if the object is in the state that the condition asks
// for. The caller holds the lock.
func (u *upload) current() error {
	f, info, err := u.s.open("put", u.key)
	if err == nil {
		err = f.Close()
	}
	switch {
	case tine.KindOf(err) == tine.KindNotFound:
		return tine.Errorf(tine.KindConflict, "put %q: version %s is asked for, there is no object", u.key, u.head.If.Version)
	case err != nil:
		return err
	case info.Version != u.head.If.Version:
		return tine.Errorf(tine.KindConflict, "put %q: version %s is asked for, %s is there", u.key, u.head.If.Version, info.Version)
	}
	return nil
}

// link makes the name, and the folder if need be: a delete that empties a
// folder removes it, at any time until there is something in it.
func (u *upload) link(file string) error {
	var err error
	for range namingTries {
		if err = u.s.mkdirs(path.Dir(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if u.head.If.Absent {
			err = u.s.root.Link(u.tmp, file)
		} else {
			err = u.s.root.Rename(u.tmp, file)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if gone := u.s.present("put", u.key); gone != nil {
			return gone
		}
	}
	return err
}

// Delete implements blob.Driver.
func (s *Store) Delete(ctx context.Context, keys []blob.Key) ([]blob.KeyError, error) {
	if err := s.writable(ctx, "delete", ""); err != nil {
		return nil, err
	}
	var failed []blob.KeyError
	for _, k := range keys {
		if err := s.remove(ctx, k); err != nil {
			if tine.KindOf(err) == tine.KindInterrupted {
				return nil, err
			}
			failed = append(failed, blob.KeyError{Key: k, Err: err})
		}
	}
	return failed, nil
}

// remove deletes one object, and the folders that are empty then.
func (s *Store) remove(ctx context.Context, key blob.Key) error {
	release, err := s.hold(ctx, "delete", key)
	if err != nil {
		return err
	}
	defer release()
	file := toPath(string(key))
	if st, err := s.root.Lstat(file); err == nil && st.IsDir() {
		return nil // a folder of objects, not one of them
	}
	if err := s.root.Remove(file); err != nil {
		if err = s.missing("delete", key, err); tine.KindOf(err) == tine.KindNotFound {
			return nil
		}
		return err
	}
	if err := s.syncDir(path.Dir(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failure("delete", key, err)
	}
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if s.root.Remove(dir) != nil {
			break
		}
	}
	return nil
}

// Copy implements blob.Driver. It reads and writes the bytes: sharing them by
// a second link would share damage too.
func (s *Store) Copy(ctx context.Context, src, dst blob.Key) error {
	f, info, err := s.open("copy", src)
	if err != nil {
		return err
	}
	defer f.Close()
	u, err := s.begin(ctx, dst, blob.Head{Size: info.Size, CRC32C: info.CRC32C, Mark: info.Mark})
	if err != nil {
		return err
	}
	defer u.drop()
	if err := u.fill(ctx, f, info); err != nil {
		return err
	}
	_, err = u.Complete(ctx)
	return err
}
