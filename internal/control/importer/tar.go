package importer

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// Tar says where an archive goes.
type Tar struct {
	Disk       string
	Path       string // the directory in the disk; made if it is missing
	Existing   bool   // the disk must exist; else it is made if it does not
	Checkpoint bool   // first checkpoint a disk that is not empty
	Interrupt  func() // makes a read of the archive that waits return; called when the import is cancelled
}

// ImportTar unpacks an archive into a disk. A disk that does not exist is made,
// and there is none if that fails. In one that exists, what was unpacked before
// a failure stays; checkpoint names what was there before, unless the
// disk was empty. Report is told as by Import. On return without an error what
// was unpacked is durable.
func (im *Importer) ImportTar(ctx context.Context, c volume.Caller, to Tar, from io.Reader, report func(api.ImportLine)) (d volume.DiskInfo, totals api.ImportProgress, checkpoint string, err error) {
	fill := func(ctx context.Context, disk string) (api.ImportProgress, error) {
		defer context.AfterFunc(ctx, to.Interrupt)()
		return im.fill(ctx, c, volume.Ref{Disk: disk}, "import of an archive", report, func(ctx context.Context, s *volume.Session, r *reporter) error {
			return unpack(ctx, s, to.Path, from, r)
		})
	}
	d, err = im.host.Disk(ctx, c, to.Disk)
	if tine.KindOf(err) == tine.KindNotFound && !to.Existing {
		d, totals, err = im.newDisk(ctx, c, to.Disk, fill)
		return d, totals, "", err
	}
	if err != nil {
		return d, totals, "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(im.life, cancel)()
	if to.Checkpoint {
		if checkpoint, err = im.checkpoint(ctx, c, to.Disk); err != nil {
			return d, totals, "", im.stopped(err)
		}
	}
	if plain, told := report, checkpoint == ""; !told {
		report = func(l api.ImportLine) { // with the first line, or whoever is cut off never hears of it
			if !told {
				told, l.Checkpoint = true, checkpoint
			}
			plain(l)
		}
	}
	totals, err = fill(ctx, to.Disk)
	err = im.stopped(err)
	switch {
	case err == nil:
	case checkpoint != "":
		err = hinted(err, "what was unpacked stays; `tine rollback %s %s` takes it back", to.Disk, checkpoint)
	case tine.KindOf(err) == tine.KindUnavailable:
		err = hinted(err, "what was unpacked stays")
	}
	return d, totals, checkpoint, err
}

// hinted adds a line to an error's hint.
func hinted(err error, format string, args ...any) error {
	hint := strings.TrimPrefix(tine.HintOf(err)+"\n"+fmt.Sprintf(format, args...), "\n")
	return &tine.Error{Kind: tine.KindOf(err), Err: err, Hint: hint}
}

// checkpoint freezes the disk before an import, unless it is empty.
func (im *Importer) checkpoint(ctx context.Context, c volume.Caller, disk string) (string, error) {
	use, err := im.host.QuotaUse(ctx, c, disk)
	if err != nil || use.UsedInodes <= 1 {
		return "", err
	}
	for n := 1; ; n++ {
		name := fmt.Sprintf("before-import-%d", n)
		_, err := im.host.Checkpoint(ctx, c, disk, name, "before the import of an archive", volume.WaitDurable)
		if err == nil || tine.KindOf(err) != tine.KindExists {
			return name, err
		}
	}
}

// machineUsers finds users and groups that the machine knows.
type machineUsers struct{}

// User returns the id of a user.
func (machineUsers) User(name string) (uint32, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err == nil
}

// Group returns the id of a group.
func (machineUsers) Group(name string) (uint32, bool) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(n), err == nil
}

var _ archive.Users = machineUsers{}
