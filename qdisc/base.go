// Packet path.

package qdisc

import "time"

// Stats are the counters that every qdisc and class shows (gnet_stats_basic,
// gnet_stats_queue). Bytes and Packets count what was dequeued, by PktLen.
type Stats struct {
	Bytes      uint64 `json:"bytes"`
	Packets    uint64 `json:"packets"`
	Drops      uint64 `json:"drops"`      // dropped here or below
	Overlimits uint64 `json:"overlimits"` // times it was throttled
	Requeues   uint64 `json:"requeues"`   // packets the transmit path put back
}

// Base is the part that all disciplines have in common: struct Qdisc without
// its ops. A discipline embeds it, and so gets Len, Backlog, NextAt and the
// rest for free, and keeps its counters through it.
//
// A packet can be counted here while it stands outside the discipline's own
// queues: parked by Peek, or put back by the runner (gso_skb, skb_bad_txq).
// Held says how many those are.
type Base struct {
	qlen, backlog   int
	held, heldBytes int
	parked          *Packet // gso_skb as qdisc_peek_dequeued uses it
	nextAt          time.Duration
	Stats           // written by the packet path, copied out between turns
}

// Self returns the Base. It lets a parent and the runner keep a pointer to the
// counters, and reach them without a dynamic call.
func (b *Base) Self() *Base { return b }

// Len returns the packets queued here and below, held ones included (q.qlen).
func (b *Base) Len() int { return b.qlen }

// Backlog returns the bytes queued here and below, by PktLen.
func (b *Base) Backlog() int { return b.backlog }

// Held returns the packets and bytes within Len and Backlog that stand outside
// the discipline's own queues.
func (b *Base) Held() (packets, bytes int) { return b.held, b.heldBytes }

// NextAt returns the earliest instant at which Dequeue can yield: Never when
// empty, else what Dequeue or Peek stored when it gave nothing; it is asked only
// then. Instants may be early, never late.
func (b *Base) NextAt() time.Duration {
	if b.qlen == 0 {
		return Never
	}
	return b.nextAt
}

// SetNextAt stores what NextAt returns; a discipline calls it where the kernel
// arms the qdisc watchdog.
func (b *Base) SetNextAt(t time.Duration) { b.nextAt = t }

// Enqueued counts p in.
func (b *Base) Enqueued(p *Packet) {
	b.qlen++
	b.backlog += int(p.PktLen)
}

// Dequeued counts p out as sent (qdisc_bstats_update).
func (b *Base) Dequeued(p *Packet) {
	b.qlen--
	b.backlog -= int(p.PktLen)
	b.Bytes += uint64(p.PktLen)
	b.Packets++
}

// Passed counts p as sent without ever having been queued: the runner's bypass.
func (b *Base) Passed(p *Packet) {
	b.Bytes += uint64(p.PktLen)
	b.Packets++
}

// Refuse drops p, which was never counted in.
func (b *Base) Refuse(ctx *Context, p *Packet, r Reason) {
	b.Drops++
	ctx.Drop(p, r)
}

// Dispose ends p, which a filter kept from every class, and was never counted
// in: consumed without a word, or dropped.
func (b *Base) Dispose(ctx *Context, p *Packet, v FilterVerdict) Verdict {
	if v == FilterStolen {
		p.Free()
		return Stolen
	}
	b.Refuse(ctx, p, Filter)
	return Dropped
}

// Discard drops p, which was counted in.
func (b *Base) Discard(ctx *Context, p *Packet, r Reason) {
	b.qlen--
	b.backlog -= int(p.PktLen)
	b.Drops++
	ctx.Drop(p, r)
}

// Hold counts p in as standing outside: the runner's requeue and bad-txq slot.
func (b *Base) Hold(p *Packet) {
	b.qlen++
	b.backlog += int(p.PktLen)
	b.held++
	b.heldBytes += int(p.PktLen)
}

// Unhold reverses Hold. It does not count p as sent: that was done when p was
// first dequeued.
func (b *Base) Unhold(p *Packet) {
	b.qlen--
	b.backlog -= int(p.PktLen)
	b.held--
	b.heldBytes -= int(p.PktLen)
}

// Parked returns the packet that Peek parked, or nil.
func (b *Base) Parked() *Packet { return b.parked }

// Park keeps p, which the discipline's own dequeue just returned, for the next
// Dequeue (qdisc_peek_dequeued). p may be nil.
func (b *Base) Park(p *Packet) *Packet {
	if p != nil {
		b.parked = p
		b.Hold(p)
	}
	return p
}

// Unpark takes the parked packet, or nil (qdisc_dequeue_peeked).
func (b *Base) Unpark() *Packet {
	p := b.parked
	if p != nil {
		b.parked = nil
		b.Unhold(p)
	}
	return p
}

// ResetBase ends a discipline's Reset: the parked packet is dropped and qlen and
// backlog are zero. Counters stay (qdisc_reset). What the runner holds is the
// runner's to purge, before.
func (b *Base) ResetBase(ctx *Context) {
	if p := b.Unpark(); p != nil {
		ctx.Drop(p, Purged)
	}
	b.qlen, b.backlog, b.held, b.heldBytes = 0, 0, 0, 0
	b.nextAt = Never
}

// Child is a qdisc as its parent sees it. All calls from a parent go through
// it: it moves the parent's counters by the difference the child shows across
// the call, so no child ever has to find its ancestors
// (qdisc_tree_reduce_backlog has no counterpart here).
type Child struct {
	q Qdisc
	b *Base
}

// NewChild wraps q.
func NewChild(q Qdisc) Child { return Child{q, q.Self()} }

// Qdisc returns the child itself, for admin code.
func (c *Child) Qdisc() Qdisc { return c.q }

// Len returns the child's Len.
func (c *Child) Len() int { return c.b.qlen }

// Backlog returns the child's Backlog.
func (c *Child) Backlog() int { return c.b.backlog }

// NextAt returns the child's NextAt, Never when it is empty.
func (c *Child) NextAt() time.Duration {
	if c.b.qlen == 0 {
		return Never
	}
	return c.q.NextAt()
}

// counts is what a parent's counters follow.
type counts struct {
	qlen, backlog int
	drops         uint64
}

func (b *Base) counts() counts { return counts{b.qlen, b.backlog, b.Drops} }

// follow moves b's counters by what child's have changed since they were before.
func (b *Base) follow(child *Base, before counts) {
	b.qlen += child.qlen - before.qlen
	b.backlog += child.backlog - before.backlog
	b.Drops += child.Drops - before.drops
}

// Enqueue gives p to the child. What the child dropped, p or another packet,
// counts as dropped in the parent too.
func (c *Child) Enqueue(ctx *Context, parent *Base, p *Packet) Verdict {
	before := c.b.counts()
	v := c.q.Enqueue(ctx, p)
	parent.follow(c.b, before)
	return v
}

// Dequeue takes a packet from the child and counts it as sent by the parent.
func (c *Child) Dequeue(ctx *Context, parent *Base) *Packet {
	before := c.b.counts()
	p := c.q.Dequeue(ctx)
	parent.follow(c.b, before)
	if p != nil {
		parent.Bytes += uint64(p.PktLen)
		parent.Packets++
	}
	return p
}

// Peek shows the child's next packet. A child may drop while it looks.
func (c *Child) Peek(ctx *Context, parent *Base) *Packet {
	before := c.b.counts()
	p := c.q.Peek(ctx)
	parent.follow(c.b, before)
	return p
}

// Shed asks the child to give up at least one and at most n packets.
func (c *Child) Shed(ctx *Context, parent *Base, n int) int {
	before := c.b.counts()
	got := c.q.Shed(ctx, n)
	parent.follow(c.b, before)
	return got
}

// Reset empties the child, which does not count as drops (qdisc_reset), and
// takes what it held off the parent.
func (c *Child) Reset(ctx *Context, parent *Base) {
	b := c.b
	n, bytes := b.qlen, b.backlog
	c.q.Reset(ctx)
	parent.qlen += b.qlen - n
	parent.backlog += b.backlog - bytes
}

// Purge empties a child that is about to be removed; what it held counts as
// dropped by the parent (qdisc_purge_queue).
func (c *Child) Purge(ctx *Context, parent *Base) {
	parent.Drops += uint64(c.b.qlen)
	c.Reset(ctx, parent)
}
