package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/events"
	"tine.dev/tine/internal/fs/volume"
)

type readEvents struct {
	By
	After  uint64    `query:"after" doc:"Only events with a greater sequence number"`
	Run    string    `query:"run" doc:"The run of the server that the number belongs to; absent: this one"`
	Since  time.Time `query:"since" doc:"Only events not before; what is older than this run is taken from the disks' logs"`
	Disk   string    `query:"disk" doc:"Only events of this disk"`
	Follow bool      `query:"follow" doc:"Go on with what happens from now on"`
}

func (c *calls) registerEvents(h huma.API) {
	handle(h, c, call{id: "readEvents", method: http.MethodGet, path: "/events", tag: tagServer, summary: "What has happened, and what happens",
		description: "A stream of JSON lines. A reader that comes too late is told how many events it missed.", stream: api.EventLine{}}, c.readEvents)
}

// note adds an event that a caller has caused.
func (c *calls) note(who volume.Caller, kind, disk, detail string) {
	c.Events.Add(api.Event{Kind: kind, Disk: disk, Detail: detail, Author: who.Author, Caller: who.Principal})
}

func (c *calls) readEvents(ctx context.Context, in *readEvents) (*huma.StreamResponse, error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	oldest, newest := c.Events.Bounds()
	start := api.EventStart{Run: c.Events.Run(), Oldest: oldest, Newest: newest, Restarted: in.Run != "" && in.Run != c.Events.Run()}
	after := in.After
	if start.Restarted {
		after = 0 // a number of another run
	}
	var before []api.Event
	if !in.Since.IsZero() && in.Since.Before(c.Server.Started) {
		if before, err = events.Replay(ctx, c.Host, who, in.Disk, in.Since, c.Server.Started); err != nil {
			return nil, err
		}
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		out := newLines(hc)
		_ = out.line(api.EventLine{Start: &start}, true)
		for i := range before {
			_ = out.line(api.EventLine{Event: &before[i]}, false)
		}
		c.stream(ctx, out, in, after)
	}}, nil
}

// stream writes events until there are no more or, following, until the client
// goes or the server stops.
func (c *calls) stream(ctx context.Context, out *lines, in *readEvents, after uint64) {
	for out.failed == nil {
		b := c.Events.After(after)
		if b.Missed > 0 {
			after += b.Missed
			if in.Since.IsZero() { // who asks for a time gets what is held of it
				_ = out.line(api.EventLine{Missed: b.Missed}, true)
			}
		}
		for i := range b.Events {
			e := &b.Events[i]
			after = e.Seq
			if (in.Disk == "" || e.Disk == in.Disk) && !e.Time.Before(in.Since) {
				_ = out.line(api.EventLine{Event: e}, false)
			}
		}
		if len(b.Events) > 0 {
			continue
		}
		if !in.Follow || b.Closed {
			_ = out.line(api.EventLine{Done: &api.EventsDone{Newest: after, Stopping: b.Closed}}, true)
			return
		}
		out.flush()
		select {
		case <-b.Changed:
		case <-ctx.Done():
			return
		}
	}
}
