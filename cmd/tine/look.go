package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

func (c *cli) logCommand() *cobra.Command {
	return &cobra.Command{
		Use: "log DISK", Short: "Show a disk's history, oldest first", Example: "  tine log work",
		Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			es, err := c.client().Log(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(api.LogList{Entries: es}, func() {
				rows := make([][]string, 0, len(es))
				for _, e := range es {
					rows = append(rows, []string{at(e.Time), e.Op, dash(printable(e.Author)), dash(e.Caller), oneLine(e.Detail)})
				}
				c.table([]string{"TIME", "OPERATION", "AUTHOR", "CALLER", "DETAIL"}, rows)
			})
		},
	}
}

func (c *cli) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff A[@CHECKPOINT] B[@CHECKPOINT]", Short: "List the paths in which two disks or checkpoints differ",
		Long: "List the paths in which two disks or checkpoints of one tree of forks differ, going from A to B:\n\n" +
			"  A  only in B          M  data differs\n  D  only in A          m  only mode, owner, times or attributes differ\n\n" +
			"With --json the answer is one JSON object a line.",
		Example: "  tine diff work@before work\n  tine diff work try-1",
		Args:    arguments(2, 2), ValidArgsFunction: c.upTo(2, c.completeRef),
		RunE: func(cmd *cobra.Command, args []string) error {
			enc := json.NewEncoder(c.env.stdout)
			enc.SetEscapeHTML(false)
			_, err := c.client().Diff(cmd.Context(), args[0], args[1], func(ch api.Change) error {
				if c.json {
					return enc.Encode(ch)
				}
				_, err := fmt.Fprintf(c.env.stdout, "%s %s\n", changeLetter(ch), changePath(ch))
				return err
			})
			return writing(err)
		},
	}
}

// writing gives an error of the output its kind; the server's keep theirs.
func writing(err error) error {
	if _, ours := err.(*api.Error); err == nil || ours {
		return err
	}
	return tine.Errorf(tine.KindIO, "print the result: %w", err)
}

// changePath is the path as it is under the mount point: the root is ".", a
// directory ends in "/".
func changePath(ch api.Change) string {
	switch {
	case ch.Path == "":
		return "."
	case ch.Type == "directory":
		return printable(ch.Path) + "/"
	}
	return printable(ch.Path)
}

func changeLetter(ch api.Change) string {
	switch {
	case ch.Kind == "added":
		return "A"
	case ch.Kind == "removed":
		return "D"
	case ch.Content:
		return "M"
	}
	return "m"
}

func (c *cli) duCommand() *cobra.Command {
	return &cobra.Command{
		Use: "du [DISK...]", Short: "Show the space that disks take",
		Long: "Show the space that disks take, all disks if none is named: the data their files hold, what\n" +
			"removing the disk with its checkpoints would free, and what it shares with others.",
		Example: "  tine du\n  tine du work try-1",
		Args:    arguments(0, -1), ValidArgsFunction: c.upTo(-1, c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := c.client()
			if len(args) == 0 {
				ds, err := client.Disks(cmd.Context(), false)
				if err != nil {
					return err
				}
				for _, d := range ds {
					args = append(args, d.Name)
				}
			}
			us := make([]api.Usage, 0, len(args))
			rows := make([][]string, 0, len(args))
			for _, name := range args {
				u, err := client.Usage(cmd.Context(), name)
				if err != nil {
					return err
				}
				us = append(us, u)
				rows = append(rows, []string{u.Disk, size(u.LogicalBytes), size(u.UniqueBytes), size(u.SharedBytes), fmt.Sprint(u.Inodes)})
			}
			return c.print(map[string][]api.Usage{"disks": us}, func() {
				c.table([]string{"DISK", "DATA", "OF ITS OWN", "SHARED", "INODES"}, rows)
			})
		},
	}
}

func (c *cli) treeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tree", Short: "Draw which disk was forked from which", Example: "  tine tree", Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ns, err := c.client().Forest(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(api.ForestList{Nodes: ns}, func() {
				for _, l := range drawForest(ns) {
					c.say("%s", l)
				}
			})
		},
	}
}

// drawForest draws every node under its parent, in the order given. What was
// forked from a checkpoint that is gone hangs on its disk; a node whose parent
// is not there at all stands at the left.
func drawForest(ns []api.ForestNode) []string {
	known := map[string]bool{}
	for _, n := range ns {
		known[n.Name] = true
	}
	children := map[string][]api.ForestNode{}
	for _, n := range ns {
		if !known[n.Parent] {
			n.Parent, _, _ = strings.Cut(n.Parent, "@") // the checkpoint is gone
		}
		if n.Parent == n.Name || !known[n.Parent] {
			n.Parent = ""
		}
		children[n.Parent] = append(children[n.Parent], n)
	}
	var lines []string
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for i, n := range children[parent] {
			branch, below := "├─ ", "│  "
			if i == len(children[parent])-1 {
				branch, below = "└─ ", "   "
			}
			if parent == "" {
				branch, below = "", ""
			}
			lines = append(lines, indent+branch+forestLabel(n))
			draw(n.Name, indent+below)
		}
	}
	draw("", "")
	return lines
}

// forestLabel names a node; a checkpoint is told from a disk by its "@".
func forestLabel(n api.ForestNode) string {
	if n.Auto {
		return n.Name + " (automatic)"
	}
	return n.Name
}
