// Packet path.

package mem

import (
	"time"

	"sluice/qdisc"
)

// wire is one direction of the link. The transmit queues of a port share it,
// one frame a turn, because a link has one speed.
//
// Frames start lazily: advance starts all those whose time has come. So a
// doorbell that rings in another queue finds the wire exactly as far as it is
// at that instant, and its frames take their turn among those still waiting.
type wire struct {
	port     *Port
	rate     uint64 // bits per second, 0 = infinite
	overhead int
	sink     func(p *qdisc.Packet, start, end time.Duration)

	now     time.Duration // latest instant handed in
	free    time.Duration // when the frame before has ended: the next one starts here
	rem     uint64        // what is missing in free: rem/rate nanoseconds
	visible int           // frames behind a doorbell and not started, all queues
	turn    int           // queue that is looked at first
	queues  []TxQueue
}

// after returns when n bytes that start at t have been sent, and the fraction
// of a nanosecond (in units of 1/rate) that does not show in it.
func (w *wire) after(t time.Duration, rem uint64, n int) (time.Duration, uint64) {
	if w.rate == 0 {
		return t, 0
	}
	x := uint64(n+w.overhead)*8*uint64(time.Second) + rem
	return t + time.Duration(x/w.rate), x % w.rate
}

// advance starts every frame that starts at or before now.
func (w *wire) advance(now time.Duration) {
	w.now = max(w.now, now)
	for w.visible > 0 && w.free <= w.now {
		q := &w.queues[w.turn]
		w.turn++
		if w.turn == len(w.queues) {
			w.turn = 0
		}
		if q.visible > 0 {
			w.start(q)
		}
	}
}

// start sends the first frame of q at instant w.free.
func (w *wire) start(q *TxQueue) {
	p := q.pending.Pop()
	q.visible--
	w.visible--

	begin := w.free
	w.free, w.rem = w.after(w.free, w.rem, p.Len())
	q.complete(p.Len(), w.free)

	if w.sink != nil {
		w.sink(p, begin, w.free)
		p.Free()
		return
	}
	p.Arrival = w.free + w.port.cfg.Latency
	w.port.peer.rxq[q.index].flight.Push(p)
}

// ring makes n more frames of q visible to the device.
func (w *wire) ring(q *TxQueue, n int) {
	if w.visible == 0 && w.free < w.now {
		w.free, w.rem = w.now, 0
	}
	q.visible += n
	w.visible += n
	w.advance(w.now)
}

// firstEnd returns when the first visible frame of queue i will have been
// sent, or Never: it starts behind one frame of each queue whose turn is
// earlier.
func (w *wire) firstEnd(i int) time.Duration {
	if w.queues[i].visible == 0 {
		return qdisc.Never
	}
	t, rem := w.free, w.rem
	for k := w.turn; ; k++ {
		if k == len(w.queues) {
			k = 0
		}
		if q := &w.queues[k]; q.visible > 0 {
			t, rem = w.after(t, rem, q.pending.Front().Len())
		}
		if k == i {
			return t
		}
	}
}

// lose drops all frames that have not started; they complete at once, as lost.
func (w *wire) lose() {
	for i := range w.queues {
		q := &w.queues[i]
		for p := q.pending.Pop(); p != nil; p = q.pending.Pop() {
			q.complete(p.Len(), w.now)
			q.lost++
			p.Free()
		}
		q.visible = 0
	}
	w.visible = 0
}
