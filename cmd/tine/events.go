package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/tine"
)

func (c *cli) eventsCommand() *cobra.Command {
	var since string
	var q api.EventQuery
	cmd := &cobra.Command{
		Use: "events", Short: "Show what has happened, and what happens",
		Long: "Show what has happened: disks made and removed, forks, checkpoints, mounts, policies, and faults.\n" +
			"The server holds the last few thousand events of its present run; of the time before, --since TIME\n" +
			"shows what the disks' logs have. With --follow it goes on, over restarts of the server, until it is\n" +
			"interrupted. Who comes too late is told how many events are missing. With --json the answer is one\n" +
			"JSON object a line.",
		Example: "  tine events\n  tine events --follow\n  tine events --since 1h --disk work\n  tine events --since 4711 --follow --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := sinceFlag(cmd, since, &q); err != nil {
				return err
			}
			return c.follow(cmd.Context(), q)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "a time ago (1h), a time (2026-01-02T15:04:05Z), or the number of the last event seen")
	cmd.Flags().StringVar(&q.Disk, "disk", "", "only events of this disk")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "go on with what happens from now on")
	c.completeFlag(cmd, "disk", c.completeDisk)
	return cmd
}

func sinceFlag(cmd *cobra.Command, since string, q *api.EventQuery) error {
	if since == "" {
		return nil
	}
	if n, err := strconv.ParseUint(since, 10, 64); err == nil {
		q.After = n
		return nil
	}
	if t, err := time.Parse(time.RFC3339, since); err == nil {
		q.Since = t
		return nil
	}
	d, err := parseSpan(since)
	if err != nil || d == 0 {
		return &usageError{cmd.CommandPath(), fmt.Sprintf("--since: %q is not a time ago such as 1h, a time such as 2026-01-02T15:04:05Z, or a number", since)}
	}
	q.Since = time.Now().Add(-d)
	return nil
}

// reader prints events, and knows where it has come to.
type reader struct {
	c       *cli
	enc     *json.Encoder
	query   api.EventQuery
	started bool
}

// reconnectEvery is the time between two tries to reach a server that is away.
const reconnectEvery = 500 * time.Millisecond

// follow prints events until there are no more or, following, until the
// context is done. A server that goes away is waited for.
func (c *cli) follow(ctx context.Context, q api.EventQuery) error {
	r := &reader{c: c, query: q, enc: json.NewEncoder(c.env.stdout)}
	r.enc.SetEscapeHTML(false)
	client := c.client()
	away := false
	for {
		_, err := client.Events(ctx, r.query, r.line)
		if err == nil && !q.Follow {
			return nil
		}
		if err != nil && (!r.started || !noServer(err)) {
			return writing(err)
		}
		if !away {
			away = true
			r.tell("the server is away; waiting for it")
		}
		// A server that is there and is stopping ends the call at once.
		select {
		case <-ctx.Done():
			return tine.Errorf(tine.KindInterrupted, "interrupted")
		case <-time.After(reconnectEvery):
		}
		if _, err := client.Server(ctx); err == nil {
			away = false
			r.tell("the server is there again")
		}
	}
}

// tell says something about the stream itself: to people, on standard error;
// to programs the lines of the stream say it.
func (r *reader) tell(text string) {
	if !r.c.json {
		fmt.Fprintln(r.c.env.stderr, "tine: "+text)
	}
}

func (r *reader) line(l api.EventLine) error {
	switch {
	case l.Start != nil:
		r.started = true
		if l.Start.Restarted {
			r.query.After = 0
			r.tell("the server was started again; what the one before did at its end may be missing")
		}
		again := r.query.Run != ""
		r.query.Run = l.Start.Run
		if again {
			r.query.Since = time.Time{} // it is past that
		}
	case l.Event != nil && l.Event.Seq > 0:
		r.query.After = l.Event.Seq
	case l.Missed > 0:
		r.tell(plural(int64(l.Missed), "event") + " missed")
	}
	if r.c.json {
		return r.enc.Encode(l)
	}
	if l.Event == nil {
		return nil
	}
	_, err := fmt.Fprintln(r.c.env.stdout, eventText(*l.Event))
	return err
}

// eventText is an event in one line.
func eventText(e api.Event) string {
	s := fmt.Sprintf("%s %-17s %s", at(e.Time), e.Kind, dash(e.Disk))
	if e.Detail != "" {
		s += " " + oneLine(e.Detail)
	}
	if e.Error != nil {
		s += ": " + oneLine(e.Error.Message)
	}
	if e.Repeat > 0 {
		s += fmt.Sprintf(" (and %d more like it)", e.Repeat)
	}
	if who := e.Author; who != "" {
		s += " [" + printable(who) + "]"
	}
	return s
}
