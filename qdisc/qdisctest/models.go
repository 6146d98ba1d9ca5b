package qdisctest

import (
	"time"

	"sluice/qdisc"
)

// children are the characters that a parent has to get along with.
var children = []func() qdisc.Qdisc{
	func() qdisc.Qdisc { return &Fifo{Limit: 5} },
	func() qdisc.Qdisc { return &Fifo{Limit: 3, HeadDrop: true} },
	func() qdisc.Qdisc { return &Lossy{Fifo: Fifo{Limit: 10}} },
	func() qdisc.Qdisc { return &Slow{Fifo: Fifo{Limit: 10}, Gap: 300 * time.Microsecond} },
}

// Fifo is a queue in the most obvious code: a slice.
type Fifo struct {
	qdisc.Base
	Limit    int // packets
	HeadDrop bool
	queue    []*qdisc.Packet
}

// Enqueue takes p within the limit.
func (q *Fifo) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	full := q.Len() >= q.Limit
	if full && !(q.HeadDrop && len(q.queue) > 0) {
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	v := qdisc.Success
	if full {
		q.Discard(ctx, q.take(), qdisc.Overlimit)
		v = qdisc.CN
	}
	q.queue = append(q.queue, p)
	q.Enqueued(p)
	return v
}

func (q *Fifo) take() *qdisc.Packet {
	p := q.queue[0]
	q.queue = q.queue[1:]
	return p
}

// Dequeue gives the oldest.
func (q *Fifo) Dequeue(*qdisc.Context) *qdisc.Packet {
	if len(q.queue) == 0 {
		return nil
	}
	p := q.take()
	q.Dequeued(p)
	return p
}

// Peek shows the oldest.
func (q *Fifo) Peek(*qdisc.Context) *qdisc.Packet {
	if len(q.queue) == 0 {
		return nil
	}
	return q.queue[0]
}

// Shed drops the oldest n.
func (q *Fifo) Shed(ctx *qdisc.Context, n int) int {
	n = min(n, len(q.queue))
	for range n {
		q.Discard(ctx, q.take(), qdisc.Shed)
	}
	return n
}

// Reset drops everything.
func (q *Fifo) Reset(ctx *qdisc.Context) {
	for len(q.queue) > 0 {
		ctx.Drop(q.take(), qdisc.Purged)
	}
	q.ResetBase(ctx)
}

// Lossy drops every third packet as it leaves, and so has to park what Peek
// shows: an AQM as its parent sees it, down to the peek that empties it.
type Lossy struct {
	Fifo
	left int
}

// Dequeue gives the parked packet, else the first that survives.
func (q *Lossy) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	for len(q.queue) > 0 {
		q.left++
		if q.left%3 != 0 {
			return q.Fifo.Dequeue(ctx)
		}
		q.Discard(ctx, q.take(), qdisc.Congested)
	}
	return nil
}

// Peek parks what Dequeue gives.
func (q *Lossy) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.Dequeue(ctx))
}

// Reset drops everything and starts counting again.
func (q *Lossy) Reset(ctx *qdisc.Context) {
	q.left = 0
	q.Fifo.Reset(ctx)
}

// Slow gives one packet every Gap.
type Slow struct {
	Fifo
	Gap   time.Duration
	ready time.Duration
}

// Dequeue gives the oldest when its time has come.
func (q *Slow) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if q.wait(ctx) {
		return nil
	}
	p := q.Fifo.Dequeue(ctx)
	if p != nil {
		q.ready = ctx.Now + q.Gap
	}
	return p
}

// Peek shows the oldest when its time has come.
func (q *Slow) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if q.wait(ctx) {
		return nil
	}
	return q.Fifo.Peek(ctx)
}

func (q *Slow) wait(ctx *qdisc.Context) bool {
	if ctx.Now >= q.ready {
		return false
	}
	if len(q.queue) > 0 {
		q.Overlimits++
		q.SetNextAt(q.ready)
	}
	return true
}

// Reset drops everything and is ready at once.
func (q *Slow) Reset(ctx *qdisc.Context) {
	q.ready = 0
	q.Fifo.Reset(ctx)
}
