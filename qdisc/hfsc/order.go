// Packet path.

package hfsc

import "time"

// The active children of a class are a treap, a search tree that is balanced by
// priorities drawn once, ordered by virtual time and then by age. Each node has
// the least f of its subtree, so that the first child in order that may be
// served is found without looking at those that may not (the kernel walks over
// them, and keeps a second tree for the least f).

// before is the order of the tree.
func (q *hfsc) before(a, b int32) bool {
	x, y := &q.classes[a], &q.classes[b]
	if x.vt != y.vt {
		return x.vt < y.vt
	}
	return x.age < y.age
}

// leastF returns the least f of a subtree, 0 when it is empty.
func (q *hfsc) leastF(t int32) time.Duration {
	if t == none {
		return 0
	}
	return q.classes[t].minF
}

// pull computes the least f of t's subtree from its children's.
func (q *hfsc) pull(t int32) {
	c := &q.classes[t]
	c.minF = c.f
	if c.left != none {
		c.minF = min(c.minF, q.classes[c.left].minF)
	}
	if c.right != none {
		c.minF = min(c.minF, q.classes[c.right].minF)
	}
}

// weight is the heap order of the treap: spread by a multiplication, and the
// same in every run.
func weight(i int32) uint32 { return uint32(i+1) * 0x9e3779b1 }

// insert adds n, behind all of its virtual time, and returns the tree's root.
func (q *hfsc) insert(t, n int32) int32 {
	c := &q.classes[n]
	q.age++
	c.age, c.left, c.right = q.age, none, none
	return q.add(t, n)
}

func (q *hfsc) add(t, n int32) int32 {
	if t == none {
		q.pull(n)
		return n
	}
	if weight(n) > weight(t) {
		c := &q.classes[n]
		c.left, c.right = q.split(t, n)
		q.pull(n)
		return n
	}
	c := &q.classes[t]
	if q.before(n, t) {
		c.left = q.add(c.left, n)
	} else {
		c.right = q.add(c.right, n)
	}
	q.pull(t)
	return t
}

// split parts t into what comes before n and the rest.
func (q *hfsc) split(t, n int32) (left, right int32) {
	if t == none {
		return none, none
	}
	c := &q.classes[t]
	if q.before(t, n) {
		left = t
		c.right, right = q.split(c.right, n)
	} else {
		right = t
		left, c.left = q.split(c.left, n)
	}
	q.pull(t)
	return left, right
}

// remove takes n out and returns the tree's root.
func (q *hfsc) remove(t, n int32) int32 {
	c := &q.classes[t]
	switch {
	case t == n:
		return q.merge(c.left, c.right)
	case q.before(n, t):
		c.left = q.remove(c.left, n)
	default:
		c.right = q.remove(c.right, n)
	}
	q.pull(t)
	return t
}

func (q *hfsc) merge(a, b int32) int32 {
	switch {
	case a == none:
		return b
	case b == none:
		return a
	case weight(a) > weight(b):
		c := &q.classes[a]
		c.right = q.merge(c.right, b)
		q.pull(a)
		return a
	}
	c := &q.classes[b]
	c.left = q.merge(a, c.left)
	q.pull(b)
	return b
}

// refresh makes good the least f on the way to n, whose f has changed.
func (q *hfsc) refresh(t, n int32) {
	if t != n {
		if q.before(n, t) {
			q.refresh(q.classes[t].left, n)
		} else {
			q.refresh(q.classes[t].right, n)
		}
	}
	q.pull(t)
}

// last returns the one with the greatest virtual time, none of an empty tree.
func (q *hfsc) last(t int32) int32 {
	if t == none {
		return none
	}
	for q.classes[t].right != none {
		t = q.classes[t].right
	}
	return t
}

// firstFit returns the first in order whose f is not later than now, or none.
func (q *hfsc) firstFit(t int32, now time.Duration) int32 {
	if t == none || q.classes[t].minF > now {
		return none
	}
	for {
		c := &q.classes[t]
		switch {
		case c.left != none && q.classes[c.left].minF <= now:
			t = c.left
		case c.f <= now:
			return t
		default:
			t = c.right
		}
	}
}
