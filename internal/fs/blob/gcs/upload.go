package gcs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// upload is a write in parts.
type upload struct {
	s      *Store
	key    blob.Key
	head   blob.Head
	folder string // of the parts, below the store's prefix, with a "/" at the end
	over   atomic.Bool

	mu    sync.Mutex
	parts map[int]string // names of objects; guarded by mu
}

// Upload implements blob.Driver. It makes no request.
func (s *Store) Upload(ctx context.Context, key blob.Key, head blob.Head) (blob.Upload, error) {
	if err := blob.Interrupted(ctx, "put", key); err != nil {
		return nil, err
	}
	if err := s.impossible("put", key, head.If); err != nil {
		return nil, err
	}
	// The time tells apart two uploads with one mark, which only tests make.
	folder := fmt.Sprintf("%s%x-%x/", partsFolder, head.Mark, time.Now().UnixNano())
	return &upload{s: s, key: key, head: head, folder: folder, parts: map[int]string{}}, nil
}

// stale is the error of an upload that is over.
func (u *upload) stale() error {
	return blob.Answer{Op: "put", Store: u.s.name, Key: string(u.key), Status: http.StatusNotFound, Code: "NoSuchUpload"}.Err()
}

// Part implements blob.Upload.
func (u *upload) Part(ctx context.Context, number int, _ int64, data []byte, crc32c uint32) error {
	if u.over.Load() {
		return u.stale()
	}
	name := fmt.Sprintf("%s%05d", u.folder, number)
	if _, err := u.s.send(ctx, u.key, u.s.prefix+name, data, crc32c, blob.Condition{}, nil); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = name
	return nil
}

// Complete implements blob.Upload. The parts are composed in groups until one
// request can compose the rest, which makes the object.
func (u *upload) Complete(ctx context.Context) (blob.Info, error) {
	if u.over.Load() {
		return blob.Info{}, u.stale()
	}
	u.mu.Lock()
	var names []string
	for number := range len(u.parts) {
		names = append(names, u.parts[number+1])
	}
	u.mu.Unlock()
	if len(names) > composeMax {
		var groups []string
		for group := range slices.Chunk(names, composeMax) {
			name := fmt.Sprintf("%sgroup-%d", u.folder, len(groups))
			if _, err := u.compose(ctx, u.s.prefix+name, group, blob.Condition{}, description{ContentType: binaryType}); err != nil {
				return blob.Info{}, err
			}
			groups = append(groups, name)
		}
		names = groups
	}
	o, err := u.compose(ctx, u.s.prefix+string(u.key), names, u.head.If,
		description{ContentType: binaryType, CRC32C: checksum(u.head.CRC32C), Metadata: metadata(u.head)})
	if err != nil {
		return blob.Info{}, err
	}
	u.discard(ctx)
	return o.info(u.key), nil
}

// compose makes an object of others. What it does not find is one of them.
func (u *upload) compose(ctx context.Context, name string, parts []string, cond blob.Condition, what description) (object, error) {
	type source struct {
		Name string `json:"name"`
	}
	order := struct {
		Sources     []source    `json:"sourceObjects"`
		Destination description `json:"destination"`
	}{Destination: what}
	for _, p := range parts {
		order.Sources = append(order.Sources, source{Name: u.s.prefix + p})
	}
	text, err := json.Marshal(order)
	if err != nil {
		return object{}, tine.Errorf(tine.KindInternal, "put %q: %w", u.key, err)
	}
	q := u.s.about("put", u.key, cond, http.MethodPost, u.s.json(false, escape(name)+"/compose", generation(url.Values{}, cond)), "NoSuchUpload")
	q.header.Set("Content-Type", "application/json")
	q.length = int64(len(text))
	q.body = func() io.Reader { return bytes.NewReader(text) }
	var o object
	if err := u.s.into(ctx, q, &o); err != nil {
		return object{}, err
	}
	return o, nil
}

// discard ends the upload and removes its parts. What it cannot remove, Sweep
// finds.
func (u *upload) discard(ctx context.Context) {
	u.over.Store(true)
	folders, err := u.s.leftovers(ctx, "put", u.folder)
	if err != nil {
		return
	}
	for _, f := range folders {
		_, _ = blob.EachKey(ctx, f.names, deleteParallel, func(ctx context.Context, name blob.Key) error { return u.s.remove(ctx, "put", name) })
	}
}

// Abort implements blob.Upload.
func (u *upload) Abort(ctx context.Context) error {
	u.discard(ctx)
	return nil
}

// leftover are the parts of one upload.
type leftover struct {
	names  []blob.Key // below the store's prefix
	newest time.Time
}

// leftovers lists parts of uploads, by their folders.
func (s *Store) leftovers(ctx context.Context, op, below string) (map[string]leftover, error) {
	found := map[string]leftover{}
	query := url.Values{"maxResults": {strconv.Itoa(pageEntries)}}
	for {
		p, err := s.list(ctx, op, s.prefix+below, query)
		if err != nil {
			return nil, err
		}
		for _, o := range p.Items {
			name := strings.TrimPrefix(o.Name, s.prefix)
			folder := name[:strings.LastIndexByte(name, '/')]
			f := found[folder]
			f.names = append(f.names, blob.Key(name))
			if o.Updated.After(f.newest) {
				f.newest = o.Updated
			}
			found[folder] = f
		}
		if p.Next == "" {
			return found, nil
		}
		query.Set("pageToken", p.Next)
	}
}

// Sweep implements blob.Driver. An upload is swept when its newest part is old.
func (s *Store) Sweep(ctx context.Context, before time.Time) (int, error) {
	folders, err := s.leftovers(ctx, "sweep", partsFolder)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, f := range folders {
		if !f.newest.Before(before) {
			continue
		}
		failed, err := blob.EachKey(ctx, f.names, deleteParallel, func(ctx context.Context, name blob.Key) error { return s.remove(ctx, "sweep", name) })
		if err == nil && len(failed) > 0 {
			err = failed[0].Err
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
