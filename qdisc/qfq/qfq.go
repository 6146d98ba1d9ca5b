// Packet path.

// Package qfq is quick fair queueing (net/sched/sch_qfq.c; QFQ+): classes share the
// link in proportion to their weights, each packet leaving nearly when it would if
// all sent at once at their shares, at a cost that does not depend on how many
// classes there are. Where drr lets each class send its quantum in a burst, qfq
// interleaves.
//
// Classes are made by the administrator; each has a qdisc of its own, by default a
// pfifo.
//
//	weight   1, the default, to 1024; all together at most 65536
//	maxpkt   bytes of the largest packet, 512 to 65536; default a full frame. A
//	         class that gets a larger packet has its maxpkt raised
//
// A packet's class is the one that its class or priority names, else what the
// filters say. There is no default class: a packet without one is dropped.
//
// Up to eight classes of the same weight and maxpkt are an aggregate, which is
// scheduled as one and in which they take turns by deficit round robin: that
// makes it quick, and the bound on how far a class may be from its share grows
// by as many packets.
//
// Differences from the kernel:
//
//   - A class whose qdisc holds packets back (a tbf, say) leaves the schedule until
//     it is ready, as if it had nothing to send. The kernel's qfq gives nothing
//     until that qdisc is ready again, and warns.
//   - An arrival does not look at what its class would send next: a class whose
//     qdisc reorders may send one packet more than its turn allows, and pays in
//     the next.
//   - Reset forgets that maxpkt was raised.
package qfq

import (
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/heap"
)

type qfq struct {
	qdisc.Base
	sched
	classes []class
	table   qdisc.ClassTable
	waiting heap.Heap // classes with packets that their qdiscs hold back, by when it may end
	nonfull []int32   // aggregates that may have another class, the latest last
	handle  uint32
	filter  qdisc.Classifier // nil: none

	frame    uint32 // a full frame, the default maxpkt
	newChild func() qdisc.Qdisc
}

// class is one class. Being active is membership in its aggregate's list, never
// what the child's Len says.
type class struct {
	qdisc.Child
	id             qdisc.ClassID // 0: a free place
	agg            int32
	prev, next     int32 // in its aggregate's list, when active
	active         bool
	deficit        int64  // bytes it may send before it is the next one's turn in the aggregate
	weight, lmax   uint32 // as given; the aggregate has what is in force
	packets, bytes uint64 // that came in: the kernel counts them then
}

// join puts a class at the tail of its aggregate's list, which is scheduled if it
// was not.
func (q *qfq) join(i int32) {
	c := &q.classes[i]
	a := &q.aggs[c.agg]
	c.active, c.prev, c.next = true, a.tail, none
	if a.tail == none {
		a.head = i
	} else {
		q.classes[a.tail].next = i
	}
	a.tail = i
	if a.head == i && q.serving != c.agg {
		q.sched.activate(c.agg)
	}
}

// activate lets a class that has packets take part.
func (q *qfq) activate(i int32) {
	c := &q.classes[i]
	c.deficit = int64(q.aggs[c.agg].lmax)
	q.join(i)
}

// unlink takes a class from its aggregate's list.
func (q *qfq) unlink(i int32) {
	c := &q.classes[i]
	a := &q.aggs[c.agg]
	if c.prev == none {
		a.head = c.next
	} else {
		q.classes[c.prev].next = c.next
	}
	if c.next == none {
		a.tail = c.prev
	} else {
		q.classes[c.next].prev = c.prev
	}
	c.active = false
}

// leave takes a class out, wherever it is. Twice is as good as once.
func (q *qfq) leave(i int32) {
	c := &q.classes[i]
	q.waiting.Remove(i)
	if !c.active {
		return
	}
	q.unlink(i)
	if q.aggs[c.agg].head == none {
		q.sched.deactivate(c.agg)
	}
}

// Enqueue gives p to its class.
func (q *qfq) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	i, v := q.table.Classify(ctx, p, q.handle, q.filter)
	if i == none {
		if v == qdisc.FilterStolen || v == qdisc.FilterDrop {
			return q.Dispose(ctx, p, v)
		}
		q.Refuse(ctx, p, qdisc.NoClass)
		return qdisc.Dropped
	}
	c := &q.classes[i]
	n := p.PktLen
	if n > q.aggs[c.agg].lmax {
		if n > maxLmax {
			q.Refuse(ctx, p, qdisc.TooBig)
			return qdisc.Dropped
		}
		q.regroup(i, q.aggs[c.agg].weight, n)
	}
	verdict := c.Child.Enqueue(ctx, &q.Base, p)
	if verdict == qdisc.Success {
		c.packets++
		c.bytes += uint64(n)
	}
	if !c.active && c.Len() > 0 {
		q.waiting.Remove(i) // what came may be ready
		q.activate(i)
	}
	return verdict
}

// Dequeue gives the packet that Peek parked, else the next of the schedule.
func (q *qfq) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *qfq) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

func (q *qfq) next(ctx *qdisc.Context) *qdisc.Packet {
	q.wake(ctx.Now)
	p := q.take(ctx)
	if p == nil && q.waiting.Len() > 0 {
		// Before it is said that nothing comes, all that wait are asked: a change
		// below may have made one of them ready.
		q.wake(qdisc.Never)
		p = q.take(ctx)
	}
	if p == nil {
		q.SetNextAt(qdisc.Never)
		if i, at := q.waiting.Min(); i != none {
			q.SetNextAt(time.Duration(at.Key))
		}
	}
	return p
}

// wake lets the classes take part again whose wait ends until now.
func (q *qfq) wake(now time.Duration) {
	for {
		i, at := q.waiting.Min()
		if i == none || time.Duration(at.Key) > now {
			return
		}
		q.waiting.Remove(i)
		q.activate(i)
	}
}

// take takes the next packet of the schedule: of the aggregate in service while its
// budget lasts, else of the next one's.
func (q *qfq) take(ctx *qdisc.Context) *qdisc.Packet {
	if q.serving == none {
		return nil
	}
	i, n := q.look(ctx, q.serving)
	if i == none || q.aggs[q.serving].budget < n {
		for {
			q.endTurn(q.serving)
			if q.serving = q.choose(); q.serving == none {
				return nil
			}
			if i, n = q.look(ctx, q.serving); i != none {
				break
			}
		}
	}

	c := &q.classes[i]
	a := &q.aggs[q.serving]
	p := c.Child.Dequeue(ctx, &q.Base)
	c.deficit -= int64(n)
	a.budget -= min(n, a.budget) // more when maxpkt was made smaller
	q.v += uint64(n) * q.iwsum
	if next := q.peek(ctx, i); next != nil && c.deficit < int64(next.PktLen) {
		c.deficit += int64(a.lmax)
		if c.next != none {
			q.unlink(i)
			q.join(i)
		}
	}
	return p
}

// look returns the class of an aggregate whose turn it is and the length of its
// next packet, none when the aggregate has nothing to send.
func (q *qfq) look(ctx *qdisc.Context, agg int32) (class int32, n uint32) {
	for {
		i := q.aggs[agg].head
		if i == none {
			return none, 0
		}
		if p := q.peek(ctx, i); p != nil {
			return i, p.PktLen
		}
	}
}

// peek returns the next packet of a class of the aggregate in service. A class that
// has none, or none yet, is taken off the aggregate's list.
func (q *qfq) peek(ctx *qdisc.Context, i int32) *qdisc.Packet {
	c := &q.classes[i]
	if c.Len() > 0 {
		if p := c.Peek(ctx, &q.Base); p != nil {
			return p
		}
	}
	q.unlink(i)
	if c.Len() > 0 {
		q.waiting.Set(i, heap.Key{Key: int64(c.NextAt())})
	}
	return nil
}

// QlenNotify takes a class out whose qdisc became empty.
func (q *qfq) QlenNotify(id qdisc.ClassID) {
	if i := q.table.Find(id); i != none {
		q.leave(i)
	}
}

// Shed takes from the class with the most bytes; from another one when that has
// none to give, because they are parked.
func (q *qfq) Shed(ctx *qdisc.Context, n int) int {
	fattest := none
	for i := range q.classes {
		if c := &q.classes[i]; c.id != 0 && c.Len() > 0 && (fattest == none || c.Backlog() > q.classes[fattest].Backlog()) {
			fattest = i
		}
	}
	if fattest == none {
		return 0
	}
	got := q.shed(ctx, int32(fattest), n)
	for i := 0; i < len(q.classes) && got == 0; i++ {
		if q.classes[i].id != 0 && i != fattest {
			got = q.shed(ctx, int32(i), n)
		}
	}
	return got
}

func (q *qfq) shed(ctx *qdisc.Context, i int32, n int) int {
	c := &q.classes[i]
	got := c.Child.Shed(ctx, &q.Base, n)
	if c.Len() == 0 {
		q.leave(i)
	}
	return got
}

// regroup moves a class to the aggregate of another weight or maxpkt
// (qfq_change_agg). It allocates nothing: there are as many places for aggregates
// as classes, and one more.
func (q *qfq) regroup(i int32, weight, lmax uint32) {
	to := q.aggregateFor(weight, lmax)
	q.ungroup(i)
	q.group(i, to)
}

// aggregateFor finds an aggregate that may have another class of weight and lmax,
// or makes one.
func (q *qfq) aggregateFor(weight, lmax uint32) int32 {
	for n := len(q.nonfull) - 1; n >= 0; n-- {
		if a := &q.aggs[q.nonfull[n]]; a.weight == weight && a.lmax == lmax {
			return q.nonfull[n]
		}
	}
	for i := range q.aggs {
		if a := &q.aggs[i]; a.classes == 0 {
			*a = aggregate{weight: weight, lmax: lmax, group: none, head: none, tail: none}
			q.nonfull = append(q.nonfull, int32(i))
			return int32(i)
		}
	}
	panic("qfq: no place for an aggregate")
}

// group puts a class into an aggregate, and into the schedule if it has packets
// and does not wait.
func (q *qfq) group(i, agg int32) {
	c := &q.classes[i]
	a := &q.aggs[agg]
	c.agg = agg
	q.resize(a, a.classes+1)
	if a.classes == q.perAgg {
		q.full(agg)
	}
	if c.Len() > 0 && !q.waiting.Has(i) {
		q.join(i)
	}
}

// ungroup takes a class out of its aggregate, and of the schedule, but not of
// those that wait.
func (q *qfq) ungroup(i int32) {
	c := &q.classes[i]
	a := &q.aggs[c.agg]
	if c.active {
		q.unlink(i)
		if a.head == none {
			q.sched.deactivate(c.agg)
		}
	}
	if a.classes > 1 {
		if a.classes == q.perAgg {
			q.nonfull = append(q.nonfull, c.agg)
		}
		q.resize(a, a.classes-1)
		return
	}
	q.full(c.agg)
	a.classes = 0
	q.wsum -= a.weight
	if q.wsum != 0 {
		q.iwsum = one / uint64(q.wsum)
	}
	if q.serving == c.agg {
		q.serving = q.choose()
	}
}

// full takes an aggregate from those that may have another class.
func (q *qfq) full(agg int32) {
	for n, i := range q.nonfull {
		if i == agg {
			q.nonfull = append(q.nonfull[:n], q.nonfull[n+1:]...)
			return
		}
	}
}

// Reset empties every class, and schedules from the beginning.
func (q *qfq) Reset(ctx *qdisc.Context) {
	for i := range q.classes {
		if c := &q.classes[i]; c.id != 0 {
			c.active = false
			c.Child.Reset(ctx, &q.Base)
		}
	}
	q.ResetBase(ctx)
	q.waiting.Clear()
	clear(q.aggs)
	q.nonfull = q.nonfull[:0]
	q.sched.reset(q.perAgg)
	for i := range q.classes {
		if c := &q.classes[i]; c.id != 0 {
			c.deficit = 0
			q.group(int32(i), q.aggregateFor(c.weight, c.lmax))
		}
	}
}
