package api

import (
	"context"
	"net/http"
	"time"
)

// Policy is what the server does with a disk by itself, and how that goes.
type Policy struct {
	Disk         string     `json:"disk"`
	EverySeconds int64      `json:"every_seconds,omitempty" doc:"A checkpoint is made so often, if anything was written since the last; 0: none"`
	KeepSeconds  int64      `json:"keep_seconds,omitempty" doc:"How long checkpoints that the policy made are kept; 0: without regard to age. The newest is always kept"`
	KeepCount    int64      `json:"keep_count,omitempty" doc:"How many checkpoints that the policy made are kept; 0: any number"`
	Expires      *time.Time `json:"expires,omitempty" doc:"When the disk is removed to the trash; while it is in use it stays"`
	Checkpoints  *int       `json:"checkpoints,omitempty" doc:"How many checkpoints of the policy there are"`
	Next         *time.Time `json:"next,omitempty" doc:"When the next checkpoint is due"`
	Last         string     `json:"last,omitempty" doc:"The newest checkpoint that the policy made"`
	Error        string     `json:"error,omitempty" doc:"Why the last try failed; it is tried again"`
	Failed       *time.Time `json:"failed,omitempty" doc:"When the last try failed"`
}

// PolicyChange changes a disk's policy. What is left out stays as it is; 0
// takes that part away.
type PolicyChange struct {
	EverySeconds *int64 `json:"every_seconds,omitempty" minimum:"0" doc:"Make a checkpoint so often; 0: no more"`
	KeepSeconds  *int64 `json:"keep_seconds,omitempty" minimum:"0" doc:"Keep checkpoints that the policy made for so long; 0: without regard to age"`
	KeepCount    *int64 `json:"keep_count,omitempty" minimum:"0" doc:"Keep so many checkpoints that the policy made; 0: any number"`
	TTLSeconds   *int64 `json:"ttl_seconds,omitempty" minimum:"0" doc:"Remove the disk to the trash after so long from now; 0: never"`
}

// Policy returns what the server does with a disk by itself.
func (c *Client) Policy(ctx context.Context, disk string) (Policy, error) {
	return call[Policy](ctx, c, http.MethodGet, nil, nil, "disks", disk, "policy")
}

// SetPolicy changes what the server does with a disk by itself. It is durable
// when the call returns.
func (c *Client) SetPolicy(ctx context.Context, disk string, p PolicyChange) (Policy, error) {
	return call[Policy](ctx, c, http.MethodPatch, nil, p, "disks", disk, "policy")
}
