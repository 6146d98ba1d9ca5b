// Packet path, except Change, Dump, Walk and Kind.

// Package skbprio is a queue for an attack (net/sched/sch_skbprio.c): 64
// priorities, the highest is sent first, and when the queue is full the lowest
// gives way. So what the sender had no reason to expect is dropped before what he
// had, and no priority has a limit of its own.
//
//	limit   packets that may wait; default 64
//
// A packet's priority is skb->priority, 63 when it is more. Within a priority
// packets leave in the order they came; the one that gives way is the newest of the
// lowest priority, and the arriving packet itself unless its priority is higher.
// Usually an edge copies the DSCP into the priority.
//
// Each priority is shown as a class, 1:1 for priority 0. Lowering the limit drops
// nothing: the queue drains down to it.
package skbprio

import (
	"math"
	"math/bits"

	"sluice/qdisc"
	"sluice/qdisc/internal/back"
)

// priorities is SKBPRIO_MAX_PRIORITY.
const priorities = 64

type skbprio struct {
	qdisc.Base
	limit  int
	full   uint64 // a bit for each priority that has packets
	queue  [priorities]qdisc.List
	back   back.Links
	drops  [priorities]uint64
	handle uint32
}

// Enqueue adds p, in place of one of lower priority when there is no room.
func (q *skbprio) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	prio := min(p.Priority, priorities-1)
	verdict := qdisc.Success
	if q.Len() >= q.limit {
		// What is held outside takes places and has none to give.
		lowest := uint32(bits.TrailingZeros64(q.full))
		if prio <= lowest {
			q.drops[prio]++
			q.Refuse(ctx, p, qdisc.Overlimit)
			return qdisc.Dropped
		}
		q.drops[lowest]++
		q.Discard(ctx, q.popBack(lowest), qdisc.Overlimit)
		verdict = qdisc.CN
	}
	q.back.Push(&q.queue[prio], p)
	q.full |= 1 << prio
	q.Enqueued(p)
	return verdict
}

func (q *skbprio) popBack(prio uint32) *qdisc.Packet {
	p := q.back.PopBack(&q.queue[prio])
	q.emptied(prio)
	return p
}

func (q *skbprio) emptied(prio uint32) {
	if q.queue[prio].Len() == 0 {
		q.full &^= 1 << prio
	}
}

// highest returns the highest priority that has packets.
func (q *skbprio) highest() uint32 { return uint32(bits.Len64(q.full)) - 1 }

// Dequeue gives the oldest of the highest priority.
func (q *skbprio) Dequeue(*qdisc.Context) *qdisc.Packet {
	if q.full == 0 {
		q.SetNextAt(qdisc.Never)
		return nil
	}
	prio := q.highest()
	p := q.queue[prio].Pop()
	q.emptied(prio)
	q.Dequeued(p)
	return p
}

// Peek shows it.
func (q *skbprio) Peek(*qdisc.Context) *qdisc.Packet {
	if q.full == 0 {
		return nil
	}
	return q.queue[q.highest()].Front()
}

// Shed takes from the lowest priority, its newest first: what the queue is for.
func (q *skbprio) Shed(ctx *qdisc.Context, n int) int {
	got := 0
	for ; got < n && q.full != 0; got++ {
		lowest := uint32(bits.TrailingZeros64(q.full))
		q.drops[lowest]++
		q.Discard(ctx, q.popBack(lowest), qdisc.Shed)
	}
	return got
}

// Reset drops everything.
func (q *skbprio) Reset(ctx *qdisc.Context) {
	for i := range q.queue {
		for p := q.queue[i].Pop(); p != nil; p = q.queue[i].Pop() {
			ctx.Drop(p, qdisc.Purged)
		}
	}
	q.full = 0
	q.ResetBase(ctx)
}

// Change sets the limit.
func (q *skbprio) Change(_ *qdisc.Context, v qdisc.Values) error {
	q.limit = int(min(v.N("limit", uint64(q.limit)), math.MaxUint32))
	return nil
}

// Dump shows the limit.
func (q *skbprio) Dump() qdisc.Values { return qdisc.Values{}.Set("limit", uint64(q.limit)) }

// Walk shows the priorities.
func (q *skbprio) Walk(f func(qdisc.Class) bool) {
	for i := range q.queue {
		if !f(qdisc.Class{
			ID:     qdisc.MakeID(q.handle, uint32(i)+1),
			Parent: qdisc.MakeID(q.handle, 0),
			Stats:  qdisc.Stats{Drops: q.drops[i], Overlimits: q.drops[i]},
			Len:    q.queue[i].Len(),
			Bytes:  q.queue[i].Bytes(),
		}) {
			return
		}
	}
}

var (
	_ qdisc.Changer = (*skbprio)(nil)
	_ qdisc.Dumper  = (*skbprio)(nil)
	_ qdisc.Walker  = (*skbprio)(nil)
)

// Kind is the table of skbprio.
var Kind = qdisc.Kind{
	Name:  "skbprio",
	Doc:   "64 strict priorities under one limit; the lowest gives way",
	Usage: "Usage: ... <skbprio> [ limit NUMBER ]",
	Params: []qdisc.Param{
		{Name: "limit", Unit: qdisc.Number, Default: "64", Doc: "packets that may wait"},
	},
	Flags: qdisc.NoClassSent,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		q := &skbprio{limit: 64, handle: env.Handle}
		return q, q.Change(nil, v)
	},
}
