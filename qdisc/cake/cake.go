// Packet path, except New, Change, Dump and XStats.

// Package cake is "common applications kept enhanced": a shaper, an isolation of
// flows and hosts, and an AQM in one discipline that needs little configuration
// (net/sched/sch_cake.c; Høiland-Jørgensen, Täht, Morton: "Piece of CAKE", LANMAN
// 2018).
//
// A packet goes to a tin by its DSCP, in the tin to one of 1024 queues by the
// hash of its flow. Queues are served round robin with a deficit (DRR++): a flow
// that sends less than its share never waits behind those that send more. Its
// share is divided by the number of busy flows that its host has, at either end,
// so that more flows do not mean more bandwidth. Each queue has an AQM of its own,
// COBALT: CoDel for flows that react, BLUE for those that do not.
//
// The shaper is a clock and not a bucket: it says when the link is free again, and
// each packet moves it by what the packet takes on the wire, link framing
// included. A shaper that was kept waiting catches up; one that was idle does not
// burst. Every tin has a clock of its own at a part of the rate. A tin ahead of
// its clock is served before the others, the highest first; one behind it takes
// what is left.
//
//	bandwidth RATE | unlimited     rate of the shaper
//	autorate-ingress               follow the rate of what arrives, 1/16 below
//	besteffort | precedence | diffserv3 | diffserv4 | diffserv8
//	                               tins; default diffserv3
//	flowblind | srchost | dsthost | hosts | flows | dual-srchost |
//	dual-dsthost | triple-isolate  what is kept apart; default the last
//	rtt TIME                       what the AQM takes for a normal round trip; its
//	                               target is a twentieth. Words: datacentre lan
//	                               metro regional internet oceanic satellite
//	                               interplanetary
//	overhead N, mpu N, atm | ptm | noatm, raw
//	                               what a packet takes on the wire, and a dozen
//	                               words for common links
//	ack-filter | ack-filter-aggressive
//	                               drop TCP acknowledgements that later ones in the
//	                               same queue repeat
//	wash                           clear the DSCP once it is read
//	ingress                        we stand behind the bottleneck: what is dropped
//	                               here did take its time there
//	memlimit SIZE                  memory for packets; default by rate and rtt
//	fwmark MASK                    part of the mark that names the tin
//	nat, split-gso                 taken and shown; no effect here: there is no
//	                               connection tracking to ask, and a packet is
//	                               always one wire frame
//
// Differences from the kernel:
//
//   - The clock carries the fraction of a nanosecond that the kernel cuts off each
//     packet: at 10 Gbit/s and above that is 0.1 % of the rate.
//   - A flow whose host has no other gets exactly one quantum. The kernel's
//     division gives 65535/65536 of it, rounded at random.
//   - A host's entry in the table is given to another one only when no flow of it
//     is left, or all eight are taken. The kernel's is lost until the host has a
//     flow in bulk, and two hosts may then be taken for one.
//   - An interval above 4.29 s is not cut to 32 bits.
//   - Host counters are made anew when the isolation changes.
//   - What waits in a tin that a change takes away counts as dropped.
//   - The memory of a packet is what the kernel takes for a frame of its length,
//     whatever the size of our frames.
package cake

import (
	"time"

	"sluice/qdisc"
	"sluice/qdisc/internal/aqm"
)

const (
	queues  = 1024 // a tin
	ways    = 8    // queues that a flow can choose from
	maxTins = 8

	// monitored is for how many departures after an overflow the order of the
	// queues by size is kept up.
	monitored = 65535
)

// What cake keeps in a packet's scratch area.
const (
	stamp = 0 // instant of arrival here
	size  = 1 // bytes on the wire
)

type cake struct {
	qdisc.Base
	shaper
	tins [maxTins]tin
	n    int // tins in use
	cur  int // the tin served last

	pick    selector
	flows   flowMode
	seed    uint64 // of the host hashes; 0: to be drawn
	acks    ackMode
	ingress bool
	filter  qdisc.Classifier // nil: none
	handle  uint32

	memory, memoryMax, memoryLimit int

	seen time.Duration // the last instant

	byBacklog fattest
	sizes     sizes
	auto      autorate
	capacity  uint64 // estimate of the rate of arrival, bytes a second

	params params
	frame  uint32 // a full frame
}

// Enqueue queues p in the queue of its flow. Over the memory limit the longest
// queue gives from its head.
func (q *cake) Enqueue(ctx *qdisc.Context, p *qdisc.Packet) qdisc.Verdict {
	var over override
	if q.filter != nil {
		v, id := q.filter.Classify(ctx, p)
		switch v {
		case qdisc.FilterDrop, qdisc.FilterStolen:
			return q.Dispose(ctx, p, v)
		case qdisc.Match:
			over = overrideBy(id)
		}
	}
	no := q.tinOf(p)
	t := &q.tins[no]
	if t.table == nil {
		q.allocate(ctx, t)
	}
	i := q.flowOf(ctx, t, p, over)
	f := &t.flows[i]

	now := ctx.Now
	q.seen = now
	if t.backlog == 0 {
		t.clock = max(t.clock, now)
		if q.empty() {
			q.wake(now, &q.Base)
		}
	}
	p.Scratch[stamp] = uint64(now)
	p.Scratch[size] = uint64(q.sizes.adjust(p))
	f.queue.Push(p)
	q.Enqueued(p)
	t.arrived(p)
	q.memory += aqm.TrueSize(p.Len())
	if q.acks != ackKeep {
		q.filterAcks(ctx, t, f)
	}
	q.learn(now, p)
	t.activate(ctx, q.flows, i, f)
	if q.byBacklog.countdown > 0 {
		q.byBacklog.changed(q, id(no, i))
	}

	q.memoryMax = max(q.memoryMax, q.memory)
	if q.memory > q.memoryLimit {
		return q.overflow(ctx, f, p)
	}
	return qdisc.Success
}

// empty says whether no queue holds a packet.
func (q *cake) empty() bool {
	held, _ := q.Held()
	return q.Len() == held
}

// overflow drops until the memory limit is kept, and says what became of p, the
// last packet of f.
func (q *cake) overflow(ctx *qdisc.Context, f *flow, p *qdisc.Packet) qdisc.Verdict {
	v := qdisc.Success
	for q.memory > q.memoryLimit {
		victim, gone := q.dropFattest(ctx, qdisc.Overlimit)
		switch {
		case gone == nil:
			return v
		case gone == p:
			return qdisc.Dropped
		case victim == f:
			v = qdisc.CN
		}
	}
	return v
}

// dropFattest drops the head of the longest queue and tells that queue's AQM. It
// returns the packet, freed, for comparison only; nil when there was none.
func (q *cake) dropFattest(ctx *qdisc.Context, r qdisc.Reason) (*flow, *qdisc.Packet) {
	who, ok := q.byBacklog.top(q)
	if !ok {
		return nil, nil
	}
	t, f := q.flow(who)
	p := f.queue.Pop()
	q.left(t, p)
	q.byBacklog.shrunk(q, who)
	if f.cobalt.queueFull(&t.law, ctx.Now) {
		t.unresponsive++
	}
	f.drops++
	t.drops++
	if q.ingress {
		q.charge(t, p, ctx.Now, true)
	}
	q.Discard(ctx, p, r)
	return f, p
}

// left takes p, which left a queue of t, off what counts bytes.
func (q *cake) left(t *tin, p *qdisc.Packet) {
	t.backlog -= int(p.PktLen)
	q.memory -= aqm.TrueSize(p.Len())
}

// Dequeue gives the packet that Peek parked, else the next one.
func (q *cake) Dequeue(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Unpark(); p != nil {
		return p
	}
	return q.next(ctx)
}

// Peek parks what Dequeue gives (qdisc_peek_dequeued): a packet that was shown has
// been charged.
func (q *cake) Peek(ctx *qdisc.Context) *qdisc.Packet {
	if p := q.Parked(); p != nil {
		return p
	}
	return q.Park(q.next(ctx))
}

func (q *cake) next(ctx *qdisc.Context) *qdisc.Packet {
	now := ctx.Now
	q.seen = now
	decay := true // one flow at rest gets a look for each departure
	for !q.empty() {
		if at := q.free(); at > now {
			q.Overlimits++
			q.SetNextAt(at)
			return nil
		}
		if !q.chooseTin(now) {
			break
		}
		t := &q.tins[q.cur]
		for more := true; more; {
			var p *qdisc.Packet
			i := t.chooseFlow(ctx, q.flows, &decay)
			if p, more = q.serve(ctx, t, i); p != nil {
				if q.byBacklog.countdown > 0 {
					q.byBacklog.countdown--
				}
				return p
			}
		}
	}
	q.SetNextAt(qdisc.Never) // what is queued is held outside
	return nil
}

// chooseTin sets cur to the tin to serve; false when none has flows.
//
// Without a shaper tins share by a deficit round robin of their quanta. With one,
// the highest tin whose clock is due goes, else the one whose clock is due next.
func (q *cake) chooseTin(now time.Duration) bool {
	if q.rate.ns == 0 {
		// One round without a flow is enough to know that there is none.
		for idle := 0; ; {
			t := &q.tins[q.cur]
			busy := t.sparse+t.bulk > 0
			if busy && t.deficit >= 0 {
				return true
			}
			if t.deficit <= 0 {
				t.deficit += t.quantum
			}
			if busy {
				idle = 0
			} else if idle++; idle > q.n {
				return false
			}
			if q.cur++; q.cur >= q.n {
				q.cur = 0
			}
		}
	}
	best, found := time.Duration(0), false
	for i := range q.n {
		t := &q.tins[i]
		if t.sparse+t.bulk == 0 {
			continue
		}
		if wait := t.clock - now; !found || wait <= 0 || wait <= best {
			best, found = wait, true
			q.cur = i
		}
	}
	return found
}

// serve takes from flow i of t the next packet that its AQM lets pass, and charges
// it. Without one it says whether the tin's turn goes on.
func (q *cake) serve(ctx *qdisc.Context, t *tin, i int) (_ *qdisc.Packet, more bool) {
	f := &t.flows[i]
	for {
		p := f.queue.Pop()
		if p == nil {
			t.rest(q.flows, i, f, ctx.Now)
			return nil, false
		}
		q.left(t, p)
		if q.byBacklog.countdown > 0 {
			q.byBacklog.shrunk(q, id(q.cur, i))
		}
		busy := int32(0)
		if q.ingress {
			busy = t.bulk
		}
		v := f.cobalt.judge(ctx, &t.law, p, busy)
		if v <= marked || f.queue.Len() == 0 { // the last packet of a queue always passes
			if v == marked {
				t.marks++
			}
			q.send(t, f, p, ctx.Now)
			return p, false
		}
		f.drops++
		t.drops++
		if !q.ingress {
			q.Discard(ctx, p, v.reason())
			continue
		}
		n := q.charge(t, p, ctx.Now, true)
		f.deficit -= n
		t.deficit -= int(n)
		q.Discard(ctx, p, v.reason())
		return nil, true // its share may be spent now
	}
}

func (q *cake) send(t *tin, f *flow, p *qdisc.Packet, now time.Duration) {
	t.delayed(now - time.Duration(p.Scratch[stamp]))
	n := q.charge(t, p, now, false)
	f.deficit -= n
	t.deficit -= int(n)
	q.Dequeued(p)
}

// Shed drops from the longest queues.
func (q *cake) Shed(ctx *qdisc.Context, n int) int {
	for i := range n {
		if _, p := q.dropFattest(ctx, qdisc.Shed); p == nil {
			return i
		}
	}
	return n
}

// Reset drops everything and forgets the flows, what the AQM knew of them, and
// the learnt rate.
func (q *cake) Reset(ctx *qdisc.Context) {
	for i := range q.tins {
		q.tins[i].reset(func(p *qdisc.Packet) { ctx.Drop(p, qdisc.Purged) })
	}
	q.ResetBase(ctx)
	q.memory = 0
	q.byBacklog.reset()
	q.cur = 0
	q.seed = 0
	q.shaper.reset()
	q.auto = autorate{}
	q.configure(q.params.bandwidth)
}

// purge drops what a tin holds that is in use no more.
func (q *cake) purge(ctx *qdisc.Context, t *tin) {
	t.reset(func(p *qdisc.Packet) {
		q.memory -= aqm.TrueSize(p.Len())
		q.Discard(ctx, p, qdisc.Purged)
	})
}

// SetClassifier attaches filters. The minor number of their class names the queue
// (1 to 1024) in place of the flow's hash, the major number the host at both ends.
func (q *cake) SetClassifier(class qdisc.ClassID, c qdisc.Classifier) error {
	if class != 0 {
		return errNoClass
	}
	q.filter = c
	return nil
}

var (
	_ qdisc.Changer  = (*cake)(nil)
	_ qdisc.Dumper   = (*cake)(nil)
	_ qdisc.XStatser = (*cake)(nil)
	_ qdisc.Filtered = (*cake)(nil)
	_ qdisc.Walker   = (*cake)(nil)
)
