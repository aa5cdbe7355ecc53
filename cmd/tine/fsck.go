package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/httpapi"
	"tine.dev/tine/internal/control/server"
	"tine.dev/tine/internal/control/statefile"
	"tine.dev/tine/internal/fs/fsck"
	"tine.dev/tine/internal/fs/kv"
	"tine.dev/tine/internal/fs/kv/pebble"
	"tine.dev/tine/internal/fs/kv/salvage"
	"tine.dev/tine/internal/tine"
)

// fsckFlags is what the command line says of a check.
type fsckFlags struct {
	data     string
	disks    []string
	repair   bool
	readData bool
}

func (c *cli) fsckCommand() *cobra.Command {
	var o fsckFlags
	cmd := &cobra.Command{
		Use: "fsck [DISK...]", Short: "Check the data directory, and repair it",
		Long: "Check everything that the data directory holds, from its formats alone: that all that is stored can be\n" +
			"read, hangs together and adds up, in every disk and checkpoint. With disks named, only the trees of\n" +
			"forks that they belong to are checked.\n\n" +
			"A running server is asked to check a snapshot of its own directory, and goes on serving meanwhile.\n" +
			"Without a server, or with --data, the directory is opened here. File data is checked for being there;\n" +
			"with --read-data all of it is read and its checksums are verified, which takes as long as reading it.\n\n" +
			"--repair needs the server stopped. It mends what the heads of disks show, and leaves checkpoints as they\n" +
			"are; files that have lost their names come to /lost+found, and where data is lost reading gives EIO.\n" +
			"Where files of the row store are damaged, all rows that can be read are first written into a new one, which\n" +
			"takes as much room again, and the damaged one is kept in DATA/damaged. Only then checkpoints are mended too.\n" +
			"Each finding says what repair would do. Make a copy of the data directory first, if you can.\n\n" +
			"Exit code: 0 if nothing is wrong (space held in vain is told, and is no error), 14 if errors are found\n" +
			"or are left, and another if the check could not be made.",
		Example: "  tine fsck\n  tine fsck work --read-data\n  tine fsck --repair --data /srv/tine",
		Args:    arguments(0, -1), ValidArgsFunction: c.upTo(-1, c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.disks = args
			return c.fsck(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.data, "data", "", "the data directory, when no server runs")
	cmd.Flags().BoolVar(&o.repair, "repair", false, "mend what can be mended; no server may run")
	cmd.Flags().BoolVar(&o.readData, "read-data", false, "also read all file data and verify its checksums")
	must(cmd.MarkFlagDirname("data"))
	return cmd
}

// fsckResult is the answer as JSON.
type fsckResult struct {
	api.CheckReport
	Findings []api.Finding `json:"findings"`
	Changes  []fsck.Change `json:"changes,omitempty"` // what repair has done
	Repaired bool          `json:"repaired,omitempty"`
}

func (c *cli) fsck(ctx context.Context, o fsckFlags) error {
	p := &fsckOutput{cli: c}
	var result fsckResult
	err := c.fsckOnline(ctx, o, p, &result)
	if err != nil && c.noServer(err) {
		err = c.fsckOffline(ctx, o, p, &result)
	}
	p.clear()
	if err != nil {
		return err
	}
	result.Findings = p.findings
	if result.Findings == nil {
		result.Findings = []api.Finding{}
	}
	if err := c.print(result, func() { c.fsckSummary(&result) }); err != nil {
		return err
	}
	if result.Errors > 0 || result.Incomplete {
		return &silentError{exitDamaged}
	}
	return nil
}

// errOffline says that the server is not to be asked.
var errOffline = errors.New("offline")

// noServer reports that the check is to be made here: because it was asked for,
// or because nobody listens.
func (c *cli) noServer(err error) bool {
	return errors.Is(err, errOffline) || noServer(err) && c.socket == ""
}

func (c *cli) fsckOnline(ctx context.Context, o fsckFlags, p *fsckOutput, result *fsckResult) error {
	if o.repair || o.data != "" {
		return errOffline
	}
	done, err := c.client().Check(ctx, api.CheckDisks{Disks: o.disks, ReadData: o.readData}, func(l api.CheckLine) error {
		if l.Progress != nil {
			p.progress(*l.Progress)
		}
		if l.Finding != nil {
			p.finding(*l.Finding)
		}
		return nil
	})
	result.CheckReport = done
	return err
}

// openData opens the rows of a data directory that no server has. The returned
// function gives it back.
func (c *cli) openData(data string) (dir string, rows kv.Store, release func(), err error) {
	return c.withData(data, func(data string) (kv.Store, error) { return pebble.Open(rowsIn(data)) })
}

// openSalvaged is openData for a repair: what can be read of damaged files is saved first.
func (c *cli) openSalvaged(data string, p *fsckOutput) (dir string, rows kv.Store, found *salvage.Report, release func(), err error) {
	dir, rows, release, err = c.withData(data, func(data string) (rows kv.Store, err error) {
		rows, found, err = salvage.Open(salvage.Options{Store: rowsIn(data), Aside: filepath.Join(data, "damaged"),
			Progress: func(rows int64) { p.progress(api.CheckProgress{Phase: "saving rows", Done: rows, Unit: "rows"}) }})
		p.clear()
		return rows, err
	})
	if err == nil && found.Kept != "" {
		done := fmt.Sprintf("%s that can be read were written anew; the damaged files are in %s", plural(found.Rows, "row"), found.Kept)
		if found.Cut {
			done = "the log is cut off there; as it was it is in " + found.Kept
		}
		fmt.Fprintf(c.env.stderr, "tine: the row store is damaged\n      %s\n", done)
	}
	return dir, rows, found, release, err
}

func rowsIn(data string) pebble.Options {
	return pebble.Options{Dir: filepath.Join(data, "rows"), Logger: slog.New(slog.DiscardHandler)}
}

// withData opens rows with the data directory locked.
func (c *cli) withData(data string, open func(data string) (kv.Store, error)) (dir string, rows kv.Store, release func(), err error) {
	if data == "" {
		data = c.dataDir()
	}
	if data, err = filepath.Abs(data); err != nil {
		return "", nil, nil, tine.Errorf(tine.KindIO, "find the current directory: %w", err)
	}
	lock, err := server.Exclusive(data)
	if err != nil {
		return "", nil, nil, err
	}
	if rows, err = open(data); err != nil {
		lock.Release()
		return "", nil, nil, err
	}
	return data, rows, func() {
		_ = rows.Close()
		lock.Release()
	}, nil
}

func (c *cli) fsckOffline(ctx context.Context, o fsckFlags, p *fsckOutput, result *fsckResult) error {
	if o.repair {
		return c.fsckRepair(ctx, o, p, result)
	}
	data, rows, release, err := c.openData(o.data)
	if err != nil {
		return err
	}
	defer release()
	r, err := fsck.Check(c.fsckOptions(ctx, data, rows, o, p))
	if err == nil {
		result.CheckReport = httpapi.CheckReport(r)
		err = httpapi.CheckState(data, &result.CheckReport, p.finding)
	}
	return err
}

func (c *cli) fsckOptions(ctx context.Context, data string, rows kv.Store, o fsckFlags, p *fsckOutput) fsck.Options {
	if !c.json {
		c.say("checking %s, which no server has open", data)
	}
	return fsck.Options{
		Rows: rows, FS: vfs.Default, SegmentDir: filepath.Join(data, "segments"), Data: o.readData, Disks: o.disks, Context: ctx,
		Found:    func(f fsck.Finding) { p.finding(httpapi.Finding(f)) },
		Progress: func(g fsck.Progress) { p.progress(api.CheckProgress(g)) },
	}
}

// repairPerCode is how many findings of one code a repair tells in full: of what is
// lost each file should be named.
const repairPerCode = 10_000

func (c *cli) fsckRepair(ctx context.Context, o fsckFlags, p *fsckOutput, result *fsckResult) error {
	data, rows, found, release, err := c.openSalvaged(o.data, p)
	if err != nil {
		return err
	}
	defer release()
	options := c.fsckOptions(ctx, data, rows, o, p)
	options.Salvaged, options.PerCode = found.Damage, repairPerCode
	moved, err := setStateAside(data, p)
	if err != nil {
		return err
	}
	r, err := fsck.Repair(options, time.Now())
	if err == nil {
		err = salvage.Forget(salvage.Options{Store: rowsIn(data)})
	}
	if err != nil {
		return err
	}
	result.CheckReport, result.Changes, result.Repaired = httpapi.CheckReport(r.After), append(moved, r.Changes...), true
	p.findings = p.findings[:0]
	for _, f := range r.After.Findings {
		p.findings = append(p.findings, httpapi.Finding(f))
	}
	return nil
}

// setStateAside moves the damaged ones of the server's own files out of the way.
func setStateAside(data string, p *fsckOutput) ([]fsck.Change, error) {
	damage, err := statefile.Check(data)
	if err != nil {
		return nil, err
	}
	var moved []fsck.Change
	for _, d := range damage {
		f := httpapi.StateFinding(d)
		p.finding(f)
		to, err := statefile.SetAside(data, d.Name)
		if err != nil {
			return moved, err
		}
		moved = append(moved, fsck.Change{Code: f.Code, What: f.What, Done: "moved it to " + to})
	}
	return moved, nil
}

// fsckOutput shows findings and progress as they come.
type fsckOutput struct {
	cli      *cli
	findings []api.Finding
	shown    bool
}

func (p *fsckOutput) finding(f api.Finding) {
	p.findings = append(p.findings, f)
	if p.cli.json {
		return
	}
	p.clear()
	where := f.Disk
	if f.Path != "" {
		where += ":" + printable(f.Path)
	}
	if where != "" {
		where += "  "
	}
	p.cli.say("%-5s %s  %s%s", f.Severity, f.Code, where, printable(f.What))
}

func (p *fsckOutput) progress(g api.CheckProgress) {
	if !p.cli.env.terminal {
		return
	}
	amount := fmt.Sprintf("%d %s", g.Done, g.Unit)
	if g.Unit == "bytes" {
		amount = size(g.Done)
	}
	fmt.Fprintf(p.cli.env.stderr, "\r\x1b[K%s: %s", g.Phase, amount)
	p.shown = true
}

func (p *fsckOutput) clear() {
	if p.shown {
		fmt.Fprint(p.cli.env.stderr, "\r\x1b[K")
		p.shown = false
	}
}

// fsckSummary says what the codes mean that were found, and what was done.
func (c *cli) fsckSummary(r *fsckResult) {
	for _, ch := range r.Changes {
		c.say("repaired  %s %s: %s", dash(ch.Code), printable(ch.What), printable(ch.Done))
	}
	if r.Repaired {
		c.say("after the repair:")
		for _, f := range r.Findings {
			c.say("%-5s %s  %s  %s", f.Severity, f.Code, printable(f.Disk+":"+f.Path), printable(f.What))
		}
	}
	codes := make([]string, 0, len(r.Counts))
	for code := range r.Counts {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	for _, code := range codes {
		e := fsck.EntryOf(code)
		c.say("\n%s (%d times): %s.\n  It means: %s.\n  --repair: %s.", code, r.Counts[code], e.Meaning, e.Effect, e.Repair)
	}
	if len(codes) > 0 {
		c.say("")
	}
	c.say("checked %s, %s, %s, %s, %s of segments%s in %.1f s", plural(r.Disks, "disk"), plural(r.Checkpoints, "checkpoint"), plural(r.Rows, "row"),
		plural(r.Segments, "segment"), size(r.SegmentBytes), readText(r.DataBytes), r.Seconds)
	switch {
	case r.Incomplete:
		c.say("something could not be read: more may be wrong")
	case r.Errors == 0 && r.Leaks == 0:
		c.say("nothing is wrong")
		return
	}
	c.say("%s, %s, %s", plural(int64(r.Errors), "error"), plural(int64(r.Leaks), "leak"), plural(int64(r.Notes), "note"))
}

func readText(n int64) string {
	if n == 0 {
		return ""
	}
	return " (" + size(n) + " read and verified)"
}

// jsonLine prints one JSON object on a line.
func (c *cli) jsonLine(v any) error {
	enc := json.NewEncoder(c.env.stdout)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return tine.Errorf(tine.KindIO, "print the result: %w", err)
	}
	return nil
}
