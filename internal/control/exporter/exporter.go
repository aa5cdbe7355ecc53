package exporter

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/statefile"
	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

const (
	// cleanUpTime bounds the removal of a checkpoint after its export was
	// cancelled.
	cleanUpTime = 30 * time.Second
	// bufferBytes is how much of an archive is gathered before it is sent.
	bufferBytes = 256 << 10
)

// Exporter writes disks as archives. Its methods may be called concurrently.
type Exporter struct {
	host *volume.Host
	data string
	log  *slog.Logger
	life context.Context // done when the server stops
	stop context.CancelFunc

	mu      sync.Mutex // guards the file that notes the checkpoints of running exports
	pending []volume.Ref
}

// pendingFormat is raised when a field's meaning changes.
const pendingFormat = 1

type pendingFile struct {
	Format      int      `json:"format"`
	Checkpoints []string `json:"checkpoints"` // DISK@CHECKPOINT
}

func (x *Exporter) path() string { return filepath.Join(x.data, "exports.json") }

// Open reads which exports the last server left unfinished; CleanUp removes
// their checkpoints.
func Open(host *volume.Host, data string, log *slog.Logger) (*Exporter, error) {
	life, stop := context.WithCancel(context.Background())
	x := &Exporter{host: host, data: data, log: log, life: life, stop: stop}
	f := pendingFile{Format: pendingFormat}
	if err := statefile.Read(x.path(), &f); err != nil {
		return nil, err
	}
	if f.Format != pendingFormat {
		return nil, tine.Errorf(tine.KindVersion, "%s has format %d; this program knows %d", x.path(), f.Format, pendingFormat).
			WithHint("use the version of tine that wrote it")
	}
	for _, s := range f.Checkpoints {
		r, err := volume.ParseRef(s)
		if err != nil {
			return nil, tine.Errorf(tine.KindCorrupt, "%s lists %q: %w", x.path(), s, err).WithHint("repair the file by hand, or move it away")
		}
		x.pending = append(x.pending, r)
	}
	return x, nil
}

// Stop cancels the running exports, and every one that comes later.
func (x *Exporter) Stop() { x.stop() }

// CleanUp removes the checkpoints of exports that a crash cut short.
func (x *Exporter) CleanUp(ctx context.Context) {
	x.mu.Lock()
	refs := slices.Clone(x.pending)
	x.mu.Unlock()
	for _, r := range refs {
		x.thaw(ctx, r)
	}
}

// note changes the note of checkpoints durably.
func (x *Exporter) note(change func([]volume.Ref) []volume.Ref) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	refs := change(slices.Clone(x.pending))
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	if err := statefile.Write(x.path(), pendingFile{pendingFormat, names}); err != nil {
		return err
	}
	x.pending = refs
	return nil
}

// freeze takes a checkpoint of the disk's head for an export.
func (x *Exporter) freeze(ctx context.Context, c volume.Caller, disk string) (volume.Ref, error) {
	r := volume.Ref{Disk: disk, Checkpoint: "export-" + rand.Text()}
	if err := x.note(func(rs []volume.Ref) []volume.Ref { return append(rs, r) }); err != nil {
		return r, err
	}
	_, err := x.host.Checkpoint(ctx, c, disk, r.Checkpoint, "for an export; it is removed when that ends", volume.WaitRunnable)
	if err != nil {
		x.thaw(ctx, r)
	}
	return r, err
}

// thaw removes the checkpoint of an export. One that cannot be removed is tried
// again at the next start.
func (x *Exporter) thaw(ctx context.Context, r volume.Ref) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	err := x.remove(ctx, r)
	if err == nil {
		err = x.note(func(rs []volume.Ref) []volume.Ref {
			return slices.DeleteFunc(rs, func(o volume.Ref) bool { return o == r })
		})
	}
	if err != nil {
		x.log.Error("could not remove the checkpoint of an export; it is tried again at the next start", "checkpoint", r.String(), "error", err)
	}
}

// remove removes a checkpoint, also if its disk has another name by now or has
// become another's by a promote.
func (x *Exporter) remove(ctx context.Context, r volume.Ref) error {
	c := volume.Caller{Tenant: tine.DefaultTenant, Author: "tine", Principal: "server"}
	err := x.host.RemoveCheckpoint(ctx, c, r.Disk, r.Checkpoint)
	if err == nil || tine.KindOf(err) != tine.KindNotFound {
		return err
	}
	ds, err := x.host.Disks(ctx, c, false)
	for _, d := range ds {
		if e := x.host.RemoveCheckpoint(ctx, c, d.Name, r.Checkpoint); e != nil && tine.KindOf(e) != tine.KindNotFound {
			return e
		}
	}
	return err
}

// From says what is exported.
type From struct {
	Ref    volume.Ref
	Path   string // in the disk; "" is the root
	Follow bool   // a symbolic link at the end of Path
	Live   bool   // read the head as it changes, instead of freezing it
}

// Export is one that is under way.
type Export struct {
	x       *Exporter
	session *volume.Session
	frozen  volume.Ref
	node    volume.Node
	attr    volume.Attr
	name    string
	ctx     context.Context // of the request and the server
	end     func()
}

// Begin finds what is to be exported. The caller ends the export with Close.
func (x *Exporter) Begin(ctx context.Context, c volume.Caller, f From) (*Export, error) {
	ref := f.Ref
	e := &Export{x: x}
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(x.life, cancel)
	e.ctx, e.end = ctx, func() { release(); cancel() }
	if ref.Checkpoint == "" {
		if f.Live {
			// What mounts have been given is to be in the copy.
			if err := x.host.SyncDisk(ctx, c, ref.Disk); err != nil {
				e.end()
				return nil, err
			}
		} else {
			var err error
			if ref, err = x.freeze(ctx, c, ref.Disk); err != nil {
				e.end()
				return nil, err
			}
			e.frozen = ref
		}
	}
	var err error
	e.session, err = x.host.Attach(ctx, c, ref, volume.AttachOptions{Label: "export", ReadOnly: true})
	if err == nil {
		e.attr, e.node, err = e.session.Resolve(f.Path, f.Follow)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	e.name = filepath.Base(f.Path)
	return e, nil
}

// Write writes the archive: of a directory its content, as names below "./";
// of anything else one entry under its own name. The totals and notes are what
// was written, also when an error ends it.
func (e *Export) Write(w io.Writer) (api.ExportDone, error) {
	out := bufio.NewWriterSize(w, bufferBytes)
	p := &packer{ctx: e.ctx, s: e.session, w: archive.NewWriter(out), links: map[tine.Ino]*linked{}, buf: make([]byte, copyBytes)}
	err := p.tree(e.node, e.attr, e.name)
	if err == nil {
		err = p.w.Close()
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil && e.x.life.Err() != nil {
		err = errors.Join(tine.Errorf(tine.KindUnavailable, "the server is stopping"), err)
	}
	return p.done, err
}

// Close ends the export.
func (e *Export) Close() {
	e.end()
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpTime)
	defer cancel()
	if e.session != nil {
		if err := e.session.Detach(ctx); err != nil {
			e.x.log.Warn("an export could not be ended as it should", "error", err)
		}
	}
	if e.frozen.Checkpoint != "" {
		e.x.thaw(ctx, e.frozen)
	}
}
