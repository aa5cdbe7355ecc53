package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Event is one thing that happened.
type Event struct {
	Seq    uint64    `json:"seq,omitempty" doc:"Grows by one with each event of one run of the server; absent for one that is known only from a disk's log"`
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind" example:"fork" doc:"server-start, server-stop, disk-create, disk-import, disk-remove, disk-purge, disk-undelete, disk-rename, disk-change, disk-expire, fork, checkpoint, checkpoint-remove, rollback, promote, undo, mount, remount, unmount, mount-lost, store-add, store-remove, disk-taken-up, disk-lost, policy, policy-failed, full, corrupt, failed, error. More may come"`
	Disk   string    `json:"disk,omitempty" doc:"The disk's name at that time"`
	DiskID string    `json:"disk_id,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Author string    `json:"author,omitempty"`
	Caller string    `json:"caller,omitempty"`
	Error  *Error    `json:"error,omitempty" doc:"What failed"`
	Repeat int       `json:"repeat,omitempty" doc:"How many more of the kind were left out since the last one"`
}

// EventLine is one line of the stream of events: its start, an event, a gap,
// the end, or the error that cut it short.
type EventLine struct {
	Start  *EventStart `json:"start,omitempty" doc:"The first line"`
	Event  *Event      `json:"event,omitempty"`
	Missed uint64      `json:"missed,omitempty" doc:"So many events were dropped before the reader came to them"`
	Done   *EventsDone `json:"done,omitempty" doc:"The last line of a complete answer"`
	Error  *Error      `json:"error,omitempty"`
}

// EventStart begins a stream of events.
type EventStart struct {
	Run       string `json:"run" doc:"Names this run of the server; sequence numbers of another run mean nothing in it"`
	Oldest    uint64 `json:"oldest" doc:"The oldest event that is still held"`
	Newest    uint64 `json:"newest"`
	Restarted bool   `json:"restarted" doc:"The caller named another run: the server was started again, and what happened at the end of that run may be missing"`
}

// EventsDone ends a stream of events.
type EventsDone struct {
	Newest   uint64 `json:"newest"`
	Stopping bool   `json:"stopping" doc:"The server stops; ask again when it is back"`
}

// EventQuery says which events to read.
type EventQuery struct {
	After  uint64    // those with a greater sequence number
	Run    string    // the run that After belongs to; empty for the present one
	Since  time.Time // those not before; with what the disks' logs have of the time before this run
	Disk   string    // those of one disk
	Follow bool      // go on with those to come, until the context is done or the server stops
}

// Events calls fn for every line of the stream, and returns its end. An error of fn
// ends the stream and is returned as it is.
func (c *Client) Events(ctx context.Context, q EventQuery, fn func(EventLine) error) (EventsDone, error) {
	var out EventsDone
	v := url.Values{"follow": {strconv.FormatBool(q.Follow)}}
	if q.After > 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
	}
	if q.Run != "" {
		v.Set("run", q.Run)
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.Disk != "" {
		v.Set("disk", q.Disk)
	}
	resp, err := c.send(ctx, http.MethodGet, v, nil, "events")
	if err != nil {
		return out, err
	}
	err = c.lines(ctx, resp, func(raw []byte) (bool, error) {
		var l EventLine
		if err := json.Unmarshal(raw, &l); err != nil {
			return false, c.cutOff(ctx, err)
		}
		switch {
		case l.Error != nil:
			return true, l.Error
		case l.Done != nil:
			out = *l.Done
			return true, nil
		}
		return false, fn(l)
	})
	return out, err
}
