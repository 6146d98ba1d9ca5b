// Packet path, except Change, Dump and the tables.

// Package fifo has the three plain queues: pfifo counts packets, bfifo counts
// bytes, pfifo_head_drop counts packets and, when full, makes room at the front
// (net/sched/sch_fifo.c).
//
// They keep arrival order, whatever a packet's priority, and decide only one
// thing: what happens at the limit.
//
//	limit   pfifo, pfifo_head_drop: packets; default the port's tx_queue_len
//	        bfifo: bytes; default tx_queue_len full frames
//
// The limit holds for everything that is counted as queued, so a packet that
// the driver gave back and that waits in the requeue slot takes a place. A
// limit of 0 drops every packet. Lowering the limit below what is queued evicts
// nothing: the queue drains down to it.
//
// pfifo and bfifo suit traffic that is late but still wanted (bulk transfers);
// pfifo_head_drop suits traffic where the newest packet is worth most.
package fifo

import "sluice/qdisc"

// queue is what the three have in common.
type queue struct {
	qdisc.Base
	list  qdisc.List
	limit int // packets, or bytes in a bfifo
}

// pfifo is a queue limited in packets.
type pfifo struct{ queue }

// bfifo is a queue limited in bytes.
type bfifo struct {
	queue
	frame int // the port's largest frame; a limit below it forbids the bypass
}

// headDrop is a queue limited in packets that drops its oldest.
type headDrop struct{ queue }

// NewPfifo returns a pfifo of limit packets: the default child of most classful
// disciplines.
func NewPfifo(limit int) qdisc.Qdisc { return &pfifo{queue{limit: limit}} }

// NewBfifo returns a bfifo of limit bytes: the default child of tbf.
func NewBfifo(limit int) qdisc.Qdisc { return &bfifo{queue{limit: limit}, ethFrame} }

// ethFrame is the largest Ethernet frame without FCS, for a bfifo that was not
// told its port's.
const ethFrame = 1514

func (q *queue) push(p *qdisc.Packet) qdisc.Verdict {
	q.list.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

func (q *queue) full(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	q.Refuse(ctx, p, qdisc.Overlimit)
	return qdisc.Dropped
}

// Enqueue takes p unless limit packets are queued already.
func (q *pfifo) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.Len() < q.limit {
		return q.push(p)
	}
	return q.full(ctx, p)
}

// Enqueue takes p if the backlog with it stays within the limit: a small packet
// may fit where a large one did not.
func (q *bfifo) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.Backlog()+int(p.PktLen) <= q.limit {
		return q.push(p)
	}
	return q.full(ctx, p)
}

// Enqueue takes p, in place of the oldest packet when limit packets are queued.
// Only a limit of 0 refuses p: to accept it there would leave the parent with a
// packet that the child does not have (CVE-2025-21702).
//
// When all that is counted stands in the runner's requeue slot there is nothing
// to evict, and p is queued one above the limit.
func (q *headDrop) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.limit == 0 {
		return q.full(ctx, p)
	}
	if q.Len() < q.limit {
		return q.push(p)
	}
	old := q.list.Pop()
	if old == nil {
		return q.push(p)
	}
	q.Discard(ctx, old, qdisc.Overlimit)
	q.push(p)
	return qdisc.CN
}

// Dequeue gives the oldest packet.
func (q *queue) Dequeue(*qdisc.Context) *qdisc.Packet {
	p := q.list.Pop()
	if p != nil {
		q.Dequeued(p)
	}
	return p
}

// Peek shows the oldest packet.
func (q *queue) Peek(*qdisc.Context) *qdisc.Packet { return q.list.Front() }

// Shed drops from the front.
func (q *queue) Shed(ctx *qdisc.Context, n int) int {
	got := 0
	for got < n {
		p := q.list.Pop()
		if p == nil {
			break
		}
		q.Discard(ctx, p, qdisc.Shed)
		got++
	}
	return got
}

// Reset drops everything.
func (q *queue) Reset(ctx *qdisc.Context) {
	for p := q.list.Pop(); p != nil; p = q.list.Pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	q.ResetBase(ctx)
}

// Change sets the limit.
func (q *queue) Change(_ *qdisc.Context, v qdisc.Values) error {
	q.limit = int(v.N("limit", uint64(q.limit)))
	return nil
}

// Dump shows the limit.
func (q *queue) Dump() qdisc.Values {
	return qdisc.Values{}.Set("limit", uint64(q.limit))
}

// CanBypass forbids the bypass for a queue that would refuse the packet.
func (q *queue) CanBypass() bool { return q.limit >= 1 }

// CanBypass forbids the bypass for a queue that could refuse a full frame.
func (q *bfifo) CanBypass() bool { return q.limit >= q.frame }

const usage = "Usage: ... <[p|b]fifo | pfifo_head_drop> [ limit NUMBER ]"

// packets is the parameter of the two that count packets.
func packets(doc string) []qdisc.Param {
	return []qdisc.Param{{
		Name: "limit", Unit: qdisc.Packets, Text: "limit %s", Default: "tx_queue_len of the port", Doc: doc,
	}}
}

// Pfifo is the table of pfifo.
var Pfifo = qdisc.Kind{
	Name:          "pfifo",
	Doc:           "first in, first out, limited in packets",
	Usage:         usage,
	Params:        packets("packets queued before new ones are dropped"),
	IllegalFormat: `pfifo: Illegal value for "%s": "%s"`,
	UnknownFormat: `pfifo: unknown parameter "%s"`,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		return NewPfifo(int(v.N("limit", uint64(env.TxQueueLen)))), nil
	},
}

// Bfifo is the table of bfifo.
var Bfifo = qdisc.Kind{
	Name:  "bfifo",
	Doc:   "first in, first out, limited in bytes",
	Usage: usage,
	Params: []qdisc.Param{{
		Name: "limit", Unit: qdisc.Size, Text: "limit %s", Default: "tx_queue_len full frames",
		Doc: "bytes queued before a packet that does not fit is dropped",
	}},
	IllegalFormat: `bfifo: Illegal value for "%s": "%s"`,
	UnknownFormat: `bfifo: unknown parameter "%s"`,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		frame := env.MTU + env.HeaderLen
		limit := int(v.N("limit", uint64(env.TxQueueLen)*uint64(frame)))
		return &bfifo{queue{limit: limit}, frame}, nil
	},
}

// HeadDrop is the table of pfifo_head_drop.
var HeadDrop = qdisc.Kind{
	Name:          "pfifo_head_drop",
	Doc:           "first in, first out, limited in packets; when full the oldest goes",
	Usage:         usage,
	Params:        packets("packets queued before the oldest is dropped"),
	IllegalFormat: `pfifo_head_drop: Illegal value for "%s": "%s"`,
	UnknownFormat: `pfifo_head_drop: unknown parameter "%s"`,
	New: func(env qdisc.Env, v qdisc.Values) (qdisc.Qdisc, error) {
		return &headDrop{queue{limit: int(v.N("limit", uint64(env.TxQueueLen)))}}, nil
	},
}
