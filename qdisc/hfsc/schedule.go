// Packet path.

package hfsc

import (
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/heap"
)

// active says whether the class competes.
func (q *hfsc) active(i int32) bool {
	return q.classes[i].nactive > 0 || q.future.Has(i) || q.ready.Has(i)
}

// activate lets a leaf with packets compete: by its real-time curve from what is
// at its head, and for a share of its parent.
func (q *hfsc) activate(ctx *qdisc.Context, i int32) {
	c := &q.classes[i]
	if !c.rsc.none() {
		p := c.child.Peek(ctx, &q.Base)
		if p == nil {
			q.stall(ctx, i)
			return
		}
		q.initED(i, p.PktLen, ctx.Now)
	}
	if !c.fsc.none() && c.nactive == 0 {
		q.initVF(i, ctx.Now)
	}
}

// deactivate ends that, whatever of it there was; it is idempotent.
func (q *hfsc) deactivate(i int32) {
	q.future.Remove(i)
	q.ready.Remove(i)
	q.asleep.Remove(i)
	if q.classes[i].nactive > 0 {
		q.updateVF(i, 0, true)
	}
}

// stall takes out a leaf that gave nothing. If packets wait in it, it will be
// back when its qdisc says; meanwhile it claims nothing.
func (q *hfsc) stall(ctx *qdisc.Context, i int32) {
	q.deactivate(i)
	if c := &q.classes[i]; c.child.Len() > 0 {
		q.asleep.Set(i, heap.Key{Key: int64(max(c.child.NextAt(), ctx.Now+1))})
	}
}

// wake lets those compete again whose time has come.
func (q *hfsc) wake(ctx *qdisc.Context) {
	for q.asleep.Len() > 0 {
		i, k := q.asleep.Min()
		if k.Key > int64(ctx.Now) {
			return
		}
		q.asleep.Remove(i)
		q.activate(ctx, i)
	}
}

// eligible returns the class with the earliest deadline among those whose
// eligible time has come, or none (eltree_get_mindl). Who became eligible stays
// so until it is served, so two heaps do: by eligible time who waits, by
// deadline who may. Equal deadlines go by eligible time, then by age.
func (q *hfsc) eligible(now time.Duration) int32 {
	for q.future.Len() > 0 {
		i, k := q.future.Min()
		if k.Key > int64(now) {
			break
		}
		q.ready.Copy(i, heap.Key{Key: int64(q.classes[i].d), Tie: k.Key}, &q.future)
		q.future.Remove(i)
	}
	i, _ := q.ready.Min()
	return i
}

// initED begins a leaf's real-time competition (init_ed).
func (q *hfsc) initED(i int32, next uint32, now time.Duration) {
	c := &q.classes[i]
	c.deadline.lower(&c.rsc, now, c.cumul)
	q.updateED(i, next)
}

// updateED sets eligible time and deadline for a packet of length next at the
// head (update_ed). The eligible curve is the deadline curve where that is
// concave; of a convex one it is the second slope alone, so that enough is
// served early to keep the steeper promise later (the paper's section 4.1).
func (q *hfsc) updateED(i int32, next uint32) {
	c := &q.classes[i]
	line := c.deadline
	if c.rsc.convex() {
		line.dx, line.dy = 0, 0
	}
	c.d = c.deadline.at(c.cumul + uint64(next))
	q.ready.Remove(i)
	q.future.Set(i, heap.Key{Key: int64(line.at(c.cumul))})
}

// updateD sets only the deadline: the head changed, but what was served did not
// count against the real-time curve (update_d).
func (q *hfsc) updateD(i int32, next uint32) {
	c := &q.classes[i]
	c.d = c.deadline.at(c.cumul + uint64(next))
	if q.ready.Has(i) {
		q.ready.Move(i, heap.Key{Key: int64(c.d), Tie: q.ready.KeyOf(i).Tie})
	}
}

// shared returns the leaf whose turn it is in sharing the link, or none: the
// first child that its upper limit lets, at each level (vttree_get_minvt).
func (q *hfsc) shared(now time.Duration) int32 {
	at := int32(root)
	for {
		p := &q.classes[at]
		i := q.firstFit(p.kids, now)
		if i == none {
			return none
		}
		c := &q.classes[i]
		p.cvtmin = max(p.cvtmin, c.vt)
		if c.children == 0 {
			return i
		}
		at = i
	}
}

// fit returns when the class may be served by link sharing: when its upper limit
// lets it, and a child can be.
func (q *hfsc) fit(c *class) time.Duration { return max(c.myf, q.leastF(c.kids)) }

// initVF begins a leaf's competition for shares, and that of every ancestor
// whose first active child it is (init_vf).
func (q *hfsc) initVF(i int32, now time.Duration) {
	goes := true
	for ; i != root; i = q.classes[i].parent {
		c := &q.classes[i]
		p := &q.classes[c.parent]
		if goes {
			goes = c.nactive == 0
			c.nactive++
		}
		if !goes {
			if f := q.fit(c); f != c.f {
				c.f = f
				q.refresh(p.kids, i)
			}
			continue
		}
		if last := q.last(p.kids); last != none {
			// Between those who wait longest and those who were served
			// most, but never back within one period of the parent.
			vt := q.classes[last].vt
			if p.cvtmin != 0 {
				vt = (p.cvtmin + vt) / 2
			}
			if p.period != c.parentPeriod || vt > c.vt {
				c.vt = vt
			}
		} else {
			c.vt, p.cvtmin = p.cvtoff, 0
		}
		c.virtual.lower(&c.fsc, c.vt, c.total)
		c.vtadj = 0
		c.period++
		c.parentPeriod = p.period
		if p.nactive == 0 {
			c.parentPeriod++
		}
		if !c.usc.none() {
			c.ulimit.lower(&c.usc, now, c.total)
			c.myf = c.ulimit.at(c.total)
		}
		c.f = q.fit(c)
		p.kids = q.insert(p.kids, i)
	}
}

// updateVF counts n bytes of service for a leaf and its ancestors. When the leaf
// goes passive, so does every ancestor that has no other active child
// (update_vf).
//
// Preconditions: a leaf that goes passive is active: else its parent would lose
// count of the others.
func (q *hfsc) updateVF(i int32, n uint32, goes bool) {
	for ; i != root; i = q.classes[i].parent {
		c := &q.classes[i]
		c.total += uint64(n)
		if c.nactive == 0 {
			continue
		}
		if goes {
			c.nactive--
			goes = c.nactive == 0
		}
		p := &q.classes[c.parent]
		p.kids = q.remove(p.kids, i)
		c.vt = c.virtual.at(c.total) + c.vtadj
		if c.vt < p.cvtmin {
			// It was kept from its share, by its upper limit: that does not
			// entitle it to a burst.
			c.vtadj += p.cvtmin - c.vt
			c.vt = p.cvtmin
		}
		if goes {
			p.cvtoff = max(p.cvtoff, c.vt)
			continue
		}
		if !c.usc.none() {
			c.myf = c.ulimit.at(c.total)
		}
		c.f = q.fit(c)
		p.kids = q.insert(p.kids, i)
	}
}
