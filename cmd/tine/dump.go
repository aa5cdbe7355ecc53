package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/fs/fsck"
	"tine.dev/tine/internal/fs/fsck/rowform"
	"tine.dev/tine/internal/tine"
)

func (c *cli) dumpCommand() *cobra.Command {
	return holder("dump", "Show what lies in a data directory, for people who look for a fault", c.dumpRows(), c.dumpSegment(), c.dumpCommits())
}

// dataFlag adds --data.
func dataFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "data", "", "the data directory; no server may run on it")
	must(cmd.MarkFlagDirname("data"))
}

func (c *cli) dumpRows() *cobra.Command {
	var data, prefix string
	var o fsck.DumpOptions
	cmd := &cobra.Command{
		Use: "rows", Short: "Print the rows, decoded",
		Long: "Print the rows of a data directory that no server has open, decoded, in the order of their keys. Rows\n" +
			"that do not decode are printed in hexadecimal, with the reason. With --disk, the records of its tree and\n" +
			"the rows of its line and of those that this descends from.\n\nThe tables are: " + strings.Join(rowform.Tables(), ", ") + ".",
		Example: "  tine dump rows --data /srv/tine --table disk\n  tine dump rows --disk work --table dentry --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := hex.DecodeString(prefix)
			if err != nil {
				return &usageError{cmd.CommandPath(), "--prefix is not hexadecimal: " + prefix}
			}
			o.Prefix = p
			_, rows, release, err := c.openData(data)
			if err != nil {
				return err
			}
			defer release()
			return fsck.DumpRows(rows, o, c.row)
		},
	}
	dataFlag(cmd, &data)
	cmd.Flags().StringVar(&o.Disk, "disk", "", "only what this disk shows rests on")
	cmd.Flags().StringVar(&o.Table, "table", "", "only this table")
	cmd.Flags().StringVar(&prefix, "prefix", "", "only rows whose key starts with these bytes, in hexadecimal")
	c.completeFlag(cmd, "table", func(*cobra.Command, string) []string { return rowform.Tables() })
	return cmd
}

func (c *cli) row(r rowform.Row) error {
	if c.json {
		return c.jsonLine(r)
	}
	value := "deleted"
	switch {
	case r.Error != "":
		value = r.Error + ": " + r.Raw
	case !r.Tombstone:
		b, err := json.Marshal(r.Value)
		if err != nil {
			return tine.Errorf(tine.KindInternal, "print a row: %w", err)
		}
		value = string(b)
	}
	_, err := fmt.Fprintf(c.env.stdout, "%s %s %s %s %s\n", r.Owner, r.Table, printable(r.Key), r.Epoch, printable(value))
	return writing(err)
}

func (c *cli) dumpSegment() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "segment FILE|SEGMENT", Short: "Check and describe a segment file",
		Long: "Read a segment file, named by its path or by the segment's identifier, verify all of it, and print its\n" +
			"header, its runs of blocks, its damaged blocks and its footer. What can be read is printed before the\n" +
			"error. The server may run.",
		Example: "  tine dump segment /srv/tine/segments/0w/seg_01k0000000000000000000000w.0",
		Args:    arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := c.segmentFile(data, args[0])
			if err != nil {
				return err
			}
			return fsck.DumpSegment(vfs.Default, path, func(p fsck.SegmentPart) error {
				if c.json {
					return c.jsonLine(p)
				}
				_, err := fmt.Fprintf(c.env.stdout, "%-8s %s\n", p.What, p.Text)
				return writing(err)
			})
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the data directory in which to look for a segment that is named by its identifier")
	must(cmd.MarkFlagDirname("data"))
	return cmd
}

// segmentFile finds the newest file of a segment.
func (c *cli) segmentFile(data, arg string) (string, error) {
	var id tine.SegmentID
	if id.Parse(arg) != nil {
		fi, err := os.Stat(arg)
		switch {
		case err != nil:
			return "", oserr.Wrap(err, "look at the segment file")
		case !fi.Mode().IsRegular():
			return "", tine.Errorf(tine.KindInvalid, "%s is not a file", arg).WithHint("name a file below segments/ of a data directory, or a segment by its identifier")
		}
		return arg, nil
	}
	if data == "" {
		data = c.dataDir()
	}
	found, err := filepath.Glob(filepath.Join(data, "segments", arg[len(arg)-2:], arg+".*"))
	if err != nil || len(found) == 0 {
		return "", tine.Errorf(tine.KindNotFound, "%s has no file of segment %s", data, arg).WithHint("name the data directory with --data")
	}
	newest := found[0]
	for _, f := range found[1:] {
		a, aerr := os.Stat(newest)
		b, berr := os.Stat(f)
		if aerr == nil && berr == nil && b.ModTime().After(a.ModTime()) {
			newest = f
		}
	}
	return newest, nil
}

func (c *cli) dumpCommits() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "commits DISK", Short: "Print what is known of a disk's commits",
		Long: "Print the log of a disk, and then the points of its history that are still kept, newest first: its head,\n" +
			"checkpoints, and points at which forks branch off, each with how many commits had been made up to it.\n" +
			"Single commits are not kept: once made, they are part of the rows.",
		Example: "  tine dump commits work --data /srv/tine",
		Args:    arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(_ *cobra.Command, args []string) error {
			_, rows, release, err := c.openData(data)
			if err != nil {
				return err
			}
			defer release()
			return fsck.DumpCommits(rows, args[0], c.step)
		},
	}
	dataFlag(cmd, &data)
	return cmd
}

func (c *cli) step(s fsck.Step) error {
	if c.json {
		return c.jsonLine(s)
	}
	var err error
	if s.Time != 0 {
		_, err = fmt.Fprintf(c.env.stdout, "%s  %s  %s  %s\n", at(time.Unix(0, s.Time)), s.What, dash(printable(s.Author)), oneLine(s.Detail))
	} else {
		_, err = fmt.Fprintf(c.env.stdout, "%s at %s  %s  %d commits, %s, %s\n", s.Line, s.Epoch, printable(s.What), s.Commits, plural(s.Inodes, "inode"), size(s.Bytes))
	}
	return writing(err)
}
