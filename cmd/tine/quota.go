package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/config"
)

func (c *cli) quotaCommand() *cobra.Command {
	var bytes, inodes string
	cmd := &cobra.Command{
		Use: "quota DISK", Short: "Show or change what bounds a disk",
		Long: "Show what bounds a disk and how much of it is used, or change it: the bytes of data in its\n" +
			"files, and its inodes. df shows a quota as the size of the disk, and a program that meets it\n" +
			"gets ENOSPC (no space left). A quota below what the disk holds refuses what makes the disk\n" +
			"larger; removing and overwriting go on. A fork starts with its parent's quota; rollback and\n" +
			"promote leave the disk's own.",
		Example: "  tine quota work\n  tine quota work --bytes 10G --inodes 100000\n  tine quota work --bytes none",
		Args:    arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			var change api.NewQuota
			var err error
			if change.Bytes, err = quotaFlag(cmd, "bytes", bytes, config.ParseSize); err != nil {
				return err
			}
			if change.Inodes, err = quotaFlag(cmd, "inodes", inodes, parseCount); err != nil {
				return err
			}
			return c.quota(cmd, args[0], change)
		},
	}
	cmd.Flags().StringVar(&bytes, "bytes", "", "the most bytes of data, such as 10G, or none")
	cmd.Flags().StringVar(&inodes, "inodes", "", "the most inodes, or none")
	return cmd
}

// quota changes a disk's quota, if there is anything to change, and shows it.
func (c *cli) quota(cmd *cobra.Command, disk string, change api.NewQuota) error {
	client := c.client()
	var u api.QuotaUse
	var err error
	if change == (api.NewQuota{}) {
		u, err = client.Quota(cmd.Context(), disk)
	} else {
		u, err = client.SetQuota(cmd.Context(), disk, change)
	}
	if err != nil {
		return err
	}
	return c.print(u, func() {
		bytes, inodes := quotaFields(&u.Quota)
		c.table([]string{"OF", "USED", "QUOTA"}, [][]string{
			{"bytes", size(u.UsedBytes), bytes}, {"inodes", strconv.FormatInt(u.UsedInodes, 10), inodes},
		})
	})
}

// quotaFields shows a quota's two bounds.
func quotaFields(q *api.Quota) (bytes, inodes string) {
	bytes, inodes = "none", "none"
	if q != nil && q.Bytes > 0 {
		bytes = size(q.Bytes)
	}
	if q != nil && q.Inodes > 0 {
		inodes = strconv.FormatInt(q.Inodes, 10)
	}
	return bytes, inodes
}

// quotaFlag reads a bound; nil where the flag is not given, 0 for none.
func quotaFlag(cmd *cobra.Command, flag, text string, parse func(string) (int64, error)) (*int64, error) {
	if !cmd.Flags().Changed(flag) {
		return nil, nil
	}
	if text == "none" {
		return new(int64), nil
	}
	n, err := parse(text)
	if err != nil || n == 0 {
		return nil, &usageError{cmd.CommandPath(), "--" + flag + ": " + strconv.Quote(text) + " is not a number above 0, such as 2000 or 10G, nor none"}
	}
	return &n, nil
}

func parseCount(s string) (int64, error) { return strconv.ParseInt(s, 10, 62) }

func newQuota(bytes, inodes *int64) api.Quota {
	var q api.Quota
	if bytes != nil {
		q.Bytes = *bytes
	}
	if inodes != nil {
		q.Inodes = *inodes
	}
	return q
}
