package record

import "tine.dev/tine/internal/tine"

// Policy is the row of what the server is to do with a disk by itself. It is
// apart from the disk's record, because that belongs to the stream of the disk's
// tree, and a policy is nothing that a state of the disk depends on. A row
// whose disk is gone means nothing and is removed when it is met.
type Policy struct {
	Every     int64  // nanoseconds between two checkpoints; 0: none are made
	KeepFor   int64  // nanoseconds that a checkpoint so made is kept; 0: without regard to age
	KeepCount uint64 // how many of them are kept; 0: any number
	Since     int64  // when the schedule began
	TTL       int64  // nanoseconds that the disk was given to live; 0: for ever
	Expires   int64  // when that is over
}

const policyFormat = 1

// Append encodes the row.
func (p Policy) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u8(policyFormat)
	e.int(p.Every)
	e.int(p.KeepFor)
	e.uint(p.KeepCount)
	e.int(p.Since)
	e.int(p.TTL)
	e.int(p.Expires)
	return e.b
}

// DecodePolicy reads the row.
func DecodePolicy(b []byte) (Policy, error) {
	d := decoder{b: b}
	if err := d.format("policy", policyFormat); err != nil {
		return Policy{}, err
	}
	p := Policy{Every: d.int(), KeepFor: d.int(), KeepCount: d.uint(), Since: d.int(), TTL: d.int(), Expires: d.int()}
	if p.Every < 0 || p.KeepFor < 0 || p.TTL < 0 {
		d.fail()
	}
	return p, d.finish("policy")
}

// PolicyKey is the logical key, within the tenant, of a disk's policy.
func PolicyKey(disk tine.DiskID) Logical { return IDKey(TablePolicy, disk) }
