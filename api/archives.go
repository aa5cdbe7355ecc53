package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// FileInfo describes what a path in a disk names.
type FileInfo struct {
	Type  string    `json:"type" enum:"file,directory,symlink,fifo,socket,block,char,unknown"`
	Mode  uint32    `json:"mode" doc:"The permission bits, as a number"`
	UID   uint32    `json:"uid"`
	GID   uint32    `json:"gid"`
	Size  int64     `json:"size"`
	Bytes int64     `json:"bytes" doc:"Of data; holes are not counted"`
	Nlink uint32    `json:"nlink"`
	Mtime time.Time `json:"mtime"`
}

// ExportDone says what an export has written.
type ExportDone struct {
	Totals  ImportProgress `json:"totals"`
	Skipped int64          `json:"skipped" doc:"What was left out, or not as it was"`
	Notes   []ImportNote   `json:"notes,omitempty" doc:"The first of what was skipped"`
	Error   *Error         `json:"error,omitempty" doc:"Why the archive is not complete"`
}

// FileWritten says what was written to a file.
type FileWritten struct {
	Bytes int64 `json:"bytes"`
}

// ExportFrom says what is exported.
type ExportFrom struct {
	Disk       string
	Checkpoint string // empty: the head
	Path       string // empty: the root
	Follow     bool   // a symbolic link at the end of Path
	Live       bool   // read the head as it is while it changes, as a copy out of a mount would; else it is of one moment
}

func (f ExportFrom) query() url.Values {
	return url.Values{"checkpoint": {f.Checkpoint}, "path": {f.Path}, "follow": {strconv.FormatBool(f.Follow)}, "live": {strconv.FormatBool(f.Live)}}
}

// ExportTrailer is the HTTP trailer that ends an export: an ExportDone as JSON,
// percent-encoded. An export without it was cut off.
const ExportTrailer = "Tine-Export"

// Export reads a disk or a part of it as a tar archive, which fn is given. An
// error of fn ends the export and is returned as it is. An archive is complete
// only if Export returns without an error.
func (c *Client) Export(ctx context.Context, from ExportFrom, fn func(io.Reader) error) (ExportDone, error) {
	var out ExportDone
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, from.query(), nil, "disks", from.Disk, "export-tar")
	if err != nil {
		return out, err
	}
	defer closeBody(resp)
	body := &kept{r: resp.Body}
	failed := fn(body)
	if failed != nil && !body.end && body.err == nil {
		return out, failed
	}
	// What has come to an end too early looks damaged to fn: the server knows why.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return out, c.cutOff(ctx, err)
	}
	text, err := url.QueryUnescape(resp.Trailer.Get(ExportTrailer))
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	switch {
	case err != nil:
		return out, c.cutOff(ctx, io.ErrUnexpectedEOF)
	case out.Error != nil:
		return out, out.Error
	}
	return out, failed
}

// kept keeps how a reader ended, which those who read through it may give
// another form.
type kept struct {
	r   io.Reader
	err error // other than io.EOF
	end bool  // io.EOF
}

// Read reads.
func (k *kept) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	if err != nil && err != io.EOF {
		k.err = err
	}
	k.end = k.end || err == io.EOF
	return n, err
}

// ImportInto says where an archive is unpacked.
type ImportInto struct {
	Disk         string
	Path         string // a directory, made if it is missing; empty: the root
	Existing     bool   // the disk must exist; else it is made if it does not
	NoCheckpoint bool   // do not checkpoint a disk that is not empty before
}

// ImportTar unpacks a tar archive into a disk and tells fn of its progress. If
// the disk does not exist it is made, and there is none after a failure. In a
// disk that exists, what was unpacked before a failure stays. What was
// unpacked is durable when the call returns without an error. An error of
// reading the archive is returned as it is.
func (c *Client) ImportTar(ctx context.Context, into ImportInto, archive io.Reader, fn func(ImportLine)) (ImportDone, error) {
	var out ImportDone
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := newSource(archive)
	q := url.Values{"path": {into.Path}, "existing": {strconv.FormatBool(into.Existing)}, "checkpoint": {strconv.FormatBool(!into.NoCheckpoint)}}
	resp, err := c.upload(ctx, http.MethodPost, q, body, "disks", into.Disk, "import-tar")
	if err != nil {
		return out, err
	}
	if err = c.importLines(ctx, resp, &out, fn); err != nil {
		err = body.blame(err)
	}
	return out, err
}

// WriteFile makes or replaces a file in a disk, in one moment, once all of r
// was read. A file that exists keeps its mode and owner; a new one gets those
// given. It is durable when the call returns.
func (c *Client) WriteFile(ctx context.Context, disk, path string, mode, uid, gid uint32, r io.Reader) (FileWritten, error) {
	var out FileWritten
	number := func(n uint32) []string { return []string{strconv.FormatUint(uint64(n), 10)} }
	body := newSource(r)
	resp, err := c.upload(ctx, http.MethodPut, url.Values{"path": {path}, "mode": number(mode), "uid": number(uid), "gid": number(gid)}, body,
		"disks", disk, "file")
	if err != nil {
		return out, err
	}
	defer closeBody(resp)
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, c.cutOff(ctx, err)
	}
	return out, nil
}

// Stat describes what a path in a disk or checkpoint names. A symbolic link at
// its end is described itself unless follow is set.
func (c *Client) Stat(ctx context.Context, disk, checkpoint, path string, follow bool) (FileInfo, error) {
	q := url.Values{"checkpoint": {checkpoint}, "path": {path}, "follow": {strconv.FormatBool(follow)}}
	return call[FileInfo](ctx, c, http.MethodGet, q, nil, "disks", disk, "stat")
}

// upload makes a request with a streamed body. The server is asked first
// whether it wants it, so that a refusal is not lost behind a broken pipe.
func (c *Client) upload(ctx context.Context, method string, query url.Values, body *source, segments ...string) (*http.Response, error) {
	resp, err := c.sendBody(ctx, method, query, body, http.Header{"Content-Type": {"application/octet-stream"}, "Expect": {"100-continue"}}, segments...)
	if err != nil {
		err = body.blame(err)
	}
	return resp, err
}
