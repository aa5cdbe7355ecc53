package gcs

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// description is what is said about an object with its bytes.
type description struct {
	Name        string            `json:"name,omitempty"`
	ContentType string            `json:"contentType"`
	CRC32C      string            `json:"crc32c,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

const binaryType = "application/octet-stream"

func metadata(head blob.Head) map[string]string {
	return map[string]string{metaMark: hex.EncodeToString(head.Mark[:])}
}

// Put implements blob.Driver.
func (s *Store) Put(ctx context.Context, key blob.Key, data []byte, head blob.Head) (blob.Info, error) {
	if err := s.impossible("put", key, head.If); err != nil {
		return blob.Info{}, err
	}
	o, err := s.send(ctx, key, s.prefix+string(key), data, head.CRC32C, head.If, metadata(head))
	if err != nil {
		return blob.Info{}, err
	}
	return o.info(key), nil
}

// send writes an object, which is key or a part of it, in one request: what is
// said about it and its bytes, one after the other.
func (s *Store) send(ctx context.Context, key blob.Key, name string, data []byte, crc uint32, cond blob.Condition, meta map[string]string) (object, error) {
	var head bytes.Buffer
	w := multipart.NewWriter(&head)
	said, err := json.Marshal(description{Name: name, ContentType: binaryType, CRC32C: checksum(crc), Metadata: meta})
	if err != nil {
		return object{}, tine.Errorf(tine.KindInternal, "put %q: %w", key, err)
	}
	// A buffer takes all that is written.
	first, _ := w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/json; charset=UTF-8"}})
	_, _ = first.Write(said)
	_, _ = w.CreatePart(textproto.MIMEHeader{"Content-Type": {binaryType}})
	tail := "\r\n--" + w.Boundary() + "--\r\n"

	query := generation(url.Values{"uploadType": {"multipart"}, "projection": {"noAcl"}}, cond)
	q := s.about("put", key, cond, http.MethodPost, s.json(true, "", query), "NoSuchBucket")
	q.header.Set("Content-Type", "multipart/related; boundary="+w.Boundary())
	q.length = int64(head.Len() + len(data) + len(tail))
	q.body = func() io.Reader {
		return io.MultiReader(bytes.NewReader(head.Bytes()), bytes.NewReader(data), strings.NewReader(tail))
	}
	var o object
	if err := s.into(ctx, q, &o); err != nil {
		return object{}, err
	}
	return o, nil
}

// Delete implements blob.Driver.
func (s *Store) Delete(ctx context.Context, keys []blob.Key) ([]blob.KeyError, error) {
	return blob.EachKey(ctx, keys, deleteParallel, func(ctx context.Context, key blob.Key) error {
		return s.remove(ctx, "delete", key)
	})
}

// remove deletes one object, if it is there.
func (s *Store) remove(ctx context.Context, op string, key blob.Key) error {
	q := s.about(op, key, blob.Condition{}, http.MethodDelete, s.json(false, escape(s.prefix+string(key)), nil), "NoSuchKey")
	err := s.into(ctx, q, nil)
	if tine.KindOf(err) == tine.KindNotFound {
		return nil
	}
	return err
}

// Copy implements blob.Driver. A copy to another place or class of storage
// takes the service several requests, each of which goes on from the last.
func (s *Store) Copy(ctx context.Context, src, dst blob.Key) error {
	target := escape(s.prefix+string(src)) + "/rewriteTo/b/" + escape(s.bucket) + "/o/" + escape(s.prefix+string(dst))
	query := url.Values{"projection": {"noAcl"}, "fields": {"done,rewriteToken"}}
	for {
		q := s.about("copy", src, blob.Condition{}, http.MethodPost, s.json(false, target, query), "NoSuchKey")
		var answer struct {
			Done  bool   `json:"done"`
			Token string `json:"rewriteToken"`
		}
		if err := s.into(ctx, q, &answer); err != nil {
			return err
		}
		if answer.Done {
			return nil
		}
		if answer.Token == "" {
			return tine.Errorf(tine.KindUnavailable, "copy %q in store %s: the copy breaks off", src, s.name)
		}
		query.Set("rewriteToken", answer.Token)
	}
}
