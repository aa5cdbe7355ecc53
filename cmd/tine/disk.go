package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/config"
)

func (c *cli) diskCommand() *cobra.Command {
	return holder("disk", "Create, list, rename and remove disks",
		c.diskCreate(), c.diskList(), c.diskShow(), c.diskRename(), c.diskRemove(), c.diskUndelete())
}

func (c *cli) diskCreate() *cobra.Command {
	var from, fromDir, quotaBytes, quotaInodes string
	var n api.NewDisk
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a disk: empty, as a fork, or from a directory",
		Long: "Create a disk. It is empty, or a fork of another disk or checkpoint (--from), or a copy\n" +
			"of a directory of the server's machine (--from-dir). The disk is durable when the command\n" +
			"returns. An import that fails or is interrupted leaves no disk behind.\n\n" +
			"With --store the disk lives in an object store: what is written goes there in the background, and another\n" +
			"machine can serve the disk from there should this one be lost. With --durability bucket fsync returns only\n" +
			"when the store has the data; with local, which is the rule, when this machine's device has it.",
		Example: "  tine disk create work\n  tine disk create small --quota-bytes 10G\n  tine disk create safe --store eu --durability bucket\n  tine disk create try --from work@before\n  tine disk create base --from-dir /srv/project",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case fromDir != "":
				return c.importDir(cmd.Context(), args[0], fromDir)
			case from != "":
				return c.fork(cmd.Context(), from, args, api.WaitDurable, 0)
			}
			bytes, err := quotaFlag(cmd, "quota-bytes", quotaBytes, config.ParseSize)
			if err != nil {
				return err
			}
			inodes, err := quotaFlag(cmd, "quota-inodes", quotaInodes, parseCount)
			if err != nil {
				return err
			}
			n.Name = args[0]
			if q := newQuota(bytes, inodes); q != (api.Quota{}) {
				n.Quota = &q
			}
			d, err := c.client().CreateDiskIn(cmd.Context(), n)
			if err != nil {
				return err
			}
			return c.print(d, func() {
				if d.Store != nil {
					c.say("created the disk %s in the store %s", d.Name, storeName(d.Store))
				} else {
					c.say("created the disk %s", d.Name)
				}
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&from, "from", "", "fork this DISK or DISK@CHECKPOINT")
	cmd.Flags().StringVar(&fromDir, "from-dir", "", "copy this directory")
	cmd.Flags().StringVar(&quotaBytes, "quota-bytes", "", "of an empty disk: the most bytes of data, such as 10G")
	cmd.Flags().StringVar(&quotaInodes, "quota-inodes", "", "of an empty disk: the most inodes")
	cmd.Flags().StringVar(&n.Store, "store", "", "of an empty disk: the store that it lives in; see `tine store ls`")
	cmd.Flags().StringVar(&n.Durability, "durability", "", "of an empty disk in a store: where data is when fsync returns: local or bucket")
	cmd.MarkFlagsMutuallyExclusive("from", "from-dir", "store")
	cmd.MarkFlagsMutuallyExclusive("from", "from-dir", "durability")
	c.completeFlag(cmd, "store", c.completeStore)
	c.completeFlag(cmd, "durability", func(*cobra.Command, string) []string { return []string{api.DurabilityLocal, api.DurabilityBucket} })
	cmd.MarkFlagsMutuallyExclusive("from", "from-dir", "quota-bytes")
	cmd.MarkFlagsMutuallyExclusive("from", "from-dir", "quota-inodes")
	c.completeFlag(cmd, "from", c.completeRef)
	must(cmd.MarkFlagDirname("from-dir"))
	return cmd
}

// must is for what can only fail by a mistake in this program, at once and at
// every start.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (c *cli) diskList() *cobra.Command {
	var deleted bool
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the disks",
		Example: "  tine disk ls\n  tine disk ls --deleted",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ds, err := c.client().Disks(cmd.Context(), deleted)
			if err != nil {
				return err
			}
			return c.print(api.DiskList{Disks: ds}, func() { c.diskTable(ds, deleted) })
		},
	}
	cmd.Flags().BoolVar(&deleted, "deleted", false, "list the disks in the trash")
	return cmd
}

func (c *cli) diskTable(ds []api.Disk, deleted bool) {
	rows := make([][]string, 0, len(ds))
	for _, d := range ds {
		last := dash(strings.Join(d.Mounts, ", "))
		if deleted && d.Deleted != nil {
			last = at(*d.Deleted)
		}
		rows = append(rows, []string{d.Name, at(d.Created), dash(d.Origin), last})
	}
	titles := []string{"NAME", "CREATED", "FORKED FROM", "MOUNTED ON"}
	if deleted {
		titles[3] = "DELETED"
	}
	if slices.ContainsFunc(ds, func(d api.Disk) bool { return d.Store != nil }) {
		titles = append(titles, "STORE")
		for i, d := range ds {
			rows[i] = append(rows[i], storeCell(d))
		}
	}
	if slices.ContainsFunc(ds, func(d api.Disk) bool { return d.Policy != nil && d.Policy.Expires != nil }) {
		titles = append(titles, "REMOVED AT")
		for i, d := range ds {
			_, ends, _ := policyFields(d.Policy)
			rows[i] = append(rows[i], dash(ends))
		}
	}
	c.table(titles, rows)
}

// shownDisk is the answer of `disk show`.
type shownDisk struct {
	api.Disk
	Usage api.Usage `json:"usage"`
}

func (c *cli) diskShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a disk and the space it takes",
		Example: "  tine disk show work", Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := c.client()
			d, err := client.Disk(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			u, err := client.Usage(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(shownDisk{d, u}, func() {
				in, durable, behind, elsewhere := storeFields(d.Store)
				bytes, inodes := quotaFields(d.Quota)
				checkpoints, ends, failure := policyFields(d.Policy)
				c.fields("name", d.Name, "id", d.ID, "created", at(d.Created), "forked from", d.Origin,
					"mounted on", strings.Join(d.Mounts, ", "), "in use by", strings.Join(d.Sessions, ", "),
					"files", plural(u.Inodes, "inode"), "data", size(u.LogicalBytes), "of its own", size(u.UniqueBytes), "shared", size(u.SharedBytes),
					"store", in, "fsync returns when", durable, "not in the store yet", behind, "elsewhere", elsewhere,
					"quota of data", bytes, "quota of inodes", inodes,
					"checkpoints", checkpoints, "removed at", ends, "policy failed", failure,
					"timeline", d.Timeline, "tree", d.Tree)
			})
		},
	}
}

func (c *cli) diskRename() *cobra.Command {
	return &cobra.Command{
		Use: "rename OLD NEW", Aliases: []string{"mv"}, Short: "Rename a disk", Example: "  tine disk rename work old-work",
		Args: arguments(2, 2), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.client().RenameDisk(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return c.print(d, func() { c.say("renamed %s to %s", args[0], d.Name) })
		},
	}
}

func (c *cli) diskRemove() *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a disk",
		Long: "Remove a disk. It goes to the trash, from which it can be undeleted for a while; with --purge\n" +
			"it is freed at once and for good, also when it is in the trash already. Forks of it stay.",
		Example: "  tine disk rm try-1\n  tine disk rm --purge try-2",
		Args:    arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.client().RemoveDisk(cmd.Context(), args[0], purge)
			if err != nil {
				return err
			}
			return c.print(d, func() {
				if purge {
					c.say("removed the disk %s for good", args[0])
				} else {
					c.say("moved the disk %s to the trash; bring it back with: tine disk undelete %s", args[0], args[0])
				}
			})
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "free it at once and for good")
	return cmd
}

func (c *cli) diskUndelete() *cobra.Command {
	return &cobra.Command{
		Use: "undelete NAME", Short: "Take a disk out of the trash", Example: "  tine disk undelete try-1",
		Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeDeleted),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.client().UndeleteDisk(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(d, func() { c.say("brought back the disk %s", d.Name) })
		},
	}
}
