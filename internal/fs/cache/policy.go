package cache

// shares of the whole that a policy gives to the queue of new frames, and how
// many bytes must come in before a touch of the same frame counts again.
const (
	freshShare  = 10
	settleShare = 40
	maxTouches  = 3
)

// place is the queue that a node is in.
type place uint8

const (
	fresh  place = iota // new, not yet come back to
	proven              // come back to
	ghost               // gone: only its name is kept
)

// node is one frame, or the name of one that left.
type node[V any] struct {
	id         frameID
	cost       int64 // bytes
	value      V
	place      place
	touches    uint8
	seen       int64 // policy.clock, when a touch last counted
	prev, next *node[V]
}

// queue is a ring of nodes, the newest first.
type queue[V any] struct {
	ring node[V]
	cost int64
}

func (q *queue[V]) init() { q.ring.prev, q.ring.next = &q.ring, &q.ring }

func (q *queue[V]) push(n *node[V]) {
	n.prev, n.next = &q.ring, q.ring.next
	n.prev.next, n.next.prev = n, n
	q.cost += n.cost
}

func (q *queue[V]) take(n *node[V]) {
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
	q.cost -= n.cost
}

func (q *queue[V]) oldest() *node[V] {
	if q.ring.prev == &q.ring {
		return nil
	}
	return q.ring.prev
}

// policy decides which frames stay. It only counts: whoever removes something
// from a device does so on its word. Not safe for concurrent use.
type policy[V any] struct {
	max    int64
	used   int64 // bytes of the nodes that are no ghosts
	count  int   // of these nodes
	clock  int64 // bytes that ever came in
	queues [3]queue[V]
	nodes  map[objectID]map[int64]*node[V]
}

func newPolicy[V any](maxBytes int64) *policy[V] {
	p := &policy[V]{max: maxBytes, nodes: map[objectID]map[int64]*node[V]{}}
	for i := range p.queues {
		p.queues[i].init()
	}
	return p
}

func (p *policy[V]) lookup(id frameID) *node[V] { return p.nodes[id.object][id.frame] }

// find returns a frame without touching it, or nil.
func (p *policy[V]) find(id frameID) *node[V] {
	if n := p.lookup(id); n != nil && n.place != ghost {
		return n
	}
	return nil
}

// get returns a frame that somebody reads, or nil.
func (p *policy[V]) get(id frameID) *node[V] {
	n := p.find(id)
	if n != nil && p.clock-n.seen > p.max/settleShare {
		n.seen = p.clock
		n.touches = min(n.touches+1, maxTouches)
	}
	return n
}

// add puts in a frame that is not there. There must be room: fits says so, and
// victim makes some.
func (p *policy[V]) add(id frameID, cost int64, value V) {
	to := fresh
	if n := p.lookup(id); n != nil {
		p.unlink(n)
		to = proven
	}
	p.put(id, cost, value, to)
}

func (p *policy[V]) put(id frameID, cost int64, value V, to place) {
	p.clock += cost
	p.used += cost
	p.count++
	n := &node[V]{id: id, cost: cost, value: value, place: to, seen: p.clock}
	p.queues[to].push(n)
	frames := p.nodes[id.object]
	if frames == nil {
		frames = map[int64]*node[V]{}
		p.nodes[id.object] = frames
	}
	frames[id.frame] = n
}

// fits reports whether so many bytes more stay within the bound.
func (p *policy[V]) fits(cost int64) bool { return p.used+cost <= p.max }

// victim takes out the frame that is wanted least and keeps its name. It
// returns nil if there is none.
func (p *policy[V]) victim() *node[V] {
	for {
		from := proven
		if q := &p.queues[fresh]; q.oldest() != nil && (q.cost > p.max/freshShare || p.queues[proven].oldest() == nil) {
			from = fresh
		}
		n := p.queues[from].oldest()
		switch {
		case n == nil && from == proven:
			return nil
		case n.touches == 0:
			p.retire(n)
			return n
		case from == fresh:
			n.touches = 0
		default:
			n.touches--
		}
		p.queues[from].take(n)
		n.place = proven
		p.queues[proven].push(n)
	}
}

// retire makes a frame a ghost. The caller gets the node with its value; what
// is remembered is another, so that memory is given back.
func (p *policy[V]) retire(n *node[V]) {
	p.unlink(n)
	g := &node[V]{id: n.id, cost: n.cost, place: ghost}
	frames := p.nodes[n.id.object]
	if frames == nil {
		frames = map[int64]*node[V]{}
		p.nodes[n.id.object] = frames
	}
	frames[n.id.frame] = g
	ghosts := &p.queues[ghost]
	ghosts.push(g)
	for ghosts.cost > p.max {
		p.unlink(ghosts.oldest())
	}
}

// unlink takes a node out, ghost or not.
func (p *policy[V]) unlink(n *node[V]) {
	p.queues[n.place].take(n)
	if n.place != ghost {
		p.used -= n.cost
		p.count--
	}
	frames := p.nodes[n.id.object]
	delete(frames, n.id.frame)
	if len(frames) == 0 {
		delete(p.nodes, n.id.object)
	}
}

// drop takes out all frames of an object, and their ghosts, and returns the
// frames.
func (p *policy[V]) drop(object objectID) []*node[V] {
	var out []*node[V]
	for _, n := range p.nodes[object] {
		if n.place != ghost {
			out = append(out, n)
		}
		p.unlink(n)
	}
	return out
}
