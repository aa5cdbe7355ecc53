package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
)

type (
	importDir struct {
		OnDisk
		Body api.ImportFrom
	}
	diffOf struct {
		By
		A string `query:"a" required:"true" doc:"DISK or DISK@CHECKPOINT"`
		B string `query:"b" required:"true" doc:"DISK or DISK@CHECKPOINT"`
	}
)

func (c *calls) registerStreams(h huma.API) {
	handle(h, c, call{id: "importDirectory", method: http.MethodPost, path: "/disks/{disk}/import-dir", tag: tagDisks, summary: "Make a disk from a directory",
		description: "Copies a directory of the server's machine, with the server's rights, into a new disk. A failed import leaves no disk behind.",
		stream:      api.ImportLine{}}, c.importDir)
	handle(h, c, call{id: "diff", method: http.MethodGet, path: "/diff", tag: tagHistory, summary: "The paths in which two disks or checkpoints differ",
		stream: api.DiffLine{}}, c.diff)
}

// flushAfterLines is how many lines may wait in the server.
const flushAfterLines = 256

// lines writes JSON lines. The status is sent with the first one, so that a
// call that fails before it has a proper status. Not safe for concurrent use.
type lines struct {
	w       http.ResponseWriter
	enc     *json.Encoder
	started bool
	waiting int
	failed  error // the client is gone
}

func newLines(ctx huma.Context) *lines {
	_, w := humago.Unwrap(ctx)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &lines{w: w, enc: enc}
}

func (l *lines) line(v any, flush bool) error {
	if l.failed != nil {
		return l.failed
	}
	if !l.started {
		l.started = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	if l.failed = l.enc.Encode(v); l.failed != nil {
		return l.failed
	}
	if l.waiting++; flush || l.waiting >= flushAfterLines {
		l.flush()
	}
	return nil
}

// flush sends what waits.
func (l *lines) flush() {
	l.waiting = 0
	if f, ok := l.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (c *calls) diff(ctx context.Context, in *diffOf) (*huma.StreamResponse, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	a, err := volume.ParseRef(in.A)
	if err != nil {
		return nil, err
	}
	b, err := volume.ParseRef(in.B)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		out := newLines(hc)
		var n int64
		err := c.Host.Diff(ctx, who, a, b, func(ch volume.Change) error {
			n++
			w := change(ch)
			return out.line(api.DiffLine{Change: &w}, false)
		})
		if err == nil {
			_ = out.line(api.DiffLine{Done: &api.DiffDone{Changes: n}}, true)
			return
		}
		if !out.started {
			writeError(out.w, err)
			return
		}
		_ = out.line(api.DiffLine{Error: &toWire(err).body}, true)
	}}, nil
}

func (c *calls) importDir(ctx context.Context, in *importDir) (*huma.StreamResponse, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		out := newLines(hc)
		info, totals, err := c.Importer.Import(ctx, who, in.Disk, in.Body.Dir, func(l api.ImportLine) { _ = out.line(l, true) })
		if err == nil {
			c.note(who, "disk-import", in.Disk, "from "+in.Body.Dir)
			_ = out.line(api.ImportLine{Done: &api.ImportDone{Disk: c.disk(info), Totals: totals}}, true)
			return
		}
		if !out.started {
			writeError(out.w, err)
			return
		}
		_ = out.line(api.ImportLine{Error: &toWire(err).body}, true)
	}}, nil
}
