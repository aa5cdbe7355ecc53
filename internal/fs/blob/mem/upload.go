package mem

import (
	"bytes"
	"context"
	"slices"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// upload is a write in parts. What changes is guarded by the store's mu.
type upload struct {
	s     *Store
	key   blob.Key
	head  blob.Head
	begun time.Time
	parts map[int][]byte
}

// Upload implements blob.Driver.
func (s *Store) Upload(ctx context.Context, key blob.Key, head blob.Head) (blob.Upload, error) {
	if err := blob.Interrupted(ctx, "put", key); err != nil {
		return nil, err
	}
	u := &upload{s: s, key: key, head: head, begun: s.opt.Now(), parts: map[int][]byte{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uploads[u] = struct{}{}
	return u, nil
}

// known returns an error if the upload is over. The caller holds the lock.
func (u *upload) known() error {
	if _, ok := u.s.uploads[u]; !ok {
		return blob.Answer{Op: "put", Store: "mem", Key: string(u.key), Code: "NoSuchUpload", Status: 404}.Err()
	}
	return nil
}

// Part implements blob.Upload.
func (u *upload) Part(ctx context.Context, number int, offset int64, data []byte, crc32c uint32) error {
	if err := blob.Interrupted(ctx, "put", u.key); err != nil {
		return err
	}
	if blob.Checksum(data) != crc32c {
		return tine.Errorf(tine.KindCorrupt, "put %q: part %d does not match its checksum", u.key, number)
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if err := u.known(); err != nil {
		return err
	}
	u.parts[number] = slices.Clone(data)
	return nil
}

// Complete implements blob.Upload.
func (u *upload) Complete(ctx context.Context) (blob.Info, error) {
	if err := blob.Interrupted(ctx, "put", u.key); err != nil {
		return blob.Info{}, err
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if err := u.known(); err != nil {
		return blob.Info{}, err
	}
	var whole bytes.Buffer
	for number := range len(u.parts) {
		whole.Write(u.parts[number+1])
	}
	info, err := u.s.put(u.key, whole.Bytes(), u.head)
	if err == nil {
		delete(u.s.uploads, u)
	}
	return info, err
}

// Abort implements blob.Upload.
func (u *upload) Abort(context.Context) error {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	delete(u.s.uploads, u)
	return nil
}
