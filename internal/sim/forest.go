package sim

import (
	"fmt"
	"math"
	"slices"

	"tine.dev/tine/internal/fs/volume"
	"tine.dev/tine/internal/sim/posix"
	"tine.dev/tine/internal/tine"
)

// disk is the model of a disk: what it shows, its checkpoints, what is open
// on it, and what a crash may leave of it.
type disk struct {
	id   tine.DiskID
	tree tine.TreeID
	name string
	fs   *posix.FS
	line *line

	checkpoints []*checkpoint // oldest first
	moves       int           // how often rollback, promote or undo gave it another head

	sessions []*session
	handles  []*handle

	past  []moment // what the head has shown since everything was durable, oldest first; the last is now
	floor int      // the oldest of them that a crash may leave
}

// line is the model of a line of writes, as far as promote asks for it: where
// it branched off, and how far it has come.
type line struct {
	from spot
	pos  int // grows with every change that can be seen
	blur int // grows with what may or may not count as a change: to files without a name, and being rolled back to
}

// spot is a place on a line; the zero spot is before every beginning.
type spot struct {
	line      *line
	pos, blur int
}

// standing returns the spot that the line shows. A line that was never written
// stands where it branched off.
func (l *line) standing() spot {
	if l.pos == 0 && l.blur == 0 && l.from.line != nil {
		return l.from
	}
	return spot{l, l.pos, l.blur}
}

// unchangedSince reports whether all that the line shows is in the history of
// the fork, and whether that is sure.
func (l *line) unchangedSince(fork *line) (clean, sure bool) {
	now, sure := l.standing(), l.blur == 0
	for f, upTo := fork, (spot{pos: math.MaxInt, blur: math.MaxInt}); f != nil; f, upTo = f.from.line, f.from {
		sure = sure && f.blur == 0
		if f == now.line {
			return now.pos <= upTo.pos, now.pos > upTo.pos || sure && now.blur <= upTo.blur
		}
	}
	return false, sure
}

// moment is what a disk showed from a step on.
type moment struct {
	seq   int
	moves int
	tree  posix.Tree
	next  tine.Ino
	line  line
	of    *line
}

// checkpoint is the model of a checkpoint. Immutable.
type checkpoint struct {
	name string
	auto bool
	tree posix.Tree
	next tine.Ino
	at   spot
}

// freeze makes a checkpoint of what the disk shows.
func (d *disk) freeze(name string, auto bool) {
	d.checkpoints = append(d.checkpoints, &checkpoint{name, auto, d.fs.Tree, d.fs.NextIno, d.line.standing()})
}

// renamed returns a checkpoint under the name that it gets when its disk is
// promoted onto d.
func (d *disk) renamed(c *checkpoint, fork string) *checkpoint {
	taken := func(name string) bool {
		return slices.ContainsFunc(d.checkpoints, func(c *checkpoint) bool { return c.name == name })
	}
	moved := *c
	for n := 1; taken(moved.name); n++ {
		moved.name = fmt.Sprintf("%.100s-%.20s-%d", c.name, fork, n)
	}
	return &moved
}

// lastAuto returns the newest automatic checkpoint, or nil.
func (d *disk) lastAuto() *checkpoint {
	for _, c := range slices.Backward(d.checkpoints) {
		if c.auto {
			return c
		}
	}
	return nil
}

// keepAutos forgets the oldest automatic checkpoints but for keep of them.
func (d *disk) keepAutos(keep int) {
	autos := 0
	for _, c := range d.checkpoints {
		if c.auto {
			autos++
		}
	}
	d.checkpoints = slices.DeleteFunc(d.checkpoints, func(c *checkpoint) bool {
		if c.auto && autos > keep {
			autos--
			return true
		}
		return false
	})
}

func (d *disk) handleOf(f *volume.File) *handle {
	for _, h := range d.handles {
		if h.file == f {
			return h
		}
	}
	return nil
}

// head gives the disk another state to show, as rollback does: inode numbers
// go on from where the larger of the two stood.
func (d *disk) head(t posix.Tree, next tine.Ino) {
	now, next := d.fs.Now, max(next, d.fs.NextIno)
	d.fs = posix.FromTree(t)
	d.fs.Now, d.fs.NextIno = now, max(next, d.fs.NextIno)
	d.moves++
}

// closed ends a handle in the model.
func (d *disk) closed(ino tine.Ino) {
	before := d.fs.Unseen
	d.fs.Close(ino)
	if d.fs.Unseen != before {
		d.line.blur++
	}
}
