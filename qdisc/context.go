// Packet path, except NewContext.

package qdisc

import (
	"math/rand/v2"
	"time"
)

// Never is the instant that does not come: NextAt of an empty discipline.
const Never = time.Duration(1<<63 - 1)

// Context is what a worker lends to everything it calls: the instant of this
// turn, the sink for dropped packets and a seeded random source. It belongs to
// one worker; nobody keeps it beyond the call.
type Context struct {
	Now  time.Duration // the turn's instant, since the worker's epoch; read once a turn
	Rand rand.PCG      // seeded by the owner; the only randomness a discipline may use
	Pool *Pool         // for Clone

	Drops [NumReasons]uint64 // packets dropped, by reason

	// Hasher computes the flow hash of a packet that came without one; nil: all
	// such packets are one flow. Set once, by the context's owner.
	Hasher func(p *Packet) uint32

	// OnDrop, when set, sees every dropped packet before it is freed. It may
	// look, not keep. For capture and tests.
	OnDrop func(p *Packet, r Reason)

	// OnClone, when set, sees every copy that a discipline makes.
	OnClone func(p, copied *Packet)
}

// NewContext returns a context at instant 0 whose randomness follows from seed.
func NewContext(pool *Pool, seed uint64) *Context {
	c := &Context{Pool: pool}
	c.Rand.Seed(seed, seed^0x9e3779b97f4a7c15)
	return c
}

// Drop counts p under r and frees it. It is the one way a packet is lost, from
// Enqueue and from Dequeue alike.
func (c *Context) Drop(p *Packet, r Reason) {
	c.Drops[r]++
	if c.OnDrop != nil {
		c.OnDrop(p, r)
	}
	p.Free()
}

// FlowHash returns p's flow hash (skb_get_hash). Whoever asks first has it
// computed; it then stays with the packet.
func (c *Context) FlowHash(p *Packet) uint32 {
	if p.Flags&HashSet == 0 {
		h := uint32(0)
		if c.Hasher != nil {
			h = c.Hasher(p)
		}
		p.Hash = h
		p.Flags |= HashSet
	}
	return p.Hash
}

// Clone copies p into the worker's pool; nil (counted under NoBuffer) when the
// pool has run out.
func (c *Context) Clone(p *Packet) *Packet {
	n := c.Pool.Clone(p)
	if n == nil {
		c.Drops[NoBuffer]++
	} else if c.OnClone != nil {
		c.OnClone(p, n)
	}
	return n
}

// Reason says why a packet was dropped. The first nine are the kernel's qdisc
// drop reasons.
type Reason uint8

const (
	Generic         Reason = iota // by decision of the discipline, nothing more precise
	Overlimit                     // the queue was full
	Congested                     // an AQM's decision
	MaxFlows                      // no room for another flow
	FloodProtection               // one flow floods
	BandLimit                     // the band was full
	HorizonLimit                  // its departure lies too far ahead
	FlowLimit                     // the flow's own queue was full
	L4SStep                       // above the step threshold and not ECN capable

	NoClass    // no class for it, and no default
	TooBig     // larger than the bucket or the device can ever pass
	Filter     // a filter said drop
	Shed       // frames ran out, the fattest queue had to give
	Purged     // its qdisc was reset or removed
	NoBuffer   // no free frame
	DeviceDown // the device went away
	DeviceTx   // the device took it and lost it
	Blackhole  // sent to the discipline that drops everything
	Lost       // lost on purpose, as on a bad network

	NumReasons // how many there are
)

var reasonNames = [NumReasons]string{
	"generic", "overlimit", "congested", "maxflows", "flood_protection", "band_limit",
	"horizon_limit", "flow_limit", "l4s_step", "no_class", "too_big", "filter", "shed",
	"purged", "no_buffer", "device_down", "device_tx", "blackhole", "lost",
}

func (r Reason) String() string { return reasonNames[r] }
