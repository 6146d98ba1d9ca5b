// Packet path.

package mem

import (
	"time"

	"sluice/qdisc"
	"sluice/shaper/nic"
)

// RxQueue is a receive queue of a [Port]. While the port holds a packet, its
// Arrival is the instant at which it gets here.
type RxQueue struct {
	port  *Port
	index int
	limit int

	flight   qdisc.List // sent by the other end, by instant of arrival
	injected qdisc.List // by instant of arrival
	waiting  qdisc.List // arrived, at most limit
	stats    nic.RxStats
}

var _ nic.RxQueue = (*RxQueue)(nil)

// Receive takes waiting frames. A packet of the worker's own pool is handed
// over as it is, everything that a wire does not carry cleared; another pool's
// is copied.
func (q *RxQueue) Receive(ctx *qdisc.Context, l *qdisc.List, max int) int {
	q.port.peer.out.advance(ctx.Now)
	q.admit(ctx.Now)
	n := 0
	for n < max && q.waiting.Len() > 0 {
		p := q.waiting.Front()
		if p.Pool() != ctx.Pool {
			c := ctx.Pool.Get()
			if c == nil {
				break
			}
			if p.Len() > len(c.Room()) {
				q.stats.Errors++
				q.waiting.Pop().Free()
				c.Free()
				continue
			}
			copy(c.Room(), p.Bytes())
			c.SetLen(p.Len())
			q.waiting.Pop().Free()
			p = c
		} else {
			q.waiting.Pop()
			forget(p)
		}
		p.Arrival = ctx.Now
		l.Push(p)
		n++
		q.stats.Packets++
		q.stats.Bytes += uint64(p.Len())
	}
	return n
}

// admit moves what has arrived by now to the waiting frames, by instant of
// arrival, and drops what finds them at their limit. That it runs late changes
// nothing: only Receive makes room, and Receive calls it first.
func (q *RxQueue) admit(now time.Duration) {
	for {
		from := &q.flight
		if f, i := q.flight.Front(), q.injected.Front(); f == nil || i != nil && i.Arrival < f.Arrival {
			from = &q.injected
		}
		p := from.Front()
		if p == nil || p.Arrival > now {
			return
		}
		from.Pop()
		if q.waiting.Len() >= q.limit {
			q.stats.Drops++
			p.Free()
			continue
		}
		q.waiting.Push(p)
	}
}

// forget makes p what a pool's Get and a frame of its length would be.
func forget(p *qdisc.Packet) {
	p.SetLen(p.Len())
	p.Priority, p.Mark, p.Hash = 0, 0, 0
	p.Class, p.Port, p.Queue = 0, 0, 0
	p.L3, p.L4, p.EtherType, p.VLAN = 0, 0, 0, 0
	p.L4Proto, p.TOS, p.Flags = 0, 0, 0
}

// InjectPacket puts p at receive queue i, as if it arrived at instant at; the
// port owns it then.
//
// Preconditions: the instants of one queue's injected frames do not decrease.
func (p *Port) InjectPacket(i int, at time.Duration, pkt *qdisc.Packet) {
	pkt.Arrival = at
	p.rxq[i].injected.Push(pkt)
}

// FD returns -1: no descriptor announces a frame, NextAt does.
func (q *RxQueue) FD() int { return -1 }

// NextAt returns when the next frame is here, which is in the past when one
// waits already.
func (q *RxQueue) NextAt() time.Duration {
	if p := q.waiting.Front(); p != nil {
		return p.Arrival
	}
	at := qdisc.Never
	if p := q.flight.Front(); p != nil {
		at = p.Arrival
	} else if end := q.port.peer.out.firstEnd(q.index); end != qdisc.Never {
		at = end + q.port.cfg.Latency
	}
	if p := q.injected.Front(); p != nil {
		at = min(at, p.Arrival)
	}
	return at
}

// RxStats returns the counters.
func (q *RxQueue) RxStats() nic.RxStats { return q.stats }

func (q *RxQueue) free() {
	for _, l := range [...]*qdisc.List{&q.flight, &q.injected, &q.waiting} {
		for p := l.Pop(); p != nil; p = l.Pop() {
			p.Free()
		}
	}
}
