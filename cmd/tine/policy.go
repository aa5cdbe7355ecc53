package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
)

func (c *cli) policyCommand() *cobra.Command {
	var every, keep, ttl string
	var none bool
	cmd := &cobra.Command{
		Use: "policy DISK", Short: "Show or change what the server does with a disk by itself",
		Long: "Show or change what the server does with a disk by itself. What no flag names stays as it is.\n\n" +
			"With --checkpoint-every it makes a checkpoint so often, if anything was written since the last. They\n" +
			"are named policy-DATE-TIME (UTC), and removed again when they are older than --keep, or when there are\n" +
			"more than --keep of them; 24h if nothing is said. The newest is always kept, and checkpoints that\n" +
			"somebody has made are never touched. With --ttl the disk goes to the trash after that time, from\n" +
			"now; while it is in use it stays. Neither is copied to forks.",
		Example: "  tine policy work\n  tine policy work --checkpoint-every 10m --keep 24h\n  tine policy work --keep 100\n" +
			"  tine policy try-1 --ttl 2h\n  tine policy try-1 --ttl none\n  tine policy work --none",
		Args: arguments(1, 1), ValidArgsFunction: c.once(c.completeDisk),
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, some, err := policyFlags(cmd, every, keep, ttl, none)
			if err != nil {
				return err
			}
			var p api.Policy
			if some {
				p, err = c.client().SetPolicy(cmd.Context(), args[0], ch)
			} else {
				p, err = c.client().Policy(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			return c.print(p, func() { c.showPolicy(p) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&every, "checkpoint-every", "", "make a checkpoint so often, such as 10m; none to stop")
	f.StringVar(&keep, "keep", "", "how long (24h, 7d) or how many (100) of them are kept; all for all")
	f.StringVar(&ttl, "ttl", "", "remove the disk after so long from now, such as 2h; none for never")
	f.BoolVar(&none, "none", false, "take the whole policy away")
	for _, other := range []string{"checkpoint-every", "keep", "ttl"} {
		cmd.MarkFlagsMutuallyExclusive("none", other)
	}
	return cmd
}

// policyFlags reads the flags; some reports whether there is any.
func policyFlags(cmd *cobra.Command, every, keep, ttl string, none bool) (ch api.PolicyChange, some bool, err error) {
	var zero int64
	if none {
		return api.PolicyChange{EverySeconds: &zero, TTLSeconds: &zero}, true, nil
	}
	f := cmd.Flags()
	if f.Changed("checkpoint-every") {
		if ch.EverySeconds, err = spanFlag(cmd, "checkpoint-every", every); err != nil {
			return ch, false, err
		}
	}
	if f.Changed("ttl") {
		if ch.TTLSeconds, err = spanFlag(cmd, "ttl", ttl); err != nil {
			return ch, false, err
		}
	}
	if f.Changed("keep") {
		n, isCount := strconv.ParseInt(keep, 10, 64)
		switch {
		case keep == "all":
			ch.KeepSeconds, ch.KeepCount = &zero, &zero
		case isCount == nil && n > 0:
			ch.KeepSeconds, ch.KeepCount = &zero, &n
		default:
			if ch.KeepSeconds, err = spanFlag(cmd, "keep", keep); err != nil {
				return ch, false, err
			}
			if *ch.KeepSeconds == 0 {
				return ch, false, &usageError{cmd.CommandPath(), "--keep must be a time such as 24h or 7d, a number of checkpoints, or all, not " + keep}
			}
			ch.KeepCount = &zero
		}
	}
	return ch, f.Changed("checkpoint-every") || f.Changed("ttl") || f.Changed("keep"), nil
}

// spanFlag reads a time in whole seconds; none is 0.
func spanFlag(cmd *cobra.Command, name, v string) (*int64, error) {
	d, err := parseSpan(v)
	if err != nil {
		return nil, &usageError{cmd.CommandPath(), fmt.Sprintf("--%s: %v", name, err)}
	}
	n := int64((d + time.Second - 1) / time.Second)
	return &n, nil
}

// parseSpan reads a time such as 90s, 1h30m, 7d or 2w; none is 0.
func parseSpan(s string) (time.Duration, error) {
	if s == "none" {
		return 0, nil
	}
	bad := fmt.Errorf("%q is not a time such as 90s, 10m, 24h or 7d", s)
	units := map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}
	for suffix, unit := range units {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || n <= 0 || n > 25000 {
				return 0, bad
			}
			return time.Duration(n) * unit, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, bad
	}
	return d, nil
}

// span prints a number of seconds as it would be typed.
func span(seconds int64) string {
	const day = 24 * 60 * 60
	if seconds >= 2*day && seconds%day == 0 {
		return fmt.Sprintf("%dd", seconds/day)
	}
	s := (time.Duration(seconds) * time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// policyFields says what a policy does, for people; empty where there is
// nothing to say.
func policyFields(p *api.Policy) (checkpoints, ends, failure string) {
	if p == nil {
		return "", "", ""
	}
	if p.EverySeconds > 0 {
		checkpoints = "every " + span(p.EverySeconds)
		switch {
		case p.KeepCount > 0 && p.KeepSeconds > 0:
			checkpoints += fmt.Sprintf(", the last %d and those of the last %s kept", p.KeepCount, span(p.KeepSeconds))
		case p.KeepCount > 0:
			checkpoints += fmt.Sprintf(", the last %d kept", p.KeepCount)
		case p.KeepSeconds > 0:
			checkpoints += fmt.Sprintf(", kept for %s", span(p.KeepSeconds))
		default:
			checkpoints += ", all kept"
		}
	}
	if p.Expires != nil {
		ends = at(*p.Expires)
		if p.Expires.Before(time.Now()) {
			ends += " (over; it waits until the disk is not in use)"
		}
	}
	if p.Error != "" {
		failure = oneLine(p.Error)
		if p.Failed != nil {
			failure = at(*p.Failed) + " " + failure
		}
	}
	return checkpoints, ends, failure
}

func (c *cli) showPolicy(p api.Policy) {
	checkpoints, ends, failure := policyFields(&p)
	if checkpoints == "" && ends == "" {
		c.say("%s has no policy", p.Disk)
		return
	}
	there, next := "", ""
	if p.Checkpoints != nil && (*p.Checkpoints > 0 || p.EverySeconds > 0) {
		there = strconv.Itoa(*p.Checkpoints)
		if p.Last != "" {
			there += ", the newest " + p.Last
		}
	}
	if p.Next != nil {
		next = at(*p.Next)
	}
	c.fields("disk", p.Disk, "checkpoints", checkpoints, "there are", there, "next", next, "removed at", ends, "failed", failure)
}
