package cache

import "testing"

// TestGhosts has a frame come back soon after it left: it stays beside a scan
// that pushed it out the first time.
func TestGhosts(t *testing.T) {
	p := newPolicy[int](100)
	put := func(frame int64) {
		for !p.fits(1) {
			p.victim()
		}
		p.add(frameID{frame: frame}, 1, int(frame))
	}
	put(-1)
	for i := range int64(100) {
		put(i)
	}
	if p.find(frameID{frame: -1}) != nil {
		t.Fatal("the oldest has not left")
	}
	put(-1)
	for i := range int64(1000) {
		put(1000 + i)
	}
	if n := p.find(frameID{frame: -1}); n == nil || n.value != -1 || n.place != proven {
		t.Fatal("what came back has left again")
	}
	if p.used != 100 || p.count != 100 || p.queues[ghost].cost > 100 || len(p.nodes[objectID{}]) > 200 {
		t.Fatalf("%d bytes, %d frames, %d bytes of ghosts, %d nodes", p.used, p.count, p.queues[ghost].cost, len(p.nodes[objectID{}]))
	}
	if gone := p.drop(objectID{}); len(gone) != 100 || p.used != 0 || p.count != 0 || len(p.nodes) != 0 || p.queues[ghost].cost != 0 {
		t.Fatalf("dropped %d, left %+v", len(gone), p)
	}
	if p.victim() != nil {
		t.Fatal("something leaves an empty cache")
	}
}
