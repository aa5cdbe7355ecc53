package depot

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"tine.dev/tine/internal/fs/blob"
	"tine.dev/tine/internal/tine"
)

// A server that has trees in a store says there, every so often, that it lives.
// Who wants to take a tree up asks first, and waits until its server has not
// been heard of for LeaseTime, by the store's own clock. That is politeness: it keeps two
// servers from taking a disk from each other without end. What makes it safe
// that a server is wrong about another, because it was suspended or cut off, is
// the journal (J2).
//
// LeaseTime is how long a server may not be heard of before its trees can be
// taken up elsewhere, unless Options say otherwise. It says that it lives four
// times as often.
const LeaseTime = 20 * time.Second

// beat is what a server says of itself: the object servers/ID, as JSON, for
// people read it too.
type beat struct {
	Format  int           `json:"format"` // 1
	Server  tine.ServerID `json:"server"`
	Host    string        `json:"host"`
	Started time.Time     `json:"started"`
	Count   uint64        `json:"count"` // grows with each
	Stopped bool          `json:"stopped"`
}

const beatFormat = 1

func beatKey(id tine.ServerID) blob.Key { return blob.Key("servers/" + id.String()) }

// beats says that the server lives until it is closed.
func (d *Depot) beats(b beat) {
	tick := time.NewTicker(d.o.Lease / 4)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-d.quit:
			b.Count++
			b.Stopped = true
			ctx, cancel := context.WithTimeout(context.Background(), d.o.Lease/4)
			defer cancel()
			if _, err := d.say(ctx, b); err != nil {
				d.o.Logger.Warn("the store was not told that this server stops; its disks can be taken up elsewhere a little later", "store", d.o.Blob.Name(), "error", err)
			}
			return
		case <-tick.C:
		}
		b.Count++
		ctx, cancel := context.WithTimeout(context.Background(), d.o.Lease)
		_, err := d.say(ctx, b)
		cancel()
		if err != nil && !failing {
			d.o.Logger.Warn("the store is not told that this server lives; another one may take its disks up", "store", d.o.Blob.Name(), "error", err)
		}
		failing = err != nil
	}
}

// say writes the server's object, and returns when that was by the store's clock.
func (d *Depot) say(ctx context.Context, b beat) (time.Time, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return time.Time{}, tine.Errorf(tine.KindInternal, "writing what the server says of itself: %w", err)
	}
	key := beatKey(b.Server)
	if _, err := d.o.Blob.Put(ctx, key, bytes.NewReader(append(text, '\n')), blob.Condition{}); err != nil {
		return time.Time{}, err
	}
	info, err := d.o.Blob.Stat(ctx, key)
	return info.Modified, err
}

// Open says that the server lives, and goes on to say it until Close.
// Errors: those of blob.Store.
func (d *Depot) Open(ctx context.Context) error {
	b := beat{Format: beatFormat, Server: d.o.Server, Host: d.o.Host, Started: d.o.Clock(), Count: 1}
	now, err := d.say(ctx, b)
	if err != nil {
		return err
	}
	d.opened, d.began = now, time.Now()
	d.quit = make(chan struct{})
	d.done.Go(func() { d.beats(b) })
	return nil
}

// Close says that the server has stopped: its trees can be taken up at once. No
// tree may be open.
func (d *Depot) Close() {
	close(d.quit)
	d.done.Wait()
}

// now is the store's clock: its word at the start, and what has passed here since.
func (d *Depot) now() time.Time {
	if d.opened.IsZero() {
		return d.o.Clock()
	}
	return d.opened.Add(time.Since(d.began))
}

// free returns nil if the trees of a server can be taken up, and else a KindBusy
// error that says how long to wait.
func (d *Depot) free(ctx context.Context, owner tine.ServerID) error {
	if owner == d.o.Server {
		return nil
	}
	text, info, err := d.o.Blob.Get(ctx, beatKey(owner), blob.Range{}, "")
	if tine.KindOf(err) == tine.KindNotFound && err != nil {
		return nil
	}
	if err != nil {
		return err
	}
	var b beat
	if err := json.Unmarshal(text, &b); err != nil || b.Format != beatFormat {
		return tine.Errorf(tine.KindVersion, "what server %s says of itself in store %s cannot be read (format %d)", owner, d.o.Blob.Name(), b.Format).
			WithHint("run a newer tine, or remove the object %s if that server is gone", beatKey(owner))
	}
	age := d.now().Sub(info.Modified)
	if b.Stopped || age > d.o.Lease {
		return nil
	}
	return tine.Errorf(tine.KindBusy, "it belongs to server %s on %s, which was heard of %s ago", owner, b.Host, max(age, 0).Round(time.Second)).
		WithHint("stop that server, or wait until it has not been heard of for %s", d.o.Lease)
}
