// Packet path.

// Package fq is fair queueing with pacing (net/sched/sch_fq.c): each flow in
// turn sends a quantum of bytes, flows that just began before those that have
// been at it for a while, and each flow at no more than a rate of its own, its
// packets spread over time instead of sent in bursts. Three bands of priority
// share the link by weight, so none starves.
//
//	limit               packets that may wait in each band; default 10000
//	flow_limit          packets that may wait in one flow; default 100
//	quantum             bytes a flow may send per turn, 1 to 2²⁰; default two
//	                    full frames
//	initial_quantum     bytes that a flow may send when it is new; default ten
//	                    full frames
//	maxrate             rate of each flow; default none
//	low_rate_threshold  a flow at this rate or below is paced packet by packet,
//	                    a faster one quantum by quantum; default 550kbit
//	refill_delay        a flow that was idle for longer gets at least a quantum
//	                    when it comes back; default 40ms
//	ce_threshold        packets that leave later than this after they could have
//	                    are marked with Congestion Experienced; default never
//	nopacing            takes no notice of rates
//	priomap, weights    the band of each of the 16 priorities, and how many bytes
//	                    the bands may send in turn, at least 16384; default
//	                    pfifo_fast's bands, 9 : 3 : 1
//	orphan_mask         bits of the flow hash that tell flows apart; default 1023
//	buckets             twice as many flows are remembered before those idle for
//	                    three seconds are forgotten; default 1024
//	timer_slack, horizon, horizon_cap, horizon_drop, offload_horizon
//	                    taken and shown; see below
//
// A packet that finds nobody waiting whose time has come takes a short cut, a
// queue of at most eight packets that goes before everything and knows neither
// flows nor bands. There is none with a maxrate.
//
// Differences from the kernel:
//
//   - Packets come from a device and not from a socket, so they bring neither a
//     departure time nor a rate: what paces is maxrate. The horizon, which is
//     about departure times, is never reached. Wake-ups are the worker's, which
//     has its own slack, and no device paces for us.
//   - A flow is a place in a table, found by the hash without a search. It has
//     at most 65536 places, however wide orphan_mask is, and is allocated with
//     the first packet that does not take the short cut.
//   - The fraction of a nanosecond that the kernel cuts off each delay is
//     carried to the next one.
//   - A refused change changes nothing.
package fq

import (
	"math/bits"
	"time"

	"sluice/qdisc"
)

const (
	nBands     = 3                // FQ_BANDS
	priorities = 16               // TC_PRIO_MAX + 1
	shortCut   = 8                // packets in the fast path's queue
	forgetting = 3 * time.Second  // an idle flow may be forgotten then (FQ_GC_AGE)
	forgetMost = 8                // in one go (FQ_GC_MAX)
	maxDelay   = time.Second      // no packet makes its flow wait longer
	unlimited  = ^uint64(0)       // maxrate: none
	maxFlows   = 1 << 16          // places in the table
	never      = qdisc.Never >> 1 // ce_threshold: none; halved so that sums stay in range
)

// Of a packet's Scratch, the words that fq uses.
const (
	scratchBand = iota
	scratchTime // when it could have left as far as it is concerned (time_to_send)
)

type fq struct {
	qdisc.Base
	params

	// The short cut, served before everything (internal).
	internal qdisc.List

	flows     []flow // nil until the first packet that needs one
	bands     [nBands]band
	turn      int    // the band whose turn it is
	delayed   queue  // flows that wait for their time, earliest first
	known     uint32 // flows that are remembered
	idle      uint32 // of these, without packets
	eligible  int    // flows with packets that are not delayed
	hand      uint32 // where the search for flows to forget goes on
	lastEmpty time.Duration

	stats stats
}

// band is one of the bands (struct fq_perband_flows).
type band struct {
	fresh, old list
	credit     int64 // bytes it may still send in its turn
	packets    uint32
}

type stats struct {
	gc, fastpath, throttled     uint64
	ceMark, flowsPlimit, tooBig uint64
	bandDrops                   [nBands]uint64
	latency                     uint64 // of unthrottling, ns, a moving average
}

// Enqueue puts p in its flow, or takes the short cut.
func (q *fq) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	b := q.priomap[p.Priority%priorities]
	if q.bands[b].packets >= q.limit {
		q.stats.bandDrops[b]++
		q.Refuse(ctx, p, qdisc.BandLimit)
		return qdisc.Dropped
	}
	p.Scratch[scratchTime] = uint64(ctx.Now)
	if q.mayCutShort(ctx.Now) {
		q.stats.fastpath++
		q.internal.Push(p)
		q.Enqueued(p)
		return qdisc.Success
	}

	i := q.classify(ctx, p)
	f := &q.flows[i]
	if uint32(f.Len()) >= q.flowLimit {
		q.stats.flowsPlimit++
		q.Refuse(ctx, p, qdisc.FlowLimit)
		return qdisc.Dropped
	}
	if f.place == detached {
		// The list is that of the band its last packet was of, the first band's
		// when it had none yet, whatever this one's is: the kernel's order.
		q.push(&q.bands[f.band].fresh, i)
		f.place = listed
		if ctx.Now-f.age > q.refillDelay {
			f.refill(q.quantum)
		}
	}
	f.band = b
	q.bands[b].packets++
	p.Scratch[scratchBand] = uint64(b)
	if f.Len() == 0 {
		q.idle--
		if f.place == listed {
			q.eligible++
		}
	}
	f.Push(p)
	q.Enqueued(p)
	return qdisc.Success
}

// mayCutShort says whether a packet would overtake nobody and need not be paced
// (fq_fastpath_check).
func (q *fq) mayCutShort(now time.Duration) bool {
	if q.maxRate != unlimited {
		return false
	}
	if q.Len() == 0 {
		return true
	}
	// Delayed flows whose time has come but that were not served yet go first.
	return q.eligible == 0 && q.internal.Len() < shortCut && q.delayed.next() > now
}

// classify returns the place of p's flow. A flow met for the first time makes a
// few others be forgotten, when too many are known.
func (q *fq) classify(ctx *qdisc.Context, p *qdisc.Packet) int32 {
	if q.flows == nil {
		q.flows = make([]flow, places(q.orphanMask))
		q.room()
	}
	key := ctx.FlowHash(p) & q.orphanMask
	i := int32((key ^ key>>16) & (maxFlows - 1))
	f := &q.flows[i]
	if f.place == unknown {
		if q.known >= 2<<q.bucketsLog && q.idle > q.known/2 {
			q.forget(ctx.Now)
		}
		*f = flow{place: detached, credit: int32(q.initialQuantum), age: ctx.Now}
		q.known++
		q.idle++
	}
	return i
}

// room makes the queue of delayed flows large enough for all of them, when there
// can be any.
func (q *fq) room() {
	if q.pacing && q.maxRate != unlimited && cap(q.delayed.heap) < len(q.flows) {
		q.delayed.heap = append(make([]entry, 0, len(q.flows)), q.delayed.heap...)
	}
}

// places returns how many flows the table needs for mask.
func places(mask uint32) int {
	if mask >= maxFlows {
		return maxFlows
	}
	return 1 << bits.Len32(mask)
}

// forget looks at the next few places of the table for flows that were idle for
// long (fq_gc).
func (q *fq) forget(now time.Duration) {
	for range forgetMost {
		q.hand = (q.hand + 1) % uint32(len(q.flows))
		if f := &q.flows[q.hand]; f.place == detached && now-f.age > forgetting {
			f.place = unknown
			q.known--
			q.idle--
			q.stats.gc++
		}
	}
}

// Dequeue gives the packet that Peek parked, else the next one whose turn and
// time have come.
func (q *fq) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued).
func (q *fq) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

func (q *fq) next(ctx *qdisc.Context) *qdisc.Packet {
	p := q.take(ctx)
	if p != nil {
		q.Dequeued(p)
		return p
	}
	q.lastEmpty = ctx.Now
	q.SetNextAt(q.delayed.next())
	return nil
}

// take takes the next packet out of its queue, without counting it out.
func (q *fq) take(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.internal.Pop(); p != nil {
		return p
	}
	if q.Len() == 0 {
		return nil
	}
	now := ctx.Now
	q.release(now)

	fruitless := 0 // bands in a row that had credit and nobody to spend it
	for {
		b := &q.bands[q.turn]
		l := b.head()
		if l == nil {
			if fruitless == nBands {
				return nil
			}
			if q.turn++; q.turn == nBands {
				q.turn = 0
			}
			weight := int64(q.weights[q.turn])
			b = &q.bands[q.turn]
			b.credit = min(b.credit+weight, weight)
			fruitless++
			if b.credit <= 0 {
				fruitless = 0
			}
			continue
		}
		fruitless = 0

		i := l.head
		f := &q.flows[i]
		if f.credit <= 0 {
			f.credit += int32(q.quantum)
			q.pop(l)
			q.push(&q.bands[f.band].old, i)
			continue
		}
		p := f.Front()
		if p == nil {
			// A flow that had its turn as a new one passes the old ones once,
			// so that new ones, however many come, do not starve those.
			q.pop(l)
			if l == &b.fresh {
				q.push(&q.bands[f.band].old, i)
			} else {
				f.place, f.age = detached, now
			}
			continue
		}
		at := max(time.Duration(p.Scratch[scratchTime]), f.nextTime)
		if at > now {
			f.nextTime = at
			q.pop(l)
			q.delay(i)
			continue
		}
		if now-at > q.ceThreshold {
			qdisc.SetCE(p)
			q.stats.ceMark++ // also when its sender does not take part, as the kernel counts
		}
		q.remove(f)
		f.credit -= int32(p.PktLen)
		b.credit -= int64(p.PktLen)
		if q.pacing {
			q.pace(f, p.PktLen, now)
		}
		return p
	}
}

// head returns the list that the band's next flow is on, nil when the band has
// nobody to serve or no credit to do it.
func (b *band) head() *list {
	switch {
	case b.credit <= 0:
	case !b.fresh.empty():
		return &b.fresh
	case !b.old.empty():
		return &b.old
	}
	return nil
}

// remove takes the first packet of f out.
func (q *fq) remove(f *flow) *qdisc.Packet {
	p := f.Pop()
	q.bands[p.Scratch[scratchBand]].packets--
	if f.Len() == 0 {
		q.idle++
		if f.place == listed {
			q.eligible--
		}
	}
	return p
}

// pace sets when f may send again, having sent n bytes.
func (q *fq) pace(f *flow, n uint32, now time.Duration) {
	switch {
	case q.maxRate == unlimited:
		return
	case q.maxRate <= q.lowRate:
		f.credit = 0
	case f.credit > 0:
		return // faster flows are delayed once a quantum, and for all of it
	default:
		n = max(n, q.quantum)
	}
	rate := max(q.maxRate, 1)
	x := uint64(n)*uint64(time.Second) + f.fraction
	f.fraction = x % rate
	delay := time.Duration(x / rate)
	if delay > maxDelay {
		// Its rate may be changed before such a long time is over.
		delay, f.fraction = maxDelay, 0
		q.stats.tooBig++
	}
	if f.nextTime != 0 {
		// We may be late by a timer's slack or another flow's packets; half of
		// the delay makes up for it.
		delay -= min(delay/2, now-f.nextTime)
	}
	f.nextTime = now + delay
}

// delay puts a flow that is on no list among those that wait for their time
// (fq_flow_set_throttled).
func (q *fq) delay(i int32) {
	f := &q.flows[i]
	f.place = delayed
	q.eligible--
	q.stats.throttled++
	q.delayed.push(f.nextTime, i)
}

// release lets the delayed flows whose time has come take part again, behind the
// others (fq_check_throttled).
func (q *fq) release(now time.Duration) {
	at := q.delayed.next()
	if at > now {
		return
	}
	if late := uint64(now - at); late > 0 {
		q.stats.latency -= q.stats.latency >> 3
		q.stats.latency += late >> 3
	}
	for q.delayed.next() <= now {
		i := q.delayed.pop()
		f := &q.flows[i]
		f.place = listed
		if f.Len() > 0 {
			q.eligible++
		}
		q.push(&q.bands[f.band].old, i)
	}
}

// Shed takes from the flow with the most bytes, or from the short cut. It looks
// at the flows that take part, not at the idle ones.
func (q *fq) Shed(ctx *qdisc.Context, n int) int {
	fattest := int32(none)
	for b := range q.bands {
		fattest = q.fattest(&q.bands[b].fresh, fattest)
		fattest = q.fattest(&q.bands[b].old, fattest)
	}
	for i := range q.delayed.heap {
		fattest = q.fatter(q.delayed.heap[i].flow, fattest)
	}
	short := fattest == none || q.internal.Bytes() > q.flows[fattest].Bytes()
	for got := range n {
		var p *qdisc.Packet
		switch {
		case short:
			p = q.internal.Pop()
		case q.flows[fattest].Len() > 0:
			p = q.remove(&q.flows[fattest])
		}
		if p == nil {
			return got
		}
		q.Discard(ctx, p, qdisc.Shed)
	}
	return n
}

func (q *fq) fattest(l *list, fattest int32) int32 {
	if l.empty() {
		return fattest
	}
	for i := l.head; i != none; i = q.flows[i].next {
		fattest = q.fatter(i, fattest)
	}
	return fattest
}

// fatter returns which of two flows has more bytes; j may be none.
func (q *fq) fatter(i, j int32) int32 {
	if j == none || q.flows[i].Bytes() > q.flows[j].Bytes() {
		return i
	}
	return j
}

// Reset drops everything and forgets all flows.
func (q *fq) Reset(ctx *qdisc.Context) {
	purge(ctx, &q.internal)
	for i := range q.flows {
		purge(ctx, &q.flows[i].List)
		q.flows[i] = flow{}
	}
	q.bands = [nBands]band{}
	q.delayed.heap = q.delayed.heap[:0]
	q.turn, q.known, q.idle, q.eligible, q.hand = 0, 0, 0, 0, 0
	q.ResetBase(ctx)
}

func purge(ctx *qdisc.Context, l *qdisc.List) {
	for p := l.Pop(); p != nil; p = l.Pop() {
		ctx.Drop(p, qdisc.Purged)
	}
}
