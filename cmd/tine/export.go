package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/tine"
)

func (c *cli) exportCommand() *cobra.Command {
	var path, to string
	cmd := &cobra.Command{
		Use: "export DISK[@CHECKPOINT] --to-tar FILE", Short: "Write a disk, or a part of it, as a tar archive",
		Long: "Write what a disk or checkpoint holds as a tar archive: modes, numeric owners, times in\n" +
			"nanoseconds, links, devices, holes, extended attributes and ACLs are in it; any tar reads it, and\n" +
			"GNU tar restores it all with `tar -xpf FILE --xattrs --xattrs-include='*' --acls --numeric-owner`.\n" +
			"Sockets are left out. A disk is exported as it is at one moment, whoever writes to it meanwhile.\n\n" +
			"The archive is written by this command, with your rights. One that fails leaves no file; with -\n" +
			"it goes to standard output, and is complete only if the command succeeds.",
		Example: "  tine export work --to-tar work.tar\n  tine export work@before --path /src --to-tar - | gzip > src.tar.gz",
		Args:    arguments(1, 1), ValidArgsFunction: c.once(c.completeRef),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return &usageError{cmd.CommandPath(), "where to is missing: --to-tar FILE, or --to-tar - for standard output"}
			}
			disk, cp, _ := strings.Cut(args[0], "@")
			if strings.HasSuffix(args[0], "@") {
				return &usageError{cmd.CommandPath(), "the checkpoint name after @ is empty"}
			}
			return c.export(cmd.Context(), api.ExportFrom{Disk: disk, Checkpoint: cp, Path: path, Follow: true}, to)
		},
	}
	cmd.Flags().StringVar(&to, "to-tar", "", "the file to write, - for standard output")
	cmd.Flags().StringVar(&path, "path", "", "only this path of the disk; of a directory its content")
	return cmd
}

func (c *cli) export(ctx context.Context, from api.ExportFrom, to string) error {
	if to == "-" && c.env.screen != nil && c.env.screen() > 0 {
		return tine.Errorf(tine.KindInvalid, "an archive on a terminal is of no use").WithHint("name a file, or use a pipe")
	}
	p := &progress{cli: c, start: time.Now()}
	var done api.ExportDone
	receive := func(w io.Writer) error {
		var err error
		done, err = c.client().Export(ctx, from, func(r io.Reader) error {
			_, err := io.Copy(w, &counting{r: r, p: p})
			return oserr.Wrap(err, "write %s", to)
		})
		p.clear()
		return err
	}
	if to == "-" {
		if err := receive(c.env.stdout); err != nil {
			return err
		}
		c.exportNotes(done)
		return nil
	}
	if err := writeWhole(to, receive); err != nil {
		return err
	}
	c.exportNotes(done)
	return c.print(done, func() { c.say("exported %s to %s: %s", refOf(from.Disk, from.Checkpoint), to, summary(done.Totals)) })
}

func refOf(disk, cp string) string {
	if cp == "" {
		return disk
	}
	return disk + "@" + cp
}

// exportNotes tells what is not in an archive, or not as it was.
func (c *cli) exportNotes(done api.ExportDone) {
	for _, n := range done.Notes {
		fmt.Fprintf(c.env.stderr, "tine: %s: %s\n", printable(n.Path), printable(n.Note))
	}
	if rest := done.Skipped - int64(len(done.Notes)); rest > 0 {
		fmt.Fprintf(c.env.stderr, "tine: and %s more of the kind\n", plural(rest, "note"))
	}
}

// writeWhole has fn write a file that has its name only once it is complete,
// and that only its owner can read, since nobody knows what a disk holds. What is no regular file, such as a pipe, is written as it is.
func writeWhole(path string, fn func(io.Writer) error) error {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return oserr.Wrap(err, "write %s", path)
		}
		defer f.Close()
		return fn(f)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return oserr.Wrap(err, "write %s", path)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	err = fn(w)
	if err == nil {
		err = oserr.Wrap(w.Flush(), "write %s", path)
	}
	if err == nil {
		err = oserr.Wrap(f.Sync(), "write %s", path)
	}
	if err == nil {
		err = oserr.Wrap(os.Rename(f.Name(), path), "write %s", path)
	}
	return err
}

// counting shows how many bytes have been read.
type counting struct {
	r    io.Reader
	p    *progress
	n    int64
	last time.Time
}

// Read reads.
func (r *counting) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.n += int64(n)
	if now := time.Now(); r.p.cli.env.terminal && now.Sub(r.last) > 200*time.Millisecond {
		r.last = now
		r.p.bytes(r.n)
	}
	return n, err
}

func (c *cli) importCommand() *cobra.Command {
	var fromDir, fromTar, path string
	cmd := &cobra.Command{
		Use: "import DISK (--from-dir DIR | --from-tar FILE)", Short: "Fill a disk from a directory or a tar archive",
		Long: "Make a disk from a directory of the server's machine, or unpack a tar archive into a disk. If\n" +
			"the disk does not exist it is made, and an import that fails or is interrupted leaves none.\n\n" +
			"An archive can also be unpacked into a disk that exists, at --path. If that holds anything, a\n" +
			"checkpoint before-import-N is taken first, and kept: when the import fails, what was unpacked\n" +
			"stays, and a rollback to the checkpoint takes it back.\n\n" +
			"An archive is read by this command, with your rights; - is standard input. Formats: pax, GNU\n" +
			"and older ones, not compressed. Owners are taken by number. Names cannot lead out of the disk\n" +
			"(\"..\" is refused) nor through symbolic links.",
		Example: "  tine import base --from-dir /srv/project\n  tine import base --from-tar image.tar\n" +
			"  gzip -dc src.tar.gz | tine import work --path /src --from-tar -",
		Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case fromTar != "":
				return c.importTar(cmd.Context(), args[0], path, fromTar)
			case path != "":
				return &usageError{cmd.CommandPath(), "--path goes with --from-tar; to copy a directory into a disk use `tine cp`"}
			case fromDir != "":
				return c.importDir(cmd.Context(), args[0], fromDir)
			}
			return &usageError{cmd.CommandPath(), "from what is missing: --from-dir DIR or --from-tar FILE"}
		},
	}
	cmd.Flags().StringVar(&fromDir, "from-dir", "", "copy this directory of the server's machine into a new disk")
	cmd.Flags().StringVar(&fromTar, "from-tar", "", "unpack this archive, - for standard input")
	cmd.Flags().StringVar(&path, "path", "", "unpack into this directory of the disk; made if it is missing")
	cmd.MarkFlagsMutuallyExclusive("from-dir", "from-tar")
	must(cmd.MarkFlagDirname("from-dir"))
	must(cmd.MarkFlagFilename("from-tar"))
	return cmd
}

func (c *cli) importTar(ctx context.Context, disk, path, from string) error {
	r := c.env.stdin
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return oserr.Wrap(err, "open the archive")
		}
		defer f.Close()
		r = f
	}
	p := &progress{cli: c, start: time.Now()}
	client := c.client()
	_, err := client.Disk(ctx, disk)
	existed := err == nil
	done, err := client.ImportTar(ctx, api.ImportInto{Disk: disk, Path: path}, reading{r, from}, p.line)
	p.clear()
	if err != nil {
		return c.whatIsLeft(ctx, err, disk, existed, p)
	}
	return c.print(done, func() {
		c.say("imported %s into %s: %s", from, done.Disk.Name, summary(done.Totals))
		if done.Checkpoint != "" {
			c.say("the state before is %s@%s", done.Disk.Name, done.Checkpoint)
		}
	})
}

// reading gives the errors of a source their kind.
type reading struct {
	io.Reader
	name string
}

// Read reads.
func (r reading) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = oserr.Wrap(err, "read %s", r.name)
	}
	return n, err
}
