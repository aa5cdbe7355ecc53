package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/config"
)

// cli is what the commands share: the flags that all of them have.
type cli struct {
	env    environment
	socket string
	author string
	json   bool
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, env environment, args []string) int {
	out := &written{w: env.stdout}
	env.stdout = out
	c := &cli{env: env}
	root := c.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = writing(out.err)
	}
	if err == nil {
		return exitOK
	}
	// A command line that cannot be parsed may not have come to its --json.
	c.json = c.json || wantsJSON(args)
	return c.report(err)
}

// wantsJSON looks for --json among the flags, without knowing the others.
func wantsJSON(args []string) bool {
	for _, a := range args {
		switch a {
		case "--json", "--json=true":
			return true
		case "--":
			return false
		}
	}
	return false
}

// client talks to the server that the flags and the environment name.
func (c *cli) client() *api.Client {
	author := c.author
	if author == "" {
		author = c.env.defaultAuthor()
	}
	return api.NewClient(c.socketPath(), author)
}

func (c *cli) socketPath() string {
	if c.socket != "" {
		return c.socket
	}
	if s := c.env.getenv("TINE_SOCKET"); s != "" {
		return s
	}
	return config.DefaultSocket(c.env.getenv, c.env.uid)
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tine",
		Short: "Durable disks that fork in milliseconds",
		Long: "tine keeps durable POSIX disks that fork, checkpoint and roll back in milliseconds.\n\n" +
			"Start a server with `tine serve`; the other commands talk to it over its socket\n" +
			"(--socket, else TINE_SOCKET, else " + config.DefaultSocket(c.env.getenv, c.env.uid) + ").",
		Example: "  tine disk create work\n  tine mount work /mnt/work\n  tine checkpoint create work before\n" +
			"  tine fork work try-1 try-2\n  tine rollback work before",
		SilenceUsage: true, SilenceErrors: true,
		Args: onlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(c.env.stdout)
	root.SetErr(c.env.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd.CommandPath(), err.Error()} })
	f := root.PersistentFlags()
	f.StringVar(&c.socket, "socket", "", "the server's unix socket")
	f.StringVar(&c.author, "author", "", "who makes it, for the history (TINE_AUTHOR, else user@host)")
	f.BoolVar(&c.json, "json", false, "print results and errors as JSON")

	root.AddGroup(&cobra.Group{ID: "disks", Title: "Disks:"}, &cobra.Group{ID: "stores", Title: "Stores:"}, &cobra.Group{ID: "history", Title: "History:"},
		&cobra.Group{ID: "look", Title: "Looking:"}, &cobra.Group{ID: "server", Title: "Server:"})
	group(root, "disks", c.diskCommand(), c.mountCommand(), c.umountCommand(), c.mountsCommand(), c.syncCommand(), c.quotaCommand(), c.policyCommand(),
		c.importCommand(), c.exportCommand(), c.cpCommand())
	group(root, "stores", c.storeCommand())
	group(root, "history", c.checkpointCommand(), c.forkCommand(), c.rollbackCommand(), c.promoteCommand(), c.undoCommand())
	group(root, "look", c.logCommand(), c.diffCommand(), c.duCommand(), c.treeCommand(), c.topCommand(), c.eventsCommand())
	group(root, "server", c.fsckCommand(), c.dumpCommand())
	group(root, "server", c.serveCommand(), c.guardCommand(), c.doctorCommand(), c.versionCommand(), c.completionCommand())
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp})
	root.SetHelpCommandGroupID("server")
	root.CompletionOptions.DisableDefaultCmd = true
	// A command that only holds others is of no use by itself.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	return root
}

func group(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// onlySubcommands is the Args of commands that only hold others.
func onlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	msg := fmt.Sprintf("there is no command `%s %s`", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		msg += "; do you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{cmd.CommandPath(), msg}
}

// arguments is the Args of a command that takes least to most of them; most
// is -1 for any number.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return &usageError{cmd.CommandPath(), fmt.Sprintf("wrong number of arguments; usage: %s", strings.TrimSuffix(cmd.UseLine(), " [flags]"))}
	}
}

// holder makes a command that only holds others.
func holder(use, short string, commands ...*cobra.Command) *cobra.Command {
	h := &cobra.Command{
		Use: use, Short: short, Args: onlySubcommands,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h.AddCommand(commands...)
	return h
}
