package gcs

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
	"tine.dev/tine/internal/tine"
)

// metaMark is the name of the mark in an object's metadata; hexadecimal.
const metaMark = "tine-mark"

// pageEntries is how many entries a page of a listing has at most.
const pageEntries = 1000

// object is what the JSON interface says about one.
type object struct {
	Name       string            `json:"name"`
	Generation string            `json:"generation"`
	Size       int64             `json:"size,string"`
	Updated    time.Time         `json:"updated"`
	CRC32C     string            `json:"crc32c"`
	Metadata   map[string]string `json:"metadata"`
}

func (o object) info(key blob.Key) blob.Info {
	info := blob.Info{Key: key, Size: o.Size, Version: blob.Version(o.Generation), Modified: o.Updated, Mark: parseMark(o.Metadata[metaMark])}
	info.CRC32C, info.Checked = parseChecksum(o.CRC32C)
	return info
}

func parseMark(text string) (m blob.Mark) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(m) {
		m = blob.Mark(raw)
	}
	return m
}

// checksum writes a CRC32C as the service does.
func checksum(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

func parseChecksum(text string) (crc uint32, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(raw), true
}

// headerInfo is what the headers of the XML interface say about an object.
func headerInfo(key blob.Key, size int64, h http.Header) blob.Info {
	info := blob.Info{Key: key, Size: size, Version: blob.Version(h.Get("X-Goog-Generation")), Mark: parseMark(h.Get("X-Goog-Meta-" + metaMark))}
	info.Modified, _ = http.ParseTime(h.Get("Last-Modified"))
	for _, line := range h.Values("X-Goog-Hash") {
		for part := range strings.SplitSeq(line, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(part), "crc32c="); ok {
				info.CRC32C, info.Checked = parseChecksum(text)
			}
		}
	}
	return info
}

// Get implements blob.Driver.
func (s *Store) Get(ctx context.Context, key blob.Key, opt blob.GetOptions) ([]byte, blob.Info, error) {
	cond := blob.Condition{Version: opt.Version}
	if err := s.impossible("get", key, cond); err != nil {
		return nil, blob.Info{}, err
	}
	q := s.about("get", key, cond, http.MethodGet, s.xml(s.prefix+string(key)), "NoSuchKey")
	if r := web.RangeHeader(opt.Range); r != "" {
		q.header.Set("Range", r)
	}
	if opt.Version != "" {
		q.header.Set("X-Goog-If-Generation-Match", string(opt.Version))
	}
	answer, err := s.do(ctx, q)
	if err != nil {
		return nil, blob.Info{}, err
	}
	defer answer.Body.Close()
	size, ok := web.FullSize(opt.Range, answer.ContentLength, answer.Header.Get("Content-Range"))
	info := headerInfo(key, size, answer.Header)
	switch {
	case !ok:
		return nil, blob.Info{}, tine.Errorf(tine.KindUnsupported, "get %q in store %s: the answer does not say which bytes of how many it holds", key, s.name)
	case info.Version == "":
		return nil, blob.Info{}, tine.Errorf(tine.KindUnsupported, "get %q in store %s: the answer does not tell the generation", key, s.name)
	case opt.Version != "" && info.Version != opt.Version:
		// A stand-in, or a cache on the way, that does not look at conditions.
		q.answer.Status = http.StatusPreconditionFailed
		return nil, blob.Info{}, q.answer.Err()
	}
	data, err := opt.Buffer(key, size)
	if err != nil {
		return nil, blob.Info{}, err
	}
	if _, err := io.ReadFull(answer.Body, data); err != nil {
		return nil, blob.Info{}, q.answer.Transport(ctx, err)
	}
	return data, info, nil
}

// Stat implements blob.Driver.
func (s *Store) Stat(ctx context.Context, key blob.Key) (blob.Info, error) {
	q := s.about("stat", key, blob.Condition{}, http.MethodGet, s.json(false, escape(s.prefix+string(key)), url.Values{"projection": {"noAcl"}}), "NoSuchKey")
	var o object
	if err := s.into(ctx, q, &o); err != nil {
		return blob.Info{}, err
	}
	return o.info(key), nil
}

// page is one answer of a listing.
type page struct {
	Items    []object `json:"items"`
	Prefixes []string `json:"prefixes"`
	Next     string   `json:"nextPageToken"`
}

// list asks for a page of the bucket.
func (s *Store) list(ctx context.Context, op, prefix string, query url.Values) (page, error) {
	query.Set("projection", "noAcl")
	query.Set("fields", "items(name,size,updated),prefixes,nextPageToken")
	q := s.about(op, blob.Key(strings.TrimPrefix(prefix, s.prefix)), blob.Condition{}, http.MethodGet, "", "NoSuchBucket")
	query.Set("prefix", prefix)
	q.url = s.json(false, "", query)
	var p page
	if err := s.into(ctx, q, &p); err != nil {
		return page{}, err
	}
	return p, nil
}

// List implements blob.Driver.
func (s *Store) List(ctx context.Context, opt blob.ListOptions) (blob.Page, error) {
	query := url.Values{}
	limit := pageEntries
	if opt.Limit > 0 {
		limit = min(limit, opt.Limit)
	}
	query.Set("maxResults", strconv.Itoa(limit))
	if opt.Delimiter != "" {
		query.Set("delimiter", opt.Delimiter)
	}
	if opt.StartAfter != "" {
		query.Set("startOffset", s.prefix+opt.StartAfter) // which is told too, and left out below
	}
	if opt.Token != "" {
		query.Set("pageToken", opt.Token)
	}
	found, err := s.list(ctx, "list", s.prefix+opt.Prefix, query)
	if err != nil {
		return blob.Page{}, err
	}
	out := blob.Page{Next: found.Next}
	told := func(name string) (string, bool) {
		name = strings.TrimPrefix(name, s.prefix)
		return name, name > opt.StartAfter && !strings.HasPrefix(name, partsFolder)
	}
	for _, o := range found.Items {
		if name, ok := told(o.Name); ok {
			out.Objects = append(out.Objects, blob.Entry{Key: blob.Key(name), Size: o.Size, Modified: o.Updated})
		}
	}
	for _, p := range found.Prefixes {
		if name, ok := told(p); ok {
			out.Prefixes = append(out.Prefixes, name)
		}
	}
	return out, nil
}
