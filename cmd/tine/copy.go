package main

import (
	"bufio"
	"context"
	"io"
	"os"
	pathpkg "path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/hosttree"
	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/archive"
	"tine.dev/tine/internal/tine"
)

func (c *cli) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cp FROM TO", Short: "Copy files and trees out of a disk or checkpoint, or into a disk",
		Long: "Copy between the machine and a disk, without a mount. One of the two is DISK:PATH, or out of a\n" +
			"checkpoint DISK@CHECKPOINT:PATH; the other is a path here, or - for standard input or output. A\n" +
			"path here that has a \":\" is written with a slash before it, as ./a:b.\n\n" +
			"Trees are copied whole, without a flag. If TO is a directory, the copy goes into it, under its\n" +
			"own name; else it gets the name TO. The content of a directory alone is FROM/. . A symbolic\n" +
			"link is copied as one, unless FROM ends in a slash. Directories that exist on both sides are\n" +
			"merged, files are replaced.\n\n" +
			"Modes, times, hard links, holes and extended attributes are kept. Paths here are read and\n" +
			"written by this command, with your rights: owners and devices are kept by root only. As root,\n" +
			"set-user-ID programs of a disk keep that right here, so do not copy as root what you do not\n" +
			"trust.",
		Example: "  tine cp work:/src/main.go .\n  tine cp work@before:/etc ./old-etc\n  tine cp ./patch work:/src/\n" +
			"  tine cp work:/log/app.log - | tail\n  date | tine cp - work:/stamp",
		Args: arguments(2, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return startingWith(c.completeRef(cmd, typed), typed), cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromDisk := parsePlace(args[0])
			to, toDisk := parsePlace(args[1])
			for _, a := range args {
				// An empty name, as of a variable that is not set, is not the disk as it is now.
				if ref, _, found := strings.Cut(a, ":"); found && !strings.Contains(ref, "/") && strings.HasSuffix(ref, "@") {
					return &usageError{cmd.CommandPath(), "the checkpoint name in " + a + " is empty"}
				}
			}
			switch {
			case fromDisk && toDisk:
				return &usageError{cmd.CommandPath(), "both are in disks; to copy a whole disk fork it, else copy through a pipe: tine cp A:/f - | tine cp - B:/f"}
			case !fromDisk && !toDisk:
				return &usageError{cmd.CommandPath(), "neither " + args[0] + " nor " + args[1] + " is in a disk: DISK:PATH or DISK@CHECKPOINT:PATH"}
			case toDisk && to.checkpoint != "":
				return tine.Errorf(tine.KindReadOnly, "a checkpoint never changes").WithHint("copy into a fork of it: tine fork %s NAME", refOf(to.disk, to.checkpoint))
			case fromDisk:
				return c.copyOut(cmd.Context(), from, args[1])
			}
			return c.copyIn(cmd.Context(), args[0], to)
		},
	}
}

// place is a path in a disk or checkpoint.
type place struct{ disk, checkpoint, path string }

// parsePlace reads DISK[@CHECKPOINT]:PATH. Whatever has a slash before its
// first colon, or no colon, is a path here.
func parsePlace(s string) (place, bool) {
	ref, path, found := strings.Cut(s, ":")
	if !found || strings.Contains(ref, "/") {
		return place{}, false
	}
	disk, cp, _ := strings.Cut(ref, "@")
	return place{disk, cp, "/" + strings.TrimLeft(path, "/")}, true
}

// content reports whether a path means what a directory holds, and not the
// directory: it ends in "/.", or it is the root of a disk.
func content(path string) bool {
	return path == "." || path == "/" || strings.HasSuffix(path, "/.")
}

// copied prints what was done.
func (c *cli) copied(from, to string, t hosttree.Totals) error {
	totals := api.ImportProgress{Files: t.Files, Directories: t.Directories, Symlinks: t.Symlinks, HardLinks: t.HardLinks, Specials: t.Specials,
		Skipped: t.Skipped, Bytes: t.Bytes}
	return c.print(map[string]any{"totals": totals}, func() { c.say("copied %s to %s: %s", from, to, summary(totals)) })
}

func (p *progress) note(path, text string) {
	p.line(api.ImportLine{Note: &api.ImportNote{Path: path, Note: text}})
}

// copyOut copies out of a disk.
func (c *cli) copyOut(ctx context.Context, from place, to string) error {
	follow := content(from.path) || strings.HasSuffix(from.path, "/")
	x := api.ExportFrom{Disk: from.disk, Checkpoint: from.checkpoint, Path: from.path, Follow: follow || to == "-", Live: from.checkpoint == ""}
	p := &progress{cli: c, start: time.Now()}
	if to == "-" {
		_, err := c.client().Export(ctx, x, func(r io.Reader) error { return printFile(c.env.stdout, r, from.path) })
		return err
	}
	base := pathpkg.Base(from.path)
	if content(from.path) {
		base = "."
	}
	dir, as, err := target(to, base)
	if err != nil {
		return err
	}
	var totals hosttree.Totals
	user := hosttree.Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	done, err := c.client().Export(ctx, x, func(r io.Reader) error {
		var err error
		totals, err = hosttree.Unpack(ctx, archive.NewReader(&counting{r: r, p: p}, nil), dir, as, user, p.note)
		return err
	})
	p.clear()
	if err != nil {
		return err
	}
	c.exportNotes(done)
	totals.Skipped += done.Skipped
	return c.copied(refOf(from.disk, from.checkpoint)+":"+from.path, to, totals)
}

// target finds the directory that a copy goes to and the name it gets there.
func target(to, base string) (dir, as string, err error) {
	fi, err := os.Stat(to)
	switch {
	case err == nil && fi.IsDir():
		return to, base, nil
	case err == nil:
		if strings.HasSuffix(to, "/") {
			return "", "", tine.Errorf(tine.KindNotDir, "%s is not a directory", to)
		}
		if to, err = filepath.EvalSymlinks(to); err != nil { // a link to a file stays one
			return "", "", oserr.Wrap(err, "look at the target")
		}
	case !os.IsNotExist(err):
		return "", "", oserr.Wrap(err, "look at the target")
	}
	to = strings.TrimRight(to, "/")
	dir = filepath.Dir(to)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return "", "", tine.Errorf(tine.KindNotFound, "there is no directory %s", dir).WithHint("mkdir -p %s", dir)
	}
	return dir, filepath.Base(to), nil
}

// printFile writes the content of an archive's one file, holes as zeros.
func printFile(w io.Writer, from io.Reader, path string) error {
	r := archive.NewReader(from, nil)
	e, err := r.Next()
	if err != nil {
		return err
	}
	if e.Type != archive.Regular {
		return tine.Errorf(tine.KindInvalid, "%q in the disk is no file, and only a file has content to print", path).
			WithHint("for a tree use tine export --path %s --to-tar -", path)
	}
	out := func(n int64, r io.Reader) error {
		_, err := io.CopyN(w, r, n)
		return oserr.Wrap(err, "print the file")
	}
	var at int64
	for _, run := range e.Data() {
		if err := out(run.Off-at, zeros{}); err != nil {
			return err
		}
		if err := out(run.Len, r); err != nil {
			return err
		}
		at = run.End()
	}
	if err := out(e.Size-at, zeros{}); err != nil {
		return err
	}
	_, err = r.Next()
	if err == io.EOF {
		err = nil
	}
	return err
}

// zeros is what a hole holds.
type zeros struct{}

// Read reads zeros.
func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// copyIn copies into a disk.
func (c *cli) copyIn(ctx context.Context, from string, to place) error {
	client := c.client()
	name := to.disk + ":" + to.path
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if from == "-" {
		n, err := client.WriteFile(ctx, to.disk, to.path, 0o644, uid, gid, reading{c.env.stdin, "standard input"})
		if err != nil && ctx.Err() != nil {
			return tine.Errorf(tine.KindInterrupted, "interrupted").
				WithHint("%s is as it was before; or, if all had come already, it is what was to be copied", name)
		}
		if err != nil {
			return err
		}
		return c.print(n, func() { c.say("copied %s to %s", size(n.Bytes), name) })
	}
	fi, err := os.Lstat(from)
	if err != nil {
		return oserr.Wrap(err, "look at what is to be copied")
	}
	base := filepath.Base(from)
	if content(from) || base == ".." {
		base = "."
	}
	dir, as, err := targetInDisk(ctx, client, to, base, fi.IsDir())
	if err != nil {
		return err
	}
	var owner *hosttree.Owner
	if uid != 0 {
		owner = &hosttree.Owner{UID: uid, GID: gid}
	}
	p := &progress{cli: c, start: time.Now()}
	var totals hosttree.Totals
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		buf := bufio.NewWriterSize(w, 256<<10)
		a := archive.NewWriter(buf)
		var err error
		if totals, err = hosttree.Pack(ctx, a, from, as, owner, p.queue); err == nil {
			err = a.Close()
		}
		if err == nil {
			err = buf.Flush()
		}
		_ = w.CloseWithError(err) // nil is the end
	}()
	done, err := client.ImportTar(ctx, api.ImportInto{Disk: to.disk, Path: dir, Existing: true, NoCheckpoint: true}, r, p.line)
	_ = r.Close()
	<-packed
	p.clear()
	p.printQueued()
	if err != nil {
		return c.whatIsLeft(ctx, err, to.disk, true, p)
	}
	totals.Skipped += done.Totals.Skipped
	return c.copied(from, name, totals)
}

// targetInDisk finds the directory of a disk that a copy goes to and the name
// it gets there.
func targetInDisk(ctx context.Context, client *api.Client, to place, base string, tree bool) (dir, as string, err error) {
	fi, err := client.Stat(ctx, to.disk, "", to.path, true)
	switch {
	case err == nil && fi.Type == "directory":
		return to.path, base, nil
	case err == nil && tree:
		return "", "", tine.Errorf(tine.KindNotDir, "%s in the disk %s is not a directory", to.path, to.disk)
	case err != nil && describe(err).Kind != tine.KindNotFound.String():
		return "", "", err
	case err != nil && !tree && strings.HasSuffix(to.path, "/"):
		return "", "", err
	}
	clean := pathpkg.Clean(to.path)
	dir = pathpkg.Dir(clean)
	if _, err := client.Stat(ctx, to.disk, "", dir+"/", true); err != nil {
		return "", "", err
	}
	return dir, pathpkg.Base(clean), nil
}
