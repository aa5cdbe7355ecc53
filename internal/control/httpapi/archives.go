package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/exporter"
	"tine.dev/tine/internal/control/importer"
	"tine.dev/tine/internal/fs/volume"
)

// The parameters of paths in a disk are bytes: percent-encoded they need not be
// text.
type (
	statPath struct {
		OnDisk
		Checkpoint string `query:"checkpoint" doc:"Look into this checkpoint; absent: the head"`
		Path       string `query:"path" doc:"In the disk; symbolic links do not lead out of it"`
		Follow     bool   `query:"follow" doc:"Describe what a symbolic link at the end of the path leads to"`
	}
	exportTar struct {
		OnDisk
		Checkpoint string `query:"checkpoint" doc:"Export this checkpoint; absent: the head"`
		Path       string `query:"path" doc:"Export this part of the disk"`
		Follow     bool   `query:"follow" doc:"Follow a symbolic link at the end of the path"`
		Live       bool   `query:"live" doc:"Read the head while it changes, as a copy out of a mount does; else the export is of one moment"`
	}
	importTar struct {
		OnDisk
		Path       string `query:"path" doc:"Unpack into this directory of the disk; made if it is missing"`
		Existing   bool   `query:"existing" doc:"The disk must exist; else it is made if it does not"`
		Checkpoint bool   `query:"checkpoint" default:"true" doc:"First checkpoint a disk that is not empty"`
	}
	writeFile struct {
		OnDisk
		Path string `query:"path" required:"true" doc:"The file; its directory must exist"`
		Mode uint32 `query:"mode" default:"420" maximum:"4095" doc:"Permission bits of a new file, as a number"`
		UID  uint32 `query:"uid" doc:"Owner of a new file"`
		GID  uint32 `query:"gid" doc:"Group of a new file"`
	}
)

const (
	tarType   = "application/x-tar"
	bytesType = "application/octet-stream"
)

func (c *calls) registerArchives(h huma.API) {
	const disk = "/disks/{disk}"
	handle(h, c, call{id: "statPath", method: http.MethodGet, path: disk + "/stat", tag: tagFiles, summary: "What a path in a disk names"}, c.stat)
	handle(h, c, call{id: "exportTar", method: http.MethodGet, path: disk + "/export-tar", tag: tagFiles, summary: "A disk, or a part of it, as a tar archive",
		description: "A directory is exported as its content, anything else as one entry. The archive is complete only if the trailer " +
			api.ExportTrailer + " comes behind it and has no error: an ExportDone as JSON, percent-encoded.",
		download: tarType}, c.exportTar)
	handle(h, c, call{id: "importTar", method: http.MethodPost, path: disk + "/import-tar", tag: tagFiles, summary: "Unpack a tar archive into a disk",
		description: "A disk that does not exist is made, and there is none after a failure. In a disk that exists, what was unpacked before a failure stays.",
		upload:      tarType, stream: api.ImportLine{}}, c.importTar)
	handle(h, c, call{id: "writeFile", method: http.MethodPut, path: disk + "/file", tag: tagFiles, summary: "Make or replace a file",
		description: "The file is replaced in one moment, once all has come. One that exists keeps its mode and owner.",
		upload:      bytesType, answer: api.FileWritten{}}, c.writeFile)
}

const tagFiles = "files"

func (c *calls) stat(ctx context.Context, in *statPath) (*body[api.FileInfo], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	s, err := c.Host.Attach(ctx, who, volume.Ref{Disk: in.Disk, Checkpoint: in.Checkpoint}, volume.AttachOptions{Label: "look", ReadOnly: true})
	if err != nil {
		return nil, err
	}
	a, _, err := s.Resolve(in.Path, in.Follow)
	if derr := s.Detach(ctx); err == nil {
		err = derr
	}
	return answer(api.FileInfo{
		Type: typeName(uint8(a.Mode >> 12 & 0xf)), Mode: a.Mode & 0o7777, UID: a.UID, GID: a.GID, Size: a.Size, Bytes: a.Bytes, Nlink: a.Nlink,
		Mtime: time.Unix(0, a.Mtime),
	}, err)
}

func (c *calls) exportTar(ctx context.Context, in *exportTar) (*huma.StreamResponse, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	x, err := c.Exporter.Begin(ctx, who, exporter.From{
		Ref: volume.Ref{Disk: in.Disk, Checkpoint: in.Checkpoint}, Path: in.Path, Follow: in.Follow, Live: in.Live,
	})
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer x.Close()
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", tarType)
		w.Header().Set("Trailer", api.ExportTrailer)
		w.WriteHeader(http.StatusOK)
		done, err := x.Write(w)
		if err != nil {
			done.Error = &toWire(err).body
		}
		w.Header().Set(api.ExportTrailer, trailer(done))
	}}, nil
}

// maxTrailerBytes is what clients read of a trailer, with room to spare.
const maxTrailerBytes = 3500

// trailer writes what an export has done, leaving out notes, and then cutting
// the error short, until it is small enough.
func trailer(done api.ExportDone) string {
	for {
		b, err := json.Marshal(done)
		if err != nil {
			return ""
		}
		if s := url.QueryEscape(string(b)); len(s) <= maxTrailerBytes {
			return s
		}
		switch {
		case len(done.Notes) > 0:
			done.Notes = done.Notes[:len(done.Notes)/2]
		case done.Error != nil && len(done.Error.Message) > 200:
			e := *done.Error
			e.Message = string([]rune(e.Message)[:100]) + "..."
			done.Error = &e
		default:
			return ""
		}
	}
}

func (c *calls) importTar(ctx context.Context, in *importTar) (*huma.StreamResponse, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		u := newUpload(hc)
		defer u.drain()
		out := newLines(hc)
		to := importer.Tar{Disk: in.Disk, Path: in.Path, Existing: in.Existing, Checkpoint: in.Checkpoint, Interrupt: u.interrupt}
		info, totals, cp, err := c.Importer.ImportTar(ctx, who, to, u, func(l api.ImportLine) { _ = out.line(l, true) })
		switch {
		case err == nil:
			c.note(who, "disk-import", in.Disk, "from an archive")
			_ = out.line(api.ImportLine{Done: &api.ImportDone{Disk: c.disk(info), Totals: totals, Checkpoint: cp}}, true)
		case !out.started:
			writeError(out.w, err)
			out.flush()
		default:
			_ = out.line(api.ImportLine{Error: &toWire(err).body}, true)
		}
	}}, nil
}

func (c *calls) writeFile(ctx context.Context, in *writeFile) (*huma.StreamResponse, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		u := newUpload(hc)
		defer u.drain()
		n, err := c.Importer.Put(ctx, who, importer.File{Disk: in.Disk, Path: in.Path, Mode: in.Mode, UID: in.UID, GID: in.GID, Interrupt: u.interrupt}, u)
		if err != nil {
			writeError(u.w, err)
			return
		}
		u.w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(u.w).Encode(api.FileWritten{Bytes: n})
	}}, nil
}

// upload is the body of a request that is read while it comes, and may be
// answered before its end.
type upload struct {
	w            http.ResponseWriter
	body         io.Reader
	control      *http.ResponseController
	begun, ended bool // whether the body was read at all, and to its end or an error
}

// Read reads the body.
func (u *upload) Read(p []byte) (int, error) {
	u.begun = true
	n, err := u.body.Read(p)
	u.ended = u.ended || err != nil
	return n, err
}

func newUpload(hc huma.Context) *upload {
	r, w := humago.Unwrap(hc)
	u := &upload{w: w, body: r.Body, control: http.NewResponseController(w)}
	_ = u.control.EnableFullDuplex() // HTTP/1 answers after the body otherwise
	// The connection is of no use after it: net/http reads what is left of the
	// body when the answer is complete, and takes that for the next request.
	w.Header().Set("Connection", "close")
	return u
}

// interrupt ends a read that waits for the client.
func (u *upload) interrupt() { _ = u.control.SetReadDeadline(time.Now()) }

// drainTime is how long a client has to take an answer that came before the
// end of its request.
const drainTime = 10 * time.Second

// drain sends the answer and reads what the client still sends until it has
// seen that: a connection that is closed under a client which writes can lose
// the answer. A client that waits to be asked for the body is not asked.
func (u *upload) drain() {
	if !u.begun || u.ended {
		return
	}
	_ = u.control.Flush()
	_ = u.control.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.Copy(io.Discard, u.body)
	_ = u.control.SetReadDeadline(time.Time{})
}
