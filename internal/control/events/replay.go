package events

import (
	"context"
	"slices"
	"time"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

// kinds gives the operations of a disk's log the names that they have here.
var kinds = map[string]string{
	"create": "disk-create", "rename": "disk-rename", "remove": "disk-remove", "undelete": "disk-undelete", "quota": "disk-change",
}

// Replay returns what the logs of the living disks have of [since, until),
// oldest first; with a disk named, of that one. The events have no number. Logs
// are durable: this is what is known of earlier runs of the server.
func Replay(ctx context.Context, host *volume.Host, who volume.Caller, disk string, since, until time.Time) ([]api.Event, error) {
	ds, err := host.Disks(ctx, who, false)
	if err != nil {
		return nil, err
	}
	var es []api.Event
	for _, d := range ds {
		if disk != "" && d.Name != disk {
			continue
		}
		entries, err := host.Log(ctx, who, d.Name)
		if tine.KindOf(err) == tine.KindNotFound {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, l := range entries {
			at := time.Unix(0, l.Time)
			if at.Before(since) || !at.Before(until) {
				continue
			}
			kind := l.Op
			if k := kinds[kind]; k != "" {
				kind = k
			}
			es = append(es, api.Event{Time: at, Kind: kind, Disk: d.Name, DiskID: d.ID.String(), Detail: short(l.Detail), Author: l.Author, Caller: l.Caller})
		}
	}
	slices.SortStableFunc(es, func(a, b api.Event) int { return a.Time.Compare(b.Time) })
	return es, nil
}
