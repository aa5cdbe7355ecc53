package httpapi

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tine.dev/tine/api"
	"tine.dev/tine/internal/control/policy"
	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/tine"
)

type changePolicy struct {
	OnDisk
	Body api.PolicyChange
}

func (c *calls) registerPolicies(h huma.API) {
	handle(h, c, call{id: "getPolicy", method: http.MethodGet, path: "/disks/{disk}/policy", tag: tagDisks, summary: "What the server does with a disk by itself"}, c.getPolicy)
	handle(h, c, call{id: "setPolicy", method: http.MethodPatch, path: "/disks/{disk}/policy", tag: tagDisks, summary: "Change what the server does with a disk by itself",
		description: "Checkpoints made every so often, how long they are kept, and when the disk is removed. Only checkpoints that the policy made are ever removed."}, c.setPolicy)
}

func (c *calls) getPolicy(ctx context.Context, in *OnDisk) (*body[api.Policy], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	return answer(c.policyOf(ctx, who, in.Disk))
}

func (c *calls) setPolicy(ctx context.Context, in *changePolicy) (*body[api.Policy], error) {
	who, err := in.caller(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := policyChange(in.Body)
	if err != nil {
		return nil, err
	}
	if _, err := c.Policies.Set(ctx, who, in.Disk, ch); err != nil {
		return nil, err
	}
	p, err := c.policyOf(ctx, who, in.Disk)
	if err == nil {
		c.note(who, "policy", in.Disk, policyText(p))
	}
	return answer(p, err)
}

// policyText says in a word what a policy does, for events.
func policyText(p api.Policy) string {
	s := ""
	if p.EverySeconds > 0 {
		s = "checkpoint every " + seconds(p.EverySeconds).String()
	}
	if p.Expires != nil {
		if s != "" {
			s += ", "
		}
		s += "removed at " + p.Expires.UTC().Format(time.RFC3339)
	}
	if s == "" {
		return "none"
	}
	return s
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// span turns seconds of a request into a duration.
func span(what string, n *int64) (*time.Duration, error) {
	if n == nil {
		return nil, nil
	}
	if *n > math.MaxInt64/int64(time.Second)/4 {
		return nil, tine.Errorf(tine.KindInvalid, "%s is longer than 70 years", what)
	}
	d := seconds(*n)
	return &d, nil
}

func policyChange(b api.PolicyChange) (ch policy.Change, err error) {
	if ch.Every, err = span("every_seconds", b.EverySeconds); err != nil {
		return ch, err
	}
	if ch.KeepFor, err = span("keep_seconds", b.KeepSeconds); err != nil {
		return ch, err
	}
	if ch.TTL, err = span("ttl_seconds", b.TTLSeconds); err != nil {
		return ch, err
	}
	ch.KeepCount = b.KeepCount
	return ch, nil
}

func (c *calls) policyOf(ctx context.Context, who volume.Caller, disk string) (api.Policy, error) {
	s, own, err := c.Policies.OfDisk(ctx, who, disk)
	if err != nil {
		return api.Policy{}, err
	}
	p := policyState(disk, s)
	n := len(own)
	p.Checkpoints = &n
	if n > 0 {
		p.Last = own[n-1].Name
	}
	return p, nil
}

func policyState(disk string, s policy.State) api.Policy {
	p := api.Policy{Disk: disk, EverySeconds: s.Every / int64(time.Second), KeepSeconds: s.KeepFor / int64(time.Second), KeepCount: int64(s.KeepCount),
		Expires: moment(s.Ends), Next: moment(s.Next)}
	if s.Err != nil {
		p.Error, p.Failed = toWire(s.Err).body.Message, moment(s.Failed)
	}
	return p
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// limitForks gives new forks their time to live. They are made and durable by
// then; if that cannot be stored they are taken back.
func (c *calls) limitForks(ctx context.Context, who volume.Caller, names []string, ttl time.Duration) error {
	for _, n := range names {
		if _, err := c.Policies.Set(ctx, who, n, policy.Change{TTL: &ttl}); err != nil {
			for _, n := range names {
				if _, e := c.Host.RemoveDisk(context.WithoutCancel(ctx), who, n, true); e != nil {
					c.Log.Error("a fork whose time to live could not be stored is left", "disk", n, "error", e)
				}
			}
			return err
		}
	}
	return nil
}
