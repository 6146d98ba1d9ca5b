// Packet path.

package mem

import (
	"time"

	"sluice/dequeue"
	"sluice/qdisc"
)

// descriptor is what the ring remembers of a frame that has started.
type descriptor struct {
	done  time.Duration // from then on Reap shows it
	bytes int
}

// TxQueue is a transmit queue of a [Port]. A descriptor is taken by Post and
// given back by Reap.
type TxQueue struct {
	wire  *wire
	index int

	pending qdisc.List // posted and not started, in order
	visible int        // how many of them, from the front, are behind a doorbell

	ring       []descriptor // started and not reaped: [tail, head)
	head, tail uint32

	lost    uint64
	credits int // frames Post still takes; -1 = any number
	stopped bool
}

var _ dequeue.Driver = (*TxQueue)(nil)

// Room returns the free descriptors: none while the queue is stopped or down,
// and no more than there are credits.
func (q *TxQueue) Room() int {
	if q.stopped || q.wire.port.down {
		return 0
	}
	n := len(q.ring) - q.pending.Len() - int(q.head-q.tail)
	if q.credits >= 0 {
		n = min(n, q.credits)
	}
	return n
}

// Post puts p on the ring.
func (q *TxQueue) Post(p *qdisc.Packet) bool {
	if q.Room() == 0 {
		return false
	}
	if q.credits > 0 {
		q.credits--
	}
	q.pending.Push(p)
	return true
}

// Kick starts what the link has time for at once; the rest follows as later
// calls bring later instants. A stopped queue says so and sends what it has
// nevertheless, as a NIC does.
func (q *TxQueue) Kick(now time.Duration) dequeue.Kick {
	w := q.wire
	w.advance(now)
	if w.port.down {
		w.lose()
		return dequeue.KickDown
	}
	w.ring(q, q.pending.Len()-q.visible)
	if q.stopped {
		return dequeue.KickStopped
	}
	return dequeue.KickAll
}

// Reap returns the descriptors whose completions show at now.
func (q *TxQueue) Reap(now time.Duration) (packets, bytes int) {
	q.wire.advance(now)
	for q.tail != q.head {
		d := &q.ring[q.tail&uint32(len(q.ring)-1)]
		if d.done > now {
			break
		}
		q.tail++
		packets++
		bytes += d.bytes
	}
	return packets, bytes
}

// Lost returns the packets that a loss of carrier took.
func (q *TxQueue) Lost() uint64 { return q.lost }

// Completions returns CompleteDevice.
func (q *TxQueue) Completions() dequeue.Completions { return dequeue.CompleteDevice }

// Down reports that the pair has no carrier.
func (q *TxQueue) Down() bool { return q.wire.port.down }

// NextAt returns the instant at which Reap will show something that it does
// not show before, or Never.
func (q *TxQueue) NextAt() time.Duration {
	if q.tail != q.head {
		return q.ring[q.tail&uint32(len(q.ring)-1)].done
	}
	end := q.wire.firstEnd(q.index)
	if end == qdisc.Never {
		return end
	}
	return q.shows(end)
}

// Stop is the driver's XOFF: the queue takes no more frames until Start.
func (q *TxQueue) Stop() { q.stopped = true }

// Start ends Stop.
func (q *TxQueue) Start() { q.stopped = false }

// Credits lets the queue take n more frames than its credits allow now, and
// none beyond; the first call starts from 0. A negative n ends the counting.
func (q *TxQueue) Credits(n int) {
	if n < 0 {
		q.credits = -1
		return
	}
	q.credits = max(q.credits, 0) + n
}

// complete records that a frame ends at end.
func (q *TxQueue) complete(bytes int, end time.Duration) {
	q.ring[q.head&uint32(len(q.ring)-1)] = descriptor{done: q.shows(end), bytes: bytes}
	q.head++
}

// shows returns from when on a frame that ends at end is shown as completed.
func (q *TxQueue) shows(end time.Duration) time.Duration {
	c := &q.wire.port.cfg
	at := end + c.CompletionDelay
	if c.CompletionInterval > 0 {
		if r := at % c.CompletionInterval; r != 0 {
			at += c.CompletionInterval - r
		}
	}
	return at
}

func (q *TxQueue) free() {
	for p := q.pending.Pop(); p != nil; p = q.pending.Pop() {
		p.Free()
	}
	q.wire.visible -= q.visible
	q.visible = 0
	q.tail = q.head
}
