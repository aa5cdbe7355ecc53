package gcs

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/fs/blob/web"
)

// maxAnswerBytes is how much of an answer without an object's bytes is read:
// far more than a page of a listing has.
const maxAnswerBytes = 64 << 20

// request is one question to the service.
type request struct {
	answer blob.Answer // what is asked, and of which key
	method string
	url    string
	header http.Header
	body   func() io.Reader // nil: none
	length int64            // of body, in bytes
	// missing is what the service means with 404 if it does not say it itself:
	// "NoSuchKey", which is believed only if the bucket is there, ...
	missing string
}

// about starts a request about a key.
func (s *Store) about(op string, key blob.Key, cond blob.Condition, method, url, missing string) request {
	return request{answer: blob.Answer{Op: op, Store: s.name, Key: string(key), If: cond}, method: method, url: url, header: http.Header{}, missing: missing}
}

// json is the URL of something in the bucket, below "/o".
func (s *Store) json(upload bool, object string, query url.Values) string {
	at := s.base
	if upload {
		at += "/upload"
	}
	at += "/storage/v1/b/" + escape(s.bucket) + "/o"
	if object != "" {
		at += "/" + object
	}
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	return at
}

// xml is the URL of an object for the XML interface.
func (s *Store) xml(name string) string { return s.base + "/" + escape(s.bucket) + "/" + escape(name) }

// escape writes a name as one part of a path: all bytes that could mean
// something there, "/" too, as their numbers.
func escape(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }

// generation writes a condition as a query does.
func generation(query url.Values, c blob.Condition) url.Values {
	switch {
	case c.Absent:
		query.Set("ifGenerationMatch", "0")
	case c.Version != "":
		query.Set("ifGenerationMatch", string(c.Version))
	}
	return query
}

// impossible returns the error for a version that no object here can have, or
// nil: the service would take "0" for "there is none".
func (s *Store) impossible(op string, key blob.Key, c blob.Condition) error {
	if g, err := strconv.ParseInt(string(c.Version), 10, 64); c.Version == "" || err == nil && g > 0 {
		return nil
	}
	return blob.Answer{Op: op, Store: s.name, Key: string(key), If: c, Status: http.StatusPreconditionFailed}.Err()
}

// do sends a request and returns the answer, whose body the caller closes. Any
// status but a good one is an error.
func (s *Store) do(ctx context.Context, q request) (*http.Response, error) {
	if ctx.Err() != nil {
		return nil, q.answer.Transport(ctx, ctx.Err())
	}
	r, err := http.NewRequestWithContext(ctx, q.method, q.url, http.NoBody)
	if err != nil {
		return nil, q.answer.Transport(ctx, err)
	}
	if q.body != nil {
		r.ContentLength = q.length
		r.Body = io.NopCloser(q.body())
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(q.body()), nil }
	}
	for name, values := range q.header {
		r.Header[name] = values
	}
	r.Header.Set("User-Agent", "tine")
	if err := s.authorize(ctx, r, q.answer); err != nil {
		return nil, err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, q.answer.Transport(ctx, err)
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, s.refusal(ctx, q, answer)
}

// into is do for an answer that is JSON. A nil v throws it away.
func (s *Store) into(ctx context.Context, q request, v any) error {
	answer, err := s.do(ctx, q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return q.answer.Transport(ctx, err)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return q.answer.Transport(ctx, errors.New("the answer is not JSON"))
	}
	return nil
}

// said are the refusals of both interfaces.
type said struct {
	XMLName xml.Name `xml:"Error" json:"-"`
	Code    string   `xml:"Code" json:"-"`
	Error   struct {
		Message string `json:"message"`
		Errors  []struct {
			Reason string `json:"reason"`
		} `json:"errors"`
	} `xml:"-" json:"error"`
}

// refusal returns the error for a status that is not good.
func (s *Store) refusal(ctx context.Context, q request, answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	var words said
	if json.Unmarshal(text, &words) != nil {
		_ = xml.Unmarshal(text, &words)
	}
	a := q.answer
	a.Status, a.Code, a.Wait = answer.StatusCode, words.Code, web.RetryAfter(answer.Header)
	if len(words.Error.Errors) > 0 {
		a.Code = words.Error.Errors[0].Reason
	}
	switch {
	case a.Status == http.StatusNotFound && strings.HasPrefix(a.Code, "NoSuch"):
	case a.Status == http.StatusNotFound && q.missing == "NoSuchKey":
		// The JSON interface says the same for an object and for its bucket.
		if err := s.reach(ctx, q.answer); err != nil {
			return err
		}
		a.Code = "NoSuchKey"
	case a.Status == http.StatusNotFound:
		a.Code = q.missing
	case a.Status == http.StatusBadRequest && q.body != nil && strings.Contains(strings.ToLower(words.Error.Message), "crc32c"):
		a.Code = "BadDigest"
	}
	return a.Err()
}

// reach returns nil if the bucket is there.
func (s *Store) reach(ctx context.Context, answer blob.Answer) error {
	query := url.Values{"prefix": {s.prefix}, "maxResults": {"1"}, "fields": {"nextPageToken"}}
	return s.into(ctx, request{answer: answer, method: http.MethodGet, url: s.json(false, "", query), missing: "NoSuchBucket"}, nil)
}
