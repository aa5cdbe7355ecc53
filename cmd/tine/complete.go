package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

// completeTime bounds how long a press of the tab key waits for the server.
const completeTime = 2 * time.Second

// words offers what may stand in a place, for what is typed there so far. It
// offers nothing when the server does not answer: a shell has no place for an
// error.
type words func(cmd *cobra.Command, typed string) []string

// upTo completes the first n arguments with the words, all if n is -1.
func (c *cli) upTo(n int, w words) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return startingWith(w(cmd, typed), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// once completes the first argument only.
func (c *cli) once(w words) cobra.CompletionFunc { return c.upTo(1, w) }

func startingWith(all []string, typed string) []string {
	var out []string
	for _, w := range all {
		if strings.HasPrefix(w, typed) {
			out = append(out, w)
		}
	}
	return out
}

func (c *cli) completeFlag(cmd *cobra.Command, flag string, w words) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return startingWith(w(cmd, typed), typed), cobra.ShellCompDirectiveNoFileComp
	}))
}

func within(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completeTime)
}

func diskNames(ds []api.Disk) []string {
	names := make([]string, 0, len(ds))
	for _, d := range ds {
		names = append(names, d.Name)
	}
	return names
}

func (c *cli) completeDisk(cmd *cobra.Command, _ string) []string {
	ctx, cancel := within(cmd)
	defer cancel()
	ds, err := c.client().Disks(ctx, false)
	if err != nil {
		return nil
	}
	return diskNames(ds)
}

func (c *cli) completeStore(cmd *cobra.Command, _ string) []string {
	ctx, cancel := within(cmd)
	defer cancel()
	ss, err := c.client().Stores(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range ss {
		names = append(names, s.Name)
	}
	return names
}

func (c *cli) completeDeleted(cmd *cobra.Command, _ string) []string {
	ctx, cancel := within(cmd)
	defer cancel()
	ds, err := c.client().Disks(ctx, true)
	if err != nil {
		return nil
	}
	return diskNames(ds)
}

// completeRef offers disks, and once an "@" is typed the disk's checkpoints.
func (c *cli) completeRef(cmd *cobra.Command, typed string) []string {
	disk, _, at := strings.Cut(typed, "@")
	if !at {
		return c.completeDisk(cmd, typed)
	}
	names := c.checkpointNames(cmd, disk)
	for i, n := range names {
		names[i] = disk + "@" + n
	}
	return names
}

func (c *cli) checkpointNames(cmd *cobra.Command, disk string) []string {
	ctx, cancel := within(cmd)
	defer cancel()
	cps, err := c.client().Checkpoints(ctx, disk)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(cps))
	for _, cp := range cps {
		names = append(names, cp.Name)
	}
	return names
}

func (c *cli) completeMount(cmd *cobra.Command, _ string) []string {
	ctx, cancel := within(cmd)
	defer cancel()
	ms, err := c.client().Mounts(ctx)
	if err != nil {
		return nil
	}
	dirs := make([]string, 0, len(ms))
	for _, m := range ms {
		dirs = append(dirs, m.Dir)
	}
	return dirs
}

// diskThenCheckpoint completes DISK CHECKPOINT.
func (c *cli) diskThenCheckpoint(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return startingWith(c.completeDisk(cmd, typed), typed), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return startingWith(c.checkpointNames(cmd, args[0]), typed), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// refThenDir completes DISK[@CHECKPOINT] DIR.
func (c *cli) refThenDir(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return startingWith(c.completeRef(cmd, typed), typed), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// bashCompletion is our own: cobra's for bash needs a package that many
// machines lack, and bash splits DISK@CHECKPOINT at the "@".
//
//go:embed completion.bash
var bashCompletion string

func (c *cli) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print the completion script for bash, zsh, fish or powershell",
		Long: "Print a script that completes commands, flags, and the names of disks, checkpoints, mounts and stores,\n" +
			"which it asks from the server.",
		Example: "  source <(tine completion bash)\n  tine completion bash > /etc/bash_completion.d/tine\n" +
			"  tine completion zsh > \"${fpath[1]}/_tine\"\n  tine completion fish > ~/.config/fish/completions/tine.fish",
		Args:      arguments(1, 1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			out, root := c.env.stdout, cmd.Root()
			var err error
			switch args[0] {
			case "bash":
				_, err = fmt.Fprint(out, bashCompletion)
			case "zsh":
				err = root.GenZshCompletion(out)
			case "fish":
				err = root.GenFishCompletion(out, true)
			case "powershell":
				err = root.GenPowerShellCompletionWithDesc(out)
			default:
				return &usageError{cmd.CommandPath(), "there is no completion for " + args[0] + "; choose bash, zsh, fish or powershell"}
			}
			if err != nil {
				return tine.Errorf(tine.KindIO, "print the script: %w", err)
			}
			return nil
		},
	}
}
