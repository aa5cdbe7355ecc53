package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
)

func (c *cli) checkpointCommand() *cobra.Command {
	return holder("checkpoint", "Create, list and remove checkpoints", c.checkpointCreate(), c.checkpointList(), c.checkpointRemove())
}

// waitFlag adds --wait.
func (c *cli) waitFlag(cmd *cobra.Command, to *string) {
	*to = api.WaitDurable
	cmd.Flags().StringVar(to, "wait", api.WaitDurable, "return when it is durable, or already when it is runnable (faster; a crash may lose it)")
	c.completeFlag(cmd, "wait", func(*cobra.Command, string) []string { return []string{api.WaitDurable, api.WaitRunnable} })
}

// checkWait refuses a word that --wait does not know.
func checkWait(cmd *cobra.Command, wait string) error {
	if wait == api.WaitDurable || wait == api.WaitRunnable {
		return nil
	}
	return &usageError{cmd.CommandPath(), "--wait must be durable or runnable, not " + wait}
}

func (c *cli) checkpointCreate() *cobra.Command {
	var message, wait string
	cmd := &cobra.Command{
		Use: "create DISK NAME", Short: "Freeze a disk's state under a name",
		Long: "Freeze the state of a disk, as it is now, under a name. It costs the same however much the disk\n" +
			"holds, works while the disk is mounted, and sees every write that has returned.",
		Example: "  tine checkpoint create work before -m 'before the upgrade'",
		Args:    arguments(2, 2), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWait(cmd, wait); err != nil {
				return err
			}
			cp, err := c.client().Checkpoint(cmd.Context(), args[0], api.NewCheckpoint{Name: args[1], Message: message, Wait: wait})
			if err != nil {
				return err
			}
			return c.print(cp, func() { c.say("created the checkpoint %s@%s", cp.Disk, cp.Name) })
		},
	}
	cmd.Flags().StringVarP(&message, "message", "m", "", "what the checkpoint is for")
	c.waitFlag(cmd, &wait)
	return cmd
}

func (c *cli) checkpointList() *cobra.Command {
	return &cobra.Command{
		Use: "ls DISK", Aliases: []string{"list"}, Short: "List a disk's checkpoints", Example: "  tine checkpoint ls work",
		Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			cps, err := c.client().Checkpoints(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(api.CheckpointList{Checkpoints: cps}, func() {
				rows := make([][]string, 0, len(cps))
				for _, cp := range cps {
					message := cp.Message
					if cp.Auto {
						message = strings.TrimSpace("(automatic) " + message)
					}
					rows = append(rows, []string{cp.Name, at(cp.Created), dash(cp.Author), oneLine(message)})
				}
				c.table([]string{"NAME", "CREATED", "AUTHOR", "MESSAGE"}, rows)
			})
		},
	}
}

// oneLine keeps the first line of a text and what would move the cursor out.
func oneLine(s string) string {
	first, rest, more := strings.Cut(s, "\n")
	if more && strings.TrimSpace(rest) != "" {
		first += " ..."
	}
	return printable(first)
}

// printable replaces control characters, which could drive a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

func (c *cli) checkpointRemove() *cobra.Command {
	return &cobra.Command{
		Use: "rm DISK NAME", Aliases: []string{"remove"}, Short: "Remove a checkpoint",
		Long:    "Remove a checkpoint. Forks of it stay; what only the checkpoint held is freed in the background.",
		Example: "  tine checkpoint rm work before",
		Args:    arguments(2, 2), ValidArgsFunction: c.diskThenCheckpoint,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.client().RemoveCheckpoint(cmd.Context(), args[0], args[1]); err != nil {
				return err
			}
			return c.print(map[string]string{"disk": args[0], "name": args[1]}, func() { c.say("removed the checkpoint %s@%s", args[0], args[1]) })
		},
	}
}

func (c *cli) forkCommand() *cobra.Command {
	var wait, ttl string
	cmd := &cobra.Command{
		Use: "fork DISK[@CHECKPOINT] NEW...", Short: "Make disks that start as another one",
		Long: "Make one or more disks that start as a disk is now, or as a checkpoint of it: all of them or none.\n" +
			"It costs the same however much the disk holds. Neither side sees the other's later writes.",
		Example: "  tine fork work try-1\n  tine fork work@before try-1 try-2 try-3\n  tine fork work scratch --ttl 2h",
		Args:    arguments(2, -1), ValidArgsFunction: c.once(c.completeRef),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWait(cmd, wait); err != nil {
				return err
			}
			var seconds int64
			if ttl != "" {
				n, err := spanFlag(cmd, "ttl", ttl)
				if err != nil {
					return err
				}
				seconds = *n
			}
			return c.fork(cmd.Context(), args[0], args[1:], wait, seconds)
		},
	}
	c.waitFlag(cmd, &wait)
	cmd.Flags().StringVar(&ttl, "ttl", "", "remove the forks to the trash after so long, such as 2h; one in use stays until it is not")
	return cmd
}

func (c *cli) fork(ctx context.Context, from string, names []string, wait string, ttlSeconds int64) error {
	disk, checkpoint, named := strings.Cut(from, "@")
	if named && checkpoint == "" {
		return &usageError{"tine fork", "the checkpoint name in " + from + " is empty"}
	}
	ds, err := c.client().Fork(ctx, disk, api.NewForks{Checkpoint: checkpoint, Names: names, Wait: wait, TTLSeconds: ttlSeconds})
	if err != nil {
		return err
	}
	return c.print(api.DiskList{Disks: ds}, func() {
		for _, d := range ds {
			c.say("forked %s to %s", from, d.Name)
		}
	})
}

func (c *cli) rollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rollback DISK CHECKPOINT", Short: "Take a disk back to a checkpoint",
		Long: "Take a disk back to a checkpoint of it. Works while the disk is mounted: paths show the old state\n" +
			"at once, and files that were open answer ESTALE. The state before is kept as an automatic\n" +
			"checkpoint, so that `tine undo` can take the rollback back.",
		Example: "  tine rollback work before\n  tine undo work",
		Args:    arguments(2, 2), ValidArgsFunction: c.diskThenCheckpoint,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := c.client().Rollback(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return c.print(r, func() { c.say("rolled %s back to %s; %s", r.Disk.Name, args[1], undoText(r)) })
		},
	}
}

func undoText(r api.Rollback) string {
	if r.Undo == "" {
		return "nothing had changed"
	}
	return "the state before is " + r.Disk.Name + "@" + r.Undo
}

func (c *cli) promoteCommand() *cobra.Command {
	var onto string
	var force bool
	cmd := &cobra.Command{
		Use: "promote FORK --onto DISK", Short: "Make a disk become one of its forks",
		Long: "Make the disk of --onto become the fork: its name and mounts show the fork's state from now on, and\n" +
			"the fork's checkpoints are its own. The fork's name goes. Refused when that disk has changed since\n" +
			"the fork, unless --force. The state before is kept as an automatic checkpoint, so that `tine undo`\n" +
			"can take the promotion back.",
		Example: "  tine promote try-2 --onto work",
		Args:    arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			if onto == "" {
				return &usageError{cmd.CommandPath(), "name the disk that is to become " + args[0] + ": --onto DISK"}
			}
			r, err := c.client().Promote(cmd.Context(), args[0], onto, force)
			if err != nil {
				return err
			}
			return c.print(r, func() { c.say("%s is now what %s was; %s", r.Disk.Name, args[0], undoText(r)) })
		},
	}
	cmd.Flags().StringVar(&onto, "onto", "", "the disk that becomes the fork")
	cmd.Flags().BoolVar(&force, "force", false, "even if that disk has changed since the fork")
	c.completeFlag(cmd, "onto", c.completeDisk)
	return cmd
}

func (c *cli) undoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undo DISK", Short: "Take back a disk's last rollback or promote",
		Example: "  tine undo work", Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := c.client().Undo(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(r, func() { c.say("took back the last change of %s; %s", r.Disk.Name, undoText(r)) })
		},
	}
}
