// Packet path.

package cake

import (
	"time"

	"sluice/qdisc"
)

// tin is one class of traffic: its own flows, its own clock.
type tin struct {
	*table // nil until the first packet

	sparse, bulk, decaying int32 // flows of each state
	unresponsive           int32 // flows that BLUE works on
	backlog                int   // bytes
	deficit                int
	quantum                int // its weight against the other tins, without a shaper
	flowQuantum            uint32

	threshold uint64 // bytes a second
	rate      perByte
	clock     time.Duration
	law       law

	packets, bytes            uint64
	drops, marks, ackDrops    uint64
	hits, misses, collisions  uint64
	maxLen                    uint32
	avgDelay, peakDelay, base uint64 // nanoseconds
}

// table is what a tin needs per flow and host, 106 kB. It is made when the
// tin gets its first packet.
type table struct {
	tags     [queues]uint32
	links    [queues + 3]links
	flows    [queues]flow
	src, dst hosts
}

// links chain the flows of a list both ways, in a ring with the list's head.
type links struct{ next, prev uint16 }

// The lists that an active flow is on.
const (
	newFlows = queues + iota
	oldFlows
	decayingFlows
)

// state is where a flow stands between idle and busy.
type state uint8

const (
	idle       state = iota // on no list
	sparse                  // in its first round
	sparseWait              // empty, but it has to sit out a deficit
	bulk                    // has sent its quantum and wants more
	decaying                // empty, but its AQM is not at rest
)

type flow struct {
	queue    qdisc.List
	cobalt   cobalt
	deficit  int32
	src, dst uint16 // its hosts
	place    int16  // in fattest, plus one; 0: not there
	state    state
	drops    uint32
}

func newTable() *table {
	t := &table{}
	t.clearLists()
	return t
}

func (t *table) clearLists() {
	for _, head := range []uint16{newFlows, oldFlows, decayingFlows} {
		t.links[head] = links{head, head}
	}
}

// append puts flow i, which is on no list, at the end of one.
func (t *table) append(list uint16, i uint16) {
	last := t.links[list].prev
	t.links[i] = links{next: list, prev: last}
	t.links[last].next, t.links[list].prev = i, i
}

func (t *table) remove(i uint16) {
	l := t.links[i]
	t.links[l.prev].next, t.links[l.next].prev = l.next, l.prev
}

// first returns the first flow of a list; list itself when there is none.
func (t *table) first(list uint16) uint16 { return t.links[list].next }

// arrived counts p.
func (t *tin) arrived(p *qdisc.Packet) {
	t.backlog += int(p.PktLen)
	t.packets++
	t.bytes += uint64(p.PktLen)
	t.maxLen = max(t.maxLen, p.PktLen)
}

// delayed takes the delay of a departure into the averages.
func (t *tin) delayed(d time.Duration) {
	x := uint64(d)
	t.avgDelay = average(t.avgDelay, x, 8)
	rise, fall := uint(8), uint(8)
	if x > t.peakDelay {
		rise = 2
	}
	if x < t.base {
		fall = 2
	}
	t.peakDelay = average(t.peakDelay, x, rise)
	t.base = average(t.base, x, fall)
}

// activate is called when a packet was queued in flow i.
func (t *tin) activate(ctx *qdisc.Context, m flowMode, i int, f *flow) {
	switch f.state {
	case decaying:
		t.decaying--
		t.remove(uint16(i))
		fallthrough
	case idle:
		if f.state == idle {
			t.countFlow(m, f, 1)
		}
		t.append(newFlows, uint16(i))
		f.state = sparse
		t.sparse++
		f.deficit = t.refill(ctx, m, f)
	case sparseWait:
		t.sparse--
		t.becomeBulk(m, f)
	}
}

func (t *tin) becomeBulk(m flowMode, f *flow) {
	f.state = bulk
	t.bulk++
	t.countBulk(m, f, 1)
}

// load returns the number of bulk flows of the busier of f's hosts, at least 1.
func (t *tin) load(m flowMode, f *flow) uint32 {
	n := uint32(1)
	if m.countsSrc() {
		n = max(n, uint32(t.src[f.src].bulk))
	}
	if m.countsDst() {
		n = max(n, uint32(t.dst[f.dst].bulk))
	}
	return n
}

// refill returns the quantum of f, rounded to one of its whole neighbours at
// random so that it is exact on average: with many flows a host the rest of the
// division matters.
func (t *tin) refill(ctx *qdisc.Context, m flowMode, f *flow) int32 {
	n := t.load(m, f)
	if n == 1 {
		return int32(t.flowQuantum)
	}
	share, rest := t.flowQuantum/n, t.flowQuantum%n
	if rest > 0 && uint32(ctx.Rand.Uint64()>>48)*n>>16 < rest {
		share++
	}
	return int32(share)
}

// chooseFlow returns the flow to serve next. A flow whose deficit is spent gets
// its quantum and goes to the end of the round; after its first one it is bulk.
// Flows at rest get a look first, once for each departure, and when nothing else
// is there.
//
// Preconditions: some flow is active.
func (t *tin) chooseFlow(ctx *qdisc.Context, m flowMode, decay *bool) int {
	for {
		list := uint16(newFlows)
		switch {
		case *decay && t.first(decayingFlows) != decayingFlows:
			list = decayingFlows
		case t.first(newFlows) != newFlows:
		case t.first(oldFlows) != oldFlows:
			list = oldFlows
		default:
			list = decayingFlows
		}
		*decay = false
		i := t.first(list)
		f := &t.flows[i]
		if f.deficit > 0 {
			return int(i)
		}
		if f.state == sparse {
			if f.queue.Len() > 0 {
				t.sparse--
				t.becomeBulk(m, f)
			} else {
				f.state = sparseWait
			}
		}
		f.deficit += t.refill(ctx, m, f)
		t.remove(i)
		t.append(oldFlows, i)
	}
}

// rest takes flow i, found empty, out of the round; it stays in sight until its
// AQM is at rest.
func (t *tin) rest(m flowMode, i int, f *flow, now time.Duration) {
	if f.cobalt.queueEmpty(&t.law, now) {
		t.unresponsive--
	}
	t.remove(uint16(i))
	t.leave(m, f)
	if f.cobalt.atRest(now) {
		f.state = idle
		t.countFlow(m, f, -1)
		return
	}
	t.append(decayingFlows, uint16(i))
	f.state = decaying
	t.decaying++
}

// leave counts f out of its state.
func (t *tin) leave(m flowMode, f *flow) {
	switch f.state {
	case sparse, sparseWait:
		t.sparse--
	case bulk:
		t.bulk--
		t.countBulk(m, f, -1)
	case decaying:
		t.decaying--
	}
}

// reset gives every packet to gone and forgets the flows; parameters and counters
// stay.
func (t *tin) reset(gone func(*qdisc.Packet)) {
	t.sparse, t.bulk, t.decaying, t.unresponsive = 0, 0, 0, 0
	t.backlog, t.deficit, t.clock = 0, 0, 0
	if t.table == nil {
		return
	}
	for i := range t.flows {
		f := &t.flows[i]
		for p := f.queue.Pop(); p != nil; p = f.queue.Pop() {
			gone(p)
		}
	}
	clear(t.flows[:])
	clear(t.tags[:])
	clear(t.src[:])
	clear(t.dst[:])
	t.clearLists()
}
