package dequeuetest

import (
	"time"

	"sluice/qdisc"
)

// Queue is a small discipline: three strict bands, chosen by Priority, that can
// be throttled and limited at will.
type Queue struct {
	qdisc.Base
	Limit  int           // packets; 0: none
	OpenAt time.Duration // throttled before that instant
	Bypass bool          // a packet may skip it while it is empty
	Direct bool          // it stands for no queue at all

	// OnDequeue, when set, is called at the end of every Dequeue, for what comes
	// from below.
	OnDequeue func()

	bands [3]qdisc.List
}

// Inside returns the packets in the bands.
func (q *Queue) Inside() int { return q.bands[0].Len() + q.bands[1].Len() + q.bands[2].Len() }

// CanBypass implements qdisc.Bypasser.
func (q *Queue) CanBypass() bool { return q.Bypass }

// NoQueue tells the runner whether there is no queue.
func (q *Queue) NoQueue() bool { return q.Direct }

// Enqueue implements qdisc.Qdisc.
func (q *Queue) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	if q.Limit > 0 && q.Len() >= q.Limit {
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	q.bands[min(p.Priority, 2)].Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

// Dequeue implements qdisc.Qdisc.
func (q *Queue) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	p := q.take(ctx)
	if q.OnDequeue != nil {
		q.OnDequeue()
	}
	return p
}

func (q *Queue) take(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	for i := range q.bands {
		if q.bands[i].Len() == 0 {
			continue
		}
		if ctx.Now < q.OpenAt {
			q.SetNextAt(q.OpenAt)
			q.Overlimits++
			return nil
		}
		p := q.bands[i].Pop()
		q.Dequeued(p)
		return p
	}
	q.SetNextAt(qdisc.Never)
	return nil
}

// Peek implements qdisc.Qdisc.
func (q *Queue) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.Dequeue(ctx))
}

// Shed implements qdisc.Qdisc.
func (q *Queue) Shed(ctx *qdisc.Context, n int) int {
	shed := 0
	for i := len(q.bands) - 1; i >= 0; i-- {
		for ; shed < n && q.bands[i].Len() > 0; shed++ {
			q.Discard(ctx, q.bands[i].Pop(), qdisc.Shed)
		}
	}
	return shed
}

// Reset implements qdisc.Qdisc.
func (q *Queue) Reset(ctx *qdisc.Context) {
	for i := range q.bands {
		for p := q.bands[i].Pop(); p != nil; p = q.bands[i].Pop() {
			ctx.Drop(p, qdisc.Purged)
		}
	}
	q.ResetBase(ctx)
}
