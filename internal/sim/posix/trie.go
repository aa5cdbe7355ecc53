package posix

// trie is an immutable map from numbers to pointers. set returns a new map
// that shares all but the path to the changed key.
type trie[V any] struct {
	root  *trieNode[V]
	shift uint // of the root's digit; the map holds keys below 1<<(shift+trieBits)
}

const (
	trieBits = 4
	trieSize = 1 << trieBits
)

type trieNode[V any] struct {
	kids [trieSize]*trieNode[V] // above the lowest level
	vals [trieSize]*V           // at the lowest level
	n    int                    // how many of them are set
}

func (t trie[V]) fits(key uint64) bool { return key>>t.shift < trieSize }

// get returns nil for a key that is not in the map.
func (t trie[V]) get(key uint64) *V {
	if t.root == nil || !t.fits(key) {
		return nil
	}
	n := t.root
	for s := t.shift; s > 0 && n != nil; s -= trieBits {
		n = n.kids[key>>s%trieSize]
	}
	if n == nil {
		return nil
	}
	return n.vals[key%trieSize]
}

// set returns the map with the key set to v, or without it if v is nil.
func (t trie[V]) set(key uint64, v *V) trie[V] {
	for !t.fits(key) {
		if v == nil {
			return t
		}
		if t.root != nil {
			up := &trieNode[V]{n: 1}
			up.kids[0] = t.root
			t.root = up
		}
		t.shift += trieBits
	}
	t.root = t.root.with(t.shift, key, v)
	return t
}

func (n *trieNode[V]) with(shift uint, key uint64, v *V) *trieNode[V] {
	if n == nil && v == nil {
		return nil
	}
	c := &trieNode[V]{}
	if n != nil {
		*c = *n
	}
	i := key >> shift % trieSize
	if shift == 0 {
		c.n += count(v) - count(c.vals[i])
		c.vals[i] = v
	} else {
		kid := c.kids[i].with(shift-trieBits, key, v)
		c.n += count(kid) - count(c.kids[i])
		c.kids[i] = kid
	}
	if c.n == 0 {
		return nil
	}
	return c
}

func count[V any](p *V) int {
	if p == nil {
		return 0
	}
	return 1
}

// all calls fn for each key from first on, in order, until it returns false.
func (t trie[V]) all(first uint64, fn func(uint64, *V) bool) { t.root.walk(t.shift, 0, first, fn) }

func (n *trieNode[V]) walk(shift uint, base, first uint64, fn func(uint64, *V) bool) bool {
	if n == nil {
		return true
	}
	for i := range uint64(trieSize) {
		key := base | i<<shift
		if key|(1<<shift-1) < first {
			continue
		}
		if shift == 0 {
			if v := n.vals[i]; v != nil && !fn(key, v) {
				return false
			}
		} else if !n.kids[i].walk(shift-trieBits, key, first, fn) {
			return false
		}
	}
	return true
}
