// Packet path.

// Package hfsc is the hierarchical fair service curve scheduler
// (net/sched/sch_hfsc.c; Stoica, Zhang and Ng, "A Hierarchical Fair Service Curve
// Algorithm for Link-Sharing, Real-Time and Priority Services", SIGCOMM 1997):
// it shares a link between classes, and promises bandwidth and delay apart from
// each other.
//
// A class has up to three curves. Each says how many bytes are to have been
// served by a time, with a slope m1 for the first d and m2 afterwards:
//
//	rt   real time: what a leaf gets whatever happens. A steep first slope gives
//	     a short delay without a large rate, a flat one leaves it to others
//	ls   link sharing: in which ratio a class shares what its parent gets, beyond
//	     what goes to real time
//	ul   upper limit: what a class gets by link sharing at most
//	sc   rt and ls at once
//
// Each is written m1 RATE d TIME m2 RATE, or for a packet of umax bytes that has
// to be out within dmax, umax SIZE dmax TIME rate RATE. Packets wait in the
// leaves' own qdiscs, by default a pfifo.
//
//	default   minor number of the class of packets that no filter knows.
//	          Without one they are dropped
//
// Who sends next: among the leaves whose real-time curve asks for service now
// (eligible time), the one with the earliest deadline; if there is none, at each
// level of the tree the child that is furthest behind in virtual time, and whose
// upper limit allows it. A deadline is missed by no more than one full frame at
// the link's rate, as long as the real-time curves add up to less than that.
//
// Differences from the kernel:
//
//   - Times are nanoseconds and exact but for one rounding (see runtime).
//   - A class whose qdisc holds packets back (a tbf, say) competes again when
//     that is ready; the others pass meanwhile. In the kernel it blocks the link
//     with a warning.
//   - A class is active because it is in the trees, never because its qdisc has a
//     length; going passive twice counts once.
package hfsc

import (
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/heap"
)

const (
	none = -1 // the slot of no class
	root = 0  // the slot of the qdisc itself, the class above all others
)

type hfsc struct {
	qdisc.Base
	classes []class
	table   qdisc.ClassTable // of all but the root
	future  heap.Heap        // leaves with a real-time curve, by eligible time
	ready   heap.Heap        // those whose eligible time has come, by deadline
	asleep  heap.Heap        // leaves with packets that gave nothing, by their NextAt
	age     uint64           // of the last that was put among its parent's active children

	handle   uint32
	def      uint32 // minor number of the default class
	free     []int32
	newChild func() qdisc.Qdisc
}

// class is one class, in the order of what serving it touches.
type class struct {
	child qdisc.Child // of a leaf; kept, empty, while the class has children

	// Real time.
	d        time.Duration // deadline of the packet at the head
	cumul    uint64        // bytes served by it
	deadline runtime

	// Sharing. The tree of the parent's active children is order.go's.
	vt                  time.Duration // virtual time
	f, minF             time.Duration // when it may be served, and the least of the subtree
	age                 uint64
	left, right, parent int32
	kids                int32  // root of the tree of active children
	nactive             int32  // active children; of an active leaf 1
	children            int32  // all
	total               uint64 // bytes served
	virtual, ulimit     runtime
	myf                 time.Duration // when the own upper limit allows service
	vtadj               time.Duration // added to the virtual time, for what an upper limit took
	cvtmin, cvtoff      time.Duration // least virtual time of a child served in this period; greatest of one that went passive
	period              uint32        // times that it became active
	parentPeriod        uint32        // parent's period when it did

	rsc, fsc, usc  curve
	id             qdisc.ClassID // 0: the slot is free
	level          int32         // height above the lowest leaf
	bytes, packets uint64
	drops          uint64
	filter         qdisc.Classifier
}

// classify finds p's leaf, none if there is none.
func (q *hfsc) classify(ctx *qdisc.Context, p *qdisc.Packet) (int32, qdisc.FilterVerdict) {
	if p.Class.Major() == q.handle {
		if i := q.leaf(p.Class); i != none {
			return i, qdisc.Match
		}
	}
	if p.Priority>>16 == q.handle {
		if i := q.leaf(qdisc.FromTC(p.Priority)); i != none {
			return i, qdisc.Match
		}
	}
	for at := int32(root); q.classes[at].filter != nil; {
		v, id := q.classes[at].filter.Classify(ctx, p)
		if v == qdisc.FilterDrop || v == qdisc.FilterStolen {
			return none, v
		}
		i := q.table.Find(id)
		if v != qdisc.Match || i == none || q.classes[i].level >= q.classes[at].level {
			break // a filter may only point downwards
		}
		if q.classes[i].children == 0 {
			return i, v
		}
		at = i
	}
	return q.leaf(qdisc.MakeID(q.handle, q.def)), qdisc.NoMatch
}

// leaf returns the leaf with an id, or none.
func (q *hfsc) leaf(id qdisc.ClassID) int32 {
	i := q.table.Find(id)
	if i != none && q.classes[i].children > 0 {
		return none
	}
	return i
}

// Enqueue gives p to its class, which competes from its first packet on.
func (q *hfsc) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	i, v := q.classify(ctx, p)
	if i == none {
		if v == qdisc.FilterStolen || v == qdisc.FilterDrop {
			return q.Dispose(ctx, p, v)
		}
		q.Refuse(ctx, p, qdisc.NoClass)
		return qdisc.Dropped
	}
	c := &q.classes[i]
	verdict := c.child.Enqueue(ctx, &q.Base, p)
	if verdict == qdisc.Dropped || verdict == qdisc.CN {
		c.drops++
	}
	// An arrival may make ready a qdisc that was waiting.
	if c.child.Len() > 0 && !q.active(i) {
		q.asleep.Remove(i)
		drops := q.Drops
		q.activate(ctx, i)
		if q.Drops != drops && verdict == qdisc.Success {
			// Its qdisc dropped as it was looked at, maybe this very packet.
			c.drops++
			verdict = qdisc.CN
			if c.child.Len() == 0 {
				verdict = qdisc.Dropped
			}
		}
	}
	return verdict
}

// Dequeue gives the packet that Peek parked, else the one whose turn it is.
func (q *hfsc) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

func (q *hfsc) next(ctx *qdisc.Context) *qdisc.Packet {
	q.wake(ctx)
	for q.Len() > 0 {
		i := q.eligible(ctx.Now)
		realtime := i != none
		if !realtime {
			if i = q.shared(ctx.Now); i == none {
				q.throttle()
				return nil
			}
		}
		c := &q.classes[i]
		p := c.child.Dequeue(ctx, &q.Base)
		if p == nil {
			q.stall(ctx, i)
			continue
		}
		c.packets++
		c.bytes += uint64(p.PktLen)
		if realtime {
			c.cumul += uint64(p.PktLen)
		}
		q.updateVF(i, p.PktLen, c.nactive > 0 && c.child.Len() == 0)
		if !c.rsc.none() {
			q.follow(ctx, i, realtime)
		}
		return p
	}
	return nil
}

// follow looks at the packet that is now at the head of a class with a real-time
// curve. Looking may make the class empty.
func (q *hfsc) follow(ctx *qdisc.Context, i int32, realtime bool) {
	c := &q.classes[i]
	if c.child.Len() == 0 {
		q.deactivate(i)
		return
	}
	head := c.child.Peek(ctx, &q.Base)
	switch {
	case head == nil:
		q.stall(ctx, i)
	case realtime:
		q.updateED(i, head.PktLen)
	default:
		q.updateD(i, head.PktLen)
	}
}

// throttle says when the first class may be served: by its real-time curve, or
// its upper limit, or its own qdisc (hfsc_schedule_watchdog).
func (q *hfsc) throttle() {
	q.Overlimits++
	at := qdisc.Never
	if i, k := q.future.Min(); i != none {
		at = time.Duration(k.Key)
	}
	if kids := q.classes[root].kids; kids != none {
		at = min(at, q.leastF(kids))
	}
	if i, k := q.asleep.Min(); i != none {
		at = min(at, time.Duration(k.Key))
	}
	q.SetNextAt(at)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *hfsc) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// QlenNotify takes a class out whose qdisc became empty.
func (q *hfsc) QlenNotify(id qdisc.ClassID) {
	if i := q.table.Find(id); i != none {
		q.deactivate(i)
	}
}

// Shed takes from the leaf with the most bytes.
func (q *hfsc) Shed(ctx *qdisc.Context, n int) int {
	fattest, most := int32(none), 0
	for i := range q.classes {
		c := &q.classes[i]
		if i == root || c.id == 0 {
			continue
		}
		held, bytes := c.child.Qdisc().Self().Held()
		if b := c.child.Backlog() - bytes; c.child.Len() > held && b > most {
			fattest, most = int32(i), b
		}
	}
	if fattest == none {
		return q.shedBelow(ctx, n)
	}
	return q.shedFrom(ctx, fattest, n)
}

// shedBelow asks every leaf: what is held there may be queued further down.
func (q *hfsc) shedBelow(ctx *qdisc.Context, n int) int {
	for i := range q.classes {
		if i == root || q.classes[i].id == 0 || q.classes[i].child.Len() == 0 {
			continue
		}
		if got := q.shedFrom(ctx, int32(i), n); got > 0 {
			return got
		}
	}
	return 0
}

func (q *hfsc) shedFrom(ctx *qdisc.Context, i int32, n int) int {
	c := &q.classes[i]
	got := c.child.Shed(ctx, &q.Base, n)
	if c.child.Len() == 0 {
		q.deactivate(i)
	}
	return got
}

// Reset empties every class and forgets what was served.
func (q *hfsc) Reset(ctx *qdisc.Context) {
	for i := range q.classes {
		c := &q.classes[i]
		if c.id == 0 {
			continue
		}
		if i != root {
			c.child.Reset(ctx, &q.Base)
		}
		c.forget()
	}
	q.future.Clear()
	q.ready.Clear()
	q.asleep.Clear()
	q.age = 0
	q.ResetBase(ctx)
}

// forget sets a class's state to that of a new one.
func (c *class) forget() {
	c.d, c.cumul, c.total = 0, 0, 0
	c.vt, c.vtadj, c.cvtmin, c.cvtoff = 0, 0, 0, 0
	c.f, c.minF, c.myf = 0, 0, 0
	c.kids, c.left, c.right, c.nactive = none, none, none, 0
	c.period, c.parentPeriod = 0, 0
	c.deadline = c.rsc.start(0, 0)
	c.virtual = c.fsc.start(0, 0)
	c.ulimit = c.usc.start(0, 0)
}
