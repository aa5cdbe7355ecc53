package faulty

import (
	"context"
	"slices"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// Get implements blob.Driver.
func (s *Store) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) (data []byte, info blob.Info, err error) {
	f := s.pick(Get)
	if f == nil {
		return s.next.Get(ctx, key, opt)
	}
	if answer, ok := refusals[f.What]; ok {
		answer.Op, answer.Store, answer.Key = "get", "faulty", string(key)
		return nil, blob.Info{}, answer.Err()
	}
	if f.What == Slow {
		if f.Wait != nil {
			f.Wait(ctx)
		} else {
			<-ctx.Done()
		}
	}
	data, info, err = s.next.Get(ctx, key, opt)
	if err != nil || len(data) == 0 {
		return data, info, err
	}
	switch f.What {
	case Truncated:
		data = data[:len(data)/2]
	case WrongBytes:
		s.mu.Lock()
		data[s.rng.IntN(len(data))] ^= 1 << s.rng.IntN(8)
		s.mu.Unlock()
	}
	return data, info, nil
}

// Put implements blob.Driver.
func (s *Store) Put(ctx context.Context, key blob.Key, data []byte, head blob.Head) (info blob.Info, err error) {
	// A late write outlives the call, and with it the caller's bytes.
	kept := slices.Clone(data)
	result := make(chan blob.Info, 1)
	err = s.do(ctx, Put, "put", key, func(ctx context.Context) error {
		info, err := s.next.Put(ctx, key, kept, head)
		result <- info
		return err
	})
	if err != nil {
		return blob.Info{}, err
	}
	return <-result, nil
}

// Stat implements blob.Driver.
func (s *Store) Stat(ctx context.Context, key blob.Key) (info blob.Info, err error) {
	err = s.do(ctx, Stat, "stat", key, func(ctx context.Context) (err error) {
		info, err = s.next.Stat(ctx, key)
		return err
	})
	return info, err
}

// List implements blob.Driver.
func (s *Store) List(ctx context.Context, opt blob.ListOptions) (page blob.Page, err error) {
	err = s.do(ctx, List, "list", blob.Key(opt.Prefix), func(ctx context.Context) (err error) {
		page, err = s.next.List(ctx, opt)
		return err
	})
	return page, err
}

// Delete implements blob.Driver.
func (s *Store) Delete(ctx context.Context, keys []blob.Key) ([]blob.KeyError, error) {
	keys = slices.Clone(keys)
	result := make(chan []blob.KeyError, 1)
	f := s.pick(Delete)
	spared := f != nil && f.What == OneKey && len(keys) > 0
	var one blob.Key
	if spared {
		s.mu.Lock()
		i := s.rng.IntN(len(keys))
		s.mu.Unlock()
		one = keys[i]
		keys = slices.Delete(keys, i, i+1)
		f = nil
	}
	err := s.follow(ctx, f, "delete", "", func(ctx context.Context) error {
		failed, err := s.next.Delete(ctx, keys)
		result <- failed
		return err
	})
	if err != nil {
		return nil, err
	}
	failed := <-result
	if spared {
		err := tine.Errorf(tine.KindAccess, "delete %q: injected: refused", one)
		failed = append(failed, blob.KeyError{Key: one, Err: err})
	}
	return failed, nil
}

// Copy implements blob.Driver.
func (s *Store) Copy(ctx context.Context, src, dst blob.Key) error {
	return s.do(ctx, Copy, "copy", src, func(ctx context.Context) error { return s.next.Copy(ctx, src, dst) })
}

// upload is an upload under the plan.
type upload struct {
	blob.Upload
	s   *Store
	key blob.Key
}

// Upload implements blob.Driver.
func (s *Store) Upload(ctx context.Context, key blob.Key, head blob.Head) (blob.Upload, error) {
	result := make(chan blob.Upload, 1)
	err := s.do(ctx, Begin, "put", key, func(ctx context.Context) error {
		up, err := s.next.Upload(ctx, key, head)
		result <- up
		return err
	})
	if err != nil {
		return nil, err
	}
	return &upload{Upload: <-result, s: s, key: key}, nil
}

// Part implements blob.Upload.
func (u *upload) Part(ctx context.Context, number int, offset int64, data []byte, crc32c uint32) error {
	kept := slices.Clone(data)
	return u.s.do(ctx, Part, "put", u.key, func(ctx context.Context) error {
		return u.Upload.Part(ctx, number, offset, kept, crc32c)
	})
}

// Complete implements blob.Upload.
func (u *upload) Complete(ctx context.Context) (blob.Info, error) {
	result := make(chan blob.Info, 1)
	err := u.s.do(ctx, Complete, "put", u.key, func(ctx context.Context) error {
		info, err := u.Upload.Complete(ctx)
		result <- info
		return err
	})
	if err != nil {
		return blob.Info{}, err
	}
	return <-result, nil
}
