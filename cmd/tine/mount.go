package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/config"
	"tine.dev/tine/internal/control/keeper"
	"tine.dev/tine/internal/control/oserr"
	"tine.dev/tine/internal/control/server"
	"tine.dev/tine/internal/tine"
)

func (c *cli) mountCommand() *cobra.Command {
	var n api.NewMount
	cmd := &cobra.Command{
		Use: "mount DISK[@CHECKPOINT] DIR", Short: "Show a disk or checkpoint in a directory",
		Long: "Mount a disk, or read-only a checkpoint of it, on an existing directory. The mount is\n" +
			"recorded: it comes back whenever the server starts, until `tine umount`.\n\n" +
			"Set-user-ID programs and device nodes on a disk do not work, unless root has allowed them.\n" +
			"`mount -o remount,ro DIR` and rw, noexec and the like change a mount while it is there, if the\n" +
			"server runs as root and mount(8) knows tine.",
		Example: "  tine mount work /mnt/work\n  tine mount work@before /mnt/before\n  tine mount --read-only work /mnt/look\n" +
			"  tine mount --cache none work /mnt/shared",
		Args: arguments(2, 2), ValidArgsFunction: c.refThenDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			n.Ref = args[0]
			if n.Dir, err = absolute(args[1]); err != nil {
				return err
			}
			m, err := c.client().Mount(cmd.Context(), n)
			if err != nil {
				return err
			}
			return c.print(m, func() { c.say("mounted %s on %s", m.Ref, m.Dir) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&n.ReadOnly, "read-only", false, "refuse every change through this mount")
	f.StringVar(&n.Cache, "cache", api.CacheNormal, "normal, or none: keep nothing in the kernel, for disks that many mounts write")
	f.BoolVar(&n.Writeback, "writeback", false, "let the kernel gather small writes; the mount must have the disk for itself")
	f.BoolVar(&n.AllowOther, "allow-other", false, "let other users in, if the server is not root's and /etc/fuse.conf permits it")
	f.BoolVar(&n.AllowSUID, "allow-suid", false, "let set-user-ID programs on it have that right: root only, for content that you trust")
	f.BoolVar(&n.AllowDev, "allow-dev", false, "let device nodes on it work: root only, for content that you trust")
	f.BoolVar(&n.NoExec, "no-exec", false, "let no program on it be run")
	f.StringSliceVar(&n.Disable, "disable", nil, "do without these kernel features, as an old kernel would (`FEATURE,...`; all)")
	return cmd
}

func absolute(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	return abs, oserr.Wrap(err, "find the current directory")
}

func (c *cli) umountCommand() *cobra.Command {
	var force bool
	var data string
	cmd := &cobra.Command{
		Use: "umount DIR", Aliases: []string{"unmount"}, Short: "Take a mount away and forget it",
		Long: "Unmount the disk on DIR. What was written is durable when the command returns. A mount in use\n" +
			"is refused; --force takes it away from the programs that use it. Works also on what a crashed\n" +
			"server has left behind, even when no server runs. From a server that does not answer --force takes\n" +
			"the mount too: what was written and not synced may then be lost, and the mount comes back when\n" +
			"the server is started again.",
		Example: "  tine umount /mnt/work\n  tine umount --force /mnt/work",
		Args:    arguments(1, 1), ValidArgsFunction: c.once(c.completeMount),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := absolute(args[0])
			if err != nil {
				return err
			}
			err = c.client().Unmount(cmd.Context(), dir, force)
			switch {
			case api.IsSilent(err) && force:
				err = keeper.GiveUp(dir)
			case noServer(err):
				if data == "" {
					data = c.dataDir()
				}
				err = server.UnmountOffline(data, dir)
			}
			if err != nil {
				return err
			}
			return c.print(map[string]string{"dir": dir}, func() { c.say("unmounted %s", dir) })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "take it away from the programs that use it")
	cmd.Flags().StringVar(&data, "data", "", "when no server runs: the data directory whose record of the mount is removed")
	return cmd
}

// noServer reports whether the error says that nobody listens.
func noServer(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Kind == tine.KindUnavailable.String() && !api.IsSilent(err)
}

// dataDir is where a server of this user that is told nothing keeps its data.
func (c *cli) dataDir() string {
	if d := c.env.getenv("TINE_DATA"); d != "" {
		return d
	}
	return config.DefaultData(c.env.getenv, c.env.uid)
}

func (c *cli) mountsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mounts", Short: "List the mounts", Example: "  tine mounts", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ms, err := c.client().Mounts(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(api.MountList{Mounts: ms}, func() {
				rows := make([][]string, 0, len(ms))
				for _, m := range ms {
					mode, state := mountMode(m), m.State
					if m.Error != "" {
						state += ": " + m.Error
					}
					rows = append(rows, []string{m.Ref, m.Dir, mode, state})
				}
				c.table([]string{"DISK", "DIRECTORY", "MODE", "STATE"}, rows)
			})
		},
	}
}

// mountMode is how a disk is mounted, as mount(8) would say it.
func mountMode(m api.Mount) string {
	words := []string{"rw"}
	if m.ReadOnly {
		words[0] = "ro"
	}
	for _, o := range []struct {
		on   bool
		word string
	}{{m.AllowSUID, "suid"}, {m.AllowDev, "dev"}, {m.NoExec, "noexec"}} {
		if o.on {
			words = append(words, o.word)
		}
	}
	if m.Cache == api.CacheNone {
		words = append(words, "cache=none")
	}
	if m.Writeback {
		words = append(words, "writeback")
	}
	if m.AllowOther {
		words = append(words, "allow_other")
	}
	if len(m.Disable) > 0 {
		words = append(words, "without "+strings.Join(m.Disable, " "))
	}
	return strings.Join(words, ",")
}

func (c *cli) syncCommand() *cobra.Command {
	var toStore bool
	cmd := &cobra.Command{
		Use: "sync DISK", Short: "Make durable all that has reached the server",
		Long: "Make durable all that has reached the server for the disk, as fsync of any of its files does. Pages that\n" +
			"programs have mapped and changed, or that a mount with --writeback still holds, reach it by sync(1).\n\n" +
			"With --to-store the command returns when the disk's object store has all of it as well: then the disk can be\n" +
			"taken up on another machine as it is now.",
		Example: "  tine sync work\n  tine sync work --to-store",
		Args:    arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			sync, said := c.client().SyncDisk, "all that reached %s is durable"
			if toStore {
				sync, said = c.client().SyncStore, "all that reached %s is in its store"
			}
			if err := sync(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.print(map[string]string{"disk": args[0]}, func() { c.say(said, args[0]) })
		},
	}
	cmd.Flags().BoolVar(&toStore, "to-store", false, "return only when the disk's store has it as well")
	return cmd
}
