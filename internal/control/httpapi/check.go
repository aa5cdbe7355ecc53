package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/statefile"
	"tine.dev/tine/internal/fs/fsck"
)

type checkDisks struct {
	By
	Body api.CheckDisks
}

func (c *calls) registerCheck(h huma.API) {
	handle(h, c, call{id: "check", method: http.MethodPost, path: "/fsck", tag: tagServer, summary: "Check the data directory",
		description: "Makes durable what has reached the server, and checks a snapshot of it from the formats alone. Changes nothing; a repair needs the server stopped.",
		stream:      api.CheckLine{}}, c.check)
}

func (c *calls) check(ctx context.Context, in *checkDisks) (*huma.StreamResponse, error) {
	if _, err := in.caller(ctx); err != nil {
		return nil, err
	}
	stored, err := c.Host.Stored(ctx)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		out := newLines(hc)
		report, err := fsck.Check(fsck.Options{
			Rows: stored.Rows, FS: stored.FS, SegmentDir: stored.Segments, Live: true,
			Data: in.Body.ReadData, Disks: in.Body.Disks, Context: ctx,
			Found: func(f fsck.Finding) {
				w := Finding(f)
				_ = out.line(api.CheckLine{Finding: &w}, false)
			},
			Progress: func(p fsck.Progress) {
				_ = out.line(api.CheckLine{Progress: &api.CheckProgress{Phase: p.Phase, Done: p.Done, Unit: p.Unit}}, true)
			},
		})
		if err == nil {
			w := CheckReport(report)
			err = CheckState(c.Server.Data, &w, func(f api.Finding) { _ = out.line(api.CheckLine{Finding: &f}, false) })
			if err != nil {
				_ = out.line(api.CheckLine{Error: &toWire(err).body}, true)
				return
			}
			_ = out.line(api.CheckLine{Done: &w}, true)
			return
		}
		if !out.started {
			writeError(out.w, err)
			return
		}
		_ = out.line(api.CheckLine{Error: &toWire(err).body}, true)
	}}, nil
}

// CheckState looks at the server's own files in the data directory, of which
// package fsck knows nothing, and adds what it finds to the report of a check.
func CheckState(data string, report *api.CheckReport, found func(api.Finding)) error {
	damage, err := statefile.Check(data)
	for _, d := range damage {
		report.Errors++
		report.Counts[stateDamaged]++
		found(StateFinding(d))
	}
	return err
}

// StateFinding is a damaged file of the server's own as a finding of a check.
func StateFinding(d statefile.Damage) api.Finding {
	return Finding(fsck.Finding{Code: stateDamaged, Severity: fsck.Error, What: d.Err.Error()})
}

// stateDamaged is the code of a state file that is damaged.
const stateDamaged = "F001"

// Finding is a finding of a check as it goes over the wire, with what its code
// says. The command line uses it for checks without a server.
func Finding(f fsck.Finding) api.Finding {
	e := fsck.EntryOf(f.Code)
	return api.Finding{Code: f.Code, Severity: string(f.Severity), What: f.What, Meaning: e.Meaning, Effect: e.Effect, Repair: e.Repair,
		Tree: f.Tree, Timeline: f.Timeline, Disk: f.Disk, Path: f.Path, Key: f.Key}
}

// CheckReport is the end of a check as it goes over the wire.
func CheckReport(r *fsck.Report) api.CheckReport {
	s := r.Stats
	return api.CheckReport{
		Errors: r.Errors, Leaks: r.Leaks, Notes: r.Notes, Incomplete: r.Incomplete, Counts: r.Counts, Seconds: r.Seconds,
		Trees: s.Trees, Disks: s.Disks, Checkpoints: s.Checkpoints, Views: s.Views, Rows: s.Rows, Segments: s.Segments,
		SegmentBytes: s.SegmentBytes, DataBytes: s.DataBytes,
	}
}
