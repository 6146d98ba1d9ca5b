// Packet path.

// Package netem does to packets what a bad network would
// (net/sched/sch_netem.c): it delays, loses, repeats, damages and reorders them,
// at random but repeatably.
//
//	limit      packets that may wait; default 1000
//	delay      TIME [JITTER [CORRELATION]]: how long each packet waits, the
//	           standard deviation of that, and how much one packet's depends on
//	           the one before. With jitter packets may overtake each other
//	distribution  of the jitter: uniform (default; then ± JITTER), normal,
//	           pareto or paretonormal
//	loss       [random] P [CORRELATION]: each packet is lost with probability P
//	loss state P13 [P31 [P32 [P23 [P14]]]]: a Markov chain of four states; 1 no
//	           loss, 2 no loss within a burst, 3 loss within a burst, 4 a single loss
//	loss gemodel P [R [1-H [1-K]]]: Gilbert and Elliott's chain; P and R are the
//	           chances to go into the bad state and back, 1-H and 1-K of a loss in
//	           the bad and in the good one
//	ecn        mark instead of losing, where the sender takes part in ECN
//	duplicate  P [CORRELATION]
//	corrupt    P [CORRELATION]: one bit of the frame is flipped
//	reorder    P [CORRELATION]: sent at once, before all that wait
//	gap        N: only every Nth packet may be reordered
//	rate       RATE [OVERHEAD [CELLSIZE [CELLOVERHEAD]]]: the link is as slow as
//	           this, one packet after the other
//	slot       MIN [MAX] [packets N] [bytes N]: packets leave in bunches, so many at
//	           once, so far apart; slot distribution NAME DELAY JITTER draws that
//	seed       of the random numbers. Without one it follows from the handle, so
//	           that a run can be repeated
//
// A packet whose time has come leaves, or goes on into a child qdisc, class 1:1,
// which there is none of unless it is grafted. limit counts both.
//
// Differences from the kernel:
//
//   - A duplicate is queued here, behind the original, and goes through loss,
//     corruption and delay of its own; the kernel sends it in again at the root.
//     It is never duplicated again, so two netems in one path make four of one at
//     most, and the parents' counters hold.
//   - A packet that was marked instead of lost does not count as a drop.
//   - The remainder of a nanosecond that a packet's time at the rate comes to is
//     carried to the next one.
//   - A slot that began before the next packet is due is replaced when that is
//     due, not at every attempt before.
package netem

import (
	"math/rand/v2"
	"time"

	"sluice/qdisc"
)

type netem struct {
	qdisc.Base
	first   qdisc.List // reordered: they go before everything
	waiting queue      // by time
	child   qdisc.Child
	nested  bool // there is a child

	params  params
	rand    rand.PCG
	counter uint32 // packets since the last that was reordered
	state   lossState
	last    struct{ delay, loss, duplicate, reorder, corrupt uint32 } // what was drawn last

	remainder uint64 // of the last packet's time at the rate

	slotNext    time.Duration
	slotPackets int64
	slotBytes   int64

	handle uint32
}

// draw returns 32 random bits that depend on the ones before as far as rho, of
// 2³², says (get_crandom).
func (q *netem) draw(last *uint32, rho uint32) uint32 {
	x := uint32(q.rand.Uint64() >> 32)
	if rho == 0 {
		return x
	}
	keep := uint64(rho) + 1
	*last = uint32((uint64(x)*(1<<32-keep) + uint64(*last)*keep) >> 32)
	return *last
}

// hits says whether something of probability p, 2³²−1 being always, happens.
func (q *netem) hits(p uint32, last *uint32, rho uint32) bool {
	return p != 0 && q.draw(last, rho) <= p
}

// below says the same of a fresh number.
func (q *netem) below(p uint32) bool { return p != 0 && uint32(q.rand.Uint64()>>32) <= p }

// sample draws a time around mu with deviation sigma, from a table or evenly
// (tabledist).
func (q *netem) sample(mu, sigma time.Duration, table []int16, last *uint32, rho uint32) time.Duration {
	if sigma == 0 {
		return mu
	}
	x := uint64(q.draw(last, rho))
	if table == nil {
		// sigma is less than 2⁶⁰, and 2⁻³² of it is the grain.
		return mu - sigma + time.Duration(x*(2*uint64(sigma)>>16)>>16)
	}
	t := int64(table[x*uint64(len(table))>>32])
	// Split, so that nothing overflows; to the nearest.
	part := int64(sigma%scale) * t
	if part >= 0 {
		part += scale / 2
	} else {
		part -= scale / 2
	}
	return mu + time.Duration(part/scale+int64(sigma/scale)*t)
}

// Enqueue decides p's fate, and queues it or loses it, and sometimes a copy
// behind it.
func (q *netem) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	// Of an original and its copy one may be lost without anybody noticing.
	twice := q.hits(q.params.duplicate, &q.last.duplicate, q.params.duplicateRho)
	if q.lost(p) {
		if !twice {
			q.Refuse(ctx, p, qdisc.Lost)
			return qdisc.Dropped
		}
		twice = false
	}
	if q.Len() >= int(q.params.limit) {
		q.Refuse(ctx, p, qdisc.Overlimit)
		return qdisc.Dropped
	}
	var copied *qdisc.Packet
	if twice {
		copied = ctx.Clone(p) // before p is damaged
	}
	q.admit(ctx, p)
	switch {
	case copied == nil:
	case q.lost(copied):
		q.Refuse(ctx, copied, qdisc.Lost)
	case q.Len() >= int(q.params.limit):
		q.Refuse(ctx, copied, qdisc.Overlimit)
	default:
		q.admit(ctx, copied)
	}
	return qdisc.Success
}

// lost says whether p is to be lost. One that can be marked instead is.
func (q *netem) lost(p *qdisc.Packet) bool {
	return q.loses() && !(q.params.ecn && qdisc.SetCE(p))
}

// admit queues p with the time of its departure.
func (q *netem) admit(ctx *qdisc.Context, p *qdisc.Packet) {
	m := &q.params
	if q.hits(m.corrupt, &q.last.corrupt, m.corruptRho) && p.Len() > 0 {
		// A frame is at most 16 bits long: 13 more choose the bit without bias
		// that would show.
		bit := (q.rand.Uint64() >> 32) * uint64(8*p.Len()) >> 32
		p.Bytes()[bit/8] ^= 1 << (bit % 8)
	}
	q.Enqueued(p)
	if m.gap != 0 && q.counter >= m.gap-1 && q.hits(m.reorder, &q.last.reorder, m.reorderRho) {
		q.counter = 0
		q.Requeues++
		q.first.PushFront(p)
		return
	}
	q.counter++
	q.waiting.push(p, q.due(ctx.Now, p))
}

// due returns when p may leave. At a rate it follows the last one that waits,
// and the time it has waited for that counts as delay.
func (q *netem) due(now time.Duration, p *qdisc.Packet) time.Duration {
	m := &q.params
	delay := q.sample(m.delay, m.jitter, m.table, &q.last.delay, m.delayRho)
	if m.rate == 0 {
		return now + delay
	}
	if last := q.waiting.last(); last != qdisc.Never {
		delay = max(0, delay-(last-now))
		now = last
	} else {
		q.remainder = 0
	}
	cost := m.wire(p.PktLen)*uint64(time.Second) + q.remainder
	q.remainder = cost % m.rate
	return now + delay + time.Duration(cost/m.rate)
}

// Dequeue gives the packet that Peek parked, else the next whose time has come.
func (q *netem) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

func (q *netem) next(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.first.Pop(); p != nil {
		q.Dequeued(p)
		return p
	}
	at := q.ready(ctx.Now)
	for at <= ctx.Now {
		p := q.waiting.pop()
		q.Dequeued(p)
		q.count(ctx.Now, p)
		if !q.nested {
			return p
		}
		// It was not sent, it moves on.
		q.Packets--
		q.Bytes -= uint64(p.PktLen)
		q.child.Enqueue(ctx, &q.Base, p)
		at = q.ready(ctx.Now)
	}
	if q.nested && q.child.Len() > 0 {
		if p := q.child.Dequeue(ctx, &q.Base); p != nil {
			return p
		}
		at = min(at, q.child.NextAt())
	}
	q.SetNextAt(at)
	return nil
}

// ready returns when the first that waits may go, Never when none does.
func (q *netem) ready(now time.Duration) time.Duration {
	at := q.waiting.min()
	if !q.params.slotted || at > now {
		return at
	}
	if q.slotNext < at {
		q.newSlot(now)
	}
	return max(at, q.slotNext)
}

// count takes p off the slot, and begins the next when it is full.
func (q *netem) count(now time.Duration, p *qdisc.Packet) {
	if !q.params.slotted {
		return
	}
	q.slotPackets--
	q.slotBytes -= int64(p.PktLen)
	if q.slotPackets <= 0 || q.slotBytes <= 0 {
		q.newSlot(now)
	}
}

// newSlot draws when the next slot begins (get_slot_next).
func (q *netem) newSlot(now time.Duration) {
	s := &q.params.slot
	var wait time.Duration
	if s.jitter > 0 {
		var none uint32
		wait = max(0, q.sample(s.delay, s.jitter, s.table, &none, 0))
	} else {
		wait = s.min + time.Duration((q.rand.Uint64()>>32)*(uint64(s.max-s.min)>>16)>>16)
	}
	q.slotNext = now + wait
	q.slotPackets, q.slotBytes = s.packets, s.bytes
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *netem) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

// Shed drops those that would leave first, or from the child if that holds more.
func (q *netem) Shed(ctx *qdisc.Context, n int) int {
	got := 0
	if q.nested && q.child.Len() > q.waiting.len() {
		got = q.child.Shed(ctx, &q.Base, n)
	}
	for ; got < n; got++ {
		p := q.first.Pop()
		if p == nil {
			p = q.waiting.pop()
		}
		if p == nil {
			break
		}
		q.Discard(ctx, p, qdisc.Shed)
	}
	if got == 0 && q.nested {
		got = q.child.Shed(ctx, &q.Base, n)
	}
	return got
}

// Reset drops everything and begins the random numbers again.
func (q *netem) Reset(ctx *qdisc.Context) {
	for p := q.first.Pop(); p != nil; p = q.first.Pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	for p := q.waiting.pop(); p != nil; p = q.waiting.pop() {
		ctx.Drop(p, qdisc.Purged)
	}
	if q.nested {
		q.child.Reset(ctx, &q.Base)
	}
	q.ResetBase(ctx)
	q.begin()
}

// begin sets all that is drawn or counted to the start.
func (q *netem) begin() {
	q.rand.Seed(q.params.seed, q.params.seed^0x9e3779b97f4a7c15)
	q.counter, q.remainder, q.state = 0, 0, 0
	q.last.delay, q.last.loss, q.last.duplicate, q.last.reorder, q.last.corrupt = 0, 0, 0, 0, 0
	q.slotNext, q.slotPackets, q.slotBytes = 0, q.params.slot.packets, q.params.slot.bytes
}

// Direct returns what waits here, not in the child.
func (q *netem) Direct() (packets, bytes int) {
	return q.first.Len() + q.waiting.len(), q.first.Bytes() + q.waiting.bytes
}
