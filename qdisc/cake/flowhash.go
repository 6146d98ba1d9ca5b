// Packet path.

package cake

import (
	"encoding/binary"
	"math/bits"

	"sluice/qdisc"
)

// flowMode says what is kept apart: an OR of what a flow is made of. Flows
// together with hosts mean shares per host, too.
type flowMode uint8

const (
	bySrc  flowMode = 1 << iota // source host
	byDst                       // destination host
	byFlow                      // all of addresses, ports and protocol

	flowBlind flowMode = 0
)

func (m flowMode) countsSrc() bool { return m&(byFlow|bySrc) == byFlow|bySrc }
func (m flowMode) countsDst() bool { return m&(byFlow|byDst) == byFlow|byDst }

// override is what a filter said in place of the hashes; 0: nothing.
type override struct{ flow, host uint32 }

// overrideBy reads the class that a filter named.
func overrideBy(id qdisc.ClassID) override {
	var o override
	if n := id.Minor(); n <= queues {
		o.flow = n
	}
	if n := id.Major(); n <= queues {
		o.host = n
	}
	return o
}

// host is an entry of the tables of hosts.
type host struct {
	tag   uint32
	flows uint16 // that are active
	bulk  uint16 // of those, in state bulk
}

type hosts [queues]host

// reserve returns the entry for the host with this hash: its own, else one whose
// host has no active flow, else one whose host has nothing in bulk, else that of
// another host in the same place.
func (h *hosts) reserve(hash uint32) uint16 {
	set, own := hash%queues&^(ways-1), hash%ways
	for i := range uint32(ways) {
		if k := set + (own+i)%ways; h[k].tag == hash {
			return uint16(k)
		}
	}
	best := set + own
	for i := range uint32(ways) {
		k := set + (own+i)%ways
		if h[k].flows == 0 {
			best = k
			break
		}
		if h[k].bulk == 0 && h[best].bulk != 0 {
			best = k
		}
	}
	h[best].tag = hash
	return uint16(best)
}

// countFlow adds n to the active flows of f's hosts.
func (t *table) countFlow(m flowMode, f *flow, n int) {
	if m.countsSrc() {
		t.src[f.src].flows += uint16(n)
	}
	if m.countsDst() {
		t.dst[f.dst].flows += uint16(n)
	}
}

// countBulk adds n to what f's hosts have in state bulk.
func (t *table) countBulk(m flowMode, f *flow, n int) {
	if m.countsSrc() {
		t.src[f.src].bulk += uint16(n)
	}
	if m.countsDst() {
		t.dst[f.dst].bulk += uint16(n)
	}
}

// count adds n flows like f to what its hosts have.
func (t *table) count(m flowMode, f *flow, n int) {
	if f.state != idle {
		t.countFlow(m, f, n)
	}
	if f.state == bulk {
		t.countBulk(m, f, n)
	}
}

// flowOf returns the queue of p in t: 8-way set associative, so that flows whose
// hashes meet have seven other places to go to.
func (q *cake) flowOf(ctx *qdisc.Context, t *tin, p *qdisc.Packet, over override) int {
	m := q.flows
	if m == flowBlind {
		return 0
	}
	hash := over.flow - 1
	switch {
	case m&byFlow == 0:
		src, dst := q.hostHashes(ctx, p, over)
		hash = 0
		if over.flow != 0 {
			hash = over.flow - 1
		}
		if m&bySrc != 0 {
			hash ^= src
		}
		if m&byDst != 0 {
			hash ^= dst
		}
	case over.flow == 0:
		hash = ctx.FlowHash(p)
	}

	i := hash % queues
	if t.tags[i] == hash && t.flows[i].state != idle {
		return int(i)
	}
	set, own := i&^(ways-1), i%ways
	k, found := i, false
	for n := range uint32(ways) {
		if k = set + (own+n)%ways; t.tags[k] == hash {
			if n > 0 {
				t.hits++
			}
			if t.flows[k].state != idle {
				return int(k)
			}
			found = true
			break
		}
	}
	for n := uint32(0); n < ways && !found; n++ {
		if k = set + (own+n)%ways; t.flows[k].state == idle {
			t.misses++
			found = true
		}
	}
	f := &t.flows[k]
	if !found {
		// All eight are busy: two flows share a queue, and it counts for the
		// hosts of the newcomer.
		k = i
		f = &t.flows[k]
		t.collisions++
		t.count(m, f, -1)
	}
	t.tags[k] = hash
	if m.countsSrc() || m.countsDst() {
		src, dst := q.hostHashes(ctx, p, over)
		if m.countsSrc() {
			f.src = t.src.reserve(src)
		}
		if m.countsDst() {
			f.dst = t.dst.reserve(dst)
		}
		t.count(m, f, 1)
	}
	return int(k)
}

// hostHashes returns the hashes of p's addresses, 0 where there are none.
func (q *cake) hostHashes(ctx *qdisc.Context, p *qdisc.Packet, over override) (src, dst uint32) {
	if over.host != 0 {
		return over.host - 1, over.host - 1
	}
	b, l3 := p.Bytes(), int(p.L3)
	if l3 == 0 {
		return 0, 0
	}
	if q.seed == 0 {
		q.seed = ctx.Rand.Uint64() | 1
	}
	switch p.EtherType {
	case etherIPv4:
		a := b[l3+12 : l3+20]
		return q.hashHost(uint64(binary.BigEndian.Uint32(a)), 0),
			q.hashHost(uint64(binary.BigEndian.Uint32(a[4:])), 0)
	case etherIPv6:
		a := b[l3+8 : l3+40]
		return q.hashHost(binary.BigEndian.Uint64(a), binary.BigEndian.Uint64(a[8:])),
			q.hashHost(binary.BigEndian.Uint64(a[16:]), binary.BigEndian.Uint64(a[24:]))
	}
	return 0, 0
}

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
)

// hashHost hashes an address with the seed, which keeps outsiders from choosing
// hosts that collide.
func (q *cake) hashHost(hi, lo uint64) uint32 {
	const key0, key1 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db // odd, half the bits set
	h := fold(hi^q.seed, lo^key0)
	h = fold(h^key1, q.seed^key0)
	return uint32(h ^ h>>32)
}

// fold multiplies to 128 bits and puts the halves together.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
